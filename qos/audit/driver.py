"""An audit: from journals to tables and a report. Only this thin layer has a session.

The events are read and checked once. They are kept beside the tables while these are
made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import TypeAlias

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import boot_runs, hadoop, read, store, tables
from qos.audit.at_once import at_once
from qos.audit.audits import STAGED, Audits
from qos.audit.boot_runs import CLOCK_BACK_S
from qos.audit.carry_over import CarryOver, known_of
from qos.audit.follow_lock import alone
from qos.audit.journals import tied_folders
from qos.audit.lines import LineProblem
from qos.audit.locations import local_path
from qos.audit.new_files import NewFile, file_problems, files_since
from qos.audit.report import render
from qos.audit.report_collect import collect
from qos.audit.report_headline import nothing_judged
from qos.audit.report_metrics import metrics
from qos.audit.small import are_small, without_compiling
from qos.audit.speakers import Tied
from qos.audit.stage import stage
from qos.audit.tables import Limits
from qos.journal.schema import Role

__all__ = [
    "METRICS",
    "REPORT",
    "TABLES",
    "Days",
    "Summary",
    "audit",
    "draw",
    "write_tables",
]

#: The first and the last of some days.
Days: TypeAlias = tuple[date, date]

#: The folders that an audit makes, besides `problems`.
TABLES = (
    "deliveries",
    "anomalies",
    "routes_hourly",
    "unproven_hourly",
    "windows_hourly",
    "refusals",
    "queue_items",
    "queues_hourly",
    "workers_hourly",
)

REPORT = "report.html"
#: For the textfile collector of node_exporter, which reads *.prom.
METRICS = "metrics.prom"

#: The time to read before the first day and after the last one: a message that began on
#: one day may end on another, and a file is in the folder of its first line.
MARGIN = timedelta(days=2)

#: For at most this many messages, judging takes less time than compiling code for it.
_SUSPECTS_FEW = 10_000

#: An empty range of days.
NEVER: Days = date(1970, 1, 2), date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of an audit.

    Attributes:
        first: the first day.
        last: the last day.
        lines: the number of lines read; `events` of them are events, some perhaps
            twice.
        rows: the number of rows of each table.
        outcomes: messages that their sender has recorded, by outcome (`open`: none
            yet).
        anomalies: by kind.
        unproven: messages that look wrong without proof, by reason.
        problems: the problems of the journals, by kind.
        nothing_judged: why there is no verdict; "" if there is one.
        untied: folders of journals that are not tied to a node.
        seconds: the duration.
    """

    first: date | None
    last: date | None
    lines: int
    events: int
    rows: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    anomalies: Mapping[str, int] = field(default_factory=dict)
    unproven: Mapping[str, int] = field(default_factory=dict)
    problems: Mapping[str, int] = field(default_factory=dict)
    nothing_judged: str = ""
    untied: int = 0
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether there is no anomaly."""
        return not self.anomalies

    @property
    def judged(self) -> int:
        """Messages whose lines prove their verdict, or show nothing wrong."""
        return self.rows.get("deliveries", 0) - sum(self.unproven.values())

    @property
    def withdrawn(self) -> int:
        """The number of anomalies of earlier audits that are none."""
        return self.rows.get("anomalies", 0) - sum(self.anomalies.values())


def audit(
    spark: SparkSession,
    journals: Sequence[str],
    out: str,
    *,
    limits: Limits,
    first: date | None = None,
    last: date | None = None,
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
        progress: called with a description of the present step.

    Raises:
        CannotWrite: another audit writes there, or the folder has other content.
    """
    began = time.monotonic()
    folders, tied = tied_folders(journals)
    with alone(out):
        progress("looking for files")
        since = None if first is None else first - MARGIN
        until = None if last is None else last + MARGIN
        files = files_since(spark, folders, since, last=until)
        with without_compiling(spark, wanted=are_small(files)):
            audited = _audit(spark, files, tied, out, limits, first, last, progress)
    untied = len(folders) - len(tied.folders)
    return replace(audited, untied=untied, seconds=time.monotonic() - began)


def _audit(
    spark: SparkSession,
    files: Sequence[NewFile],
    tied: Tied,
    out: str,
    limits: Limits,
    first: date | None,
    last: date | None,
    progress: Callable[[str], None],
) -> Summary:
    """See audit; no other process writes there."""
    audits = Audits(spark, out)
    audits.recover()
    staged = f"{out}/{STAGED}"
    try:
        progress("reading the journals")
        sizes = {file.path: file.size for file in files if file.problem is None}
        found = stage(spark, sizes, staged, tied=tied)
        # They are few, and in memory from here on.
        pieces = found.runs.localCheckpoint()
        runs = boot_runs.merged(pieces, tolerance_s=CLOCK_BACK_S).localCheckpoint()
        count, first_day, last_day = _extent(pieces)
        carried = CarryOver(spark, out, first, last, audits.number)
        known = carried.known(known_of(found))
        all_runs = runs
        if first is not None:
            all_runs = boot_runs.merged(carried.runs(pieces), tolerance_s=CLOCK_BACK_S)
            all_runs = all_runs.localCheckpoint()
        days = first or first_day, last or last_day

        def find_problems() -> DataFrame:
            progress("looking for problems of the journals")
            problems = _problems(found.lines, runs, file_problems(spark, files))
            store.replace_table(problems, f"{out}/problems")
            return store.read_table(problems, f"{out}/problems")

        def make_tables() -> dict[str, DataFrame]:
            written = write_tables(
                known.lines.drop("subject"),
                all_runs,
                out,
                # Without a line there is no day, and nothing to replace.
                (days[0] or NEVER[0], days[1] or NEVER[1]),
                limits,
                messages=tables.deliveries_of(known.told),
                roles=known.roles,
                from_margin=bool(first),
                progress=progress,
            )
            progress("keeping what has not ended")
            carried.write(known, all_runs, written["deliveries"], limits)
            return written

        problems, written = at_once(find_problems, make_tables)
    finally:
        store.remove(spark, staged)
    audits.record(*days)
    summary = Summary(
        first=days[0],
        last=days[1],
        lines=count + _bad_lines(problems),
        events=count,
    )
    progress("drawing the report")
    return draw(written, problems, out, summary, limits)


def write_tables(
    events: DataFrame,
    runs: DataFrame,
    out: str,
    days: Days,
    limits: Limits,
    *,
    messages: DataFrame,
    roles: Collection[Role] = frozenset(Role),
    from_margin: bool = False,
    progress: Callable[[str], None] = lambda step: None,
) -> dict[str, DataFrame]:
    """Make the tables of these days; existing rows of these days are replaced.

    Args:
        events: all lines of the messages and items with a row in these days.
        runs: the runs of all lines, merged; see qos.audit.boot_runs.
        out: see audit.
        days: the days of the tables.
        limits: the limits for anomalies.
        messages: see qos.audit.tables.deliveries.
        roles: the roles that `events` may have.
        from_margin: earlier lines exist that are not here: a message or item without
            its beginning is left out.
        progress: called with a description of the present step.

    Returns:
        Each table as it is on disk, for these days.
    """
    written: dict[str, DataFrame] = {}

    def write(name: str, table: DataFrame, *, has_rows: bool = True) -> DataFrame:
        """Write a table; `has_rows` is False if it is known to have none."""
        progress(f"writing {name}")
        folder = f"{out}/{name}"
        save = store.replace_days if has_rows else store.clear_days
        save(table, folder, *days)
        written[name] = store.read_table(table, folder, *days)
        return written[name]

    def write_for(role: Role, name: str, table: DataFrame) -> DataFrame:
        """Write a table that is made from the lines of a role."""
        return write(name, table, has_rows=role in roles)

    if from_margin:
        # It began before these lines: its row is in the table of that day.
        messages = messages.where(F.col("bytes").isNotNull())
    messages, has_suspects = _judged(messages, runs, limits)
    # The rows before this audit: data that is read stays so, whatever is written.
    messages_before = store.read_table(messages, f"{out}/deliveries", *days)
    has_former = any(
        store.count_rows(messages.sparkSession, f"{out}/{name}", *days)
        for name in ("anomalies", "unproven_hourly")
    )
    messages = write("deliveries", messages)

    def write_anomalies() -> None:
        found = tables.anomalies(messages)
        if has_former:
            before = store.read_table(found, f"{out}/anomalies", *days)
            found = tables.revised(found, before, messages, messages_before, limits)
        write("anomalies", found, has_rows=has_suspects or has_former)

    def write_unproven() -> None:
        found = tables.unproven_hourly(messages)
        write("unproven_hourly", found, has_rows=has_suspects)

    def write_queues() -> None:
        items = write_for(Role.QUEUE, "queue_items", tables.queue_items(events))
        write_for(Role.QUEUE, "queues_hourly", tables.queues_hourly(items))

    at_once(
        write_anomalies,
        lambda: write("routes_hourly", tables.routes_hourly(messages)),
        write_unproven,
        lambda: write_for(
            Role.JOURNAL, "windows_hourly", tables.windows_hourly(events)
        ),
        lambda: write_for(Role.RECEIVER, "refusals", tables.refusals(events)),
        write_queues,
        lambda: write_for(Role.WORKER, "workers_hourly", tables.workers_hourly(events)),
    )
    return written


def _judged(
    messages: DataFrame, runs: DataFrame, limits: Limits
) -> tuple[DataFrame, bool]:
    """The messages with their verdicts, and whether any looks wrong.

    Only the few that look wrong are judged. All others are ok.
    """
    rows = tables.with_suspicion(messages, limits)
    rows = rows.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
    found = tables.judged_ok(rows.where(~F.col("is_suspect")), limits)
    suspects = rows.where("is_suspect")
    count = suspects.count()
    if not count:
        return found, False
    few = count <= _SUSPECTS_FEW
    with without_compiling(rows.sparkSession, wanted=few):
        judged = tables.judged(suspects.coalesce(1) if few else suspects, runs, limits)
        judged = judged.localCheckpoint()
    return found.unionByName(judged), True


def draw(
    written: Mapping[str, DataFrame],
    problems: DataFrame,
    out: str,
    summary: Summary,
    limits: Limits,
) -> Summary:
    """Write the report and the metrics; returns the summary with their counts.

    Args:
        written: the tables, by name.
        problems: the problems of the journals.
        out: see audit.
        summary: its days and lines.
        limits: the limits by which anomalies were judged.
    """
    last = summary.last
    history = None if last is None else _history(written, out, last)
    data = collect(written, problems, limits, last=last, history=history)
    summary = replace(
        summary,
        rows=_rows(problems.sparkSession, written, out, summary),
        outcomes=data.outcomes,
        anomalies=data.anomaly_counts,
        problems=data.problem_counts,
        unproven={} if data.proof is None else data.proof.reasons,
        nothing_judged=nothing_judged(data),
    )
    page = render(data, summary.first, summary.last, lines=summary.lines)
    numbers = metrics(
        data, summary.first, summary.last, lines=summary.lines, at=limits.now
    )
    for name, content in ((REPORT, page), (METRICS, numbers)):
        if (folder := local_path(out)) is not None:
            _replace(folder / name, content)
        else:
            hadoop.write(problems.sparkSession, f"{out}/{name}", content.encode())
    return summary


def _replace(path: Path, content: str) -> None:
    """Replace a file that others read at any time.

    They see the old one, or the new one.
    """
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(content, encoding="utf-8", newline="\n")
    temporary.replace(path)


def _history(
    written: Mapping[str, DataFrame], out: str, last: date
) -> dict[str, DataFrame]:
    """The rows on disk of the last day and of the day before, from earlier audits."""
    before = last - timedelta(days=1)
    return {
        name: store.read_table(written[name], f"{out}/{name}", before, last)
        for name in ("routes_hourly", "anomalies")
    }


def _rows(
    spark: SparkSession, names: Collection[str], out: str, summary: Summary
) -> dict[str, int]:
    """The number of rows of each table in the days of an audit."""
    days = summary.first or NEVER[0], summary.last or NEVER[1]
    return {name: store.count_rows(spark, f"{out}/{name}", *days) for name in names}


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
    of_lines = F.col("kind").isin(*(each.value for each in LineProblem))
    bad = problems.where(of_lines).agg(F.sum("count")).first()
    assert bad is not None
    return int(bad[0] or 0)
