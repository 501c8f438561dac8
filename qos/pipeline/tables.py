"""See `qos.audit.tables` and `qos.spark.readings`."""

import warnings

from qos.audit.tables import *  # noqa: F403 - all of them
from qos.spark.readings import readings, unreadable

__all__ = ["readings", "unreadable"]  # and all of qos.audit.tables

warnings.warn(
    "qos.pipeline.tables is qos.audit.tables and qos.spark.readings now",
    DeprecationWarning,
    stacklevel=2,
)
