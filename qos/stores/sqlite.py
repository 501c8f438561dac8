"""The store in one SQLite file: the default.

The file can be read with any SQLite tool, even while it is in use. `outgoing` and
`incoming` have the messages. The payloads are in tables of their own, so that a step of
a message does not write its payload again. See sqlite_file.py for durability.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from weakref import WeakSet

from qos.core.message.effects import End, Forget
from qos.core.message.model import Ended, Incoming, Outgoing
from qos.errors import StoreError
from qos.stores.base import (
    ENDED_FIELDS,
    INCOMING_FIELDS,
    OUTGOING_FIELDS,
    Change,
    Contents,
    ForgetEnded,
    Remember,
    ended_from,
    incoming_from,
    outgoing_from,
)
from qos.stores.sqlite_application import ApplicationConnection
from qos.stores.sqlite_changes import ChangesView, Kind, Value, insert, names
from qos.stores.sqlite_file import ABOUT, Migrations, SqliteFile
from qos.stores.sqlite_transaction import SqliteTransaction, refusal_inside

__all__ = ["APPLICATION_ID", "MIGRATIONS", "SqliteStore"]

#: "QoSx", by which `file` and we recognize our files.
APPLICATION_ID = 0x516F5378

MIGRATIONS: Migrations = (
    (
        ABOUT,
        """CREATE TABLE remembered (name TEXT PRIMARY KEY, value TEXT NOT NULL)""",
        # AUTOINCREMENT keeps the largest seq ever, for Contents.next_seq.
        """CREATE TABLE outgoing (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            msg_id TEXT NOT NULL,
            "to" TEXT NOT NULL,
            flow TEXT NOT NULL,
            level TEXT NOT NULL,
            size INTEGER NOT NULL,
            created_at REAL NOT NULL,
            expires_at REAL,
            ordered INTEGER NOT NULL,
            sender TEXT NOT NULL,
            state TEXT NOT NULL,
            offer_id TEXT NOT NULL,
            deliver_id TEXT NOT NULL,
            namespace TEXT,
            peer TEXT,
            hold TEXT,
            own TEXT,
            attempts INTEGER NOT NULL,
            delivers INTEGER NOT NULL
        )""",
        """CREATE INDEX outgoing_by_msg_id ON outgoing (msg_id)""",
        """CREATE INDEX outgoing_queued ON outgoing (flow, seq)
            WHERE state = 'queued'""",
        """CREATE INDEX outgoing_expiring ON outgoing (expires_at, seq)
            WHERE state = 'queued' AND expires_at IS NOT NULL""",
        """CREATE TABLE outgoing_payload (
            seq INTEGER PRIMARY KEY, payload TEXT NOT NULL
        )""",
        """CREATE TABLE incoming (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL UNIQUE,
            msg_id TEXT NOT NULL,
            source TEXT NOT NULL,
            "to" TEXT NOT NULL,
            level TEXT NOT NULL,
            size INTEGER NOT NULL,
            received_at REAL NOT NULL,
            changed_at REAL NOT NULL,
            state TEXT NOT NULL,
            mark TEXT NOT NULL,
            hold TEXT NOT NULL
        )""",
        """CREATE TABLE incoming_payload (
            id INTEGER PRIMARY KEY, payload TEXT NOT NULL
        )""",
    ),
    (
        # It has no index except its seq: it is rarely read, but always written.
        """CREATE TABLE ended (
            seq INTEGER PRIMARY KEY,
            msg_id TEXT NOT NULL,
            "to" TEXT NOT NULL,
            level TEXT NOT NULL,
            size INTEGER NOT NULL,
            created_at REAL NOT NULL,
            ended_at REAL NOT NULL,
            state TEXT NOT NULL,
            attempts INTEGER NOT NULL,
            condition TEXT,
            condition_by TEXT
        )""",
    ),
    ("ALTER TABLE incoming ADD COLUMN handovers INTEGER NOT NULL DEFAULT 0",),
    (
        "ALTER TABLE incoming ADD COLUMN rejection TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE ended ADD COLUMN condition_text TEXT",
    ),
)

#: The number of messages read at a time when the whole outbox is read.
_CHUNK = 256


def _but(*left_out: str, of: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in of if name not in left_out)


#: The values of a saved record, in the order of its row.
_OUTGOING = ("level", "state", *_but("level", "state", of=OUTGOING_FIELDS), "flow")
_INCOMING = ("level", "state", *_but("level", "state", of=INCOMING_FIELDS))

_ENDED = ("level", "state", *_but("level", "state", of=ENDED_FIELDS))

_outgoing_values = attrgetter(*_OUTGOING[2:])
_incoming_values = attrgetter(*_INCOMING[2:])
_ended_values = attrgetter(*_ENDED[2:])

_SELECT_OUTGOING = (
    f"SELECT {names(OUTGOING_FIELDS)} FROM outgoing JOIN outgoing_payload USING (seq) "
)
_SELECT_INCOMING = (
    f"SELECT {names(INCOMING_FIELDS)} FROM incoming JOIN incoming_payload USING (id) "
)


def _insert(table: str, values: tuple[str, ...]) -> str:
    return insert(table, _but("payload", of=values))


def _set(values: Iterable[str]) -> str:
    columns = _but("payload", of=values)
    return "SET " + ", ".join(f'"{name}" = excluded."{name}"' for name in columns)


#: The first group of Outgoing never changes, its payload included.
_STEPS = OUTGOING_FIELDS[OUTGOING_FIELDS.index("state") :]

_CHANGES = ChangesView(
    Kind(
        "save outgoing",
        _OUTGOING,
        f"{_insert('outgoing', _OUTGOING)} ON CONFLICT (seq) DO UPDATE {_set(_STEPS)};"
        "INSERT INTO outgoing_payload VALUES (NEW.seq, NEW.payload)"
        " ON CONFLICT DO NOTHING;",
    ),
    Kind(
        "forget outgoing",
        ("seq",),
        "DELETE FROM outgoing WHERE seq = NEW.seq;"
        "DELETE FROM outgoing_payload WHERE seq = NEW.seq;",
    ),
    Kind(
        "end outgoing",
        _ENDED,
        f"{insert('ended', _ENDED, verb='INSERT OR REPLACE')};"
        "DELETE FROM outgoing WHERE seq = NEW.seq;"
        "DELETE FROM outgoing_payload WHERE seq = NEW.seq;",
    ),
    Kind(
        "forget ended",
        ("before", "below"),
        "DELETE FROM ended WHERE seq < NEW.below OR ended_at <= NEW.before;",
    ),
    Kind(
        "save incoming",
        _INCOMING,
        f"{_insert('incoming', _INCOMING)}"
        f" ON CONFLICT (key) DO UPDATE {_set(_but('key', of=_INCOMING))};"
        "INSERT INTO incoming_payload"
        " SELECT id, NEW.payload FROM incoming WHERE key = NEW.key"
        " ON CONFLICT (id) DO UPDATE SET payload = excluded.payload"
        " WHERE payload <> excluded.payload;",
    ),
    Kind(
        "forget incoming",
        ("key",),
        "DELETE FROM incoming_payload"
        " WHERE id = (SELECT id FROM incoming WHERE key = NEW.key);"
        "DELETE FROM incoming WHERE key = NEW.key;",
    ),
    Kind(
        "remember",
        ("name", "value"),
        "INSERT OR REPLACE INTO remembered VALUES (NEW.name, NEW.value);",
    ),
)


_TABLES = ("about", "remembered", "outgoing", "ended", "incoming")

#: The tables that an application must not change, including SQLite's table of
#: sequences.
_OWN = (
    *_TABLES,
    *("outgoing_payload", "incoming_payload", "changes", "sqlite_sequence"),
)


class SqliteStore(SqliteFile[Contents, Change]):
    """`sqlite:PATH`, for messages. See SqliteFile."""

    _application_id = APPLICATION_ID
    _tables = _TABLES
    _changes_view = _CHANGES

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
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

    def incoming(self) -> Iterator[Incoming]:
        """See Store."""
        sql = _SELECT_INCOMING + "ORDER BY changed_at, key"
        return iter(self._records(incoming_from, INCOMING_FIELDS, sql))

    def _outgoing(self, clauses: str, *values: float | str) -> list[Outgoing]:
        sql = _SELECT_OUTGOING + clauses
        return self._records(outgoing_from, OUTGOING_FIELDS, sql, *values)

    def _readable(self, clauses: str, *values: float | str) -> list[Outgoing]:
        try:
            return self._outgoing(clauses, *values)
        except StoreError:
            sql = f"SELECT seq, msg_id FROM outgoing {clauses}"
            found = []
            for seq, msg_id in self._read(sql, *values):
                try:
                    found += self._outgoing("WHERE seq = ?", seq)
                except StoreError as error:
                    self._leave_out(f"the queued message {msg_id!r}", error)
            return found

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
            db = self._connect_writer()
            _CHANGES.create(db)
            self._applications = ApplicationConnection(db, _OWN)
        return self._applications

    def _commit_with(
        self, changes: Sequence[Change], before: Callable[[], None] | None
    ) -> None:
        """Commit the transaction and these changes; in the thread."""
        if before is not None:
            before()
        rows = self._rows(changes)
        with self._errors():
            self.probe("commit")
            self._application().commit(lambda db: self._make(db, rows))

    def _disconnect(self) -> None:
        if self._applications is not None:
            self._applications.close()
            self._applications = None
        super()._disconnect()

    def _contents(self) -> Contents:
        ((messages, size),) = self._read(
            "SELECT COUNT(*), COALESCE(SUM(size), 0) FROM outgoing"
        )
        queued = self._read(
            "SELECT flow, COUNT(*) FROM outgoing WHERE state = 'queued' GROUP BY flow"
        )
        return Contents(
            outgoing=self._outgoing(
                "WHERE state IN ('offered', 'releasing') ORDER BY seq"
            ),
            queued=dict(queued),
            outbox_messages=messages,
            outbox_bytes=size,
            next_seq=self._next_seq("outgoing"),
            incoming=list(self.incoming()),
            remembered=dict(self._read("SELECT name, value FROM remembered")),
        )

    def _rows(self, changes: Sequence[Change]) -> list[tuple[Value, ...]]:
        return [self._row(change) for change in changes]

    def _row(self, change: Change) -> tuple[Value, ...]:
        if isinstance(change, Remember):
            return ("remember", change.name, change.value)
        if isinstance(change, ForgetEnded):
            return ("forget ended", change.before, change.below)
        if isinstance(change, End):
            ended = change.ended
            state = ended.state.value
            return ("end outgoing", ended.level.value, state, *_ended_values(ended))
        record = change.record
        if isinstance(change, Forget):
            if isinstance(record, Outgoing):
                return ("forget outgoing", record.seq)
            return ("forget incoming", record.key)
        level, state = record.level.value, record.state.value
        if isinstance(record, Outgoing):
            return ("save outgoing", level, state, *_outgoing_values(record))
        return ("save incoming", level, state, *_incoming_values(record))
