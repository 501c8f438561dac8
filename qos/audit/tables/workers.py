"""The table of workers by the hour."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from qos.audit.tables.columns import (
    by_hour,
    distinct_lines,
    event_is,
    lasting_s,
    role_is,
)
from qos.audit.tables.routes import percentile_columns, percentiles
from qos.journal.schema import Role, WorkerEvent

__all__ = ["workers_hourly"]

_W = WorkerEvent
_ENDS = (_W.ACCEPTED, _W.RELEASED, _W.MODIFIED, _W.REJECTED, _W.LOST)

_ITEM = ("node", "boot", "queue", "item")


def workers_hourly(events: DataFrame) -> DataFrame:
    """One row for each hour, worker and queue.

    Returns:
        Columns `date`, `hour` (in which its handler began), `worker`, `queue`,
        `started`, then the number of those that ended as `accepted`, `released`,
        `modified`, `rejected`, `lost`, or not at all (`open`: running, or the worker
        died); `busy_s` (of all handlers) and for the time of a handler in seconds
        `handling_p50`, `handling_p95` and `handling_p99`.
    """
    lines = distinct_lines(
        events.where(role_is(Role.WORKER) & F.col("item").isNotNull()), *_ITEM
    )
    # A worker that dies loses its items, so a start and its end are of one boot.
    order = Window.partitionBy(*_ITEM).orderBy("seq")
    begins = event_is(_W.STARTED).cast("int")
    lines = lines.withColumn("begins", begins)
    lines = lines.withColumn("turn", F.sum("begins").over(order))
    ends = event_is(*_ENDS)
    turns = lines.groupBy(*_ITEM, "turn").agg(
        F.min(F.when(event_is(_W.STARTED), F.col("at"))).alias("started_at"),
        F.min("at").alias("first_at"),
        F.max(F.when(ends, F.col("at"))).alias("ended_at"),
        F.max_by(F.when(ends, F.col("event")), F.when(ends, F.col("seq"))).alias("end"),
    )
    turns = turns.withColumns(
        {
            "begun_at": F.coalesce("started_at", "first_at"),
            "worker": F.col("node"),
            "handling_s": F.when(
                F.col("started_at").isNotNull() & F.col("ended_at").isNotNull(),
                lasting_s("started_at", "ended_at"),
            ),
        }
    )
    keys = ("date", "hour", "worker", "queue")
    rows = by_hour(turns, "begun_at").groupBy(*keys)
    micros = F.round(F.col("handling_s") * 1e6).cast("long")
    hours = rows.agg(
        F.count("started_at").alias("started"),
        *(F.count_if(F.col("end") == end.value).alias(end.value) for end in _ENDS),
        F.count_if(F.col("end").isNull()).alias("open"),
        # A sum of whole numbers is the same in any order.
        (F.coalesce(F.sum(micros), F.lit(0)) / 1e6).alias("busy_s"),
        percentiles("handling_s").alias("handling_parts"),
    )
    return hours.select(
        *(*keys, "started", *(end.value for end in _ENDS), "open", "busy_s"),
        *percentile_columns("handling"),
    )
