"""Declares the tables of an audit: arriving data as streams, derived data as views.

`spark-pipelines` runs this module; its session is the active one. The functions are
those of `qos.audit`; here they are only connected. Two kinds of files are not seen
here: those without a line, and those that do not belong to a journal.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import boot_runs, comments, read, tables
from qos.audit.batch_tables import without_rows
from qos.audit.boot_runs import CLOCK_BACK_S
from qos.audit.data_quality import data_quality as quality_of
from qos.audit.delta_schema import spark_schema
from qos.audit.foreign_lines import Tied
from qos.audit.forgetting import forgotten, is_about_at_all
from qos.audit.journals import tied_folders
from qos.audit.locations import local_path
from qos.audit.named_journals import named_runs
from qos.audit.new_files import PROBLEM, files_since
from qos.audit.schema import EVENT
from qos.audit.tables import Limits

spark = SparkSession.active()

_BY_HOUR = ["date", "hour"]


def _journals() -> tuple[list[str], Tied]:
    setting = spark.conf.get("spark.xmppQos.journals") or ""
    names = [name.strip() for name in setting.split(",") if name.strip()]
    if not names:
        raise ValueError("spark.xmppQos.journals names no folder of journals")
    return tied_folders(names)


def _checked() -> DataFrame:
    folders, tied = _journals()
    return read.checked_lines(read.stream_lines(spark, folders), tied)


def _limits() -> Limits:
    now = spark.conf.get("spark.xmppQos.now", "")
    return Limits(
        now=datetime.fromisoformat(now) if now else datetime.now(UTC),
        stuck_after_s=_seconds("stuckAfterSeconds", 3600.0),
        skew_s=_seconds("skewSeconds", 60.0),
    )


def _seconds(name: str, default: float) -> float:
    return float(spark.conf.get(f"spark.xmppQos.{name}", str(default)) or default)


def _named() -> DataFrame:
    """The journals of the nodes in the names of files; of folders of this machine."""
    folders, tied = _journals()
    local_folders = [folder for folder in folders if local_path(folder) is not None]
    return named_runs(spark, files_since(None, local_folders, None), tied)


# PySpark 4.3 resolves an existing table as soon as a plan has withColumn in it, and
# then does not know that the table has to be updated first. A view that is never in the
# catalog is not resolved too early.


@dp.temporary_view
def all_events() -> DataFrame:
    """Lines that are events, also those of this run."""
    return spark.read.table("events")


@dp.temporary_view
def all_bad_lines() -> DataFrame:
    """Lines that are no events, also those of this run."""
    return spark.read.table("bad_lines")


@dp.temporary_view
def all_deliveries() -> DataFrame:
    """One row for each message, as it is after this run."""
    return spark.read.table("deliveries")


@dp.temporary_view
def all_runs() -> DataFrame:
    """The runs, as they are after this run."""
    return spark.read.table("runs")


def _events() -> DataFrame:
    return spark.read.table("all_events")


def _runs() -> DataFrame:
    return spark.read.table("all_runs")


def _partitioned(table: DataFrame) -> DataFrame:
    return _hours_last(_without_forgotten(table))


def _hours_last(table: DataFrame) -> DataFrame:
    # Hive requires the partition columns of a table to be the last.
    return table.selectExpr("* EXCEPT (date, hour)", *_BY_HOUR)


def _without_forgotten(table: DataFrame) -> DataFrame:
    """The rows that are not about an account on the list of an audit."""
    out = spark.conf.get("spark.xmppQos.forgottenIn", "") or ""
    accounts = forgotten(spark, out) if out else frozenset()
    return table.where(~is_about_at_all(accounts)) if accounts else table


@cache
def _without_rows() -> dict[str, DataFrame]:
    """The tables of an audit without a row, for their columns."""
    by_hour = without_rows(spark, _limits())
    found = spark.createDataFrame([], PROBLEM)
    return {
        **{name: _hours_last(table) for name, table in by_hour.items()},
        "problems": found,
        "data_quality": quality_of(found),
    }


def _as_in_an_audit(view: Callable[[], DataFrame]) -> None:
    """Declare a materialized view with the comments that an audit's table has."""
    name = view.__name__
    like = _without_rows()[name]
    dp.materialized_view(
        comment=comments.TABLES[name],
        schema=spark_schema(like.schema, name),
        partition_cols=_BY_HOUR if "hour" in like.columns else None,
    )(view)


@dp.table
def events() -> DataFrame:
    """Lines that are events."""
    events = _checked().where(F.col("problem").isNull())
    return events.select(*EVENT.names, "journal")


@dp.table
def bad_lines() -> DataFrame:
    """Lines that are no events, with their file and beginning."""
    bad = _checked().where(F.col("problem").isNotNull())
    of_line = ("node", "boot", "seq", "at", "journal")
    return bad.select("problem", "file", "example", *of_line)


@dp.materialized_view
def runs() -> DataFrame:
    """The runs of all lines: parts of boots without a missing line."""
    journal = F.col("journal")
    event_runs = boot_runs.runs(_events(), F.lit(boot_runs.TOLD), journal)
    bad = spark.read.table("all_bad_lines").where(F.col("seq").isNotNull())
    kind = boot_runs.kind_of(F.lit(False))
    pieces = event_runs.unionByName(boot_runs.runs(bad, kind, journal))
    pieces = pieces.unionByName(_named())
    return boot_runs.merged(pieces, tolerance_s=CLOCK_BACK_S)


@_as_in_an_audit
def problems() -> DataFrame:
    """The problems of the journals, by kind and place."""
    return _without_forgotten(
        read.line_problems(spark.read.table("all_bad_lines"))
        .unionByName(boot_runs.missing_lines(_runs()))
        .unionByName(boot_runs.clocks_back(_runs(), tolerance_s=CLOCK_BACK_S))
        .unionByName(tables.contradicting_counts(tables.counted(_events())))
    )


@_as_in_an_audit
def data_quality() -> DataFrame:
    """The rules for the journals, whether they were broken or not."""
    return quality_of(spark.read.table("problems"))


@_as_in_an_audit
def deliveries() -> DataFrame:
    """One row for each message, with its verdict."""
    messages = tables.deliveries(_events())
    return _partitioned(tables.judged(messages, _runs(), _limits()))


@_as_in_an_audit
def anomalies() -> DataFrame:
    """Messages that were lost, duplicated or orphaned, are stuck or in doubt."""
    return _partitioned(tables.anomalies(spark.read.table("all_deliveries")))


@_as_in_an_audit
def routes_hourly() -> DataFrame:
    """The results of each route in each hour."""
    return _partitioned(tables.routes_hourly(spark.read.table("all_deliveries")))


@_as_in_an_audit
def unproven_hourly() -> DataFrame:
    """The number of unproven messages of each hour and route, with the reasons."""
    return _partitioned(tables.unproven_hourly(spark.read.table("all_deliveries")))


@_as_in_an_audit
def windows_hourly() -> DataFrame:
    """The counts of both ends of each route in each hour."""
    return _partitioned(tables.windows_hourly(_events()))


@_as_in_an_audit
def refusals() -> DataFrame:
    """The refusals: by whom, of whom and why."""
    return _partitioned(tables.refusals(_events()))


@_as_in_an_audit
def queue_items() -> DataFrame:
    """The life of each item of a queue."""
    return _partitioned(tables.queue_items(_events()))


@_as_in_an_audit
def queues_hourly() -> DataFrame:
    """The results of each queue in each hour."""
    return _partitioned(tables.queues_hourly(tables.queue_items(_events())))


@_as_in_an_audit
def workers_hourly() -> DataFrame:
    """The results of each worker in each hour."""
    return _partitioned(tables.workers_hourly(_events()))
