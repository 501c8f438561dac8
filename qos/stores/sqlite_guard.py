"""A guard for an application's SQL statements in a file that also holds our records.

SQLite asks an *authorizer* about each action of a statement while it prepares the
statement, including the triggers that the statement would fire, and SQLite's own
actions. So no comment, trigger or function of the application can hide an action, as it
could from a check of the text (https://sqlite.org/c3ref/set_authorizer.html).

Allowed are reading, and changes of the application's own tables, indexes, views,
triggers and virtual tables in the database `main`. Everything else is refused:

- the end of the transaction, which is ours;
- our own tables;
- temporary objects: a temporary table hides the table of the same name in the file;
- other databases, in which nothing is committed together with `main`.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable
from typing import Any

from qos.errors import LocalProtocolError
from qos.stores.base import Parameters

__all__ = ["OURS", "Guard"]

#: A comment for our own statements on a connection with a guard. `sqlite3` reuses
#: prepared statements by their text, and SQLite asks only when it prepares one. A
#: statement of the application with the text of one of ours would be executed
#: unchecked.
OURS = f"/* {secrets.token_hex(8)} */"

#: Actions that change no content. A new index is filled by REINDEX.
_HARMLESS = frozenset(
    {
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_REINDEX,
        sqlite3.SQLITE_SELECT,
    }
)

#: Actions that change the database, and which of the authorizer's first two arguments
#: names the table or view (https://sqlite.org/c3ref/c_alter_table.html).
_CHANGING = {
    sqlite3.SQLITE_INSERT: 0,
    sqlite3.SQLITE_UPDATE: 0,
    sqlite3.SQLITE_DELETE: 0,
    sqlite3.SQLITE_ALTER_TABLE: 1,
    sqlite3.SQLITE_CREATE_INDEX: 1,
    sqlite3.SQLITE_CREATE_TABLE: 0,
    sqlite3.SQLITE_CREATE_TRIGGER: 1,
    sqlite3.SQLITE_CREATE_VIEW: 0,
    sqlite3.SQLITE_CREATE_VTABLE: 0,
    sqlite3.SQLITE_DROP_INDEX: 1,
    sqlite3.SQLITE_DROP_TABLE: 0,
    sqlite3.SQLITE_DROP_TRIGGER: 1,
    sqlite3.SQLITE_DROP_VIEW: 0,
    sqlite3.SQLITE_DROP_VTABLE: 0,
}

#: After one of these, SQLite itself updates `sqlite_sequence` and the schema of
#: temporary tables, and asks about that too.
_RESHAPING = frozenset({sqlite3.SQLITE_ALTER_TABLE, sqlite3.SQLITE_DROP_TABLE})
_KEPT_IN_STEP = frozenset({"sqlite_sequence", "sqlite_temp_master"})

#: Pragmas that only read. SQLite runs the first two by itself, for full-text tables and
#: for new columns.
_READING_PRAGMAS = frozenset(
    {"data_version", "quick_check", "table_info", "table_xinfo"}
)

_TEMPORARY = frozenset(
    getattr(sqlite3, f"SQLITE_{verb}_TEMP_{kind}")
    for verb in ("CREATE", "DROP")
    for kind in ("INDEX", "TABLE", "TRIGGER", "VIEW")
)

_NO_TEMPORARY = "use temporary tables, views or triggers; name a table of the file"

#: The reason for each other refusal, and the alternative.
_REASONS = {
    sqlite3.SQLITE_TRANSACTION: "begin or end a transaction; that is done for it",
    sqlite3.SQLITE_SAVEPOINT: "use a savepoint; all statements stand or fall together",
    sqlite3.SQLITE_ATTACH: "attach a database; only this file is in the transaction",
    sqlite3.SQLITE_DETACH: "detach a database; use a connection of your own for that",
    sqlite3.SQLITE_PRAGMA: "use a pragma; use a connection of your own for that",
    **dict.fromkeys(_TEMPORARY, _NO_TEMPORARY),
}


class Guard:
    """Executes an application's statements, and refuses forbidden ones."""

    def __init__(self, own_tables: Iterable[str]) -> None:
        """Protect these tables and views; names in lower case."""
        self._own_tables = frozenset(own_tables)
        self._is_executing = False
        self._reshapes = False
        self._refused = ""

    def install(self, db: sqlite3.Connection) -> None:
        """Become the authorizer of this connection, replacing any other.

        SQLite prepares again all statements that the connection has already prepared:
        `sqlite3` reuses them by their text, and these were never checked.
        """
        db.set_authorizer(self._authorize)

    def execute(
        self, db: sqlite3.Connection, sql: str, parameters: Parameters
    ) -> list[tuple[Any, ...]]:
        """Execute one statement on a connection with this guard.

        Raises:
            LocalProtocolError: it is forbidden, and has done nothing.
            sqlite3.Error: it fails.
        """
        self._refused, self._reshapes = "", False
        self._is_executing = True
        try:
            return db.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            if not self._refused:
                raise
            raise LocalProtocolError(
                f"{_shown(sql)} is refused: a statement must not {self._refused}"
            ) from error
        finally:
            self._is_executing = False

    def _authorize(
        self,
        action: int,
        first: str | None,
        second: str | None,
        database: str | None,
        _within: str | None,
    ) -> int:
        if not self._is_executing:  # a statement of ours
            return sqlite3.SQLITE_OK
        refused = self._reason(action, first, second, database)
        if not refused:
            return sqlite3.SQLITE_OK
        self._refused = self._refused or refused
        return sqlite3.SQLITE_DENY

    def _reason(
        self, action: int, first: str | None, second: str | None, database: str | None
    ) -> str:
        """The reason why an action is forbidden; '': it is allowed."""
        if action in _HARMLESS:
            return ""
        if action == sqlite3.SQLITE_FUNCTION:
            return "load an extension" if second == "load_extension" else ""
        if action == sqlite3.SQLITE_PRAGMA and first in _READING_PRAGMAS:
            return ""
        if action not in _CHANGING:
            return _REASONS.get(action, f"do this (action {action} of SQLite)")
        if action == sqlite3.SQLITE_ALTER_TABLE:
            database = first
        if self._reshapes and first in _KEPT_IN_STEP:
            return ""
        if database == "temp":
            return _NO_TEMPORARY
        if database != "main":
            return f"change the database {database!r}; only 'main' is committed with it"
        name = (first, second)[_CHANGING[action]] or ""
        if name.lower() in self._own_tables:
            return f"change {name!r}, which belongs to xmpp-qos"
        self._reshapes = self._reshapes or action in _RESHAPING
        return ""


def _shown(sql: str) -> str:
    """A statement as an error shows it."""
    return repr(sql if len(sql) <= 80 else f"{sql[:79]}…")
