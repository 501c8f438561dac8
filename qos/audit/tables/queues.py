"""The table of queues by the hour of publishing of their items."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qos.audit.tables.buckets import bucket_counts, counts_by_bucket
from qos.audit.tables.routes import HOUR, percentile_columns, percentiles, sketch
from qos.journal.schema import QueueEvent

__all__ = ["queues_hourly"]

_Q = QueueEvent


def queues_hourly(items: DataFrame, when: Sequence[str] = HOUR) -> DataFrame:
    """One row for each hour and queue.

    Args:
        items: see qos.audit.tables.queue_items.
        when: the columns of another unit of time than an hour.

    Returns:
        Columns `date`, `hour`, `service`, `queue`; the numbers of `items` published
        then, of those that ended `accepted` or `dead`, that are `open` (not ended), and
        that were delivered `again`; `oldest_open_at`; and for the seconds until an item
        was first acquired `wait_p50`, `wait_p95`, `wait_p99`, `wait_counts` (see
        qos.audit.tables.buckets), and `wait_sketch` (see
        qos.audit.tables.routes.merged_percentiles).
    """
    keys = (*when, "service", "queue")
    is_open = F.col("outcome").isNull()
    rows = items.groupBy(*keys).agg(
        F.count("*").alias("items"),
        F.count_if(F.col("outcome") == _Q.ACCEPTED.value).alias("accepted"),
        F.count_if(F.col("outcome") == _Q.DEAD.value).alias("dead"),
        F.count_if(is_open).alias("open"),
        F.count_if(F.col("deliveries") > 1).alias("again"),
        F.min(F.when(is_open, F.col("published_at"))).alias("oldest_open_at"),
        percentiles("wait_s").alias("wait_parts"),
        bucket_counts("wait_s").alias("wait"),
        sketch("wait_s").alias("wait_sketch"),
    )
    return rows.select(
        *keys,
        *("items", "accepted", "dead", "open", "again", "oldest_open_at"),
        *percentile_columns("wait"),
        counts_by_bucket("wait"),
        "wait_sketch",
    )
