"""Group commit, the lock, and the meaning of an errno: shared by the stores on disk.

A commit waits for the disk, which needs about the same time for one change or a
hundred. So there is one commit at a time, and all changes written meanwhile go into the
next one.

A transaction of an application takes the turn of a commit: no commit begins until it
has ended, and after it a commit of the store comes first.

If there is a journal (`qos.journal`), each commit first gives the kernel every line
that was noted before the commit was put together. This happens in the thread that then
waits for the disk: another change of thread would cost more than the lines. The code
that changes a record notes the change *before* it writes the record into the store. So:

- After a kill before the commit, the store does not have the change, and the journal
  perhaps does. After the restart the store decides: either the same happens again and
  is noted again, under another boot (a message that was being settled is settled
  again), or something else happens, and that is noted. The only thing that would not be
  noted is a beginning: a message that only the journal knows. The writer finds these
  when it takes over the files of the dead boot, which are hidden until the commits of
  their lines have ended. The engines note for each that it was not stored
  (`qos.journal.messages.not_stored`).
- After a kill after the commit, the journal has all of it: the store never has a change
  that the journal does not have.
- Lines about things that are in no store, such as a repeated offer, are not waited for.
  The kernel gets them soon after.

So the journal is always ahead, and of its lines about one message the last counts. A
commit that fails is the same case without the restart. A store in memory has no
commits, and nothing waits: when its process dies, journal and store end together.
"""

from __future__ import annotations

import abc
import asyncio
import errno
import fcntl
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from pathlib import Path
from typing import ClassVar, Generic, TypeAlias, TypeVar

from qos import arguments
from qos.errors import StoreError, StoreFull, StoreInUse, StoreReadOnly
from qos.stores.base import Journal, NoJournal

__all__ = ["DurableStore", "GroupCommit", "disk_error", "identity", "sync"]

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


#: Starts a commit of changes, off the event loop; before it, the work of the journal.
Start: TypeAlias = Callable[
    [list[_Change], Callable[[], None] | None], asyncio.Future[None]
]


class GroupCommit(Generic[_Change]):
    """Makes one commit of everything that is written during another.

    There is no task and nothing to start: a write costs the caller an append, and the
    end of a commit begins the next one.

    Attributes:
        journal: must be ahead of each commit.
    """

    def __init__(self, start: Start[_Change]) -> None:
        """Take the function that starts a commit; its future must not be cancelled."""
        self.journal: Journal = NoJournal()
        self._start = start
        self._enter(None)

    def _enter(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Begin in this loop.

        Work that was left in another loop can never be finished.
        """
        self._loop = loop
        self._changes: list[_Change] = []
        self._written: _Shared | None = None
        self._committing: _Shared | None = None
        self._busy = False
        #: The transactions that wait for a turn, and the one whose turn it is.
        self._turns: deque[asyncio.Future[None]] = deque()
        self._turn: asyncio.Future[None] | None = None

    def write(self, changes: Sequence[_Change]) -> asyncio.Future[None]:
        """Put the changes into the next commit; all of its writes share the future."""
        loop = self._running_loop()
        if self._written is None:
            self._written = _Shared(loop=loop)
            if not self._busy:
                self._busy = True
                self.journal.commit_wanted()
                self._next_soon(loop)
        self._changes.extend(changes)
        return self._written

    async def take_turn(self) -> None:
        """Wait until no commit runs; none begins then before `end_turn`."""
        loop = self._running_loop()
        if not self._busy:
            self._busy = True
            # Lines noted from now on may belong to a commit that has to wait.
            self.journal.commit_wanted()
            self._turn = loop.create_future()
            return
        turn = loop.create_future()
        self._turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.end_turn()
            raise

    def turn_committed(self) -> None:
        """Note that a commit made within the turn has ended.

        Call it before `end_turn`.
        """
        # Changes that others have written meanwhile were not in it; then lines noted
        # before it belong to the next commit.
        if self._written is None:
            self.journal.commit_ended(idle=False)

    def end_turn(self) -> None:
        """Let other commits and transactions go on."""
        assert self._turn is not None
        self._turn.get_loop().call_soon(self._turn_ended)
        self._turn.set_result(None)
        self._turn = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._enter(loop)
        return loop

    async def drain(self) -> None:
        """Wait until nothing is being written, whether it succeeds or fails."""
        if asyncio.get_running_loop() is not self._loop:
            return
        while (last := self._written or self._committing or self._turn) is not None:
            await asyncio.wait([last])

    def _next(self) -> None:
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                self._turn = turn.get_loop().create_future()
                turn.set_result(None)
                return
        self._commit()

    def _turn_ended(self) -> None:
        if self._written is not None:
            self._commit()
        else:
            self._next()

    def _commit(self) -> None:
        written, changes = self._written, self._changes
        self._written, self._changes = None, []
        self._committing = written
        if written is None:
            self._busy = False
            self.journal.commit_ended(idle=True)
            return
        try:
            commit = self._start(changes, self.journal.commit_begins())
        except Exception as error:  # noqa: BLE001 - or its writers would wait for ever
            self._end(written, error)
        else:
            commit.add_done_callback(lambda done: self._end(written, done.exception()))

    def _end(self, written: _Shared, error: BaseException | None) -> None:
        self._committing = None
        self.journal.commit_ended(idle=False)
        if error is None:
            written.set_result(None)
        else:
            written.set_exception(error)
        self._next_soon(written.get_loop())

    def _next_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Go on after this turn of the loop and the next one.

        In the first the writers wake. In the second those wake whom they have told of
        an end, and give their next message; and what has come in meanwhile is read. All
        that they write joins.
        """
        loop.call_soon(loop.call_soon, self._next)


#: Called with the future of a commit when it is done.
_Callback: TypeAlias = "Callable[[_Shared], object]"


class _Shared(asyncio.Future[None]):
    """The future of a commit: one of its writers cannot cancel it for the others.

    The loop wakes once for all its callbacks: a commit may have hundreds.
    """

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._together: list[tuple[_Callback, Context]] = []

    def add_done_callback(
        self, fn: _Callback, /, *, context: Context | None = None
    ) -> None:
        """See asyncio.Future."""
        if self.done():
            super().add_done_callback(fn, context=context)
            return
        if not self._together:
            super().add_done_callback(_Shared._call)
        self._together.append((fn, context or copy_context()))

    def remove_done_callback(self, fn: _Callback, /) -> int:
        """See asyncio.Future."""
        kept = [each for each in self._together if each[0] != fn]
        removed, self._together = len(self._together) - len(kept), kept
        return removed + super().remove_done_callback(fn)

    def _call(self) -> None:
        together, self._together = self._together, []
        for callback, context in together:
            try:
                context.run(callback, self)
            except Exception as error:  # noqa: BLE001 - or the others would not be called
                message = f"an error in {callback!r}"
                told = {"message": message, "exception": error, "future": self}
                self.get_loop().call_exception_handler(told)

    def cancel(self, msg: object = None) -> bool:
        """Refuse. A waiting task is cancelled when the commit is done."""
        return False


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
        """The journal that is written before each commit; see this module.

        None: none.
        """
        return self._commits.journal

    @journal.setter
    def journal(self, journal: Journal | None) -> None:
        self._commits.journal = NoJournal() if journal is None else journal

    def __init__(self, scheme: str, path: str | os.PathLike[str]) -> None:
        path = arguments.path("path", path)
        self.url = f"{scheme}:{path}"
        self.store_id = ""
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
    def _load(self) -> _Contents:
        """Create the store if needed, and read it.

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

    def open(self) -> _Contents:
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
            contents = self._load()
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
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise self._in_use() from None

    def _unlock(self) -> None:
        if self._data is not None:
            self._open_here.discard(self._data)
            self._data = None
        while self._locks:
            os.close(self._locks.pop())


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
