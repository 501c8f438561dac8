"""The life of each item of a queue, from the lines of its service."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qos.audit.tables.columns import (
    bare,
    by_hour,
    distinct_lines,
    event_is,
    lasting_s,
    role_is,
)
from qos.journal.schema import QueueEvent, Role

__all__ = ["ENDS", "queue_items"]

_Q = QueueEvent

#: After these events an item is no longer in the queue.
ENDS = (_Q.ACCEPTED, _Q.DEAD, _Q.WITHDRAWN, _Q.PURGED, _Q.EXPIRED)

_GIVEN_BACK = (_Q.RELEASED, _Q.MODIFIED, _Q.REJECTED, _Q.TIMED_OUT, _Q.GONE)

#: The most holders of an item that are listed; one that keeps failing has many.
_HOLDERS_MAX = 20

_ITEM = ("node", "queue", "item")


def queue_items(events: DataFrame) -> DataFrame:
    """One row for each life of an item.

    If an id is published again after the item has ended, it is another item: it has the
    next `life`, counted from 1. A dead item that is requeued continues its life.

    Returns:
        Columns `date`, `hour` (of `published_at`, or else of its first line),
        `service`, `queue`, `item`, `life`, `publisher` (account), `bytes`,
        `published_at`, `first_acquired_at`, `ended_at`, `outcome` (null: it has not
        ended), `condition`, `handled_by` (the worker that accepted it), `holders` (all
        that had it, at most 20), `deliveries` (how often it was delivered), `released`,
        `modified`, `rejected`, `timed_out`, `gone`, `requeued` (how often); `wait_s`
        (from published to first acquired) and `total_s` (to its end).
    """
    is_item = role_is(Role.QUEUE) & F.col("item").isNotNull()
    lines = distinct_lines(events.where(is_item), *_ITEM)
    order = Window.partitionBy(*_ITEM).orderBy("at", "boot", "seq")
    before = F.lag("event").over(order)
    after_end = before.isin(*(event.value for event in ENDS))
    begins = F.coalesce(event_is(_Q.PUBLISHED) & after_end, F.lit(False))
    lines = lines.withColumn("begins", begins.cast("int"))
    lines = lines.withColumn("life", F.sum("begins").over(order) + 1)
    rows = lines.groupBy(*_ITEM, "life").agg(
        *_times(),
        *(_count(event).alias(event.value.replace("-", "_")) for event in _GIVEN_BACK),
        _count(_Q.REQUEUED).alias("requeued"),
        _count(_Q.ACQUIRED).alias("deliveries"),
    )
    is_ended = F.col("last.event").isin(*(event.value for event in ENDS))
    accepted = F.col("last.event") == _Q.ACCEPTED.value
    rows = rows.withColumns(
        {
            "service": F.col("node"),
            "begun_at": F.coalesce("published_at", "first_at"),
            "outcome": F.when(is_ended, F.col("last.event")),
            "ended_at": F.when(is_ended, F.col("last.at")),
            "condition": F.col("last.condition"),
            "handled_by": F.when(accepted, F.col("last.source")),
            "holders": F.slice(F.array_sort("all_holders"), 1, _HOLDERS_MAX),
        }
    )
    rows = rows.withColumns(
        {
            "wait_s": lasting_s("published_at", "first_acquired_at"),
            "total_s": lasting_s("published_at", "ended_at"),
        }
    )
    return by_hour(rows, "begun_at").select(*_COLUMNS)


_COLUMNS = (
    *("date", "hour", "service", "queue", "item", "life", "publisher", "bytes"),
    *("published_at", "first_acquired_at", "ended_at", "outcome", "condition"),
    *("handled_by", "holders", "deliveries"),
    *("released", "modified", "rejected", "timed_out", "gone", "requeued"),
    *("wait_s", "total_s"),
)


def _times() -> list[Column]:
    published = event_is(_Q.PUBLISHED)
    acquired = event_is(_Q.ACQUIRED)
    return [
        F.min("at").alias("first_at"),
        F.min(F.when(published, F.col("at"))).alias("published_at"),
        F.min(F.when(acquired, F.col("at"))).alias("first_acquired_at"),
        F.max(F.when(published, bare(F.col("source")))).alias("publisher"),
        F.max(F.when(published, F.col("bytes"))).alias("bytes"),
        F.collect_set(F.when(acquired, F.col("to"))).alias("all_holders"),
        F.max_by(
            F.struct("event", "at", "source", "condition"),
            F.struct("at", "boot", "seq"),
        ).alias("last"),
    ]


def _count(event: QueueEvent) -> Column:
    return F.count_if(event_is(event))
