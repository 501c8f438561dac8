"""Takes the data of the report from the tables.

This module knows the tables, but not the look of the report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qos.audit.parallel import in_parallel
from qos.audit.read import Problem
from qos.audit.report_data import (
    OTHERS,
    ROWS_MAX,
    Proof,
    ReportData,
    Rows,
    Windows,
)
from qos.audit.report_routes import (
    by_line,
    by_outcome,
    latency,
    of_days,
    of_routes,
    percentiles,
    standing,
    trend,
)
from qos.audit.tables import Limits, queues_hourly, routes_hourly
from qos.audit.tables.columns import seconds_between

__all__ = ["bucket_of", "collect"]

#: The most anomalies and problems that are listed, and the most points of a chart: an
#: image of 340 pixels shows no more.
ANOMALIES_MAX = 100
PROBLEMS_MAX = 50
POINTS_MAX = 96

#: The most queues that are listed; the totals count all.
QUEUES_MAX = 200

#: The possible lengths of time for a point of a line, in seconds. Shorter ones make no
#: sense: a line needs more than one message for each point.
_BUCKETS_S = (1, 5, 15, 60, 300, 900, 3600)
_HOUR_S = 3600

#: With fewer points than this, a shorter length of time is used.
_POINTS_LEAST = 24

#: The most routes, or queues, with a chart of their own.
CHARTS_MAX = 5


def collect(
    tables: Mapping[str, DataFrame],
    problems: DataFrame,
    limits: Limits,
    *,
    last: date | None = None,
    history: Mapping[str, DataFrame] | None = None,
) -> ReportData:
    """Take the data of the report from the tables.

    Single messages and items are only read for an audit of less than a day. For a
    longer one, the tables by hours are used.

    Args:
        tables: by name; see qos.audit.batch_tables.TABLES.
        problems: the problems of the journals.
        limits: those of the audit.
        last: the last day of the audit; None: there is no line.
        history: `routes_hourly` and `anomalies`, including those of the day before.
    """
    data = ReportData()
    data.bucket_s = bucket_of(tables)
    routes, queues = _by_moment(tables, data.bucket_s)
    anomalies = standing(tables["anomalies"])
    results = _in_parallel(
        {
            **of_routes(routes),
            **of_days(tables["routes_hourly"], last, history or {}),
            **_of_proof(tables),
            **_of_anomalies(anomalies),
            **_of_problems(problems),
            "windows": _of_windows(tables["windows_hourly"]),
            "queues": _queues(queues, limits),
            "refusals": tables["refusals"]
            .groupBy("source", "receiver", "condition")
            .agg(F.sum("refusals").alias("refusals"))
            .orderBy(F.desc("refusals"), "source", "receiver", "condition")
            .limit(ROWS_MAX),
            "workers": _workers(tables["workers_hourly"]),
        }
    )
    _take(data, results)
    lines = _in_parallel(
        {
            "latency": latency(routes, data.slow[:CHARTS_MAX]),
            "waits": _waits(queues, data.queues[:CHARTS_MAX]),
        }
    )
    data.latency, data.waits = lines["latency"], lines["waits"]
    return data


def _take(data: ReportData, results: Mapping[str, Rows]) -> None:
    """Take the rows of all lists into the data of the report."""
    data.outcomes_by_time = by_outcome(results["outcomes"])
    for row in data.outcomes_by_time:
        before = data.outcomes.get(row["outcome"], 0)
        data.outcomes[row["outcome"]] = before + row["messages"]
    data.slow, data.retried = results["slow"], results["retried"]
    data.refusals, data.workers = results["refusals"], results["workers"]
    data.levels = results["levels"]
    data.trend = trend(results)
    data.proof = _proof(results)
    data.windows = _windows(results["windows"])
    data.anomaly_counts = {row["kind"]: row["count"] for row in results["kinds"]}
    # Some of each kind: a thousand stuck messages must not hide a lost one.
    per_kind = ANOMALIES_MAX // max(len(data.anomaly_counts), 1)
    data.anomalies = [
        row for row in results["anomalies"] if row.pop("place") <= per_kind
    ]
    if results["queues"]:
        data.queue_totals, *data.queues = results["queues"]
    data.problem_counts = {row["kind"]: row["count"] for row in results["counts"]}
    data.files_open = data.problem_counts.get(Problem.OPEN_FILE.value, 0)
    data.problems = results["problems"]


# -- the sources of all lists ----------------------------------------------


def bucket_of(tables: Mapping[str, DataFrame]) -> int:
    """A length of time such that a line has some points, and at most POINTS_MAX."""
    hours = [_hour(tables[name]) for name in ("routes_hourly", "queues_hourly")]
    length_s = _length_s(hours) + _HOUR_S
    if length_s > _HOUR_S * POINTS_MAX:
        return math.ceil(length_s / _HOUR_S / POINTS_MAX) * _HOUR_S
    if length_s > _HOUR_S * _POINTS_LEAST:
        return _HOUR_S
    items = F.coalesce("published_at", "first_acquired_at")
    length_s = _length_s(
        [
            tables["deliveries"].select(F.unix_seconds("begun_at").alias("at")),
            tables["queue_items"].select(F.unix_seconds(items).alias("at")),
        ]
    )
    good = [bucket_s for bucket_s in _BUCKETS_S if length_s >= bucket_s * _POINTS_LEAST]
    return good[-1] if good else _BUCKETS_S[0]


def _by_moment(
    tables: Mapping[str, DataFrame], bucket_s: int
) -> tuple[DataFrame, DataFrame]:
    """The results of each route, and of each queue, with their `moment`."""
    if bucket_s >= _HOUR_S:
        moment = _bucket(_hour_s(), bucket_s)
        names = ("routes_hourly", "queues_hourly")
        routes, queues = (tables[name].withColumn("moment", moment) for name in names)
        return routes, queues
    begin_bucket = _bucket(F.unix_seconds("begun_at"), bucket_s)
    messages = tables["deliveries"].withColumn("moment", begin_bucket)
    published = _bucket(F.unix_seconds("published_at"), bucket_s)
    items = tables["queue_items"].withColumn("moment", published)
    # They are few, and used several times.
    frames = (routes_hourly(messages, ["moment"]), queues_hourly(items, ["moment"]))
    routes, queues = in_parallel(*(frame.localCheckpoint for frame in frames))
    return routes, queues


def _length_s(moments: list[DataFrame]) -> int:
    whole = reduce(DataFrame.unionByName, moments)
    row = whole.agg((F.max("at") - F.min("at")).alias("seconds")).first()
    return (row["seconds"] if row else None) or 0


def _hour(rows: DataFrame) -> DataFrame:
    return rows.select(_hour_s().alias("at"))


def _hour_s() -> Column:
    return F.unix_date("date").cast("long") * 24 * _HOUR_S + F.col("hour") * _HOUR_S


def _bucket(seconds: Column, bucket_s: int) -> Column:
    """The beginning of the bucket, in seconds."""
    return F.floor(seconds / bucket_s) * bucket_s


# -- verdicts --------------------------------------------------------------


def _of_proof(tables: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Sums of `routes_hourly` and `unproven_hourly`."""
    names = ("judged", "unproven")
    sums = (F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names)
    keys = ("sender", "receiver", "suspected", "reason", "node")
    counted = (
        tables["unproven_hourly"]
        .groupingSets([keys, ["reason"]], *keys)
        .agg(F.sum("messages").alias("messages"), F.grouping("sender").alias("whole"))
    )
    return {
        "proof": tables["routes_hourly"].agg(*sums),
        "reasons": counted.orderBy(F.desc("whole"), F.desc("messages"), *keys).limit(
            ROWS_MAX + _REASONS_MAX
        ),
    }


def _proof(results: Mapping[str, Rows]) -> Proof:
    (sums,), rows = results["proof"], results["reasons"]
    return Proof(
        sums["judged"],
        sums["unproven"],
        {row["reason"]: row["messages"] for row in rows if row["whole"]},
        [row for row in rows if not row["whole"]][:ROWS_MAX],
    )


#: More than the existing reasons.
_REASONS_MAX = 30


def _of_windows(windows: DataFrame) -> DataFrame:
    """The sums of all routes.

    Then those of the routes with the most missing windows.
    """
    keys = ("sender", "receiver", "level")
    names = ("sent", "received", *_WINDOWS)
    missing = F.col("windows") - F.col("complete")
    return (
        windows.groupingSets([keys, []], *keys)
        .agg(
            *(F.sum(name).alias(name) for name in names),
            F.grouping("sender").alias("whole"),
        )
        .where(F.col("windows").isNotNull())
        .orderBy(F.desc("whole"), missing.desc(), F.desc("windows"), *keys)
        .limit(1 + ROWS_MAX)
    )


_WINDOWS = ("windows", "complete", "without_sender", "without_receiver")


def _windows(rows: Rows) -> Windows | None:
    if not rows:
        return None
    whole, *routes = rows
    routes = [row for row in routes if row["complete"] < row["windows"]]
    return Windows(**{name: whole[name] for name in _WINDOWS}, routes=routes)


def _of_anomalies(anomalies: DataFrame) -> dict[str, DataFrame]:
    order = Window.partitionBy("kind").orderBy("begun_at", "sender", "msg_id")
    first = anomalies.withColumn("place", F.row_number().over(order))
    first = first.where(F.col("place") <= ANOMALIES_MAX)
    first = first.withColumn("evidence", F.to_json("evidence"))
    return {
        "kinds": anomalies.groupBy("kind").agg(F.count("*").alias("count")),
        "anomalies": first.orderBy("kind", "place"),
    }


# -- the rest --------------------------------------------------------------


def _of_problems(problems: DataFrame) -> dict[str, DataFrame]:
    # Each node of a running fleet has one such file.
    usual = F.col("kind") == Problem.OPEN_FILE.value
    order = (usual, F.col("kind"), F.desc("count"), F.col("place"))
    return {
        "counts": problems.groupBy("kind").agg(F.sum("count").alias("count")),
        "problems": problems.orderBy(*order).limit(PROBLEMS_MAX),
    }


def _workers(workers: DataFrame) -> DataFrame:
    return (
        workers.groupBy("worker", "queue")
        .agg(
            *(F.sum(name).alias(name) for name in _WORKER_SUMS),
            F.max("handling_p95").alias("handling_p95"),
        )
        .orderBy(F.desc("busy_s"), "worker", "queue")
        .limit(ROWS_MAX)
    )


_WORKER_SUMS = (
    *("started", "accepted", "released", "modified", "rejected", "lost", "open"),
    "busy_s",
)


def _queues(queues: DataFrame, limits: Limits) -> DataFrame:
    """The totals of all queues; then those of each."""
    keys = ("service", "queue")
    now = F.lit(limits.now).cast("timestamp")
    oldest_s = seconds_between(F.min("oldest_open_at"), now)
    sums = ("items", "accepted", "dead", "open", "again")
    return (
        queues.groupingSets([keys, []], *keys)
        .agg(
            *(F.sum(name).alias(name) for name in sums),
            # By a wrong clock it may be of a year that has not come yet.
            F.when(oldest_s < 0, 0.0).otherwise(oldest_s).alias("oldest_s"),
            *percentiles("wait_sketch"),
            F.grouping("queue").alias("whole"),
        )
        .where(F.col("items").isNotNull())
        .orderBy(F.desc("whole"), F.desc("items"), "service", "queue")
        .limit(1 + QUEUES_MAX)
    )


def _waits(queues: DataFrame, largest: Rows) -> DataFrame:
    line: Column = F.lit(OTHERS)
    for row in reversed(largest):
        service, queue = row["service"], row["queue"]
        is_it = (F.col("service") == service) & (F.col("queue") == queue)
        line = F.when(is_it, f"{queue} at {service}").otherwise(line)
    return by_line(queues, line, "wait_sketch", "items")


def _in_parallel(frames: Mapping[str, DataFrame]) -> dict[str, Rows]:
    rows = in_parallel(*(partial(_rows, frame) for frame in frames.values()))
    return dict(zip(frames, rows, strict=True))


def _rows(frame: DataFrame) -> Rows:
    rows = [row.asDict() for row in frame.collect()]
    for row in rows:
        if "moment" in row:
            row["moment"] = datetime.fromtimestamp(row["moment"], UTC)
    return rows
