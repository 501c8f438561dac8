"""The statements of an application in the file of a store, on a connection of their own.

It keeps them off what is the store's: its tables, and the transaction, which ends with
the store's own changes. Runs in the writer's thread; knows nothing of the event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from qos.errors import LocalProtocolError
from qos.stores.base import Parameters

__all__ = ["ApplicationConnection"]

#: What would end the transaction, or reach beyond it.
_FORBIDDEN = {
    sqlite3.SQLITE_TRANSACTION: "begin or end a transaction",
    sqlite3.SQLITE_SAVEPOINT: "use a savepoint",
    sqlite3.SQLITE_ATTACH: "attach a database",
    sqlite3.SQLITE_DETACH: "detach a database",
    sqlite3.SQLITE_PRAGMA: "use a pragma",
}

#: What changes a table, or hangs something on it: which of the two arguments of the
#: authorizer has its name (https://sqlite.org/c3ref/c_alter_table.html).
_CHANGED = {
    sqlite3.SQLITE_INSERT: 0,
    sqlite3.SQLITE_UPDATE: 0,
    sqlite3.SQLITE_DELETE: 0,
    sqlite3.SQLITE_DROP_TABLE: 0,
    sqlite3.SQLITE_DROP_VIEW: 0,
    sqlite3.SQLITE_ALTER_TABLE: 1,
    sqlite3.SQLITE_CREATE_INDEX: 1,
    sqlite3.SQLITE_DROP_INDEX: 1,
    sqlite3.SQLITE_CREATE_TRIGGER: 1,
    sqlite3.SQLITE_CREATE_TEMP_TRIGGER: 1,
    sqlite3.SQLITE_DROP_TRIGGER: 1,
    sqlite3.SQLITE_DROP_TEMP_TRIGGER: 1,
}


#: Texts that nobody else has: a statement is looked at when it is prepared, and the
#: module keeps it by its text.
_BEGIN, _COMMIT = "BEGIN IMMEDIATE -- by the store", "COMMIT -- by the store"


class ApplicationConnection:
    """Executes what an application wants, and commits it with changes of the store."""

    def __init__(self, db: sqlite3.Connection, own_tables: Sequence[str]) -> None:
        """Take a connection in autocommit mode, with the view of changes.

        Args:
            db: to be closed with this.
            own_tables: those that an application must not change.
        """
        self._db = db
        self._own_tables = frozenset(own_tables)
        #: Whether what is prepared now is the application's.
        self._guarded = False
        self._denied = ""
        db.set_authorizer(self._authorize)

    def begin(self) -> None:
        """Begin a transaction; there is no other writer now."""
        self._db.execute(_BEGIN)

    def execute(self, sql: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        """See qos.stores.base.Transaction."""
        self._check_goes_on()
        self._denied = ""
        self._guarded = True
        try:
            return self._db.execute(sql, parameters).fetchall()
        except sqlite3.DatabaseError as error:
            if not self._denied:
                raise
            raise LocalProtocolError(
                f"a statement of a transaction must not {self._denied}"
            ) from error
        finally:
            self._guarded = False

    def commit(self, make: Callable[[sqlite3.Connection], None]) -> None:
        """Commit, with the changes that `make` makes; on an error undo it all."""
        try:
            self._check_goes_on()
            make(self._db)
            self._db.execute(_COMMIT)
        except BaseException:
            self.rollback()
            raise

    def rollback(self) -> None:
        """Undo it all."""
        # SQLite has done it by itself for some errors.
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def close(self) -> None:
        """Undo what was not committed."""
        self._db.close()

    def _check_goes_on(self) -> None:
        """Or what follows the error would be committed without what came before it."""
        if not self._db.in_transaction:
            raise LocalProtocolError(
                "the transaction has been undone, by the error of a statement before"
            )

    def _authorize(
        self,
        action: int,
        first: str | None,
        second: str | None,
        _database: str | None,
        _within: str | None,
    ) -> int:
        if not self._guarded:
            return sqlite3.SQLITE_OK
        denied = _FORBIDDEN.get(action, "")
        if action in _CHANGED:
            table = (first, second)[_CHANGED[action]]
            if table in self._own_tables:
                denied = f"change {table!r}, which is the store's own"
        if not denied:
            return sqlite3.SQLITE_OK
        self._denied = denied
        return sqlite3.SQLITE_DENY
