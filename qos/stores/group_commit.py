"""Group commit, the lock, and the meaning of an errno: shared by the stores on disk.

A commit waits for the disk, and the disk does not care whether it takes one
change or a hundred. So there is one commit at a time, and everything that is
written meanwhile goes into the next.

A transaction of an application takes the turn of a commit: none begins until it has
ended, and after it one of the store's own comes first.

Where there is a journal (`qos.journal`), each commit first gives the kernel every line
that was noted before the commit was put together, in the thread that then waits for
the disk: another hop to a thread would cost more than the lines. Whoever changes a record notes
what that means *before* he writes it into the store, so:

- Killed before the commit, the store does not know of the change, and perhaps the
  journal does. After the restart things go on from the store: the same happens
  again and is noted again, under another boot (a message that was being settled is
  settled again), or it goes another way, and that is noted. The one thing that
  would not be noted is a beginning: a message of which only the journal knows. The
  writer finds these when it takes over the files of the dead boot, which are hidden
  until the commits that their lines are about have ended. The engines note of each
  that it was not stored (`qos.journal.messages.not_stored`).
- Killed after the commit, the journal has all of it: the store never remembers what
  the journal does not.
- What is noted for things that are in no store, such as a repeated offer, is not
  waited for. The kernel gets it soon after.

So the journal is always ahead, and of what it says of one message the last counts. A
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
from pathlib import Path
from typing import ClassVar, Generic, TypeAlias, TypeVar

from qos import arguments
from qos.errors import StoreError, StoreFull, StoreInUse, StoreReadOnly
from qos.stores.base import Journal, NoJournal

__all__ = ["DurableStore", "GroupCommit", "disk_error", "identity", "sync"]

log = logging.getLogger(__name__)

#: What a store of this kind writes, and what it says of itself when it is opened.
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


#: Starts a commit of changes, off the event loop; before it, what the journal has to do.
Start: TypeAlias = Callable[
    [list[_Change], Callable[[], None] | None], asyncio.Future[None]
]


class GroupCommit(Generic[_Change]):
    """Makes one commit of all that is written while another is under way.

    There is no task and nothing to start: a write costs the caller an append,
    and the end of a commit begins the next.

    Attributes:
        journal: what must be ahead of each commit.
    """

    def __init__(self, start: Start[_Change]) -> None:
        """Take what starts a commit; its future must not be cancelled."""
        self.journal: Journal = NoJournal()
        self._start = start
        self._enter(None)

    def _enter(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Begin in this loop. What was left in another can never be finished."""
        self._loop = loop
        self._changes: list[_Change] = []
        self._written: _Shared | None = None
        self._committing: _Shared | None = None
        self._busy = False
        #: Those who wait for a turn, and whose turn it is.
        self._turns: deque[asyncio.Future[None]] = deque()
        self._turn: asyncio.Future[None] | None = None

    def write(self, changes: Sequence[_Change]) -> asyncio.Future[None]:
        """Put the changes into the next commit; the future is that of all in it."""
        loop = self._running_loop()
        if self._written is None:
            self._written = _Shared(loop=loop)
            if not self._busy:
                self._busy = True
                self.journal.commit_wanted()
                # Not at once: others that wake in this turn of the loop join.
                loop.call_soon(self._next)
        self._changes.extend(changes)
        return self._written

    async def take_turn(self) -> None:
        """Wait until there is no commit; there is none then before `end_turn`."""
        loop = self._running_loop()
        if not self._busy:
            self._busy = True
            # What is noted meanwhile may be about a commit that has to wait.
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
        """Call when a commit that was made in the turn has ended, before `end_turn`."""
        # What others have written meanwhile was not in it: then lines that were noted
        # before it are about the next one.
        if self._written is None:
            self.journal.commit_ended(idle=False)

    def end_turn(self) -> None:
        """Let the others go on."""
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
        # After its writers have woken: what they write now joins.
        written.get_loop().call_soon(self._next)


class _Shared(asyncio.Future[None]):
    """The future of a commit: one who waits for it cannot end it for the others."""

    def cancel(self, msg: object = None) -> bool:
        """Refuse. A task that waits is cancelled when the commit is done."""
        return False


class DurableStore(abc.ABC, Generic[_Contents, _Change]):
    """A store on disk that one store object at a time has open.

    Attributes:
        probe: called before each step on the disk with what it is, from
            whichever thread makes it. For tests, which kill the process from
            it, copy the folder, or raise an OSError as the disk would.
    """

    durable = True

    #: The data of those that this process has open to write, as (device, inode).
    _open_here: ClassVar[set[tuple[int, int]]] = set()

    @property
    def journal(self) -> Journal | None:
        """What is written before each commit; see this module. None: nothing."""
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
        # What was left out, by the names of the records: it is said once.
        self._unreadable: set[str] = set()

    # -- what a store adds -------------------------------------------------

    @abc.abstractmethod
    def exists(self) -> bool:
        """Whether there is such a store, or something else in its place."""

    @abc.abstractmethod
    def _lock_data(self) -> bool:
        """Lock the data itself (`_take_lock`); False: there is none yet."""

    @abc.abstractmethod
    def _recognize(self) -> None:
        """Raise, and write nothing, unless this is ours or there is nothing yet."""

    @abc.abstractmethod
    def _load(self) -> _Contents:
        """Create the store if need be, and read it.

        The data is locked if it is there. If not, who makes it locks it before anybody
        else can see it.
        """

    @abc.abstractmethod
    def _load_to_read(self) -> bool:
        """Read the store without writing; False: that takes a change of its format."""

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
            # While a store of this process is open, its files are not touched:
            # to close one of them would drop SQLite's own locks.
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
        """Open a store to look into it, beside the process that may have it open.

        Nothing is locked and nothing written, unless the store is of an earlier version
        of this program: then it is opened as by `open`, which brings it up to date.
        What is read is what is committed when it is read.

        Raises:
            StoreError: there is none, or as for `open`.
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
        """Go on without a record that cannot be read; it stays where it is."""
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
            StoreInUse: somebody else has it locked.
        """
        # flock, not fcntl: it is of the open file, so it holds against another
        # store of this process, and ends with the process however that ends.
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
    """What names a file or folder, whatever path leads to it: device and inode.

    Raises:
        OSError: there is none.
    """
    status = os.stat(path)
    return status.st_dev, status.st_ino


def disk_error(url: str, error: OSError) -> StoreError:
    """The error of the right class for what the system said of a store."""
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
