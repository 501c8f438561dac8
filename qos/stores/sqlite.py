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

from qos.core.message.effects import End, Forget, Save
from qos.core.message.model import Ended, Incoming, Outgoing
from qos.errors import StoreError
from qos.stores.base import (
    ENDED_FIELDS,
    INCOMING_FIELDS,
    OUTGOING_FIELDS,
    Change,
    Contents,
    ForgetEnded,
    ended_from,
    incoming_from,
    outgoing_from,
)
from qos.stores.sqlite_application import ApplicationConnection
from qos.stores.sqlite_changes import Kind, Row, Statement, insert, names
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
    (
        "ALTER TABLE outgoing ADD COLUMN account TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE outgoing ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE ended ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
        # The ends of messages for users of a gateway, who ask by id.
        """CREATE INDEX ended_by_msg_id ON ended (msg_id) WHERE digest <> ''""",
    ),
)

#: The number of messages read at a time when the whole outbox is read.
_CHUNK = 256


def _but(*left_out: str, of: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in of if name not in left_out)


#: The values of a saved record, in the order of its row: converted ones first, and the
#: payload last.
_OUTGOING = (
    *("level", "state"),
    *_but("level", "state", "payload", of=OUTGOING_FIELDS),
    *("flow", "payload"),
)
_INCOMING = (
    *("level", "state"),
    *_but("level", "state", "payload", of=INCOMING_FIELDS),
    "payload",
)
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


def _save(table: str, values: Sequence[str], *, key: str, steps: Iterable[str]) -> str:
    """Insert rows, or change the columns `steps` of rows that are there."""
    changes = ", ".join(f'"{name}" = excluded."{name}"' for name in steps)
    return f"{insert(table, values)} ON CONFLICT ({key}) DO UPDATE SET {changes}"


#: The first group of Outgoing never changes, its payload included.
_STEPS = OUTGOING_FIELDS[OUTGOING_FIELDS.index("state") :]

_SAVE_OUTGOING = Kind(
    "outgoing",
    _OUTGOING,
    Statement(
        _save("outgoing", _OUTGOING[:-1], key="seq", steps=_STEPS), *_OUTGOING[:-1]
    ),
    Statement(
        "INSERT INTO outgoing_payload {rows} ON CONFLICT DO NOTHING", "seq", "payload"
    ),
)
_FORGET_OUTGOING = Kind(
    "outgoing",
    ("seq",),
    Statement("DELETE FROM outgoing WHERE seq IN ({rows})", "seq"),
    Statement("DELETE FROM outgoing_payload WHERE seq IN ({rows})", "seq"),
)
_SAVE_ENDED = Kind(
    "ended",
    _ENDED,
    Statement(insert("ended", _ENDED, verb="INSERT OR REPLACE"), *_ENDED),
)
_FORGET_ENDED = Kind(
    "ended",
    ("before", "below"),
    Statement("DELETE FROM ended WHERE ended_at <= ? OR seq < ?", "before", "below"),
)
_SAVE_INCOMING = Kind(
    "incoming",
    _INCOMING,
    Statement(
        _save(
            "incoming", _INCOMING[:-1], key="key", steps=_but("key", of=_INCOMING[:-1])
        ),
        *_INCOMING[:-1],
    ),
    Statement(
        "INSERT INTO incoming_payload"
        " SELECT id, new.column2 FROM ({rows}) AS new JOIN incoming"
        " ON incoming.key = new.column1"
        " WHERE true ON CONFLICT (id) DO UPDATE SET payload = excluded.payload"
        " WHERE payload <> excluded.payload",
        "key",
        "payload",
    ),
)
_FORGET_INCOMING = Kind(
    "incoming",
    ("key",),
    Statement(
        "DELETE FROM incoming_payload"
        " WHERE id IN (SELECT id FROM incoming WHERE key IN ({rows}))",
        "key",
    ),
    Statement("DELETE FROM incoming WHERE key IN ({rows})", "key"),
)
_REMEMBER = Kind(
    "remembered",
    ("name", "value"),
    Statement("INSERT OR REPLACE INTO remembered {rows}", "name", "value"),
)


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

    def _rows(self, changes: Iterable[Change]) -> Iterator[Row]:
        for change in changes:
            if isinstance(change, Save):
                yield _saved(change.record)
            elif isinstance(change, End):
                ended = change.ended
                level, state = ended.level.value, ended.state.value
                yield _SAVE_ENDED, ended.seq, (level, state, *_ended_values(ended))
                yield _FORGET_OUTGOING, ended.seq, (ended.seq,)
            elif isinstance(change, Forget):
                record = change.record
                if isinstance(record, Outgoing):
                    yield _FORGET_OUTGOING, record.seq, (record.seq,)
                else:
                    yield _FORGET_INCOMING, record.key, (record.key,)
            elif isinstance(change, ForgetEnded):
                yield _FORGET_ENDED, None, (change.before, change.below)
            else:
                yield _REMEMBER, change.name, (change.name, change.value)


def _saved(record: Outgoing | Incoming) -> Row:
    level, state = record.level.value, record.state.value
    if isinstance(record, Outgoing):
        return _SAVE_OUTGOING, record.seq, (level, state, *_outgoing_values(record))
    return _SAVE_INCOMING, record.key, (level, state, *_incoming_values(record))
