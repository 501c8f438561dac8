"""The numbers of the report: only a few of each table, however much data there is.

This module knows neither Spark nor the look of the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

__all__ = ["OTHERS", "ROWS_MAX", "DayTotals", "Proof", "ReportData", "Rows", "Windows"]

#: The rows of most lists of the page.
ROWS_MAX = 15

#: The name for all routes, or queues, without a chart of their own.
OTHERS = "all others"

#: Rows in the form of `Row.asDict()`.
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Proof:
    """The share of the traffic for which the journals permit a verdict.

    Attributes:
        judged: messages whose lines prove a fault, or show nothing wrong.
        unproven: messages that look wrong, without proof.
        reasons: the number of unproven messages by reason.
        routes: with `sender`, `receiver`, `suspected`, `reason`, `node`, `messages`.
    """

    judged: int = 0
    unproven: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    routes: Rows = field(default_factory=list)

    @property
    def share(self) -> float | None:
        """The share that could be judged; None: there were no messages."""
        total = self.judged + self.unproven
        return self.judged / total if total else None


@dataclass(frozen=True, slots=True)
class Windows:
    """The counts of the nodes, and the windows with the counts of both ends.

    Attributes:
        windows: for all routes, those in which a node counted a message.
        complete: those with the counts of both ends.
        without_sender: those without the count of the sender's end.
        without_receiver: those without the count of the receiver's end.
        routes: those with the most incomplete windows, with the columns of
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
        messages: those that their senders have recorded.
        p95: of their latency, in seconds; None: none has ended.
        anomalies: those that were not withdrawn.
    """

    day: date
    messages: int
    p95: float | None
    anomalies: int


@dataclass(slots=True)
class ReportData:
    """The data of the report; each list is short.

    Attributes:
        outcomes: the number of messages by outcome.
        anomaly_counts: by kind.
        problem_counts: by kind.
        files_open: the number of files that are not closed, and were not read.
        proof: the share that could be judged; None: not known.
        windows: the counts of windows; None: none.
        trend: the day before the last and the last day, if there are tables of both.
        levels: `level`, `messages` and `p95` of their latency.
        queue_totals: the columns of `queues`, for all of them; None: no item.
        bucket_s: the length of time of a point of a chart, in seconds.
        latency: `moment`, `line` (a route), `messages`, `p50` and `p95` in seconds.
        outcomes_by_time: `moment`, `outcome`, `messages`.
        slow: routes with `p50`, `p95`, `p99`, the slowest first.
        retried: routes by the share of their messages that had to be repeated.
        refusals: `source`, `receiver`, `reason`, `refusals`.
        anomalies: some of each kind.
        waits: `moment`, `line` (a queue), `items`, `p50`, `p95`.
        queues: each with its items and waits, the largest first.
        workers: each with its handlers.
        problems: the problems of the journals.
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
        """The number of messages that their senders have recorded."""
        return sum(self.outcomes.values())
