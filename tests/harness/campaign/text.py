"""Tables and numbers as text, in the output of a campaign."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["number", "table"]


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines of cells in columns, the first aligned left and the others right.

    The heading is bold if stdout is a terminal.
    """
    lines = [heading, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    if sys.stdout.isatty():
        text[0] = f"\x1b[1m{text[0]}\x1b[0m"
    return "\n".join(text)


def number(count: int, thing: str) -> str:
    """A number with the name of the counted things."""
    return f"{count} {thing}{'s' * (count != 1)}"
