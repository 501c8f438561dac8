"""An audit: from journals to tables and a report. Only this thin layer has a session.

The events are read and checked once. They are kept beside the tables while these are
made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import boot_runs, pairing, read, store, tables
from qos.audit.audits import STAGED, Audits
from qos.audit.batch_tables import write_tables
from qos.audit.boot_runs import CLOCK_BACK_S
from qos.audit.carry_over import CarryOver, records_of
from qos.audit.data_quality import write_problems
from qos.audit.earlier_rows import are_before, last_gone
from qos.audit.follow_lock import alone
from qos.audit.foreign_lines import Tied
from qos.audit.journals import tied_folders, with_folder
from qos.audit.judging import Judge
from qos.audit.lines import LineProblem
from qos.audit.locations import for_people, whole_url
from qos.audit.named_journals import named_runs
from qos.audit.new_files import NewFile, file_problems, files_since
from qos.audit.parallel import in_parallel
from qos.audit.results import NEVER, Summary, draw, kept_from
from qos.audit.small_journals import are_small, without_compiling
from qos.audit.staged_journals import stage
from qos.audit.tables import Limits
from qos.audit.upgrade import upgrade
from qos.journal.schema import YEARS, Role

__all__ = ["MARGIN", "audit"]

#: The time to read before the first day and after the last one: a message that began on
#: one day may end on another, and a file is in the folder of its first line.
MARGIN = timedelta(days=2)

#: The days of lines that count.
_FIRST: Final = date(YEARS[0], 1, 1)
_LAST: Final = date(YEARS[1], 12, 31)


def audit(
    spark: SparkSession,
    journals: Sequence[str],
    out: str,
    *,
    limits: Limits,
    first: date | None = None,
    last: date | None = None,
    keep_days: int | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Summary:
    """Read journals, and write the tables and the report of these days.

    The rows of these days in `out` are replaced, those of other days stay.

    Args:
        spark: its time zone must be UTC.
        journals: see qos.audit.journals.
        out: a folder that Spark can write to: a path or a URI.
        limits: the limits for anomalies.
        first: the first day; None: from the first line on.
        last: the last day.
        keep_days: the whole days before today whose rows are kept, by `limits.now`.
            Rows of earlier days are removed, and their lines are not read. None: all.
        progress: called with a description of the present step.

    Raises:
        CannotWrite: another audit writes there, or the folder has other content; or
            all days are before one that has rows and no file any more.
    """
    started_at = time.monotonic()
    folders, tied = tied_folders(with_folder(name, whole_url) for name in journals)
    out = whole_url(out)
    oldest = kept_from(limits.now, keep_days)
    first, last = _countable(first), _countable(last)
    first = first if oldest is None else max(first or oldest, oldest)
    with alone(out):
        progress("looking for files")
        since = None if first is None else first - MARGIN
        until = None if last is None else last + MARGIN
        files = files_since(spark, folders, since, last=until)
        with without_compiling(spark, active=are_small(file.size for file in files)):
            audited = _audit(
                spark, folders, files, tied, out, limits, first, last, oldest, progress
            )
    untied = len(folders) - len(tied.folders)
    return replace(audited, untied=untied, seconds=time.monotonic() - started_at)


def _countable(day: date | None) -> date | None:
    """The next day to this one of which a line counts; no day before or after is read."""
    return None if day is None else min(max(day, _FIRST), _LAST)


def _audit(
    spark: SparkSession,
    folders: Sequence[str],
    files: Sequence[NewFile],
    tied: Tied,
    out: str,
    limits: Limits,
    first: date | None,
    last: date | None,
    oldest: date | None,
    progress: Callable[[str], None],
) -> Summary:
    """See audit; no other process writes there. Rows before `oldest` are removed."""
    audits = Audits(spark, out)
    audits.recover()
    upgrade(spark, out)
    staged = f"{out}/{STAGED}"
    try:
        progress("reading the journals")
        sizes = {file.path: file.size for file in files if file.problem is None}
        contents = stage(spark, sizes, staged, tied=tied)
        # They are few, and in memory from here on.
        pieces = contents.runs.localCheckpoint()
        runs = boot_runs.merged(pieces, tolerance_s=CLOCK_BACK_S).localCheckpoint()
        count, first_day, last_day = _extent(pieces)
        if first is None and first_day and are_before(spark, out, first_day):
            # The lines of those days are gone, and their rows stay.
            first = first_day
        since, until = first or first_day, last or last_day
        if since and until:
            first = _after_gone(spark, out, files, since, until) or first
        # An audit of everything starts anew; without any line it has nothing to start with.
        is_empty = first is None and first_day is None
        carried_into = _after(last) if is_empty else first
        carried = CarryOver(spark, out, carried_into, last, oldest, audits.number)
        records = carried.records(records_of(contents))
        all_runs = runs
        if carried_into is not None:
            all_runs = boot_runs.merged(carried.runs(pieces), tolerance_s=CLOCK_BACK_S)
            all_runs = all_runs.localCheckpoint()
        judge = _judge(spark, folders, files, tied, all_runs, limits, first or last)
        days = first or first_day, last or last_day
        messages_of = (
            pairing.messages_of if contents.has_pairs else tables.deliveries_of
        )

        events = records.lines.drop("subject")
        counts = _counts(events, records.roles)

        def find_problems() -> DataFrame:
            progress("looking for problems of the journals")
            problems = _problems(contents.lines, runs, file_problems(spark, files))
            if Role.JOURNAL in records.roles:
                problems = problems.unionByName(tables.contradicting_counts(counts))
            return write_problems(problems, out)

        def make_tables() -> dict[str, DataFrame]:
            frames = write_tables(
                events,
                judge,
                out,
                # Without a line there is no day, and nothing to replace.
                (days[0] or NEVER[0], days[1] or NEVER[1]),
                messages=messages_of(records.messages),
                counts=counts,
                roles=records.roles,
                from_margin=bool(first),
                progress=progress,
            )
            progress("keeping what has not ended")
            carried.write(records, all_runs, frames["deliveries"], judge)
            return frames

        problems, frames = in_parallel(find_problems, make_tables)
    finally:
        store.remove(spark, staged)
    if oldest is not None:
        audits.remove_before(oldest)
    audits.record(*days)
    summary = Summary(
        first=days[0],
        last=days[1],
        lines=count + _bad_lines(problems),
        events=count,
    )
    progress("drawing the report")
    return draw(frames, problems, out, summary, limits)


def _after_gone(
    spark: SparkSession, out: str, files: Sequence[NewFile], first: date, last: date
) -> date | None:
    """The day after the last one whose folder is gone and whose rows stay, if any.

    Raises:
        CannotWrite: it is the last day of the audit, or one after it.
    """
    days = {file.day for file in files if file.problem is None}
    day = last_gone(spark, out, days, first, last + MARGIN)
    if day is not None and day >= last:
        raise store.CannotWrite(
            f"{for_people(out)}: the rows of {day} are there, and its files are gone. "
            "What began earlier may have ended on that day, so the rows of the days up to "
            "it stay as they are, and there is no later day to audit. Bring the files "
            "back, or give another folder."
        )
    return None if day is None else day + timedelta(days=1)


def _after(last: date | None) -> date:
    """The day after the last one; after all days, if there is no last one."""
    return date.max if last is None else last + timedelta(days=1)


def _judge(
    spark: SparkSession,
    folders: Sequence[str],
    files: Sequence[NewFile],
    tied: Tied,
    runs: DataFrame,
    limits: Limits,
    limited_by: date | None,
) -> Judge:
    """A judge who knows the journals of all files.

    Args: see _audit; limited_by: a day that limits the given files; None: no day does.
    """

    def of_all_days() -> DataFrame:
        return named_runs(spark, files_since(spark, folders, None), tied)

    runs = runs.unionByName(named_runs(spark, files, tied))
    return Judge(runs, limits, of_all_days if limited_by else None)


def _counts(events: DataFrame, roles: Collection[Role]) -> DataFrame:
    """The counts of windows, kept for two tables, one of which reads them twice."""
    counts = tables.counted(events)
    if Role.JOURNAL not in roles:
        return counts
    return counts.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)


def _problems(checked: DataFrame, runs: DataFrame, files: DataFrame) -> DataFrame:
    return (
        read.line_problems(checked)
        .unionByName(files)
        .unionByName(boot_runs.missing_lines(runs))
        .unionByName(boot_runs.clocks_back(runs, tolerance_s=CLOCK_BACK_S))
    )


def _extent(runs: DataFrame) -> tuple[int, date | None, date | None]:
    """The number of lines in all runs, and their first and last day."""
    lines = F.sum(F.col("last_seq") - F.col("first_seq") + 1)
    row = (
        runs.where(F.col("kind") != boot_runs.NEWER)
        .agg(
            F.coalesce(lines, F.lit(0)),
            F.to_date(F.min("first_at")),
            F.to_date(F.max("last_at")),
        )
        .first()
    )
    assert row is not None
    return int(row[0]), row[1], row[2]


def _bad_lines(problems: DataFrame) -> int:
    """The number of lines that are no event."""
    # A file that cannot be read is no line.
    kinds = {*LineProblem} - {LineProblem.UNREAD_FILE}
    of_lines = F.col("kind").isin(*(problem.value for problem in kinds))
    bad = problems.where(of_lines).agg(F.sum("count")).first()
    assert bad is not None
    return int(bad[0] or 0)
