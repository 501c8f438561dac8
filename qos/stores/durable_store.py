"""The common part of the stores on disk: lock, commits, and the meaning of an errno."""

from __future__ import annotations

import abc
import asyncio
import errno
import fcntl
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from qos import arguments, forks
from qos.core.wall_clock import ClockHistory, shift
from qos.errors import StoreError, StoreFull, StoreInUse, StoreReadOnly
from qos.stores.base import Journal, NoJournal
from qos.stores.group_commit import GroupCommit

__all__ = ["DurableStore", "disk_error", "identity", "sync"]

log = logging.getLogger(__name__)

#: The kind of changes of a store, and its contents when it is opened.
_Change = TypeVar("_Change")
_Contents = TypeVar("_Contents")

_ERRORS: dict[int | None, type[StoreError]] = {
    errno.ENOSPC: StoreFull,
    errno.EDQUOT: StoreFull,
    errno.EFBIG: StoreFull,
    errno.EROFS: StoreReadOnly,
    errno.EACCES: StoreReadOnly,
    errno.EPERM: StoreReadOnly,
}


class DurableStore(abc.ABC, Generic[_Contents, _Change]):
    """A store on disk, which one store object at a time has open.

    Attributes:
        probe: for tests: called before each step on the disk with its name, in the
            thread that makes the step. Tests kill the process there, copy the folder,
            or raise an OSError as the disk would.
    """

    durable = True

    #: The data of stores that this process has open to write, as (device, inode).
    _open_here: ClassVar[set[tuple[int, int]]] = set()

    @property
    def journal(self) -> Journal | None:
        """The journal that is written before each commit; None: none.

        See `qos.stores.group_commit`.
        """
        return self._commits.journal

    @journal.setter
    def journal(self, journal: Journal | None) -> None:
        self._commits.journal = NoJournal() if journal is None else journal

    def __init__(self, scheme: str, path: str | os.PathLike[str]) -> None:
        path = arguments.path("path", path)
        self.url = f"{scheme}:{path}"
        self.store_id = ""
        self.clock = ClockHistory()
        self.probe: Callable[[str], None] = _no_probe
        # Resolved, so that two links to one store share its lock.
        self._path = Path(os.path.realpath(os.path.expanduser(path)))
        self._locks: list[int] = []
        self._data: tuple[int, int] | None = None
        self._is_open = False
        self._only_reads = False
        self._commits = GroupCommit(self._start)
        # The names of records that were left out: each is logged once.
        self._unreadable: set[str] = set()

    # -- to be defined by a store ----------------------------------------------

    @abc.abstractmethod
    def exists(self) -> bool:
        """Whether there is such a store, or something else in its place."""

    @abc.abstractmethod
    def _lock_data(self) -> bool:
        """Lock the data itself (`_take_lock`); False: there is none yet."""

    @abc.abstractmethod
    def _recognize(self) -> None:
        """Raise an error, without writing, unless this is our store or nothing yet."""

    @abc.abstractmethod
    def _load(self, now: float | None) -> _Contents:
        """Create the store if needed, and read it; see `open` for `now`.

        If the data is there, it is locked. If not, its creator locks it before any
        other process can see it.
        """

    @abc.abstractmethod
    def _load_to_read(self) -> bool:
        """Read the store without writing; False: its format has to be changed first."""

    @abc.abstractmethod
    def _start(
        self, changes: list[_Change], before: Callable[[], None] | None
    ) -> asyncio.Future[None]:
        """See Start."""

    @abc.abstractmethod
    async def _release(self) -> None:
        """Close what `_load` opened. Nothing is being written."""

    # -- the contract ------------------------------------------------------

    def open(self, now: float | None = None) -> _Contents:
        """See Store."""
        if self._is_open:
            raise self._in_use()
        try:
            if not self._path.parent.is_dir():
                raise StoreError(self.url, f"there is no folder {self._path.parent}")
            # While a store of this process is open, its files must not be touched:
            # closing one of them would drop SQLite's own locks.
            if self._is_open_here():
                raise self._in_use()
            self._lock_data()
            self._recognize()
            contents = self._load(now)
        except BaseException as error:
            self._unlock()
            if isinstance(error, OSError):
                raise disk_error(self.url, error) from error
            raise
        self._data = identity(self._path)
        self._open_here.add(self._data)
        self._is_open, self._only_reads = True, False
        return contents

    def open_to_read(self) -> None:
        """Open a store to read it, beside a process that may have it open.

        Nothing is locked and nothing is written, unless the store has an earlier
        version: then it is opened as by `open`, which upgrades it. Reads see the data
        that is committed at that time.

        Raises:
            StoreError: the store does not exist; or as for `open`.
        """
        if self._is_open:
            raise self._in_use()
        try:
            if not self.exists():
                raise StoreError(self.url, "there is no such store")
            if not self._is_open_here():
                self._recognize()
            loaded = self._load_to_read()
        except OSError as error:
            raise disk_error(self.url, error) from error
        if loaded:
            self._is_open = self._only_reads = True
        else:
            self.open()

    def write(self, changes: Sequence[_Change]) -> asyncio.Future[None] | None:
        """See Store."""
        self._need_open()
        if self._only_reads:
            raise StoreReadOnly(self.url, "is open for reading only")
        return self._commits.write(changes) if changes else None

    async def close(self) -> None:
        """See Store."""
        was_open, self._is_open = self._is_open, False
        await self._commits.drain()
        if was_open:
            try:
                await self._release()
            finally:
                self._unlock()

    def _shift(self, newest: float | None, now: float) -> tuple[float, ClockHistory]:
        """See `shift`; says so if the times in the store are to move."""
        by_s, clock = shift(newest, now, self.clock)
        if by_s:
            log.warning(
                "%s: the clock has jumped by %+.0f s since the last change of the "
                "store; all times in it move by that",
                self.url,
                by_s,
            )
        return by_s, clock

    def _need_open(self) -> None:
        if not self._is_open:
            raise StoreError(self.url, "is not open")

    def _leave_out(self, name: str, error: StoreError) -> None:
        """Leave out a record that cannot be read; it stays where it is."""
        if name not in self._unreadable:
            self._unreadable.add(name)
            log.error("%s is left out, the others go on: %s", name, error)

    def _is_open_here(self) -> bool:
        try:
            return identity(self._path) in self._open_here
        except FileNotFoundError:
            return False

    def _in_use(self) -> StoreInUse:
        text = "another process, or another store of this one, has it open"
        return StoreInUse(self.url, text)

    def _take_lock(self, path: Path, flags: int) -> None:
        """Lock a file or folder until the store is closed.

        Raises:
            StoreInUse: it is locked already.
        """
        # flock, not fcntl: the lock belongs to the open file. So it also holds against
        # another store of this process, and ends with the process, however that ends.
        lock = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._locks.append(lock)
        forks.keep(lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._in_use() from None

    def _unlock(self) -> None:
        if self._data is not None:
            self._open_here.discard(self._data)
            self._data = None
        while self._locks:
            lock = self._locks.pop()
            forks.forget(lock)
            os.close(lock)


def identity(path: Path) -> tuple[int, int]:
    """The identity of a file or folder, by any path: device and inode.

    Raises:
        OSError: it does not exist.
    """
    status = os.stat(path)
    return status.st_dev, status.st_ino


def disk_error(url: str, error: OSError) -> StoreError:
    """The error of the right class for a system error of a store."""
    text = error.strerror or str(error)
    if error.errno == errno.ELOOP:
        text = "is a symbolic link, which a store does not follow"
    if error.filename is not None:
        text += f" ({os.fsdecode(error.filename)})"
    return _ERRORS.get(error.errno, StoreError)(url, text)


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _no_probe(_step: str) -> None:
    """See DurableStore.probe."""
