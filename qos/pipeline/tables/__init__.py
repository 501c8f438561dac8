"""The tables: pure functions from frames to frames, for batch and streaming alike.

None has a session, reads a clock or knows a file. Times are in the time zone of the
session, which has to be UTC.
"""

from qos.pipeline.tables.anomalies import Limits, anomalies, judged, revised
from qos.pipeline.tables.deliveries import deliveries, deliveries_of
from qos.pipeline.tables.items import queue_items
from qos.pipeline.tables.once import once
from qos.pipeline.tables.queues import queues_hourly
from qos.pipeline.tables.readings import readings, unreadable
from qos.pipeline.tables.refusals import refusals
from qos.pipeline.tables.routes import routes_hourly, unproven_hourly
from qos.pipeline.tables.windows import WRITTEN_WITHIN, windows_hourly
from qos.pipeline.tables.workers import workers_hourly

__all__ = [
    "WRITTEN_WITHIN",
    "Limits",
    "anomalies",
    "deliveries",
    "deliveries_of",
    "judged",
    "once",
    "queue_items",
    "queues_hourly",
    "readings",
    "refusals",
    "revised",
    "routes_hourly",
    "unproven_hourly",
    "unreadable",
    "windows_hourly",
    "workers_hourly",
]
