"""Pieces of HTML for the report: text that is escaped, numbers, and tables.

All names in the report were chosen by somebody else, perhaps by an attacker. Every text
goes through `text()`, which escapes it and leaves out what cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["cut", "duration", "plural", "table", "text"]

_CELL_CHARS = 160


def text(value: object, chars: int = _CELL_CHARS) -> str:
    """A value as the page has it.

    Args:
        value: a text, a number, or None, which is nothing at all.
        chars: a longer text is cut.
    """
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}"
    return escape(cut("" if value is None else str(value), chars))


def cut(value: str, chars: int) -> str:
    """The text without what cannot be seen, and not longer than this."""
    # Cut first: it may be long.
    shown = "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}"
        for char in value[:chars]
    )
    return shown if len(value) <= chars else f"{shown[:-1]}…"


def plural(number: int, noun: str) -> str:
    """A number and what it counts."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float | None) -> str:
    """A time in the unit that suits it: for a headline, not for a column."""
    if seconds is None:
        return ""
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table: texts on the left, numbers on the right; "" without a row.

    Args:
        caption: says what a row is, and the unit of its numbers.
        head: of each column. One that begins with a `#` has numbers, with a `=` short
            words.
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
    first, *others = (
        (_kind(name), text(value)) for name, value in zip(head, row, strict=True)
    )
    cells = "".join(f"<td{_CELLS[kind]}>{value}</td>" for kind, value in others)
    return f'<tr><th scope="row"{_HEADS[first[0]]}>{first[1]}</th>{cells}</tr>\n'


def _kind(name: str) -> str:
    return name[0] if name.startswith(("#", "=")) else ""


#: By the first character of a heading: a cell is a number, if nothing else is said.
_HEADS = {"": "", "=": ' class="word"', "#": ' class="number"'}
_CELLS = {"": ' class="text"', "=": ' class="word"', "#": ""}
