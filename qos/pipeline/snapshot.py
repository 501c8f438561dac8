"""See `qos.audit.snapshot`."""

import warnings

from qos.audit.snapshot import NoAudit, snapshot, spark_frame

__all__ = ["NoAudit", "snapshot", "spark_frame"]

warnings.warn(
    "qos.pipeline.snapshot is qos.audit.snapshot now", DeprecationWarning, stacklevel=2
)
