"""The base of every SQLite file of ours, for any contents.

A file is recognized by its application id, created completely or not at all, checked
and upgraded when it is opened, and written by a thread of its own. Written data is safe
against a crash and a power cut (WAL with `synchronous=FULL`).
"""

from __future__ import annotations

import abc
import asyncio
import os
import resource
import secrets
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import quote

from qos.errors import (
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreReadOnly,
    StoreTooNew,
)
from qos.stores.durable_store import DurableStore, disk_error, sync
from qos.stores.sqlite_changes import CACHED_STATEMENTS, NoSuchRow, Row, make
from qos.stores.sqlite_check import BackgroundCheck, check
from qos.stores.times import clock_from, clock_text

__all__ = ["ABOUT", "Migrations", "SqliteFile"]

#: MIGRATIONS[n] upgrades a file from version n to n + 1; a new file gets all of them.
#: Never change one that was released: add another.
Migrations = tuple[tuple[str, ...], ...]

#: Part of the first migration: the table with the id of the store.
ABOUT = """CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)"""

#: In that table: the clocks of the starts so far.
_CLOCK = "clock"

#: The first bytes of an SQLite file, and the places of our two numbers in its header
#: (https://sqlite.org/fileformat.html §1.3).
_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_USER_VERSION_AT = 60
_APPLICATION_ID_AT = 68

#: SQLite's default now; we keep it even if that changes.
_PAGE_BYTES = 4096

#: Files up to this size are checked completely when they are opened: half a second,
#: cold.
_CHECKED_BYTES_MAX = 32 * 2**20

#: The WAL is truncated to this size when it begins again, after a burst.
_WAL_BYTES_MAX = 16 * 2**20

#: With less than this left, an I/O error is taken as a lack of space.
_SPACE_MIN = 64 * 2**10

_ERRORS: dict[int | None, type[StoreError]] = {
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_READONLY: StoreReadOnly,
    sqlite3.SQLITE_CORRUPT: StoreDamaged,
    sqlite3.SQLITE_NOTADB: StoreDamaged,
    sqlite3.SQLITE_BUSY: StoreInUse,
    # From Python's module: a text in the file is not UTF-8.
    None: StoreDamaged,
}


_Contents = TypeVar("_Contents")
_Change = TypeVar("_Change")
_Record = TypeVar("_Record")


class SqliteFile(DurableStore[_Contents, _Change]):
    """`sqlite:PATH`. In use, SQLite's own two files are beside PATH.

    `open` finds damage to the file's structure, or `check` does so in the background. In a
    large file, damage to payloads is found only when they are read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__("sqlite", path)
        #: The id of a new file; None: a random one.
        self._new_id: str | None = None
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._is_unchecked = False
        self._checking: BackgroundCheck | None = None

    # -- to be defined by a file -----------------------------------------------

    #: Four letters by which its files are recognized.
    _application_id: ClassVar[int]

    #: All its tables except those of payloads.
    _tables: ClassVar[tuple[str, ...]]

    #: A large file is checked when `check` is called, and not when it is opened.
    _checks_later: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def _migrations(self) -> Migrations:
        """See Migrations."""

    #: The query for the newest time at which something has happened, and the statements
    #: that move all times by their one parameter.
    _newest: ClassVar[str]
    _moves: ClassVar[Sequence[str]]

    @abc.abstractmethod
    def _rows(self, changes: Iterable[_Change]) -> Iterable[Row]:
        """The changes as rows, each with its kind and the values of that kind."""

    @abc.abstractmethod
    def _contents(self) -> _Contents:
        """The result of `open`. The reader is connected."""

    # -- reading -----------------------------------------------------------

    def _read(self, sql: str, *values: float | str) -> list[Any]:
        if self._reader is None:
            raise StoreError(self.url, "is not open")
        with self._errors():
            return self._reader.execute(sql, values).fetchall()

    def _records(
        self,
        record_from: Callable[[dict[str, Any]], _Record],
        names: tuple[str, ...],
        sql: str,
        *values: float | str,
    ) -> list[_Record]:
        """The records made from a query; `names` are those of the columns."""
        rows = self._read(sql, *values)
        try:
            return [record_from(dict(zip(names, row, strict=True))) for row in rows]
        except (TypeError, ValueError) as error:
            raise self._damaged(str(error)) from error

    def _next_seq(self, table: str) -> int:
        """One more than the largest key that an AUTOINCREMENT table ever had."""
        last = self._read("SELECT seq FROM sqlite_sequence WHERE name = ?", table)
        return last[0][0] + 1 if last else 1

    # -- writing -----------------------------------------------------------

    def _start(
        self, changes: list[_Change], before: Callable[[], None] | None
    ) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._thread, self._commit, changes, before)

    def _commit(
        self, changes: list[_Change], before: Callable[[], None] | None
    ) -> None:
        """One transaction, in the writer's thread."""
        assert self._writer is not None
        if before is not None:
            before()
        with self._errors():
            self.probe("commit")
            with _transaction(self._writer):
                self._make(self._writer, changes)

    def _make(self, db: sqlite3.Connection, changes: Iterable[_Change]) -> None:
        """Make the changes in the open transaction."""
        try:
            make(db, self._rows(changes))
        except NoSuchRow as error:
            raise StoreError(self.url, str(error)) from error

    # -- opening and closing -----------------------------------------------

    def exists(self) -> bool:
        """See DurableStore."""
        return self._path.exists()

    def _lock_data(self) -> bool:
        # SQLite's own locks are of another kind (fcntl), and do not conflict with any
        # of this.
        if not self._path.is_file():
            return False
        self._take_lock(self._path, os.O_RDONLY)
        return True

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
        # We never leave an empty file: this one has lost its content.
        if not header:
            raise self._damaged("is empty; remove it to begin a new store")
        if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
            raise self._damaged("is not an SQLite database")
        if _number(header, _APPLICATION_ID_AT) != self._application_id:
            raise self._damaged("is the database of another application")
        self._check_version(_number(header, _USER_VERSION_AT))
        # SQLite looks for missing pages, but not for a missing part of the last page.
        # (With a WAL that part may still be in it, after a crash.)
        if not has_wal and status.st_size % _PAGE_BYTES:
            raise self._damaged("is cut off")

    def _load(self, now: float | None) -> _Contents:
        with self._errors():
            if not self._locks:
                self._create()
            for place in (self._path, self._path.parent):
                if not os.access(place, os.W_OK, effective_ids=True):
                    raise StoreReadOnly(self.url, f"{place} cannot be written")
            self._confirm()
            try:
                self._connect()
                self._read_about()
                if now is not None:
                    self._move(now)
                return self._contents()
            except BaseException:
                self._disconnect()
                raise

    def _load_to_read(self) -> bool:
        with self._errors():
            try:
                version = self._connect_reader()
                if version == len(self._migrations):
                    self._read_about()
                    return True
            except BaseException:
                self._disconnect()
                raise
            self._disconnect()
            return False

    def _confirm(self) -> None:
        """Sync the writes that a killed process may have left unsynced.

        A program acts on the contents shown, and may write nothing before.
        """
        wal = self._beside("-wal")
        if wal.exists():
            sync(wal)
        sync(self._path.parent)

    def _create(self) -> None:
        """Make the file under another name, so that it appears complete or not at all.

        It is locked from the beginning; when it is renamed, the lock becomes that of
        the data.
        """
        new = self._beside("-new")
        self._lock_new(new)
        try:
            with self._errors():
                with closing(sqlite3.connect(new, isolation_level=None)) as db:
                    self._fill_new(db)
                self.probe("create")
                sync(new)
                new.rename(self._path)
        except BaseException:
            self._discard_new()
            raise
        sync(self._path.parent)

    def _lock_new(self, new: Path) -> None:
        """Make an empty file for the new store, locked.

        Raises:
            StoreInUse: another process is creating the store.
        """
        try:
            # A present file belongs to a process that died, unless it is locked.
            self._take_lock(new, os.O_RDONLY)
            if not os.path.samestat(os.fstat(self._locks[-1]), os.lstat(new)):
                raise self._in_use()
        except FileNotFoundError:
            pass
        if self._path.exists():
            raise self._in_use()
        self._discard_new()
        try:
            self._take_lock(new, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            raise self._in_use() from None

    def _fill_new(self, db: sqlite3.Connection) -> None:
        db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        db.execute(f"PRAGMA application_id = {self._application_id}")
        # Here, so that no rollback journal is ever beside the store.
        db.execute("PRAGMA journal_mode = WAL")
        self._migrate(db)
        store_id = self._new_id or secrets.token_hex(16)
        db.execute("INSERT INTO about VALUES ('store_id', ?)", (store_id,))
        # Closing would do it too, but without an error when it fails.
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _discard_new(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            self._beside("-new" + suffix).unlink(missing_ok=True)

    def _connect(self) -> None:
        # First without the right to write: opening a foreign file for writing would
        # change it.
        self._connect_reader()
        writer = self._writer = self._connect_writer()
        self._migrate(writer)
        thread = self._thread = ThreadPoolExecutor(1, thread_name_prefix="qos-store")
        try:
            # It is started now: a commit whose thread could not be started would fail, and
            # be made together with the next one all the same.
            thread.submit(int)
        except RuntimeError as error:
            raise StoreError(self.url, str(error)) from error

    def _new_reader(self) -> sqlite3.Connection:
        """A connection without the right to write."""
        uri = f"file:{quote(str(self._path))}?mode=ro"
        return sqlite3.connect(
            uri, uri=True, isolation_level=None, check_same_thread=False
        )

    def _connect_reader(self) -> int:
        """Connect without the right to write; returns the version of the file."""
        reader = self._reader = self._new_reader()
        (version,) = reader.execute("PRAGMA user_version").fetchone()
        self._check_version(version)
        self._check(reader)
        return int(version)

    def _connect_writer(self) -> sqlite3.Connection:
        """A connection that writes as safely as this module says."""
        writer = sqlite3.connect(
            self._path,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=CACHED_STATEMENTS,
        )
        try:
            (mode,) = writer.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                raise StoreError(self.url, "its file system cannot do SQLite's WAL")
            # NORMAL would lose acknowledged data in a power cut.
            writer.execute("PRAGMA synchronous = FULL")
            writer.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES_MAX}")
            # Some builds overwrite deleted data with zeros, which writes everything
            # once more.
            writer.execute("PRAGMA secure_delete = FAST")
            writer.execute("PRAGMA temp_store = MEMORY")
        except BaseException:
            writer.close()
            raise
        return writer

    def _check(self, reader: sqlite3.Connection) -> None:
        """Raise if the file is broken. Of a large file, payloads are not checked."""
        is_large = self._path.stat().st_size > _CHECKED_BYTES_MAX
        self._is_unchecked = is_large and self._checks_later
        if not self._is_unchecked:
            self._look_for_damage(reader, self._tables if is_large else ())

    def _look_for_damage(
        self, reader: sqlite3.Connection, tables: Sequence[str]
    ) -> None:
        with self._errors():
            verdict = check(reader, tables)
        if verdict != "ok":
            raise self._damaged(verdict)

    def check(self) -> asyncio.Future[None] | None:
        """See QueueStore; payloads are not checked."""
        if not self._is_unchecked:
            return None
        self._is_unchecked = False
        self._checking = BackgroundCheck(
            self._new_reader, partial(self._look_for_damage, tables=self._tables)
        )
        return self._checking.done

    def _read_about(self) -> None:
        about = dict(self._read("SELECT name, value FROM about"))
        if "store_id" not in about:
            raise self._damaged("has lost its id")
        self.store_id = about["store_id"]
        try:
            self.clock = clock_from(about.get(_CLOCK))
        except (TypeError, ValueError) as error:
            raise self._damaged(f"has no valid clock: {error}") from error

    def _move(self, now: float) -> None:
        """Move all times, if they do not fit to the present time."""
        assert self._writer is not None
        ((newest,),) = self._read(self._newest)
        by_s, clock = self._shift(newest, now)
        if by_s:
            self.probe("move")
            with _transaction(self._writer):
                for statement in self._moves:
                    self._writer.execute(statement, {"by_s": by_s})
                self._writer.execute(
                    "INSERT OR REPLACE INTO about VALUES (?, ?)",
                    (_CLOCK, clock_text(clock)),
                )
            self.clock = clock

    def _migrate(self, db: sqlite3.Connection) -> None:
        """Upgrade the file to the present version, completely or not at all."""
        migrations = self._migrations
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version < len(migrations):
            with _transaction(db):
                for step in migrations[version:]:
                    for statement in step:
                        db.execute(statement)
                db.execute(f"PRAGMA user_version = {len(migrations)}")

    async def _release(self) -> None:
        # From here on there are no reads: none may run while a connection is being
        # closed.
        checking, self._checking = self._checking, None
        if checking is not None:
            await checking.stop()
        assert self._reader is not None
        self._reader.close()
        self._reader = None
        thread, self._thread = self._thread, None
        if thread is not None:
            # In the thread: the last connection to close copies the WAL into the file.
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(thread, self._disconnect)
            thread.shutdown()

    def _disconnect(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None

    # -- errors ------------------------------------------------------------

    def _check_version(self, version: int) -> None:
        if version > len(self._migrations):
            raise StoreTooNew(
                self.url,
                f"has version {version}, and this program knows up to "
                f"{len(self._migrations)}",
            )

    def _damaged(self, text: str) -> StoreDamaged:
        return StoreDamaged(self.url, text)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite and of the system into the right class."""
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
        """Whether an I/O error comes from a lack of space.

        SQLite keeps the errno to itself.
        """
        disk = os.statvfs(self._path.parent)
        if disk.f_bavail * disk.f_frsize < _SPACE_MIN:
            return True
        limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        suffixes = ("", "-wal", "-shm", "-new", "-new-wal", "-new-shm")
        files = [self._beside(suffix) for suffix in suffixes]
        sizes = [file.stat().st_size for file in files if file.exists()]
        return limit != resource.RLIM_INFINITY and max([0, *sizes]) + _SPACE_MIN > limit


def _number(header: bytes, at: int) -> int:
    return int.from_bytes(header[at : at + 4], "big")


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        # For some errors SQLite has rolled back already.
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
