"""Declares the tables of an audit: what arrives as streams, what is derived as views.

Run by `spark-pipelines`, whose session is the active one. The functions are those of `qos.pipeline`; here they are only wired. Files in which there is no line, and
those that are none of a journal's, are not seen here.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.pipeline import read, tables
from qos.pipeline.driver import CLOCK_BACK_S
from qos.pipeline.tables import Limits

spark = SparkSession.active()

_BY_HOUR = ["date", "hour"]


def _checked() -> DataFrame:
    folders = spark.conf.get("spark.xmppQos.journals") or ""
    names = [name.strip() for name in folders.split(",") if name.strip()]
    if not names:
        raise ValueError("spark.xmppQos.journals names no folder of journals")
    return read.checked_lines(read.stream_lines(spark, names))


def _limits() -> Limits:
    now = spark.conf.get("spark.xmppQos.now", "")
    return Limits(
        now=datetime.fromisoformat(now) if now else datetime.now(UTC),
        stuck_after_s=_seconds("stuckAfterSeconds", 3600.0),
        skew_s=_seconds("skewSeconds", 60.0),
    )


def _seconds(name: str, default: float) -> float:
    return float(spark.conf.get(f"spark.xmppQos.{name}", str(default)) or default)


# PySpark 4.3 resolves a table that is there already as soon as a plan has withColumn in
# it, and then does not know that it has to be brought up to date first. A view that is
# never in the catalog is not resolved too early.


@dp.temporary_view
def all_events() -> DataFrame:
    """Lines that are events, those of this run too."""
    return spark.read.table("events")


@dp.temporary_view
def all_bad_lines() -> DataFrame:
    """Lines that are none, those of this run too."""
    return spark.read.table("bad_lines")


@dp.temporary_view
def all_deliveries() -> DataFrame:
    """One row a message, as it is after this run."""
    return spark.read.table("deliveries")


def _events() -> DataFrame:
    return spark.read.table("all_events")


def _partitioned(table: DataFrame) -> DataFrame:
    # Hive wants the columns that a table is partitioned by to be the last.
    return table.selectExpr("* EXCEPT (date, hour)", *_BY_HOUR)


@dp.table
def events() -> DataFrame:
    """Lines that are events."""
    return read.events_of(_checked())


@dp.table
def bad_lines() -> DataFrame:
    """Lines that are none, with their file and beginning."""
    bad = _checked().where(F.col("problem").isNotNull())
    return bad.select("problem", "file", "example")


@dp.materialized_view
def problems() -> DataFrame:
    """What is wrong with the journals, by kind and place."""
    return (
        read.line_problems(spark.read.table("all_bad_lines"))
        .unionByName(tables.missing_lines(tables.boots(_events())))
        .unionByName(tables.clocks_back(_events(), tolerance_s=CLOCK_BACK_S))
    )


@dp.materialized_view(partition_cols=_BY_HOUR)
def deliveries() -> DataFrame:
    """One row a message."""
    return _partitioned(tables.deliveries(_events()))


@dp.materialized_view(partition_cols=_BY_HOUR)
def anomalies() -> DataFrame:
    """What should not be: lost, duplicated, orphaned, stuck or in doubt."""
    messages = spark.read.table("all_deliveries")
    return _partitioned(
        tables.anomalies(messages, tables.coverage(_events()), _limits())
    )


@dp.materialized_view(partition_cols=_BY_HOUR)
def routes_hourly() -> DataFrame:
    """How each route did in each hour."""
    return _partitioned(tables.routes_hourly(spark.read.table("all_deliveries")))


@dp.materialized_view(partition_cols=_BY_HOUR)
def refusals() -> DataFrame:
    """Who was refused, by whom and why."""
    return _partitioned(tables.refusals(_events()))


@dp.materialized_view(partition_cols=_BY_HOUR)
def queue_items() -> DataFrame:
    """The life of each item of a queue."""
    return _partitioned(tables.queue_items(_events()))


@dp.materialized_view(partition_cols=_BY_HOUR)
def workers_hourly() -> DataFrame:
    """How each worker did in each hour."""
    return _partitioned(tables.workers_hourly(_events()))
