"""The figures of a run as tables, and as plain values for JSON."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TypeAlias

from benchmarks.figures import FIGURES, Measured, ratio, spread
from benchmarks.sections import Section

__all__ = ["Results", "absences", "aligned", "caveats", "folded", "plain", "tables"]

#: `ratio` or `spread` of benchmarks.figures.
Comparison: TypeAlias = Callable[[Measured, Measured, str], float | None]

_MIB = 2**20

_COLUMNS_MAX = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of a run.

    Attributes:
        measured: see benchmarks.run.measure.
        sections: the sections of the report; a row may stand in several.
        caveats: the missing guarantees, by the name of the row.
        absent: the reason why a row was not measured, by its name.
        compared: the figure, one of FIGURES, by which rows are compared.
    """

    measured: Sequence[Measured]
    sections: Sequence[Section]
    caveats: Mapping[str, str]
    absent: Mapping[str, str] = field(default_factory=dict)
    compared: str = "rate"

    def base(self, one: Measured, base: str) -> Measured | None:
        """The row of this name at the same window and size; None: not measured."""
        for other in self.measured:
            place = (base, one.window, one.payload_bytes)
            if (other.row, other.window, other.payload_bytes) == place:
                return other
        return None

    def ratios(self, one: Measured, how: Comparison, figure: str) -> dict[str, float]:
        """The result of `ratio` or `spread` for each row of the comparison, by name."""
        names = {
            rows[one.row]: None
            for section in self.sections
            for rows in section.bases.values()
            if one.row in rows
        }
        found = {
            name: how(one, base, figure)
            for name in names
            if (base := self.base(one, name)) is not None
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the tables.

    Attributes:
        head: two lines.
        cell: its text; empty if the value is not known.
    """

    head: tuple[str, str]
    cell: Callable[[Measured], str]


# -- tables ----------------------------------------------------------------


def tables(results: Results) -> list[str]:
    """One table for each section in which something was measured."""
    found = (_table(section, results) for section in results.sections)
    return [table for table in found if table]


def _table(section: Section, results: Results) -> str:
    groups: dict[tuple[int, int], list[Measured]] = {}
    for each in sorted(
        results.measured, key=lambda one: (one.payload_bytes, one.window)
    ):
        groups.setdefault((each.payload_bytes, each.window), []).append(each)
    lines: list[Sequence[str] | str] = []
    columns = list(_columns(section, results))
    for (size, window), group in groups.items():
        rows = {each.row: each for each in group}
        here = [rows[name] for name in section.rows if name in rows]
        if here:
            lines.append(f"window {window}, {size} bytes{_disturbance(here)}")
        lines += [[each.row, *(one.cell(each) for one in columns)] for each in here]
    if not lines:
        return ""
    cells = [line for line in lines if not isinstance(line, str)]
    # A figure that is not known of any row, such as the bytes of a broker, has no
    # column.
    known = [any(column) for column in zip(*cells, strict=True)]
    heads = zip(("", "row"), *(each.head for each in columns), strict=True)
    lines = [*map(list, heads), *lines]
    shown = [
        line if isinstance(line, str) else list(_some(line, known)) for line in lines
    ]
    return "\n".join([section.title, *aligned(shown)])


def _disturbance(rows: Sequence[Measured]) -> str:
    """The load of other programs during these rows, for their head."""
    shares = [FIGURES["others_share"](each) for row in rows for each in row.samples]
    known = [share for share in shares if share is not None]
    if not known:
        return ""
    return f"; others used {min(known):.0%} to {max(known):.0%} of the processors"


def _columns(section: Section, results: Results) -> Iterator[_Column]:
    figure = _figure
    yield _Column(("", "msg/s"), figure("rate", _whole))
    if section.confirms:
        yield _Column(("con-", "firmed/s"), figure("confirmed_rate", _whole))
    above = {"rate": "rate ÷", "p50_s": "p50 ÷"}[results.compared]
    for number, (label, rows) in enumerate(section.bases.items()):
        by_rate = partial(_compared, results, rows, ratio, results.compared)
        yield _Column(("" if number else above, label), by_rate)
        if section.wire:
            turns = partial(_compared, results, rows, spread, results.compared)
            yield _Column(("", "±"), turns)
            by_cpu = partial(_compared, results, rows, ratio, "cpu_us_ends")
            yield _Column(("CPU ÷", label), by_cpu)
    yield _Column(("p50", "ms"), figure("p50_s", _three, 1e-3))
    yield _Column(("p99", "ms"), figure("p99_s", _three, 1e-3))
    if not section.wire and not section.confirms:
        yield _Column(("p99.9", "ms"), figure("p999_s", _three, 1e-3))
    yield _Column(("CPU µs", "sender"), figure("cpu_us_sender", _whole))
    yield _Column(("", "recv."), figure("cpu_us_receiver", _whole))
    yield _Column(("", "server"), figure("cpu_us_server", _whole))
    yield _Column(("", "service"), figure("cpu_us_service", _whole))
    if section.wire:
        yield _Column(("", "bytes"), figure("wire_bytes", _whole))
        yield _Column(("", "stanzas"), figure("stanzas", _three))
        yield _Column(("MiB", "sender"), figure("rss_bytes_sender", _whole, _MIB))
        yield _Column(("", "recv."), figure("rss_bytes_receiver", _whole, _MIB))


def _figure(
    name: str, text: Callable[[float], str], unit: float = 1.0
) -> Callable[[Measured], str]:
    def cell(measured: Measured) -> str:
        value = measured.median(name)
        return "" if value is None else text(value / unit)

    return cell


def _compared(
    results: Results,
    rows: Mapping[str, str],
    how: Comparison,
    figure: str,
    measured: Measured,
) -> str:
    base = results.base(measured, rows.get(measured.row, ""))
    value = None if base is None else how(measured, base, figure)
    return "" if value is None else f"{value:.2f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _three(value: float) -> str:
    """At least three digits, and at most two after the point."""
    digits = 2 if value < 1 else max(0, 2 - math.floor(math.log10(value)))
    return f"{value:,.{digits}f}"


def _some(line: Sequence[str], wanted: Sequence[bool]) -> Iterator[str]:
    return (cell for cell, want in zip(line, wanted, strict=True) if want)


def aligned(lines: Sequence[Sequence[str] | str]) -> Iterator[str]:
    """Return lines of cells as aligned columns, and text lines unchanged."""
    cells = [line for line in lines if not isinstance(line, str)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in lines:
        if isinstance(line, str):
            yield line
            continue
        name, *rest = line
        padded = [
            f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)
        ]
        yield "  ".join([f"{name:<{widths[0]}}", *padded]).rstrip()


# -- the notes below, and JSON ---------------------------------------------


def caveats(results: Results) -> str:
    """The guarantees that rows do not give; empty if there is nothing to note."""
    rows = dict.fromkeys(each.row for each in results.measured)
    return _said_once({row: results.caveats.get(row, "") for row in rows})


def absences(results: Results) -> str:
    """The rows that were left out, and the reasons; empty if none was."""
    return _said_once(results.absent)


def plain(results: Results) -> dict[str, object]:
    """All figures, medians and samples of each row, window and size.

    And the absent rows.
    """
    rows = [
        {
            "row": each.row,
            "caveat": results.caveats.get(each.row, ""),
            "window": each.window,
            "payload_bytes": each.payload_bytes,
            "ratios": results.ratios(each, ratio, results.compared),
            "spreads": results.ratios(each, spread, results.compared),
            "cpu_ratios": results.ratios(each, ratio, "cpu_us_ends"),
            **{name: each.median(name) for name in FIGURES},
            "samples": [asdict(sample) for sample in each.samples],
        }
        for each in results.measured
    ]
    return {"rows": rows, "absent": dict(results.absent)}


def folded(text: str) -> str:
    """A text in lines as long as those of a table."""
    return textwrap.fill(
        text,
        _COLUMNS_MAX,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _said_once(texts: Mapping[str, str]) -> str:
    """Notes about rows; rows with the same note are put together."""
    names: dict[str, list[str]] = {}
    for row, text in texts.items():
        if text:
            names.setdefault(text, []).append(row)
    return "\n".join(
        folded(f"{'; '.join(rows)}: {text}.") for text, rows in names.items()
    )
