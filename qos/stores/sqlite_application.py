"""The statements of an application in the file of a store, on a connection of their own.

The transaction ends with the store's own changes; what the application's statements may
do in it, sqlite_guard.py says. Runs in the writer's thread; knows nothing of the event
loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from qos.errors import LocalProtocolError
from qos.stores.base import Parameters
from qos.stores.sqlite_guard import OURS, Guard

__all__ = ["ApplicationConnection"]

_BEGIN = f"BEGIN IMMEDIATE {OURS}"
_COMMIT = f"COMMIT {OURS}"
_ROLLBACK = f"ROLLBACK {OURS}"


class ApplicationConnection:
    """Executes what an application wants, and commits it with changes of the store."""

    def __init__(self, db: sqlite3.Connection, own_tables: Sequence[str]) -> None:
        """Take a connection in autocommit mode, with the view of changes.

        Args:
            db: to be closed with this.
            own_tables: those that an application must not change.
        """
        self._db = db
        self._guard = Guard(own_tables)
        self._guard.install(db)

    def begin(self) -> None:
        """Begin a transaction; there is no other writer now."""
        self._db.execute(_BEGIN)

    def execute(self, sql: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        """See qos.stores.base.Transaction."""
        self._check_goes_on()
        return self._guard.execute(self._db, sql, parameters)

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
            self._db.execute(_ROLLBACK)

    def close(self) -> None:
        """Undo what was not committed."""
        self._db.close()

    def _check_goes_on(self) -> None:
        """Or what follows the error would be committed without what came before it."""
        if not self._db.in_transaction:
            raise LocalProtocolError(
                "the transaction has been undone, by the error of a statement before"
            )
