"""The table of routes by the hour.

Sender, receiver, level, and the share that is proven.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qos.audit.tables.anomalies import UNPROVEN
from qos.audit.tables.buckets import bucket_counts, counts_by_bucket
from qos.journal.schema import SenderEvent

__all__ = [
    "HOUR",
    "PERCENTILES",
    "merged_percentiles",
    "percentile_columns",
    "percentiles",
    "routes_hourly",
    "sketch",
    "unproven_hourly",
]

#: The columns of the unit of time in most tables.
HOUR = ("date", "hour")

#: Their columns are named p50, p95 and p99.
PERCENTILES = (0.5, 0.95, 0.99)

#: Exact up to this number of values in a group; beyond, the error is 1 in this number.
_ACCURACY = 10_000

#: A sketch has all values up to this number. Beyond it, its percentiles are within 0.7
#: % of the rank of the true value (KLL of Apache DataSketches).
_SKETCH_SIZE = 400

_S = SenderEvent


def routes_hourly(deliveries: DataFrame, when: Sequence[str] = HOUR) -> DataFrame:
    """One row for each hour and route.

    Args:
        deliveries: with their verdicts; see qos.audit.tables.judged.
        when: the columns of another unit of time than an hour.

    Returns:
        Columns `date`, `hour`, `sender`, `receiver`, `level`; the number of `messages`
        that the sender has recorded, and those with each outcome: `delivered`,
        `not_delivered`, `in_doubt`, `withdrawn`, `open` (not ended); `one_sided`: those
        that only the receiver has recorded; `judged` and `unproven`: those of both
        kinds, by whether the lines prove their verdict; `retried` (messages) and
        `retries` (iqs), `retry_rate` (of messages, or null); `hand_overs`,
        `redeliveries`; `bytes`; and for the latency in seconds `latency_p50`,
        `latency_p95`, `latency_p99`; `latency_counts` (see qos.audit.tables.buckets);
        and `latency_sketch`, from which the percentiles of several rows are made (see
        merged_percentiles).
    """
    keys = (*when, "sender", "receiver", "level")
    is_sent = F.col("sender_last_at").isNotNull()
    rows = deliveries.groupBy(*keys).agg(
        F.count_if(is_sent).alias("messages"),
        *(_ended(outcome) for outcome in _OUTCOMES),
        F.count_if(is_sent & F.col("outcome").isNull()).alias("open"),
        F.count_if(~is_sent).alias("one_sided"),
        F.count_if(F.col("verdict") != UNPROVEN).alias("judged"),
        F.count_if(F.col("verdict") == UNPROVEN).alias("unproven"),
        F.count_if(F.col("retries") > 0).alias("retried"),
        F.coalesce(F.sum("retries"), F.lit(0)).alias("retries"),
        F.sum("hand_overs").alias("hand_overs"),
        F.sum("redeliveries").alias("redeliveries"),
        F.coalesce(F.try_sum("bytes"), F.lit(0)).alias("bytes"),
        percentiles("latency_s").alias("latency_parts"),
        bucket_counts("latency_s").alias("latency"),
        sketch("latency_s").alias("latency_sketch"),
    )
    rate = F.try_divide("retried", "messages").alias("retry_rate")
    return rows.select(
        *keys,
        *("messages", "delivered", "not_delivered", "in_doubt", "withdrawn", "open"),
        *("one_sided", "judged", "unproven", "retried", "retries", rate),
        *("hand_overs", "redeliveries", "bytes"),
        *percentile_columns("latency"),
        counts_by_bucket("latency"),
        "latency_sketch",
    )


def unproven_hourly(deliveries: DataFrame) -> DataFrame:
    """The number of unproven messages of each hour and route, and the reasons.

    Args:
        deliveries: see routes_hourly.

    Returns:
        Columns `date`, `hour`, `sender`, `receiver`, `suspected` (the anomaly that the
        messages look like), `reason` (why it is not proven), `node` (the node with the
        missing run) and `messages`.
    """
    rows = deliveries.where(F.col("verdict") == UNPROVEN)
    node = F.col("uncovered").alias("node")
    keys = ("date", "hour", "sender", "receiver", "suspected", "reason")
    return rows.groupBy(*keys, node).agg(F.count("*").alias("messages"))


_OUTCOMES = (_S.DELIVERED, _S.NOT_DELIVERED, _S.IN_DOUBT, _S.WITHDRAWN)


def _ended(outcome: SenderEvent) -> Column:
    name = outcome.value.replace("-", "_")
    return F.count_if(F.col("outcome") == outcome.value).alias(name)


def percentiles(column: str) -> Column:
    """The PERCENTILES of a column, as an array."""
    parts = F.array(*(F.lit(part) for part in PERCENTILES))
    return F.percentile_approx(column, parts, _ACCURACY)


def percentile_columns(name: str) -> list[Column]:
    """The columns `latency_p50` and so on, from the array `latency_parts`."""
    return [
        F.col(f"{name}_parts")[index].alias(f"{name}_p{round(part * 100)}")
        for index, part in enumerate(PERCENTILES)
    ]


def sketch(column: str) -> Column:
    """The values of a column, in few bytes: a KLL sketch of Apache DataSketches."""
    return F.kll_sketch_agg_double(column, _SKETCH_SIZE)


def merged_percentiles(column: str) -> list[Column]:
    """The PERCENTILES of several sketches together, each as a column.

    Null: no value.
    """
    whole = F.kll_merge_agg_double(column, _SKETCH_SIZE)
    has_values = F.kll_sketch_get_n_double(whole) > 0
    return [
        F.when(has_values, F.kll_sketch_get_quantile_double(whole, F.lit(part)))
        for part in PERCENTILES
    ]
