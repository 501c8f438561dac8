"""An audit: journals in, tables and a report out. The one thin layer with a session.

The events are read and checked once, and kept beside the tables while those are made;
and once more if some lines are there twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import partial, reduce
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.pipeline import boot_runs, read, store, tables
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
    since = None if first is None else first - MARGIN
    until = None if last is None else last + MARGIN
    staged = f"{out}/{STAGED}"
    # Of an audit that was killed.
    store.remove(spark, staged)
    try:
        progress("reading the journals")
        read_all = partial(stage, spark, journals, staged, first=since, last=until)
        found = read_all()
        # Few, and all in memory from here on.
        pieces = found.runs.localCheckpoint()
        runs = boot_runs.merged(pieces, tolerance_s=CLOCK_BACK_S).localCheckpoint()
        count, first_day, last_day = _extent(pieces)
        unique = count == _extent(runs)[0]
        if found.told is not None and not unique:
            progress("reading the journals again: some lines are there twice")
            store.remove(spark, staged)
            found = read_all(whole=True)
        progress("looking for problems of the journals")
        files = read.read_files(spark, journals, first=since, last=until)
        problems = _problems(found.lines, runs, files)
        store.replace_table(problems, f"{out}/problems")
        problems = store.read_table(problems, f"{out}/problems")
        summary = Summary(
            first=first or first_day,
            last=last or last_day,
            lines=count + _bad_lines(problems),
            events=count,
        )
        events = read.events_of(found.lines)
        if found.told is not None:
            messages = tables.deliveries_of(found.told)
        else:
            messages = tables.deliveries(events, unique=unique)
        covered = boot_runs.coverage(runs)
        if accounts is not None:
            covered = covered.where(F.col("account").isin(*accounts))
        written = write_tables(
            events,
            covered,
            out,
            # Without a line there is no day either, and nothing to replace.
            (summary.first or NEVER[0], summary.last or NEVER[1]),
            limits,
            messages=messages,
            from_margin=bool(first),
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
    messages: DataFrame | None = None,
    from_margin: bool = False,
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
        messages: see qos.pipeline.tables.deliveries. None: those of the events.
        from_margin: there are lines before these that are not here: what seems to
            begin without its beginning is left out.
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

    if messages is None:
        messages = tables.deliveries(events)
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
        rows=_rows(written),
        outcomes=data.outcomes,
        anomalies=data.anomaly_counts,
        problems=data.problem_counts,
    )
    page = render(data, summary.first, summary.last, lines=summary.lines)
    if "://" not in out:
        Path(out, REPORT).write_text(page, encoding="utf-8")
    return summary


def _rows(written: Mapping[str, DataFrame]) -> dict[str, int]:
    """How many rows each table has."""
    names = [table.select(F.lit(name).alias("name")) for name, table in written.items()]
    # All at once: each by itself would take longer to plan than to count.
    counted = reduce(DataFrame.unionByName, names).groupBy("name").count()
    counts = {row["name"]: row["count"] for row in counted.collect()}
    return {name: counts.get(name, 0) for name in written}


def _problems(checked: DataFrame, runs: DataFrame, files: DataFrame) -> DataFrame:
    return (
        read.line_problems(checked)
        .unionByName(read.file_problems(files))
        .unionByName(boot_runs.missing_lines(runs))
        .unionByName(boot_runs.clocks_back(runs, tolerance_s=CLOCK_BACK_S))
    )


def _extent(runs: DataFrame) -> tuple[int, date | None, date | None]:
    """How many lines there are in all runs, and their first and last day."""
    lines = F.sum(F.col("last_seq") - F.col("first_seq") + 1)
    row = runs.agg(
        F.coalesce(lines, F.lit(0)),
        F.to_date(F.min("first_at")),
        F.to_date(F.max("last_at")),
    ).first()
    assert row is not None
    return int(row[0]), row[1], row[2]


def _bad_lines(problems: DataFrame) -> int:
    """How many lines are no event."""
    of_lines = F.col("kind").isin(*(each.value for each in LineProblem))
    bad = problems.where(of_lines).agg(F.sum("count")).first()
    assert bad is not None
    return int(bad[0] or 0)
