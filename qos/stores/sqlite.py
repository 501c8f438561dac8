"""The store in one SQLite file: the default.

The file can be read with any SQLite tool, even while it is in use. `outgoing` and
`incoming` have the messages. The payloads are in tables of their own, so that a step of
a message does not write its payload again. See message_schema.py for the tables,
message_rows.py for the rows, sqlite_file.py for durability.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from weakref import WeakSet

from qos import arguments
from qos.core.message.model import Ended, Incoming, Outgoing
from qos.errors import StoreError
from qos.stores.base import (
    ENDED_FIELDS,
    INCOMING_FIELDS,
    OUTGOING_FIELDS,
    Change,
    Contents,
    ended_from,
    incoming_from,
    outgoing_from,
)
from qos.stores.message_rows import SELECT_INCOMING, SELECT_OUTGOING, rows
from qos.stores.message_schema import APPLICATION_ID, MIGRATIONS
from qos.stores.sqlite_application import ApplicationConnection
from qos.stores.sqlite_changes import names
from qos.stores.sqlite_file import Migrations, SqliteFile
from qos.stores.sqlite_transaction import SqliteTransaction, refusal_inside
from qos.stores.times import MESSAGE_TABLES, happened, moves, newest

__all__ = ["APPLICATION_ID", "MIGRATIONS", "SqliteStore"]

#: The number of messages read at a time when the whole outbox is read.
_CHUNK = 256

_TABLES = ("about", "remembered", "outgoing", "ended", "incoming")

#: The tables that an application must not change, including SQLite's table of
#: sequences.
_OWN = (
    *_TABLES,
    *("outgoing_payload", "incoming_payload", "sqlite_sequence"),
)


class SqliteStore(SqliteFile[Contents, Change]):
    """`sqlite:PATH`, for messages. See SqliteFile."""

    _application_id = APPLICATION_ID
    _tables = _TABLES
    _newest = newest(*happened(MESSAGE_TABLES))
    _moves = tuple(moves(MESSAGE_TABLES))

    def __init__(
        self, path: str | os.PathLike[str], *, new_id: str | None = None
    ) -> None:
        """Name a store; nothing is opened.

        Args:
            path: of the file.
            new_id: the store_id of a file that does not exist yet, for several stores
                that are those of one sender. None: a random one.
        """
        super().__init__(path)
        if new_id is not None:
            arguments.text("new_id", new_id, empty=False)
        self._new_id = new_id
        self._applications: ApplicationConnection | None = None
        self._transactions: WeakSet[SqliteTransaction] = WeakSet()

    @property
    def _migrations(self) -> Migrations:
        return MIGRATIONS

    # -- reading -----------------------------------------------------------

    def queued(self, flow: str, *, after: int, limit: int) -> list[Outgoing]:
        """See Store."""
        return self._readable(
            "WHERE state = 'queued' AND flow = ? AND seq > ? ORDER BY seq LIMIT ?",
            flow,
            after,
            limit,
        )

    def expiring(self, now: float, *, limit: int) -> list[Outgoing]:
        """See Store."""
        return self._readable(
            "WHERE state = 'queued' AND expires_at <= ?"
            " ORDER BY expires_at, seq LIMIT ?",
            now,
            limit,
        )

    def next_expiry(self) -> float | None:
        """See Store."""
        rows = self._read(
            "SELECT expires_at FROM outgoing WHERE state = 'queued'"
            " AND expires_at IS NOT NULL ORDER BY expires_at LIMIT 1"
        )
        return rows[0][0] if rows else None

    def outgoing(self) -> Iterator[Outgoing]:
        """See Store."""
        chunk = self._outgoing("ORDER BY seq LIMIT ?", _CHUNK)
        while chunk:
            yield from chunk
            after = chunk[-1].seq
            chunk = self._outgoing("WHERE seq > ? ORDER BY seq LIMIT ?", after, _CHUNK)

    def find_outgoing(self, msg_id: str) -> Outgoing | None:
        """See Store."""
        records = self._outgoing("WHERE msg_id = ?", msg_id)
        return records[0] if records else None

    def ended(self, msg_id: str | None = None) -> Iterator[Ended]:
        """See Store."""
        sql, values = f"SELECT {names(ENDED_FIELDS)} FROM ended", []
        if msg_id is not None:
            sql, values = f"{sql} WHERE msg_id = ?", [msg_id]
        sql += " ORDER BY seq"
        return iter(self._records(ended_from, ENDED_FIELDS, sql, *values))

    def find_ended(self, msg_id: str) -> Ended | None:
        """See Store."""
        sql = (
            f"SELECT {names(ENDED_FIELDS)} FROM ended"
            " WHERE msg_id = ? AND digest <> '' ORDER BY seq DESC LIMIT 1"
        )
        records = self._records(ended_from, ENDED_FIELDS, sql, msg_id)
        return records[0] if records else None

    def incoming(self) -> Iterator[Incoming]:
        """See Store."""
        sql = SELECT_INCOMING + "ORDER BY changed_at, key"
        return iter(self._records(incoming_from, INCOMING_FIELDS, sql))

    def _outgoing(self, clauses: str, *values: float | str) -> list[Outgoing]:
        sql = SELECT_OUTGOING + clauses
        return self._records(outgoing_from, OUTGOING_FIELDS, sql, *values)

    def _readable(self, clauses: str, *values: float | str) -> list[Outgoing]:
        try:
            return self._outgoing(clauses, *values)
        except StoreError:
            sql = f"SELECT seq, msg_id FROM outgoing {clauses}"
            messages = []
            for seq, msg_id in self._read(sql, *values):
                try:
                    messages += self._outgoing("WHERE seq = ?", seq)
                except StoreError as error:
                    self._leave_out(f"the queued message {msg_id!r}", error)
            return messages

    # -- transactions of an application ------------------------------------

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """See Store."""
        refusal = refusal_inside(self)
        if refusal is None or not changes:
            return super().write(changes)
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refused.set_exception(refusal)
        return refused

    def transaction(self) -> SqliteTransaction:
        """See Store."""
        self._need_open()
        assert self._thread is not None
        transaction = SqliteTransaction(
            self, self._commits, self._thread, self._application, self._commit_with
        )
        self._transactions.add(transaction)
        return transaction

    async def close(self) -> None:
        """Close the store; open transactions are undone. See Store."""
        for transaction in list(self._transactions):
            transaction.rollback()
        await super().close()

    def _application(self) -> ApplicationConnection:
        """The connection for applications, made on first use; called in the thread."""
        if self._applications is None:
            self._applications = ApplicationConnection(self._connect_writer(), _OWN)
        return self._applications

    def _commit_with(
        self, changes: Sequence[Change], before: Callable[[], None] | None
    ) -> None:
        """Commit the transaction and these changes; in the thread."""
        if before is not None:
            before()
        with self._errors():
            self.probe("commit")
            self._application().commit(lambda db: self._make(db, changes))

    def _disconnect(self) -> None:
        if self._applications is not None:
            self._applications.close()
            self._applications = None
        super()._disconnect()

    _rows = staticmethod(rows)

    def _contents(self) -> Contents:
        ((messages, size),) = self._read(
            "SELECT COUNT(*), COALESCE(SUM(size), 0) FROM outgoing"
        )
        queued = self._read(
            "SELECT flow, COUNT(*) FROM outgoing WHERE state = 'queued' GROUP BY flow"
        )
        accounts = self._read(
            "SELECT account, COUNT(*), SUM(size) FROM outgoing"
            " WHERE account <> '' GROUP BY account"
        )
        return Contents(
            outgoing=self._outgoing(
                "WHERE state IN ('offered', 'releasing') ORDER BY seq"
            ),
            queued=dict(queued),
            outbox_messages=messages,
            outbox_bytes=size,
            accounts={name: (count, sum_) for name, count, sum_ in accounts},
            next_seq=self._next_seq("outgoing"),
            incoming=list(self.incoming()),
            remembered=dict(self._read("SELECT name, value FROM remembered")),
        )
