"""An audit: from journals to tables and a report. Only this thin layer has a session.

The events are read and checked once. They are kept beside the tables while these are
made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
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
from qos.audit.former_rows import FormerRows, Missing
from qos.audit.journals import tied_folders, with_folder
from qos.audit.judged_nodes import JudgedNodes
from qos.audit.judging import Judge
from qos.audit.lines import LineProblem
from qos.audit.locations import for_people, whole_url
from qos.audit.named_journals import named_runs
from qos.audit.new_files import PROBLEM, NewFile, file_problems, files_since
from qos.audit.parallel import in_parallel
from qos.audit.results import NEVER, Days, Summary, draw, kept_from
from qos.audit.small_journals import are_small, without_compiling
from qos.audit.staged_journals import Staged, stage
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
            audited = _Audit(
                spark, folders, files, tied, out, limits, first, last, oldest, progress
            ).run()
    untied = len(folders) - len(tied.folders)
    return replace(audited, untied=untied, seconds=time.monotonic() - started_at)


def _countable(day: date | None) -> date | None:
    """The next day to this one of which a line counts; no day before or after is read."""
    return None if day is None else min(max(day, _FIRST), _LAST)


@dataclass(frozen=True, slots=True)
class _Audit:
    """See audit; no other process writes there. Rows before `oldest` are removed."""

    spark: SparkSession
    folders: Sequence[str]
    files: Sequence[NewFile]
    tied: Tied
    out: str
    limits: Limits
    first: date | None
    last: date | None
    oldest: date | None
    progress: Callable[[str], None]

    def run(self) -> Summary:
        """Read, write and draw."""
        audits = Audits(self.spark, self.out)
        audits.recover()
        upgrade(self.spark, self.out)
        staged = f"{self.out}/{STAGED}"
        try:
            self.progress("reading the journals")
            sizes = {file.path: file.size for file in self._readable()}
            contents = stage(self.spark, sizes, staged, tied=self.tied)
            # They are few, and in memory from here on.
            pieces = contents.runs.localCheckpoint()
            count, *extent = _extent(pieces)
            first = self._first_replaced(*extent)
            days = first or extent[0], self.last or extent[1]
            # An audit of everything starts anew; without any line it has nothing to
            # start with.
            into = _after(self.last) if days[0] is None else first
            carried = CarryOver(
                self.spark, self.out, into, self.last, self.oldest, audits.number
            )
            nodes = JudgedNodes(self.spark, self.out, audits.number)
            former = self._former_rows(nodes, days)
            problems, frames = self._write(
                contents, pieces, carried, first, days, former
            )
        finally:
            store.remove(self.spark, staged)
        if self.oldest is not None:
            audits.remove_before(self.oldest)
        nodes.write(self._readable(), *_or_never(*days), self.oldest)
        audits.record(*days)
        nodes.remove_former()
        lines = count + _bad_lines(problems)
        summary = Summary(first=days[0], last=days[1], lines=lines, events=count)
        self.progress("drawing the report")
        return draw(frames, problems, self.out, summary, self.limits)

    def _readable(self) -> Iterator[NewFile]:
        return (file for file in self.files if file.problem is None)

    def _first_replaced(
        self, first_day: date | None, last_day: date | None
    ) -> date | None:
        """The first day whose rows are replaced; None: this audit starts anew.

        The rows of days whose lines are gone stay, and those of the days before them:
        what began there may have ended on a day that is gone.

        Args:
            first_day: that of the lines; None: there is no line.
            last_day: the last one.

        Raises:
            CannotWrite: no day is left.
        """
        first = self.first
        if first is None and first_day and are_before(self.spark, self.out, first_day):
            first = first_day
        since, until = first or first_day, self.last or last_day
        if since is None or until is None:
            return first
        days = {file.day for file in self._readable()}
        day = last_gone(self.spark, self.out, days, since, until + MARGIN)
        if day is not None and day >= until:
            raise store.CannotWrite(
                f"{for_people(self.out)}: the rows of {day} are there, and its files are "
                "gone. What began earlier may have ended on that day, so the rows of the "
                "days up to it stay as they are, and there is no later day to audit. Bring "
                "the files back, or give another folder."
            )
        return first if day is None else _after(day)

    def _former_rows(
        self, nodes: JudgedNodes, days: tuple[date | None, date | None]
    ) -> FormerRows:
        """The rows that stay, of nodes whose journals are missing."""
        first, last = _or_never(*days)
        missing: list[Missing] = []
        if first <= last:
            missing = nodes.missing(self._readable(), first, last + MARGIN)
        return FormerRows(missing, MARGIN)

    def _write(
        self,
        contents: Staged,
        pieces: DataFrame,
        carried: CarryOver,
        first: date | None,
        days: tuple[date | None, date | None],
        former: FormerRows,
    ) -> tuple[DataFrame, dict[str, DataFrame]]:
        """Write the tables; returns the problems and the frames of the tables.

        Args:
            contents: what was read.
            pieces: its runs.
            carried: what an earlier audit has left to this one.
            first: see _first_replaced.
            days: the first and the last day; None: there is no line.
            former: the rows that stay.
        """
        records = carried.records(records_of(contents))
        runs = boot_runs.merged(pieces, tolerance_s=CLOCK_BACK_S).localCheckpoint()
        all_runs = runs
        if carried.is_used:
            all_runs = boot_runs.merged(carried.runs(pieces), tolerance_s=CLOCK_BACK_S)
            all_runs = all_runs.localCheckpoint()
        judge = self._judge(all_runs, first or self.last)
        messages_of = (
            pairing.messages_of if contents.has_pairs else tables.deliveries_of
        )
        events = records.lines.drop("subject")
        counts = _counts(events, records.roles)

        def find_problems() -> DataFrame:
            self.progress("looking for problems of the journals")
            of_files = file_problems(self.spark, self.files)
            of_files = of_files.unionByName(_missing(self.spark, former.missing))
            problems = _problems(contents.lines, runs, of_files)
            if Role.JOURNAL in records.roles:
                problems = problems.unionByName(tables.contradicting_counts(counts))
            return write_problems(problems, self.out)

        def make_tables() -> dict[str, DataFrame]:
            frames = write_tables(
                events,
                judge,
                self.out,
                _or_never(*days),
                former=former,
                messages=messages_of(records.messages),
                counts=counts,
                roles=records.roles,
                from_margin=bool(first),
                progress=self.progress,
            )
            self.progress("keeping what has not ended")
            carried.write(records, all_runs, frames["deliveries"], judge)
            return frames

        problems, frames = in_parallel(find_problems, make_tables)
        return problems, frames

    def _judge(self, runs: DataFrame, limited_by: date | None) -> Judge:
        """A judge who knows the journals of all files.

        Args:
            runs: all that are known.
            limited_by: a day that limits the given files; None: no day does.
        """

        def of_all_days() -> DataFrame:
            files = files_since(self.spark, self.folders, None)
            return named_runs(self.spark, files, self.tied)

        runs = runs.unionByName(named_runs(self.spark, self.files, self.tied))
        return Judge(runs, self.limits, of_all_days if limited_by else None)


def _after(last: date | None) -> date:
    """The day after the last one; after all days, if there is no last one."""
    return date.max if last is None else last + timedelta(days=1)


def _or_never(first: date | None, last: date | None) -> Days:
    """Without a line there is no day, and nothing to replace."""
    return first or NEVER[0], last or NEVER[1]


def _missing(spark: SparkSession, nodes: Collection[Missing]) -> DataFrame:
    """The nodes whose journals are missing, as problems."""
    rows = [
        (
            read.Problem.MISSING_JOURNAL.value,
            node.node,
            node.days,
            f"the rows of {node.first} to {node.last} stay as they were",
        )
        for node in nodes
    ]
    return spark.createDataFrame(rows, PROBLEM)


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
