"""The tables: pure functions from frames to frames, for batch and streaming alike.

None of them has a session, reads a clock or knows a file. Times are in the time zone of
the session, which must be UTC.
"""

from qos.audit.tables.anomalies import (
    Limits,
    anomalies,
    judged,
    judged_ok,
    revised,
    with_suspicion,
)
from qos.audit.tables.columns import distinct_lines
from qos.audit.tables.deliveries import (
    deliveries,
    deliveries_of,
    numbered,
    paired,
    repeated,
)
from qos.audit.tables.items import queue_items
from qos.audit.tables.queues import queues_hourly
from qos.audit.tables.refusals import refusals
from qos.audit.tables.routes import routes_hourly, unproven_hourly
from qos.audit.tables.windows import (
    WRITTEN_WITHIN,
    contradicting_counts,
    counted,
    windows_hourly,
    windows_of,
)
from qos.audit.tables.workers import workers_hourly

__all__ = [
    "WRITTEN_WITHIN",
    "Limits",
    "anomalies",
    "contradicting_counts",
    "counted",
    "deliveries",
    "deliveries_of",
    "distinct_lines",
    "judged",
    "judged_ok",
    "numbered",
    "paired",
    "queue_items",
    "queues_hourly",
    "refusals",
    "repeated",
    "revised",
    "routes_hourly",
    "unproven_hourly",
    "windows_hourly",
    "windows_of",
    "with_suspicion",
    "workers_hourly",
]
