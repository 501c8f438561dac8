"""Starts the Python processes of Spark, if `spark.python.daemon.module` names it.

Like Spark's own daemon it forks one process; but that process has already imported the
modules that most tasks need, since importing takes longer than their work. Nothing that
is imported here may start a thread: a fork would not have it.
"""

from __future__ import annotations

import pyspark.worker  # noqa: F401 - what they run
from pyspark.daemon import manager

import qos.spark.formats  # noqa: F401 - what they do

if __name__ == "__main__":
    manager()
