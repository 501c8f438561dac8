"""Tables and numbers as text, for the demo."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["number", "table", "times"]


def table(
    heading: Sequence[Sequence[str]],
    rows: Sequence[Sequence[str]],
    *,
    bold: bool = False,
) -> str:
    """Lines of cells in columns, the first aligned left and the others right.

    Args:
        heading: one line or more.
        rows: the lines below.
        bold: mark the heading, for a terminal.
    """
    lines = [*heading, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    if bold:
        top = len(heading)
        text[:top] = (f"\x1b[1m{line}\x1b[0m" for line in text[:top])
    return "\n".join(text)


def number(count: int, thing: str) -> str:
    """A number with the name of the counted things."""
    return f"{count} {thing}{'s' * (count != 1)}"


def times(count: int) -> str:
    """How many times, in words."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
