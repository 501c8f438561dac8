"""The changes of a commit as SQL: one statement for all rows of a kind.

The writer's thread releases the GIL in each statement and has to get it back after it.
With a statement for each change, a commit of 64 changes was seen to take a second while
the event loop was busy.

The result is that of making the changes one after the other. Rows of one kind are
gathered as long as each record is changed by one kind only, so that it does not matter
which kind comes first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import TypeAlias

from qos.stores.sqlite_guard import OURS

__all__ = [
    "CACHED_STATEMENTS",
    "Kind",
    "NoSuchRow",
    "Row",
    "Statement",
    "Value",
    "gathered",
    "insert",
    "make",
    "names",
]

Value: TypeAlias = float | str | None

#: The most rows of one statement: SQLite accepts 32,766 parameters.
_ROWS_MAX = 512

#: The prepared statements that a connection keeps: some kinds, each in some sizes.
CACHED_STATEMENTS = 256


class NoSuchRow(Exception):
    """A change of a row that is not there."""


class Statement:
    """One statement for any number of rows."""

    def __init__(self, sql: str, *values: str, missing: str = "") -> None:
        """Take the SQL and the names of the values that it uses of each row.

        Args:
            sql: with `{rows}` in place of `VALUES (?, ?), (?, ?)`; without it, it has
                a `?` for each value of one row.
            values: the names, in order.
            missing: it changes a row of the table for each of its rows, or fails with
                this text; '': it may find less.
        """
        self.values = values
        self._sql = sql
        self._missing = missing
        self._texts: dict[int, str] = {}

    def execute(
        self, db: sqlite3.Connection, rows: Sequence[tuple[Value, ...]]
    ) -> None:
        """Execute it for these rows, each with the values of this statement.

        Raises:
            NoSuchRow: a row that must be there is missing.
        """
        size = _size(len(rows))
        text = self._texts.get(size)
        if text is None:
            text = self._texts[size] = self._text(size)
        # The last row fills the rest: each statement may be repeated.
        values = [*chain.from_iterable(rows), *(rows[-1] * (size - len(rows)))]
        changed = db.execute(text, values).rowcount
        if self._missing and changed != len(rows):
            raise NoSuchRow(self._missing)

    def _text(self, size: int) -> str:
        row = f"({', '.join('?' * len(self.values))})"
        verb, _, rest = self._sql.partition(" ")
        return f"{verb} {OURS} {rest}".replace(
            "{rows}", f"VALUES {', '.join([row] * size)}"
        )


class Kind:
    """A kind of change of one table, and of the payloads beside it."""

    def __init__(
        self, table: str, values: Sequence[str], *statements: Statement
    ) -> None:
        """Take the names of the values of a row, in order, and what to do with it."""
        self.table = table
        self._statements = [
            (statement, _picked(statement.values, values)) for statement in statements
        ]

    def make(self, db: sqlite3.Connection, rows: Sequence[tuple[Value, ...]]) -> None:
        """Make this change with each of the rows, which are about different records."""
        for start in range(0, len(rows), _ROWS_MAX):
            batch = rows[start : start + _ROWS_MAX]
            for statement, values_of in self._statements:
                statement.execute(db, [values_of(row) for row in batch])


#: A change: its kind, the key of the record in its table (None: it changes many
#: records), and its values.
Row: TypeAlias = tuple[Kind, Hashable, tuple[Value, ...]]


def make(db: sqlite3.Connection, rows: Iterable[Row]) -> None:
    """Make the changes in the open transaction, as if in order.

    Raises:
        NoSuchRow: a row that must be there is not; undo the transaction.
    """
    for kind, values in gathered(rows):
        kind.make(db, values)


def gathered(rows: Iterable[Row]) -> Iterator[tuple[Kind, list[tuple[Value, ...]]]]:
    """The rows by kind; of several rows of one record and kind, the last."""
    kinds: dict[tuple[str, Hashable], Kind] = {}
    groups: dict[Kind, dict[Hashable, tuple[Value, ...]]] = {}
    for kind, key, values in rows:
        if key is None or kinds.setdefault((kind.table, key), kind) is not kind:
            for earlier, group in groups.items():
                yield earlier, list(group.values())
            kinds, groups = {(kind.table, key): kind}, {}
        if key is None:
            yield kind, [values]
        elif kind in groups:
            groups[kind][key] = values
        else:
            groups[kind] = {key: values}
    for kind, group in groups.items():
        yield kind, list(group.values())


def _picked(
    values: Sequence[str], of: Sequence[str]
) -> Callable[[tuple[Value, ...]], tuple[Value, ...]]:
    """A function that takes these values out of a row."""
    first, *rest = (of.index(name) for name in values)
    if rest == list(range(first + 1, first + len(values))):
        return itemgetter(slice(first, first + len(values)))
    return itemgetter(first, *rest)


def _size(rows: int) -> int:
    """The number of rows of the statement to use: few sizes, which stay prepared.

    Sizes have three significant binary digits.
    """
    shift = max(0, (rows - 1).bit_length() - 3)
    return -(-rows >> shift) << shift


def names(of: Iterable[str]) -> str:
    """These column names, quoted and joined."""
    # Quoted, since "to" is a keyword.
    return ", ".join(f'"{name}"' for name in of)


def insert(table: str, columns: Sequence[str], *, verb: str = "INSERT") -> str:
    """A statement that inserts rows of values for these columns."""
    return f"{verb} INTO {table} ({names(columns)}) {{rows}}"
