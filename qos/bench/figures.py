"""The figures of a row, as its table shows them. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qos.bench.pace import percentile

__all__ = ["Figures", "figures_of", "head", "line"]


@dataclass(frozen=True, slots=True)
class Figures:
    """A row: one kind of traffic with one window.

    Attributes:
        row: its name.
        window: the number of messages, or unconfirmed items, in flight.
        payload_bytes: of each of them.
        messages: those that were given.
        seconds: from the first that was given to the end of the last.
        rate: those that ended well, in a second.
        p50_ms: the median of the times from giving one to its end, in milliseconds;
            `p99_ms`, `p999_ms` and `max_ms` likewise. None: none ended well.
        cpu_us: processor time of this process for each of them, in microseconds: of
            both ends.
        missing: those that did not arrive, or of which that is not known.
        twice: those that were handed over more than once.
        confirmed_rate: of a queue: those that the service confirmed to the publisher,
            in a second.
    """

    row: str
    window: int
    payload_bytes: int
    messages: int
    seconds: float
    rate: float
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    max_ms: float | None
    cpu_us: float
    missing: int = 0
    twice: int = 0
    confirmed_rate: float | None = field(default=None)


def figures_of(
    row: str,
    *,
    window: int,
    payload_bytes: int,
    messages: int,
    latencies_s: Sequence[float],
    seconds: float,
    cpu_s: float,
    twice: int = 0,
    confirmed_rate: float | None = None,
) -> Figures:
    """Return the figures.

    Args:
        row: its name.
        window: see Figures.
        payload_bytes: see Figures.
        messages: see Figures.
        latencies_s: of each message that ended well, in any order.
        seconds: see Figures.
        cpu_s: the processor time that all of them took.
        twice: see Figures.
        confirmed_rate: see Figures.
    """
    ordered = sorted(latencies_s)
    shares = (0.5, 0.99, 0.999, 1.0)
    p50_ms, p99_ms, p999_ms, max_ms = (
        percentile(ordered, share) * 1000 if ordered else None for share in shares
    )
    return Figures(
        row=row,
        window=window,
        payload_bytes=payload_bytes,
        messages=messages,
        seconds=seconds,
        rate=len(ordered) / seconds,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
        p999_ms=p999_ms,
        max_ms=max_ms,
        cpu_us=cpu_s / messages * 1_000_000,
        missing=messages - len(ordered),
        twice=twice,
        confirmed_rate=confirmed_rate,
    )


#: The width of each column: rows are shown as they are measured.
_NAME, _CELL = 26, 10


def head(*, queue: bool = False) -> str:
    """The titles of the columns; `queue` adds that of the confirms."""
    titles = ["items/s" if queue else "msg/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms"]
    titles += ["CPU µs", "missing", "twice"]
    if queue:
        titles.insert(0, "confirm/s")
    return _joined("row", titles)


def line(figures: Figures) -> str:
    """The row, below the titles of `head`."""
    times = (figures.p50_ms, figures.p99_ms, figures.p999_ms, figures.max_ms)
    cells = [f"{figures.rate:,.0f}", *map(_time, times), f"{figures.cpu_us:,.0f}"]
    cells += [f"{figures.missing:,}", f"{figures.twice:,}"]
    if figures.confirmed_rate is not None:
        cells.insert(0, f"{figures.confirmed_rate:,.0f}")
    return _joined(f"{figures.row}, window {figures.window}", cells)


def _time(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds:,.1f}"


def _joined(name: str, cells: Sequence[str]) -> str:
    return f"{name:{_NAME}}" + "".join(f"{cell:>{_CELL}}" for cell in cells)
