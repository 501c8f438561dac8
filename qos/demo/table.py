"""The result of the runs, from the sent messages and the counter's notes.

This module knows no network. For another measurement, make another `Row`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from qos.core.message.model import Level
from qos.demo.counter import Book
from qos.demo.scenario import Passing, inside
from qos.demo.text import table

__all__ = ["Row", "reckon", "render"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One level: the end of its messages, and what happened to them.

    Attributes:
        level: the name of the level.
        sent: the number of messages sent.
        arrived: the number of these that were counted at least once.
        lost: the number of these that were not counted.
        duplicated: the number of these that were counted more than once.
        stanzas_per_message: stanzas from one client to another, including repeats.
        median_latency_ms: from the passing of the door until it is first counted; None
            when nothing arrived.
        inside: the people inside at the end, according to the counter.
        inside_truth: the people inside.
        recognized: the number of messages that came again after a kill, and were not
            counted again.
        outcomes: the number of messages with each outcome, as their senders know it.
        stanzas_dropped: stanzas dropped by the link.
        cuts: connections cut by the link.
        kills: the number of times that the counter was killed.
        seconds: the duration.
    """

    level: str
    sent: int
    arrived: int
    lost: int
    duplicated: int
    stanzas_per_message: float
    median_latency_ms: float | None
    inside: int
    inside_truth: int
    recognized: int
    outcomes: Mapping[str, int]
    stanzas_dropped: int
    cuts: int
    kills: int
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether each message arrived once, and its sender knows that it did."""
        return (
            self.lost == self.duplicated == 0
            and self.inside == self.inside_truth
            and self.outcomes == {"delivered": self.sent}
        )

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def reckon(
    level: Level,
    passings: Sequence[Passing],
    *,
    passed_at: Mapping[int, float],
    book: Book,
    outcomes: Mapping[str, int],
    stanzas: int,
    stanzas_dropped: int,
    cuts: int,
    kills: int,
    seconds: float,
) -> Row:
    """Compare the sent messages with the counted ones.

    Args:
        level: the level at which they were sent.
        passings: what happened, and was sent.
        passed_at: the times, by the number of the passing, on the counter's clock.
        book: the counter's notes.
        outcomes: see Row.
        stanzas: the number of stanzas.
        stanzas_dropped: stanzas dropped by the link.
        cuts: connections cut by the link.
        kills: the number of times that the counter was killed.
        seconds: the duration.
    """
    times = Counter(count.number for count in book.counts)
    first: dict[int, float] = {}
    for count in book.counts:
        first.setdefault(count.number, count.at - passed_at[count.number])
    sent = len(passings)
    return Row(
        level=level.value,
        sent=sent,
        arrived=len(times),
        lost=sent - len(times),
        duplicated=sum(1 for number in times.values() if number > 1),
        stanzas_per_message=round(stanzas / sent, 2),
        median_latency_ms=round(median(first.values()) * 1000, 1) if first else None,
        inside=inside([count.event for count in book.counts]),
        inside_truth=inside([passing.event for passing in passings]),
        recognized=book.recognized,
        outcomes=outcomes,
        stanzas_dropped=stanzas_dropped,
        cuts=cuts,
        kills=kills,
        seconds=round(seconds, 1),
    )


#: The columns, by their headings, in two lines.
_COLUMNS = (
    ("level", ""),
    ("sent", ""),
    ("arrived", ""),
    ("lost", ""),
    ("duplicated", ""),
    ("stanzas", "a message"),
    ("median", "latency"),
    ("inside", "(truth)"),
)


def render(rows: Sequence[Row], *, bold: bool = False) -> str:
    """The rows as a table of text.

    Args:
        rows: the rows in their order.
        bold: mark the heading, for a terminal.
    """
    heading = tuple(zip(*_COLUMNS, strict=True))
    return table(heading, [_cells(row) for row in rows], bold=bold)


def _cells(row: Row) -> tuple[str, ...]:
    latency = row.median_latency_ms
    return (
        row.level,
        str(row.sent),
        str(row.arrived),
        str(row.lost),
        str(row.duplicated),
        f"{row.stanzas_per_message:.1f}",
        "-" if latency is None else f"{latency:.0f} ms",
        f"{row.inside} ({row.inside_truth})",
    )
