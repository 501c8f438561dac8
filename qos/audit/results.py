"""The results of an audit for people: its summary, its report and its metrics.

A batch and a follower show their tables in the same way. This module does not make the
tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession

from qos.audit import hadoop, store
from qos.audit.locations import local_path
from qos.audit.report import render
from qos.audit.report_collect import collect
from qos.audit.report_headline import left_out, nothing_judged
from qos.audit.report_metrics import metrics
from qos.audit.tables import Limits

__all__ = ["METRICS", "NEVER", "REPORT", "Days", "Summary", "draw", "kept_from"]

#: The first and the last of some days.
Days: TypeAlias = tuple[date, date]

#: An empty range of days.
NEVER: Days = date(1970, 1, 2), date(1970, 1, 1)

REPORT = "report.html"
#: For the textfile collector of node_exporter, which reads *.prom.
METRICS = "metrics.prom"


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
    def left_out(self) -> int:
        """Lines that change nothing, since their node may not speak for the message."""
        return left_out(self.problems)

    @property
    def withdrawn(self) -> int:
        """The number of anomalies of earlier audits that are none."""
        return self.rows.get("anomalies", 0) - sum(self.anomalies.values())


def kept_from(now: datetime, keep_days: int | None) -> date | None:
    """The first day whose rows are kept; None: all are.

    The clock of this machine counts: a journal may have a line of any day.

    Args:
        now: the time of the audit.
        keep_days: the whole days before today whose rows are kept; None: all.
    """
    if keep_days is None:
        return None
    return now.astimezone(UTC).date() - timedelta(days=keep_days)


def draw(
    frames: Mapping[str, DataFrame],
    problems: DataFrame,
    out: str,
    summary: Summary,
    limits: Limits,
) -> Summary:
    """Write the report and the metrics; returns the summary with their counts.

    Args:
        frames: the tables, by name.
        problems: the problems of the journals.
        out: see audit.
        summary: its days and lines.
        limits: the limits by which anomalies were judged.
    """
    last = summary.last
    history = None if last is None else _history(frames, out, last)
    data = collect(frames, problems, limits, last=last, history=history)
    summary = replace(
        summary,
        rows=_rows(problems.sparkSession, frames, out, summary),
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
    frames: Mapping[str, DataFrame], out: str, last: date
) -> dict[str, DataFrame]:
    """The rows on disk of the last day and of the day before, from earlier audits."""
    before = last - timedelta(days=1)
    return {
        name: store.read_table(frames[name], f"{out}/{name}", before, last)
        for name in ("routes_hourly", "anomalies")
    }


def _rows(
    spark: SparkSession, names: Collection[str], out: str, summary: Summary
) -> dict[str, int]:
    """The number of rows of each table in the days of an audit."""
    days = summary.first or NEVER[0], summary.last or NEVER[1]
    return {name: store.count_rows(spark, f"{out}/{name}", *days) for name in names}
