"""Starts the Python processes of Spark: `spark.python.daemon.module` may name it.

As Spark's own does, by forks of one process; but that one has imported what most of
them import, which takes each of them longer than what it then does. Nothing that is
imported here may start a thread: a fork would not have it.
"""

from __future__ import annotations

import pyspark.worker  # noqa: F401 - what they run
from pyspark.daemon import manager

import qos.spark.formats  # noqa: F401 - what they do

if __name__ == "__main__":
    manager()
