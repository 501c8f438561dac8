"""An audit: journals in, tables and a report out. The one thin layer with a session.

The events are read and checked once, and kept beside the tables while those are made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.pipeline import read, store, tables
from qos.pipeline.lines import LineProblem
from qos.pipeline.report import render
from qos.pipeline.report_data import collect
from qos.pipeline.stage import stage
from qos.pipeline.tables import Limits

__all__ = ["REPORT", "TABLES", "Days", "Summary", "audit", "draw", "write_tables"]

#: The first and the last of some days.
Days: TypeAlias = tuple[date, date]

#: The folders that an audit makes, besides `problems`.
TABLES = (
    "deliveries",
    "anomalies",
    "routes_hourly",
    "refusals",
    "queue_items",
    "workers_hourly",
)

REPORT = "report.html"

#: Where the checked lines are meanwhile, in the folder of the tables.
STAGED = "staged"

#: What is read before the first day and after the last one: a message that began in
#: a day may end in another, and a file is in the folder of its first line.
MARGIN = timedelta(days=2)

#: Days between which there is none.
NEVER: Days = date(1970, 1, 2), date(1970, 1, 1)

#: A clock that goes back by less is being set right.
CLOCK_BACK_S = 60


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of an audit.

    Attributes:
        first: the first day.
        last: the last day.
        lines: all that were read; `events` of them are events, some perhaps twice.
        rows: of each table.
        outcomes: messages that their sender tells of, by how they ended (`open`: not
            yet).
        anomalies: by kind.
        problems: of the journals, by kind.
        seconds: how long it took.
    """

    first: date | None
    last: date | None
    lines: int
    events: int
    rows: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    anomalies: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether there is no anomaly."""
        return not self.anomalies


def audit(
    spark: SparkSession,
    journals: Sequence[str],
    out: str,
    *,
    limits: Limits,
    first: date | None = None,
    last: date | None = None,
    accounts: Collection[str] | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Summary:
    """Read journals, and write the tables and the report of these days.

    What is in `out` of these days is replaced, of other days it stays.

    Args:
        spark: its time zone must be UTC.
        journals: see qos.pipeline.read.read_lines.
        out: a folder, that Spark can write to; the report is written there if it is
            on this machine.
        limits: by what an anomaly is judged.
        first: the first day; None: as early as there is anything.
        last: the last day.
        accounts: whose journals are complete; None: of all that have one here.
        progress: told what is being done.
    """
    began = time.monotonic()
    margin = {
        "first": None if first is None else first - MARGIN,
        "last": None if last is None else last + MARGIN,
    }
    staged = f"{out}/{STAGED}"
    # Of an audit that was killed.
    store.remove(spark, staged)
    try:
        progress("reading the journals")
        checked = stage(spark, journals, staged, **margin)
        events = read.events_of(checked)
        progress("looking for problems of the journals")
        files = read.read_files(spark, journals, **margin)
        # Few, and all in memory from here on.
        boots = tables.boots(events).localCheckpoint()
        problems = _problems(checked, events, boots, files)
        store.replace_table(problems, f"{out}/problems")
        problems = store.read_table(problems, f"{out}/problems")
        summary, unique = _seen(boots, problems, first, last)
        written = write_tables(
            events,
            tables.coverage(events, accounts),
            out,
            # Without a line there is no day either, and nothing to replace.
            (summary.first or NEVER[0], summary.last or NEVER[1]),
            limits,
            from_margin=bool(first),
            unique=unique,
            progress=progress,
        )
    finally:
        store.remove(spark, staged)
    progress("drawing the report")
    summary = draw(written, problems, out, summary, limits)
    return replace(summary, seconds=time.monotonic() - began)


def write_tables(
    events: DataFrame,
    covered: DataFrame,
    out: str,
    days: Days,
    limits: Limits,
    *,
    judged: Days | None = None,
    from_margin: bool = False,
    unique: bool = False,
    progress: Callable[[str], None] = lambda step: None,
) -> dict[str, DataFrame]:
    """Make the tables of these days; what was there of these days is replaced.

    Args:
        events: all lines of what has a row in these days.
        covered: see qos.pipeline.tables.coverage.
        out: see audit.
        days: of which the tables are made.
        limits: by what an anomaly is judged.
        judged: of which the anomalies are; their deliveries must be there, or among
            `days`. None: the same.
        from_margin: there are lines before these that are not here: what seems to
            begin without its beginning is left out.
        unique: see qos.pipeline.tables.deliveries.
        progress: told what is being done.

    Returns:
        Each table as it stands on disk, of these days.
    """
    written: dict[str, DataFrame] = {}

    def write(name: str, table: DataFrame, days: Days = days) -> DataFrame:
        progress(f"writing {name}")
        folder = f"{out}/{name}"
        store.replace_days(table, folder, *days)
        written[name] = store.read_table(table, folder, *days)
        return written[name]

    messages = tables.deliveries(events, unique=unique)
    if from_margin:
        # It began before what was read: its row is in the table of that day.
        messages = messages.where(F.col("bytes").isNotNull())
    messages = write("deliveries", messages)
    to_judge = messages
    if judged is not None:
        to_judge = store.read_table(messages, f"{out}/deliveries", *judged)
    found = tables.anomalies(to_judge, covered, limits)
    write("anomalies", found, judged or days)
    write("routes_hourly", tables.routes_hourly(messages))
    write("refusals", tables.refusals(events))
    write("queue_items", tables.queue_items(events))
    write("workers_hourly", tables.workers_hourly(events))
    return written


def draw(
    written: Mapping[str, DataFrame],
    problems: DataFrame,
    out: str,
    summary: Summary,
    limits: Limits,
) -> Summary:
    """Draw the report, and return the summary with what it counts.

    Args:
        written: the tables, by name.
        problems: of the journals.
        out: see audit.
        summary: its days and lines.
        limits: by what anomalies were judged.
    """
    data = collect(written, problems, limits)
    summary = replace(
        summary,
        rows={name: table.count() for name, table in written.items()},
        outcomes=data.outcomes,
        anomalies=data.anomaly_counts,
        problems=data.problem_counts,
    )
    page = render(data, summary.first, summary.last, lines=summary.lines)
    if "://" not in out:
        Path(out, REPORT).write_text(page, encoding="utf-8")
    return summary


def _problems(
    checked: DataFrame, events: DataFrame, boots: DataFrame, files: DataFrame
) -> DataFrame:
    return (
        read.line_problems(checked)
        .unionByName(read.file_problems(files))
        .unionByName(tables.missing_lines(boots))
        .unionByName(tables.clocks_back(events, tolerance_s=CLOCK_BACK_S))
    )


def _seen(
    boots: DataFrame, problems: DataFrame, first: date | None, last: date | None
) -> tuple[Summary, bool]:
    """How much was read; and whether no line was there twice."""
    seen = boots.agg(
        F.coalesce(F.sum("given"), F.lit(0)).alias("events"),
        F.coalesce(F.sum("lines"), F.lit(0)).alias("unique"),
        F.to_date(F.min("first_at")).alias("first"),
        F.to_date(F.max("last_at")).alias("last"),
    ).first()
    of_lines = F.col("kind").isin(*(each.value for each in LineProblem))
    bad = problems.where(of_lines).agg(F.sum("count").alias("lines")).first()
    assert seen is not None
    assert bad is not None
    summary = Summary(
        first=first or seen["first"],
        last=last or seen["last"],
        lines=seen["events"] + (bad["lines"] or 0),
        events=seen["events"],
    )
    return summary, seen["events"] == seen["unique"]
