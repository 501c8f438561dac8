"""The changes of a commit on their way to SQLite: one INSERT into a view.

The triggers of the view make the changes. So the writer's thread releases the GIL only
once in a commit. With a statement for each change it would have to get the GIL back
after each: a commit of 64 changes was seen to take a second while the event loop was
busy.

The triggers name the store's tables without `main.`, since SQLite accepts no qualified
names there, and a temporary table would hide them. So a connection with this view may
have no other temporary objects (sqlite_guard.py).
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from qos.stores.sqlite_guard import OURS

__all__ = ["ChangesView", "Kind", "Value", "insert", "names"]

Value: TypeAlias = float | str | None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of change.

    Attributes:
        name: the first value of a row of this kind.
        values: the names of its other values, in order.
        does: SQL, each statement with its semicolon; NEW.name is the value of that
            name.
    """

    name: str
    values: tuple[str, ...]
    does: str


class ChangesView:
    """The view of one store, for all its kinds of changes."""

    def __init__(self, *kinds: Kind) -> None:
        self._kinds = kinds
        self._nothing = (None,) * (1 + max(len(kind.values) for kind in kinds))

    def create(self, writer: sqlite3.Connection) -> None:
        """Make the view and its triggers; they last as long as the connection."""
        columns = ", ".join(_column(place) for place in range(len(self._nothing) - 1))
        nulls = ", ".join(["NULL"] * len(self._nothing))
        writer.execute(f"CREATE TEMP VIEW changes (kind, {columns}) AS SELECT {nulls}")
        for kind in self._kinds:
            writer.execute(_trigger(kind))

    def make(self, writer: sqlite3.Connection, rows: list[tuple[Value, ...]]) -> None:
        """Make the changes in order, all or none.

        Args:
            writer: the connection on which the view was created.
            rows: for each change the name of its kind, then its values; trailing values
                may be left out if they are None.
        """
        size = _size(len(rows))
        values: list[Value] = []
        for row in rows:
            values += row
            values += self._nothing[len(row) :]
        values += self._nothing * (size - len(rows))
        writer.execute(_statement(size, len(self._nothing)), values)


def _size(rows: int) -> int:
    """The number of rows of the statement to use: few sizes, which stay prepared.

    Sizes have three significant binary digits. An unused row costs half as much as a
    used one.
    """
    shift = max(0, (rows - 1).bit_length() - 3)
    return -(-rows >> shift) << shift


def names(of: Iterable[str]) -> str:
    """These column names, quoted and joined."""
    # Quoted, since "to" is a keyword.
    return ", ".join(f'"{name}"' for name in of)


def insert(table: str, columns: Iterable[str], *, verb: str = "INSERT") -> str:
    """A statement that inserts values for these columns."""
    columns = tuple(columns)
    new = ", ".join(f"NEW.{name}" for name in columns)
    return f"{verb} INTO {table} ({names(columns)}) VALUES ({new})"


@lru_cache
def _statement(rows: int, width: int) -> str:
    row = f"({', '.join('?' * width)})"
    return f"INSERT {OURS} INTO temp.changes VALUES {', '.join([row] * rows)}"


def _trigger(kind: Kind) -> str:
    def column(match: re.Match[str]) -> str:
        return f"NEW.{_column(kind.values.index(match[1]))}"

    does = re.sub(r"NEW\.(\w+)", column, kind.does)
    return (
        f'CREATE TEMP TRIGGER "{kind.name}" INSTEAD OF INSERT ON changes'
        f" WHEN NEW.kind = '{kind.name}' BEGIN {does} END"
    )


def _column(place: int) -> str:
    return f"c{place}"
