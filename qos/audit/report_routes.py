"""Takes the data of the report about messages from the tables: routes, levels, days.

This module knows the tables, but not the look of the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from qos.audit.report_data import OTHERS, ROWS_MAX, DayTotals, Rows
from qos.audit.tables.routes import merged_percentiles

__all__ = [
    "by_line",
    "by_outcome",
    "latency",
    "of_days",
    "of_routes",
    "percentiles",
    "standing",
    "trend",
]

#: A route with fewer messages than this is not listed as slow, if there are others.
_MESSAGES_LEAST = 20


def of_routes(routes: DataFrame) -> dict[str, DataFrame]:
    """The results of all routes: by moment, the slow ones, the retried ones, and levels."""
    active_routes = routes.where(F.col("messages") > 0)
    keys = ("sender", "receiver", "level")
    whole = active_routes.groupBy(*keys).agg(
        F.sum("messages").alias("messages"),
        F.sum("retried").alias("retried"),
        *percentiles("latency_sketch"),
    )
    whole = whole.withColumn("rate", F.col("retried") / F.col("messages"))
    few = F.col("messages") < _MESSAGES_LEAST
    levels = active_routes.groupBy("level").agg(
        F.sum("messages").alias("messages"), *percentiles("latency_sketch")
    )
    return {
        "outcomes": active_routes.groupBy("moment")
        .agg(*map(F.sum, _OUTCOMES))
        .orderBy("moment"),
        "slow": whole.where(F.col("p95").isNotNull())
        .orderBy(few, F.desc("p95"), *keys)
        .limit(ROWS_MAX),
        "retried": whole.where(F.col("retried") > 0)
        .orderBy(few, F.desc("rate"), *keys)
        .limit(ROWS_MAX),
        "levels": levels.select("level", "messages", "p95").orderBy("level"),
    }


#: Columns of `routes_hourly`, and the report's words for these outcomes.
_OUTCOMES = ("delivered", "in_doubt", "not_delivered", "open", "withdrawn")


def by_outcome(outcomes: Rows) -> Rows:
    """A row for each existing moment and outcome."""
    return [
        {
            "moment": row["moment"],
            "outcome": name.replace("_", "-"),
            "messages": row[f"sum({name})"],
        }
        for row in outcomes
        for name in _OUTCOMES
        if row[f"sum({name})"]
    ]


def latency(routes: DataFrame, slowest: Rows) -> DataFrame:
    """The latency of the slowest routes, each as a line, and of all others together."""
    line: Column = F.lit(OTHERS)
    for row in reversed(slowest):
        is_it = reduce(
            Column.__and__,
            (F.col(name) == row[name] for name in ("sender", "receiver", "level")),
        )
        name = f"{row['sender']} to {row['receiver']}, {row['level']}"
        line = F.when(is_it, name).otherwise(line)
    return by_line(routes, line, "latency_sketch", "messages")


def by_line(rows: DataFrame, line: Column, sketch: str, noun: str) -> DataFrame:
    """The number and the percentiles of each line of a chart, by moment."""
    whole = F.kll_sketch_get_n_double(F.kll_merge_agg_double(sketch))
    return (
        rows.groupBy(line.alias("line"), "moment")
        .agg(whole.alias(noun), *percentiles(sketch))
        .where(F.col(noun) > 0)
        .orderBy("line", "moment")
    )


def of_days(
    routes: DataFrame, last: date | None, history: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    """The last day and the day before."""
    if last is None or not history:
        return {}
    days = F.col("date").isin(last - timedelta(days=1), last)
    active_routes = history["routes_hourly"].where(days & (F.col("messages") > 0))
    anomalies = standing(history["anomalies"]).where(days)
    return {
        "days": active_routes.groupBy("date")
        .agg(F.sum("messages").alias("messages"), *percentiles("latency_sketch"))
        .orderBy("date"),
        "anomalies of days": anomalies.groupBy("date").agg(
            F.count("*").alias("anomalies")
        ),
    }


def trend(results: Mapping[str, Rows]) -> tuple[DayTotals, DayTotals] | None:
    """The totals of the last day and of the day before, if there are both."""
    anomalies = {
        row["date"]: row["anomalies"] for row in results.get("anomalies of days", ())
    }
    totals = [
        DayTotals(
            row["date"], row["messages"], row["p95"], anomalies.get(row["date"], 0)
        )
        for row in results.get("days", ())
    ]
    return (totals[0], totals[1]) if len(totals) == 2 else None


def standing(anomalies: DataFrame) -> DataFrame:
    """The rows that no later audit has withdrawn."""
    if "withdrawn_at" not in anomalies.columns:
        return anomalies
    return anomalies.where(F.col("withdrawn_at").isNull())


def percentiles(sketch: str) -> list[Column]:
    """The columns `p50`, `p95` and `p99` of sketches."""
    columns = merged_percentiles(sketch)
    return [columns[i].alias(name) for i, name in enumerate(("p50", "p95", "p99"))]
