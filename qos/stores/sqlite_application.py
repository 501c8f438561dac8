"""A connection for an application's statements in the file of a store.

The transaction ends with the store's own changes; sqlite_guard.py says which statements
the application may use. Runs in the writer's thread, and knows nothing of the event
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
    """Executes an application's statements, and commits them with store changes."""

    def __init__(self, db: sqlite3.Connection, own_tables: Sequence[str]) -> None:
        """Take a connection in autocommit mode.

        Args:
            db: closed together with this object.
            own_tables: tables that an application must not change.
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
        """Undo everything."""
        # For some errors SQLite has undone everything already.
        if self._db.in_transaction:
            self._db.execute(_ROLLBACK)

    def close(self) -> None:
        """Undo what was not committed."""
        self._db.close()

    def _check_goes_on(self) -> None:
        """Raise if SQLite has undone the transaction.

        Otherwise later statements would be committed without the earlier ones.
        """
        if not self._db.in_transaction:
            raise LocalProtocolError(
                "the transaction has been undone, by the error of a statement before"
            )
