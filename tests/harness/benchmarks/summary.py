"""The figures of a run as one short table in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import Measured, ratio, spread
from benchmarks.report import Results

__all__ = ["markdown"]


def markdown(results: Results) -> str:
    """The rows that are compared with others: their rates, and the ratios.

    At the largest size of payload that was measured. A row that is compared with nothing,
    such as the floor itself, is left out, but for queues of others. If there are several
    windows, a column says which one a row is of. Queues have two columns more: the rate
    of the broker's confirms, and the processor time of the broker.
    """
    largest = max((each.payload_bytes for each in results.measured), default=0)
    rows = [
        each
        for each in results.measured
        if each.payload_bytes == largest
        and (results.ratios(each, ratio, results.compared) or _confirms(each))
    ]
    rows.sort(key=lambda each: each.window)
    headings = [label for section in results.sections for label in section.bases]
    labels = [
        label
        for label in dict.fromkeys(headings)
        if any(_base(results, label, each) is not None for each in rows)
    ]
    head = ["", "msg/s", *(f"÷ {label}" for label in labels), "CPU µs", "CPU ÷ floor"]
    cells = [_cells(results, labels, row) for row in rows]
    if len({row.window for row in rows}) > 1:
        head.insert(1, "window")
        for line, row in zip(cells, rows, strict=True):
            line.insert(1, str(row.window))
    if any(map(_confirms, rows)):
        head += ["confirmed/s", "CPU µs, server"]
        figures = ("confirmed_rate", "cpu_us_servers")
        for line, row in zip(cells, rows, strict=True):
            line += [_whole(row.median(name)) for name in figures]
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(results: Results, labels: Sequence[str], row: Measured) -> list[str]:
    return [
        row.row,
        _whole(row.median("rate")),
        *(_ratio(results, label, row) for label in labels),
        _whole(row.median("cpu_us_ends")),
        _cpu_ratio(results, row),
    ]


def _confirms(row: Measured) -> bool:
    return row.median("confirmed_rate") is not None


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _base(results: Results, label: str, row: Measured) -> Measured | None:
    """The row with which it is compared under this heading."""
    for section in results.sections:
        name = section.bases.get(label, {}).get(row.row)
        if name is not None:
            return results.base(row, name)
    return None


def _ratio(results: Results, label: str, row: Measured) -> str:
    base = _base(results, label, row)
    if base is None:
        return ""
    value, turns = (how(row, base, results.compared) for how in (ratio, spread))
    if value is None:
        return ""
    return f"{value:.2f}" if turns is None else f"{value:.2f} ± {turns:.2f}"


def _cpu_ratio(results: Results, row: Measured) -> str:
    base = _base(results, "floor", row)
    value = None if base is None else ratio(row, base, "cpu_us_ends")
    return "" if value is None else f"{value:.1f}"
