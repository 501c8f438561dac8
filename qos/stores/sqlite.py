"""The store in one SQLite file: the default.

What is written is safe against a crash and a power cut (WAL with
`synchronous=FULL`). The file can be read with any SQLite tool, also while it is
in use; `outgoing` and `incoming` hold the messages, and the payloads lie beside
them, so that a step of a message does not write its payload again.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import asyncio
import os
import re
import resource
import secrets
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

from qos.core.effects import Forget
from qos.core.model import Incoming, Outgoing
from qos.errors import (
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreReadOnly,
    StoreTooNew,
)
from qos.stores.base import (
    INCOMING_FIELDS,
    OUTGOING_FIELDS,
    Change,
    Contents,
    Remember,
    incoming_from,
    outgoing_from,
)
from qos.stores.group_commit import DurableStore, disk_error, sync

__all__ = ["APPLICATION_ID", "MIGRATIONS", "SqliteStore"]

#: "QoSx", so that `file` and we can tell our files from others.
APPLICATION_ID = 0x516F5378

#: MIGRATIONS[n] takes a file from version n to n + 1; a new file takes all.
#: Never change one that was released: add another.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)""",
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
)

#: The first bytes of an SQLite file, and where its header has our two numbers
#: (https://sqlite.org/fileformat.html §1.3).
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_USER_VERSION_AT = 60
_APPLICATION_ID_AT = 68

#: SQLite's default; ours, whatever that becomes.
_PAGE_BYTES = 4096

#: Up to here all of the file is checked when it is opened: half a second, cold.
_CHECKED_BYTES_MAX = 32 * 2**20

#: The WAL is cut to this size when it begins anew, after a burst.
_WAL_BYTES_MAX = 16 * 2**20

#: Changes in one statement, at most: SQLite takes 32,766 parameters.
_CHANGES_MAX = 512

#: Messages of the outbox read at a time when all of it is read.
_CHUNK = 256

#: With less than this left, an I/O error is taken for want of space.
_SPACE_MIN = 64 * 2**10

_ERRORS: dict[int | None, type[StoreError]] = {
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_READONLY: StoreReadOnly,
    sqlite3.SQLITE_CORRUPT: StoreDamaged,
    sqlite3.SQLITE_NOTADB: StoreDamaged,
    sqlite3.SQLITE_BUSY: StoreInUse,
    # The module's own: a text in the file that is no UTF-8.
    None: StoreDamaged,
}


class SqliteStore(DurableStore):
    """`sqlite:PATH`. Beside PATH lie `PATH-lock` and, in use, SQLite's own two files.

    `open` finds damage to the file's structure, but in a large file that to the
    payloads is found only when they are read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__("sqlite", path)
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    # -- reading -----------------------------------------------------------

    def queued(self, flow: str, *, after: int, limit: int) -> list[Outgoing]:
        """See Store."""
        return self._outgoing(
            "WHERE state = 'queued' AND flow = ? AND seq > ? ORDER BY seq LIMIT ?",
            flow,
            after,
            limit,
        )

    def expiring(self, now: float, *, limit: int) -> list[Outgoing]:
        """See Store."""
        return self._outgoing(
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

    def incoming(self) -> Iterator[Incoming]:
        """See Store."""
        rows = self._read(_SELECT_INCOMING + "ORDER BY changed_at, key")
        try:
            return iter([incoming_from(_plain(INCOMING_FIELDS, row)) for row in rows])
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _outgoing(self, clauses: str, *values: float | str) -> list[Outgoing]:
        rows = self._read(_SELECT_OUTGOING + clauses, *values)
        try:
            return [outgoing_from(_plain(OUTGOING_FIELDS, row)) for row in rows]
        except ValueError as error:
            raise self._damaged(str(error)) from error

    def _read(self, sql: str, *values: float | str) -> list[Any]:
        if self._reader is None:
            raise StoreError(self.url, "is not open")
        with self._errors():
            return self._reader.execute(sql, values).fetchall()

    # -- writing -----------------------------------------------------------

    def _start(self, changes: list[Change]) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._thread, self._commit, changes)

    def _commit(self, changes: list[Change]) -> None:
        """One transaction, in the writer's thread."""
        assert self._writer is not None
        rows = [_row(change) for change in changes]
        with self._errors():
            self.probe("commit")
            if len(rows) <= _CHANGES_MAX:
                _change(self._writer, rows)
                return
            with _transaction(self._writer):
                for start in range(0, len(rows), _CHANGES_MAX):
                    _change(self._writer, rows[start : start + _CHANGES_MAX])

    # -- opening and closing -----------------------------------------------

    @property
    def _lock_path(self) -> Path:
        return self._beside("-lock")

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def _recognize(self) -> None:
        wal = self._beside("-wal")
        has_wal = wal.exists() and wal.stat().st_size > 0
        try:
            status = self._path.stat()
        except FileNotFoundError:
            if has_wal:
                raise self._damaged(f"is gone, but {wal} is there") from None
            return
        if not stat.S_ISREG(status.st_mode):
            raise self._damaged("is not a file")
        with self._path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        # We never leave an empty file: one that is there has lost its content.
        if not header:
            raise self._damaged("is empty; remove it to begin a new store")
        if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
            raise self._damaged("is not an SQLite database")
        if _number(header, _APPLICATION_ID_AT) != APPLICATION_ID:
            raise self._damaged("is the database of another application")
        self._check_version(_number(header, _USER_VERSION_AT))
        # SQLite looks for missing pages, but not for a missing part of the last.
        # (With a WAL it may be in there still, after a crash.)
        if not has_wal and status.st_size % _PAGE_BYTES:
            raise self._damaged("is cut off")

    def _load(self) -> Contents:
        with self._errors():
            if not self._path.exists():
                self._create()
            for place in (self._path, self._path.parent):
                if not os.access(place, os.W_OK, effective_ids=True):
                    raise StoreReadOnly(self.url, f"{place} cannot be written")
            try:
                self._connect()
                return self._contents()
            except BaseException:
                self._disconnect()
                raise

    def _create(self) -> None:
        """Make the file under another name, so that it is there whole or not."""
        new = self._beside("-new")
        self._discard_new()
        try:
            with self._errors():
                os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                with closing(sqlite3.connect(new, isolation_level=None)) as db:
                    self._fill_new(db)
                self.probe("create")
                sync(new)
                new.rename(self._path)
        except BaseException:
            self._discard_new()
            raise
        sync(self._path.parent)

    def _fill_new(self, db: sqlite3.Connection) -> None:
        db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        # Here, so that no rollback journal ever lies beside the store.
        db.execute("PRAGMA journal_mode = WAL")
        _migrate(db)
        db.execute("INSERT INTO about VALUES ('store_id', ?)", (secrets.token_hex(16),))
        # To close would do it too, but would not say when it fails.
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _discard_new(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self._beside("-new" + suffix).unlink(missing_ok=True)

    def _connect(self) -> None:
        # First without the right to write: to open a file that is not for us
        # would change it.
        uri = f"file:{quote(str(self._path))}?mode=ro"
        reader = self._reader = sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False
        )
        self._check_version(reader.execute("PRAGMA user_version").fetchone()[0])
        self._check(reader)

        writer = self._writer = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False
        )
        (mode,) = writer.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(self.url, "its file system cannot do SQLite's WAL")
        # NORMAL would lose in a power cut what was acknowledged before it.
        writer.execute("PRAGMA synchronous = FULL")
        writer.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")
        # Some builds zero what is deleted, and write it all once more to do so.
        writer.execute("PRAGMA secure_delete = FAST")
        writer.execute("PRAGMA temp_store = MEMORY")
        _migrate(writer)
        for statement in _changes_view():
            writer.execute(statement)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="qos-store")

    def _check(self, reader: sqlite3.Connection) -> None:
        """Raise if the file is broken: all of it, or all but the payloads if large."""
        checks = ["quick_check(1)"]
        if self._path.stat().st_size > _CHECKED_BYTES_MAX:
            tables = ("about", "remembered", "outgoing", "incoming")
            checks = [f"quick_check({table})" for table in tables]
        for check in checks:
            (verdict,) = reader.execute(f"PRAGMA {check}").fetchone()
            if verdict != "ok":
                raise self._damaged(verdict)

    def _contents(self) -> Contents:
        about = dict(self._read("SELECT name, value FROM about"))
        if "store_id" not in about:
            raise self._damaged("has lost its id")
        self.store_id = about["store_id"]
        ((messages, size),) = self._read(
            "SELECT COUNT(*), COALESCE(SUM(size), 0) FROM outgoing"
        )
        last = self._read("SELECT seq FROM sqlite_sequence WHERE name = 'outgoing'")
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
            next_seq=last[0][0] + 1 if last else 1,
            incoming=list(self.incoming()),
            remembered=dict(self._read("SELECT name, value FROM remembered")),
        )

    async def _release(self) -> None:
        # From here on nobody reads: not while a connection is being closed.
        assert self._reader is not None
        self._reader.close()
        self._reader = None
        # In the thread: the last connection to close copies the WAL into the file.
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._disconnect)
        assert self._thread is not None
        self._thread.shutdown()

    def _disconnect(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None

    # -- errors ------------------------------------------------------------

    def _check_version(self, version: int) -> None:
        if version > len(MIGRATIONS):
            raise StoreTooNew(
                self.url,
                f"has version {version}, and this program knows up to "
                f"{len(MIGRATIONS)}",
            )

    def _damaged(self, text: str) -> StoreDamaged:
        return StoreDamaged(self.url, text)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Say what SQLite or the system says by an error of the right class."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            primary = None if code is None else code & 0xFF
            kind = _ERRORS.get(primary, StoreError)
            if primary == sqlite3.SQLITE_IOERR and self._no_space():
                kind = StoreFull
            raise kind(self.url, str(error)) from error
        except OSError as error:
            raise disk_error(self.url, error) from error

    def _no_space(self) -> bool:
        """Whether an I/O error is for want of space: SQLite keeps the errno."""
        disk = os.statvfs(self._path.parent)
        if disk.f_bavail * disk.f_frsize < _SPACE_MIN:
            return True
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        suffixes = ("", "-wal", "-shm", "-new", "-new-wal", "-new-shm")
        files = [self._beside(suffix) for suffix in suffixes]
        sizes = [file.stat().st_size for file in files if file.exists()]
        return limit != resource.RLIM_INFINITY and max([0, *sizes]) + _SPACE_MIN > limit


# -- what is read ----------------------------------------------------------


def _names(names: Iterable[str]) -> str:
    # Quoted: "to" is a keyword.
    return ", ".join(f'"{name}"' for name in names)


_SELECT_OUTGOING = (
    f"SELECT {_names(OUTGOING_FIELDS)} FROM outgoing JOIN outgoing_payload USING (seq) "
)
_SELECT_INCOMING = (
    f"SELECT {_names(INCOMING_FIELDS)} FROM incoming JOIN incoming_payload USING (id) "
)


def _plain(names: tuple[str, ...], row: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(names, row, strict=True))


def _number(header: bytes, at: int) -> int:
    return int.from_bytes(header[at : at + 4], "big")


# -- what is written -------------------------------------------------------
#
# All changes of a commit are one INSERT into a view, whose triggers make them.
# So the writer's thread gives the GIL away once in a commit. With a statement
# for each change it would have to get it back after each, and a commit of 64
# changes was seen to take a second while the event loop was busy.


def _but(*left_out: str, of: Iterable[str]) -> list[str]:
    return [name for name in of if name not in left_out]


_Value: TypeAlias = float | str | None

#: The values of each kind of change, in the order of the view's columns.
_OUTGOING = ("level", "state", *_but("level", "state", of=OUTGOING_FIELDS), "flow")
_INCOMING = ("level", "state", *_but("level", "state", of=INCOMING_FIELDS))
_WIDTH = len(_OUTGOING)

_outgoing_values = attrgetter(*_OUTGOING[2:])
_incoming_values = attrgetter(*_INCOMING[2:])


def _row(change: Change) -> tuple[_Value, ...]:
    """A change as a row of the view."""
    if isinstance(change, Remember):
        return _padded("remember", change.name, change.value)
    record = change.record
    if isinstance(change, Forget):
        if isinstance(record, Outgoing):
            return _padded("forget outgoing", record.seq)
        return _padded("forget incoming", record.key)
    level, state = record.level.value, record.state.value
    if isinstance(record, Outgoing):
        return _padded("save outgoing", level, state, *_outgoing_values(record))
    return _padded("save incoming", level, state, *_incoming_values(record))


def _padded(*values: _Value) -> tuple[_Value, ...]:
    return values + (None,) * (1 + _WIDTH - len(values))


def _change(writer: sqlite3.Connection, rows: list[tuple[_Value, ...]]) -> None:
    """Make the changes in order, all or none."""
    # A power of two, so that the statements are few and stay prepared.
    size = 1 << (len(rows) - 1).bit_length()
    rows = rows + [_padded(None)] * (size - len(rows))
    writer.execute(_statement(size), [value for row in rows for value in row])


@lru_cache
def _statement(rows: int) -> str:
    row = f"({', '.join('?' * (1 + _WIDTH))})"
    return f"INSERT INTO changes VALUES {', '.join([row] * rows)}"


def _changes_view() -> Iterator[str]:
    """What makes the view and its triggers; they last as long as the connection."""
    columns = ", ".join(f"c{place}" for place in range(_WIDTH))
    yield (
        f"CREATE TEMP VIEW changes (kind, {columns}) AS SELECT NULL{', NULL' * _WIDTH}"
    )
    # The first group of Outgoing never changes, its payload included.
    steps = OUTGOING_FIELDS[OUTGOING_FIELDS.index("state") :]
    yield _trigger(
        "save outgoing",
        _OUTGOING,
        f"{_insert('outgoing', _OUTGOING)} ON CONFLICT (seq) DO UPDATE {_set(steps)};"
        "INSERT INTO outgoing_payload VALUES (NEW.seq, NEW.payload)"
        " ON CONFLICT DO NOTHING;",
    )
    yield _trigger(
        "forget outgoing",
        ("seq",),
        "DELETE FROM outgoing WHERE seq = NEW.seq;"
        "DELETE FROM outgoing_payload WHERE seq = NEW.seq;",
    )
    yield _trigger(
        "save incoming",
        _INCOMING,
        f"{_insert('incoming', _INCOMING)}"
        f" ON CONFLICT (key) DO UPDATE {_set(_but('key', of=_INCOMING))};"
        "INSERT INTO incoming_payload"
        " SELECT id, NEW.payload FROM incoming WHERE key = NEW.key"
        " ON CONFLICT (id) DO UPDATE SET payload = excluded.payload"
        " WHERE payload <> excluded.payload;",
    )
    yield _trigger(
        "forget incoming",
        ("key",),
        "DELETE FROM incoming_payload"
        " WHERE id = (SELECT id FROM incoming WHERE key = NEW.key);"
        "DELETE FROM incoming WHERE key = NEW.key;",
    )
    yield _trigger(
        "remember",
        ("name", "value"),
        "INSERT OR REPLACE INTO remembered VALUES (NEW.name, NEW.value);",
    )


def _trigger(kind: str, values: tuple[str, ...], body: str) -> str:
    """A trigger for one kind of change; NEW.name in its body is that value."""
    body = re.sub(r"NEW\.(\w+)", lambda match: f"NEW.c{values.index(match[1])}", body)
    return (
        f'CREATE TEMP TRIGGER "{kind}" INSTEAD OF INSERT ON changes'
        f" WHEN NEW.kind = '{kind}' BEGIN {body} END"
    )


def _insert(table: str, values: tuple[str, ...]) -> str:
    columns = _but("payload", of=values)
    new = ", ".join(f"NEW.{name}" for name in columns)
    return f"INSERT INTO {table} ({_names(columns)}) VALUES ({new})"


def _set(values: Iterable[str]) -> str:
    columns = _but("payload", of=values)
    return "SET " + ", ".join(f'"{name}" = excluded."{name}"' for name in columns)


def _migrate(db: sqlite3.Connection) -> None:
    """Bring the file to the present version, all the way or not at all."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version < len(MIGRATIONS):
        with _transaction(db):
            for step in MIGRATIONS[version:]:
                for statement in step:
                    db.execute(statement)
            db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # SQLite has done it by itself for some errors.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
