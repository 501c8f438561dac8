"""Lists: a table for people at a terminal, JSON lines for everything else."""

from __future__ import annotations

import argparse
import sys
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager

from qos.cli.output import note, print_json, print_text, printable

__all__ = ["add_json", "is_for_people", "listing", "print_record"]

#: The rows that are looked at before the first is shown: they decide how wide the columns
#: are. A list may have a hundred thousand rows, and is not kept in memory.
_ROWS = 200

_GAP = "  "

_Record = Mapping[str, object]


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option --json."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="JSON lines on a terminal, too; without a terminal they are the usual output",
    )


def is_for_people(arguments: argparse.Namespace) -> bool:
    """Whether the output is read at a terminal, with the options of add_json."""
    return not arguments.json and sys.stdout.isatty()


@asynccontextmanager
async def listing(
    arguments: argparse.Namespace, *, empty: str = "", columns: Sequence[str] = ()
) -> AsyncIterator[Callable[[_Record], Awaitable[None]]]:
    """A function that shows one record of a list.

    Args:
        arguments: with the option of add_json.
        empty: the line on stderr, for people, if there is no record; '': none.
        columns: the fields that people see, in this order; (): all. A column that is
            empty in each row is left out.
    """
    if not is_for_people(arguments):
        yield print_json
        return
    table = _Table(columns)
    yield table.add
    await table.flush()
    if empty and table.is_empty:
        note(empty)


async def print_record(arguments: argparse.Namespace, record: _Record) -> None:
    """Show a single record: each of its fields in a line, if it is for people."""
    if not is_for_people(arguments):
        await print_json(record)
        return
    width = max(map(len, record))
    lines = (
        f"{_title(key):{width}}{_GAP}{_cell(value)}" for key, value in record.items()
    )
    await print_text("".join(f"{line.rstrip()}\n" for line in lines))


class _Table:
    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._rows: list[_Record] = []
        #: By field, once they are known.
        self._widths: dict[str, int] = {}

    async def add(self, record: _Record) -> None:
        """Show a row, or keep it until the widths are known."""
        self._rows.append(record)
        if self._widths or len(self._rows) == _ROWS:
            await self.flush()

    @property
    def is_empty(self) -> bool:
        """Whether no row was ever added."""
        return not (self._rows or self._widths)

    async def flush(self) -> None:
        """Show the rows that are kept."""
        rows, self._rows = self._rows, []
        lines = [self._line(row) for row in self._headed(rows)]
        if lines:
            await print_text("".join(f"{line.rstrip()}\n" for line in lines))

    def _headed(self, rows: list[_Record]) -> Iterable[_Record]:
        if self._widths or not rows:
            return rows
        fields = dict.fromkeys(key for row in rows for key in row)
        if self._columns:
            fields = dict.fromkeys(key for key in self._columns if key in fields)
        head: _Record = {key: _title(key) for key in fields}
        table = [head, *rows]
        self._widths = {
            key: max(len(_cell(row.get(key, ""))) for row in table) for key in fields
        }
        return table

    def _line(self, row: _Record) -> str:
        return _GAP.join(
            _padded(row.get(key, ""), width) for key, width in self._widths.items()
        )


def _padded(value: object, width: int) -> str:
    """Numbers stand at the right of their column, and all else at the left."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return _cell(value).rjust(width) if is_number else _cell(value).ljust(width)


def _title(key: str) -> str:
    return key.replace("_", " ")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))
