"""Pieces of HTML for the report: escaped text, numbers, and tables.

All names in the report were chosen by others, perhaps by an attacker. Every text goes
through `text()`, which escapes it and leaves out invisible characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["cut", "duration", "plural", "table", "text"]

_CELL_CHARS = 160


def text(value: object, chars: int = _CELL_CHARS) -> str:
    """A value in the form for the page.

    Args:
        value: a text, a number, or None for an empty cell.
        chars: a longer text is cut.
    """
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return escape(cut("" if value is None else str(value), chars))


def cut(value: str, chars: int) -> str:
    """The text without invisible characters, and at most this long."""
    # Cut first: the text may be long.
    visible = "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for char in value[:chars]
    )
    return visible if len(value) <= chars else f"{visible[:-1]}…"


def plural(number: int, noun: str) -> str:
    """A number with the name of the counted things."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float | None) -> str:
    """A length of time in a suitable unit: for a headline, not for a column."""
    if seconds is None:
        return ""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table: texts on the left, numbers on the right; "" without rows.

    Args:
        caption: describes a row, and gives the unit of its numbers.
        head: the heading of each column. One that begins with a `#` is for numbers, one
            with a `=` for short words.
        rows: each with a value for each column.
    """
    body = "".join(_row(head, row) for row in rows)
    if not body:
        return ""
    names = "".join(
        f'<th scope="col"{_HEADS[_kind(name)]}>{escape(name.lstrip("#="))}</th>'
        for name in head
    )
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}">'
        f"<table><caption>{escape(caption)}</caption>"
        f"<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(head: Sequence[str], row: Sequence[object]) -> str:
    first, *rest = (
        (_kind(name), text(value)) for name, value in zip(head, row, strict=True)
    )
    cells = "".join(f"<td{_CELLS[kind]}>{value}</td>" for kind, value in rest)
    return f'<tr><th scope="row"{_HEADS[first[0]]}>{first[1]}</th>{cells}</tr>\n'


def _kind(name: str) -> str:
    return name[0] if name.startswith(("#", "=")) else ""


#: By the first character of a heading. A cell is a number if there is no other class.
_HEADS = {"": "", "=": ' class="word"', "#": ' class="number"'}
_CELLS = {"": ' class="text"', "=": ' class="word"', "#": ""}
