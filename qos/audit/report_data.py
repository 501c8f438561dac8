"""The numbers that the report shows: few of each table, however much data there is.

Knows neither Spark nor how the report looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

__all__ = ["OTHERS", "ROWS_MAX", "DayTotals", "Proof", "ReportData", "Rows", "Windows"]

#: Rows of most lists of the page.
ROWS_MAX = 15

#: All routes, or queues, that have no chart of their own.
OTHERS = "all others"

#: As `Row.asDict()` has it.
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Proof:
    """The share of the traffic that the journals allow to judge.

    Attributes:
        judged: messages of which the lines prove what is wrong, or show nothing wrong.
        unproven: messages that look wrong, where the lines do not prove it.
        reasons: of these, by reason.
        routes: with `sender`, `receiver`, `suspected`, `reason`, `node`, `messages`.
    """

    judged: int = 0
    unproven: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    routes: Rows = field(default_factory=list)

    @property
    def share(self) -> float | None:
        """The part that could be judged; None: there was nothing."""
        total = self.judged + self.unproven
        return self.judged / total if total else None


@dataclass(frozen=True, slots=True)
class Windows:
    """The counts of the nodes, and the windows of which both ends are there.

    Attributes:
        windows: of all routes: those in which somebody counted something.
        complete: those of which both ends are there.
        without_sender: those without the count of the sender's end.
        without_receiver: likewise.
        routes: those with the most windows that are not complete, with the columns of
            `windows_hourly`.
    """

    windows: int
    complete: int
    without_sender: int
    without_receiver: int
    routes: Rows = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DayTotals:
    """A day in three numbers.

    Attributes:
        day: in UTC.
        messages: that their senders tell of.
        p95: of their latency, in seconds; None: none has ended.
        anomalies: that stand.
    """

    day: date
    messages: int
    p95: float | None
    anomalies: int


@dataclass(slots=True)
class ReportData:
    """The data of the report; each list is short.

    Attributes:
        outcomes: messages by how they ended.
        anomaly_counts: by kind.
        problem_counts: by kind.
        files_open: files that are not closed, and were not read.
        proof: how much could be judged; None: not known.
        windows: what was counted; None: nothing.
        trend: the last day but one and the last day, if there are tables of both.
        levels: `level`, `messages` and `p95` of their latency.
        queue_totals: the columns of `queues`, of all of them; None: no item.
        bucket_s: the time that a point of a chart stands for.
        latency: `moment`, `line` (a route), `messages`, `p50` and `p95` in seconds.
        outcomes_by_time: `moment`, `outcome`, `messages`.
        slow: routes with `p50`, `p95`, `p99`, the slowest first.
        retried: routes by the part of their messages that had to be repeated.
        refusals: `source`, `receiver`, `reason`, `refusals`.
        anomalies: some of each kind.
        waits: `moment`, `line` (a queue), `items`, `p50`, `p95`.
        queues: each with its items and waits, the largest first.
        workers: each with its handlers.
        problems: of the journals.
    """

    outcomes: dict[str, int] = field(default_factory=dict)
    anomaly_counts: dict[str, int] = field(default_factory=dict)
    problem_counts: dict[str, int] = field(default_factory=dict)
    files_open: int = 0
    proof: Proof | None = None
    windows: Windows | None = None
    trend: tuple[DayTotals, DayTotals] | None = None
    levels: Rows = field(default_factory=list)
    queue_totals: dict[str, Any] | None = None
    bucket_s: int = 3600
    latency: Rows = field(default_factory=list)
    outcomes_by_time: Rows = field(default_factory=list)
    slow: Rows = field(default_factory=list)
    retried: Rows = field(default_factory=list)
    refusals: Rows = field(default_factory=list)
    anomalies: Rows = field(default_factory=list)
    waits: Rows = field(default_factory=list)
    queues: Rows = field(default_factory=list)
    workers: Rows = field(default_factory=list)
    problems: Rows = field(default_factory=list)

    @property
    def messages(self) -> int:
        """All that their senders tell of."""
        return sum(self.outcomes.values())
