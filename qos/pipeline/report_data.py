"""What the report shows: some numbers of each table, few whatever there is of data.

Knows the tables, and not how the report looks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qos.pipeline.tables import Limits
from qos.pipeline.tables.once import seconds_between
from qos.pipeline.tables.routes import percentiles

__all__ = ["OTHERS", "ReportData", "bucket_of", "collect"]

#: Rows of a list, points of a line, and lines of a figure.
ANOMALIES_MAX = 200
ROWS_MAX = 15
PROBLEMS_MAX = 50
POINTS_MAX = 336

#: What a point of a line may stand for, in seconds. Not less: one message in each is
#: nothing that one could draw a line through.
_BUCKETS_S = (1, 5, 15, 60, 300, 900, 3600)
_HOUR_S = 3600

#: With fewer points than this, a shorter time for each is taken.
_POINTS_LEAST = 24
LINES_MAX = 6

#: A route with fewer messages than this is not called slow, if there are others.
_MESSAGES_LEAST = 20

#: All routes, or queues, that have no line of their own.
OTHERS = "all others"

#: As `Row.asDict()` has it.
Rows = list[dict[str, Any]]


@dataclass(slots=True)
class ReportData:
    """What the report shows; each list is short.

    Attributes:
        outcomes: messages by how they ended.
        anomaly_counts: by kind.
        problem_counts: by kind.
        bucket_s: the time that a point of a line stands for.
        latency: `moment`, `line` (a route), `messages`, `p50` and `p95` in seconds.
        outcomes_by_time: `moment`, `outcome`, `messages`.
        slow: routes with `p50`, `p95`, `p99`, the slowest first.
        retried: routes by the part of their messages that had to be repeated.
        refusals: `source`, `receiver`, `reason`, `refusals`.
        anomalies: some of each kind.
        waits: `moment`, `line` (a queue), `items`, `p50`, `p95`.
        queues: each with its items and waits.
        workers: each with its handlers.
        problems: of the journals.
    """

    outcomes: dict[str, int] = field(default_factory=dict)
    anomaly_counts: dict[str, int] = field(default_factory=dict)
    problem_counts: dict[str, int] = field(default_factory=dict)
    bucket_s: int = _HOUR_S
    latency: Rows = field(default_factory=list)
    outcomes_by_time: Rows = field(default_factory=list)
    slow: Rows = field(default_factory=list)
    retried: Rows = field(default_factory=list)
    refusals: Rows = field(default_factory=list)
    anomalies: Rows = field(default_factory=list)
    waits: Rows = field(default_factory=list)
    queues: Rows = field(default_factory=list)
    workers: Rows = field(default_factory=list)
    problems: Rows = field(default_factory=list)


def collect(
    tables: Mapping[str, DataFrame], problems: DataFrame, limits: Limits
) -> ReportData:
    """Take from the tables what the report shows.

    Args:
        tables: by name; see qos.pipeline.driver.TABLES.
        problems: of the journals.
        limits: those of the audit.
    """
    data = ReportData()
    messages, items = tables["deliveries"], tables["queue_items"]
    bucket_s = data.bucket_s = bucket_of(messages, items)
    _collect_messages(data, messages, bucket_s)
    _collect_anomalies(data, tables["anomalies"])
    _collect_queues(data, items, limits, bucket_s)
    data.refusals = _rows(
        tables["refusals"]
        .groupBy("source", "receiver", "reason")
        .agg(F.sum("refusals").alias("refusals"))
        .orderBy(F.desc("refusals"), "source", "receiver", "reason")
        .limit(ROWS_MAX)
    )
    workers = tables["workers_hourly"].groupBy("worker", "queue")
    data.workers = _rows(
        workers.agg(
            *(F.sum(name).alias(name) for name in _WORKER_SUMS),
            F.max("handling_p95").alias("handling_p95"),
        )
        .orderBy(F.desc("busy_s"), "worker", "queue")
        .limit(ROWS_MAX)
    )
    counts = problems.groupBy("kind").agg(F.sum("count").alias("count"))
    data.problem_counts = {row["kind"]: row["count"] for row in _rows(counts)}
    data.problems = _rows(
        problems.orderBy("kind", F.desc("count"), "place").limit(PROBLEMS_MAX)
    )
    return data


_WORKER_SUMS = (
    *("started", "accepted", "released", "modified", "rejected", "lost", "open"),
    "busy_s",
)


def _collect_messages(data: ReportData, messages: DataFrame, bucket_s: int) -> None:
    sent = messages.where(F.col("sender_last_at").isNotNull())
    ended = F.coalesce("outcome", F.lit("open"))
    by_time = sent.groupBy(
        _moment("begun_at", bucket_s).alias("moment"), ended.alias("outcome")
    )
    data.outcomes_by_time = _rows(
        by_time.agg(F.count("*").alias("messages")).orderBy("moment", "outcome")
    )
    for row in data.outcomes_by_time:
        before = data.outcomes.get(row["outcome"], 0)
        data.outcomes[row["outcome"]] = before + row["messages"]

    routes = sent.groupBy("sender", "receiver", "level").agg(
        F.count("*").alias("messages"),
        F.count_if(F.col("retries") > 0).alias("retried"),
        *_percentiles("latency_s"),
    )
    routes = routes.withColumn("rate", F.col("retried") / F.col("messages"))
    # Few, and looked at twice.
    routes = routes.localCheckpoint()
    few = F.col("messages") < _MESSAGES_LEAST
    data.slow = _rows(
        routes.where(F.col("p95").isNotNull())
        .orderBy(few, F.desc("p95"), "sender", "receiver", "level")
        .limit(ROWS_MAX)
    )
    data.retried = _rows(
        routes.where(F.col("retried") > 0)
        .orderBy(few, F.desc("rate"), "sender", "receiver", "level")
        .limit(ROWS_MAX)
    )
    chosen = [(row["sender"], row["receiver"], row["level"]) for row in data.slow]
    route = F.array("sender", "receiver", "level")
    line: Column = F.lit(OTHERS)
    for sender, receiver, level in reversed(chosen[:LINES_MAX]):
        is_it = route == F.array(F.lit(sender), F.lit(receiver), F.lit(level))
        line = F.when(is_it, f"{sender} to {receiver}, {level}").otherwise(line)
    data.latency = _rows(
        sent.where(F.col("latency_s").isNotNull())
        .groupBy(line.alias("line"), _moment("begun_at", bucket_s).alias("moment"))
        .agg(F.count("*").alias("messages"), *_percentiles("latency_s"))
        .orderBy("line", "moment")
    )


def _collect_anomalies(data: ReportData, anomalies: DataFrame) -> None:
    counts = anomalies.groupBy("kind").count()
    data.anomaly_counts = {row["kind"]: row["count"] for row in _rows(counts)}
    # Some of each kind: a thousand that are stuck must not hide one that is lost.
    kinds = len(data.anomaly_counts)
    for kind in sorted(data.anomaly_counts):
        some = anomalies.where(F.col("kind") == kind)
        data.anomalies += _rows(
            some.orderBy("begun_at", "sender", "msg_id").limit(ANOMALIES_MAX // kinds)
        )


def _collect_queues(
    data: ReportData, items: DataFrame, limits: Limits, bucket_s: int
) -> None:
    is_open = F.col("outcome").isNull()
    age_s = seconds_between("published_at", F.lit(limits.now).cast("timestamp"))
    data.queues = _rows(
        items.groupBy("service", "queue")
        .agg(
            F.count("*").alias("items"),
            F.count_if(F.col("outcome") == "accepted").alias("accepted"),
            F.count_if(F.col("outcome") == "dead").alias("dead"),
            F.count_if(is_open).alias("open"),
            F.count_if(F.col("deliveries") > 1).alias("again"),
            F.max(F.when(is_open, age_s)).alias("oldest_s"),
            *_percentiles("wait_s"),
        )
        .orderBy(F.desc("items"), "service", "queue")
        .limit(ROWS_MAX)
    )
    line: Column = F.lit(OTHERS)
    for row in reversed(data.queues[:LINES_MAX]):
        service, queue = row["service"], row["queue"]
        is_it = (F.col("service") == service) & (F.col("queue") == queue)
        line = F.when(is_it, f"{queue} at {service}").otherwise(line)
    data.waits = _rows(
        items.where(F.col("wait_s").isNotNull())
        .groupBy(line.alias("line"), _moment("published_at", bucket_s).alias("moment"))
        .agg(F.count("*").alias("items"), *_percentiles("wait_s"))
        .orderBy("line", "moment")
    )


def bucket_of(messages: DataFrame, items: DataFrame) -> int:
    """So that a line has some points, and not more than POINTS_MAX."""
    moments = messages.select(F.col("begun_at").alias("at")).unionByName(
        items.select(F.coalesce("published_at", "first_acquired_at").alias("at"))
    )
    seconds = F.unix_seconds(F.max("at")) - F.unix_seconds(F.min("at"))
    found = moments.agg(seconds.alias("seconds")).first()
    length_s: int = (found["seconds"] if found else None) or 0
    if length_s > _HOUR_S * POINTS_MAX:
        return math.ceil(length_s / _HOUR_S / POINTS_MAX) * _HOUR_S
    good = [each for each in _BUCKETS_S if length_s >= each * _POINTS_LEAST]
    return good[-1] if good else _BUCKETS_S[0]


def _moment(column: str, bucket_s: int) -> Column:
    """The beginning of the bucket, in seconds."""
    return F.floor(F.unix_seconds(column) / bucket_s) * bucket_s


def _percentiles(column: str) -> list[Column]:
    found = percentiles(column)
    return [found[i].alias(name) for i, name in enumerate(("p50", "p95", "p99"))]


def _rows(frame: DataFrame) -> Rows:
    rows = [row.asDict() for row in frame.collect()]
    for row in rows:
        if "moment" in row:
            row["moment"] = datetime.fromtimestamp(row["moment"], UTC)
    return rows
