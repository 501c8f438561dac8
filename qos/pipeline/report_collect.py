"""Takes from the tables what the report shows.

Knows the tables, and not how the report looks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qos.pipeline.read import Problem
from qos.pipeline.report_data import (
    OTHERS,
    ROWS_MAX,
    DayTotals,
    Proof,
    ReportData,
    Rows,
)
from qos.pipeline.tables import Limits
from qos.pipeline.tables.once import seconds_between
from qos.pipeline.tables.routes import percentiles

__all__ = ["bucket_of", "collect", "standing"]

#: Anomalies and problems that are told one by one, and points of a chart: an image of
#: 340 pixels shows no more.
ANOMALIES_MAX = 100
PROBLEMS_MAX = 50
POINTS_MAX = 96

#: Of the queues that are told one by one; all are in their totals.
QUEUES_MAX = 200

#: What a point of a line may stand for, in seconds. Not less: one message in each is
#: nothing that one could draw a line through.
_BUCKETS_S = (1, 5, 15, 60, 300, 900, 3600)
_HOUR_S = 3600

#: With fewer points than this, a shorter time for each is taken.
_POINTS_LEAST = 24

#: Routes, or queues, with a chart of their own.
CHARTS_MAX = 5

#: A route with fewer messages than this is not called slow, if there are others.
_MESSAGES_LEAST = 20


def collect(
    tables: Mapping[str, DataFrame],
    problems: DataFrame,
    limits: Limits,
    *,
    last: date | None = None,
    history: Mapping[str, DataFrame] | None = None,
) -> ReportData:
    """Take from the tables what the report shows.

    Args:
        tables: by name; see qos.pipeline.driver.TABLES.
        problems: of the journals.
        limits: those of the audit.
        last: the last day of the audit; None: there is no line.
        history: `deliveries` and `anomalies`, also of the day before that.
    """
    data = ReportData()
    messages, items = tables["deliveries"], tables["queue_items"]
    bucket_s = data.bucket_s = bucket_of(messages, items)
    _collect_messages(data, messages, bucket_s)
    _collect_days(data, messages, last, history or {})
    data.proof = _proof(tables)
    _collect_anomalies(data, standing(tables["anomalies"]))
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
    data.files_open = data.problem_counts.get(Problem.OPEN_FILE.value, 0)
    # A fleet that is running has one such file for each node.
    usual = F.col("kind") == Problem.OPEN_FILE.value
    data.problems = _rows(
        problems.orderBy(usual, "kind", F.desc("count"), "place").limit(PROBLEMS_MAX)
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
    for sender, receiver, level in reversed(chosen[:CHARTS_MAX]):
        is_it = route == F.array(F.lit(sender), F.lit(receiver), F.lit(level))
        line = F.when(is_it, f"{sender} to {receiver}, {level}").otherwise(line)
    data.latency = _rows(
        sent.where(F.col("latency_s").isNotNull())
        .groupBy(line.alias("line"), _moment("begun_at", bucket_s).alias("moment"))
        .agg(F.count("*").alias("messages"), *_percentiles("latency_s"))
        .orderBy("line", "moment")
    )


def _collect_days(
    data: ReportData,
    messages: DataFrame,
    last: date | None,
    history: Mapping[str, DataFrame],
) -> None:
    """Messages and latency by level, and of two days: all with one job."""
    parts = [_totals(messages, "level", "level")]
    if last is not None and history:
        days = F.col("date").isin(last - timedelta(days=1), last)
        parts.append(_totals(history["deliveries"].where(days), "day", "date"))
        found = standing(history["anomalies"]).where(days).groupBy("date")
        parts.append(
            found.agg(F.count("*").alias("number")).select(
                F.lit("anomalies").alias("part"),
                F.col("date").cast("string").alias("key"),
                "number",
                F.lit(None).cast("double").alias("p95"),
            )
        )
    rows = _rows(reduce(DataFrame.unionByName, parts).orderBy("part", "key"))
    data.levels = [
        {"level": row["key"], "messages": row["number"], "p95": row["p95"]}
        for row in rows
        if row["part"] == "level"
    ]
    anomalies = {
        row["key"]: row["number"] for row in rows if row["part"] == "anomalies"
    }
    totals = [
        DayTotals(
            date.fromisoformat(row["key"]),
            row["number"],
            row["p95"],
            anomalies.get(row["key"], 0),
        )
        for row in rows
        if row["part"] == "day"
    ]
    if len(totals) == 2:
        data.trend = (totals[0], totals[1])


def _totals(messages: DataFrame, part: str, key: str) -> DataFrame:
    sent = messages.where(F.col("sender_last_at").isNotNull()).groupBy(key)
    return sent.agg(
        F.count("*").alias("number"), percentiles("latency_s")[1].alias("p95")
    ).select(
        F.lit(part).alias("part"),
        F.col(key).cast("string").alias("key"),
        "number",
        "p95",
    )


def _proof(tables: Mapping[str, DataFrame]) -> Proof:
    """Sums of `routes_hourly` and `unproven_hourly`."""
    routes, unproven = tables["routes_hourly"], tables["unproven_hourly"]
    sums = routes.agg(
        *(F.coalesce(F.sum(name), F.lit(0)) for name in ("judged", "unproven"))
    )
    row = sums.first()
    assert row is not None
    keys = ("sender", "receiver", "suspected", "reason", "node")
    counted = unproven.groupingSets([keys, ["reason"]], *keys).agg(
        F.sum("messages").alias("messages"), F.grouping("sender").alias("whole")
    )
    rows = _rows(
        counted.orderBy(F.desc("whole"), F.desc("messages"), *keys).limit(
            ROWS_MAX + _REASONS_MAX
        )
    )
    return Proof(
        row[0],
        row[1],
        {row["reason"]: row["messages"] for row in rows if row["whole"]},
        [row for row in rows if not row["whole"]][:ROWS_MAX],
    )


#: More than there are.
_REASONS_MAX = 30


def standing(anomalies: DataFrame) -> DataFrame:
    """The rows that no later audit has withdrawn."""
    if "withdrawn_at" not in anomalies.columns:
        return anomalies
    return anomalies.where(F.col("withdrawn_at").isNull())


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
    keys = ("service", "queue")
    rows = _rows(
        items.groupingSets([keys, []], *keys)
        .agg(
            F.count("*").alias("items"),
            F.count_if(F.col("outcome") == "accepted").alias("accepted"),
            F.count_if(F.col("outcome") == "dead").alias("dead"),
            F.count_if(is_open).alias("open"),
            F.count_if(F.col("deliveries") > 1).alias("again"),
            F.max(F.when(is_open, age_s)).alias("oldest_s"),
            *_percentiles("wait_s"),
            F.grouping("queue").alias("whole"),
        )
        .orderBy(F.desc("whole"), F.desc("items"), "service", "queue")
        .limit(1 + QUEUES_MAX)
    )
    if rows:
        data.queue_totals, *data.queues = rows
    line: Column = F.lit(OTHERS)
    for row in reversed(data.queues[:CHARTS_MAX]):
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
