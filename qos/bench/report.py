"""The figures of a run as a table, and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from qos.bench.figures import FIGURES, Measured, ratio

__all__ = ["Results", "caveats", "plain", "table"]

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a run has found out.

    Attributes:
        measured: see qos.bench.run.measure.
        floors: by the name of a row that of its floor.
        caveats: by the name of a row what it does not guarantee.
        compared: by which of FIGURES a row is compared with its floor.
    """

    measured: Sequence[Measured]
    floors: Mapping[str, str]
    caveats: Mapping[str, str]
    compared: str = "rate"

    def ratio(self, one: Measured) -> float | None:
        """To its floor at the same window and size; None: that was not measured."""
        for other in self.measured:
            if (other.row, other.window, other.payload_bytes) == (
                self.floors.get(one.row),
                one.window,
                one.payload_bytes,
            ):
                return ratio(one, other, self.compared)
        return None


@dataclass(frozen=True, slots=True)
class _Column:
    """One of FIGURES, as the table has it.

    Attributes:
        head: two lines.
        figure: its name.
        digits: after the point.
        unit: what it is divided by.
    """

    head: tuple[str, str]
    figure: str
    digits: int = 0
    unit: float = 1.0


_SPEED = (_Column(("", "msg/s"), "rate"),)
_REST = (
    _Column(("p50", "ms"), "p50_s", 2, 1e-3),
    _Column(("p99", "ms"), "p99_s", 2, 1e-3),
    _Column(("p99.9", "ms"), "p999_s", 2, 1e-3),
    _Column(("CPU µs:", "sender"), "cpu_us_sender"),
    _Column(("", "receiver"), "cpu_us_receiver"),
    _Column(("", "server"), "cpu_us_server"),
    _Column(("bytes a", "message"), "wire_bytes"),
    _Column(("stanzas a", "message"), "stanzas", 2),
    _Column(("MiB:", "sender"), "rss_bytes_sender", 0, _MIB),
    _Column(("", "receiver"), "rss_bytes_receiver", 0, _MIB),
)


def table(results: Results) -> str:
    """A line for each row and window, by payload size."""
    compared = {"rate": "rate by", "p50_s": "p50 by"}[results.compared]
    head = [("", "row"), ("payload", "bytes"), ("", "window")]
    head += [each.head for each in _SPEED]
    head += [(compared, "floor"), *(each.head for each in _REST)]
    lines: list[Sequence[str]] = list(zip(*head, strict=True))
    ordered = sorted(
        results.measured, key=lambda each: (each.payload_bytes, each.window)
    )
    before = None
    for each in ordered:
        group = (each.payload_bytes, each.window)
        if before not in (None, group):
            lines.append([""] * len(head))
        before = group
        lines.append(
            [
                each.row,
                str(each.payload_bytes),
                str(each.window),
                *(_cell(each, column) for column in _SPEED),
                _number(results.ratio(each), 2),
                *(_cell(each, column) for column in _REST),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_line(cells, widths) for cells in lines)


def caveats(results: Results) -> str:
    """What the rows do not guarantee; empty if nothing is to be said."""
    names: dict[str, list[str]] = {}
    for row in dict.fromkeys(each.row for each in results.measured):
        caveat = results.caveats.get(row, "")
        if caveat:
            names.setdefault(caveat, []).append(row)
    return "\n".join(f"{'; '.join(rows)}: {caveat}." for caveat, rows in names.items())


def plain(results: Results) -> list[dict[str, object]]:
    """All figures, medians and samples, a dictionary for each row, window and size."""
    return [
        {
            "row": each.row,
            "caveat": results.caveats.get(each.row, ""),
            "window": each.window,
            "payload_bytes": each.payload_bytes,
            "floor": results.floors.get(each.row, ""),
            "ratio": results.ratio(each),
            **{name: each.median(name) for name in FIGURES},
            "samples": [asdict(sample) for sample in each.samples],
        }
        for each in results.measured
    ]


def _cell(measured: Measured, column: _Column) -> str:
    value = measured.median(column.figure)
    return _number(None if value is None else value / column.unit, column.digits)


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    name, *rest = zip(cells, widths, strict=True)
    padded = [f"{name[0]:<{name[1]}}", *(f"{cell:>{width}}" for cell, width in rest)]
    return "  ".join(padded).rstrip()
