"""A folder in which several files change together: all of them, or none.

Every file is written under a temporary name, synced, and renamed into place; then the
folder is synced. A single change is one rename or one removal, so it is all or none by
itself. For several changes, all files are first made under their temporary names, and
`commit.json` lists the renames and removals. Before it is in place, none of them is
made; from then on all will be made, if necessary when the folder is opened again.

This module knows nothing of messages. Reading must not follow links, which another user
may have put there.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiofiles.os

from qos.errors import StoreDamaged, StoreError, StoreReadOnly
from qos.stores.durable_store import sync
from qos.stores.files_index import MARKER, TEMPORARY, Move, encode

__all__ = ["COMMIT", "AtomicFolder", "Uncancelled", "check_place"]

COMMIT = "commit.json"

#: The number of files written at a time. The disk confirms several in little more than
#: the time of one: 64 files of 1.5 kB took 22 ms one by one, and 8 ms with eight at a
#: time.
_THREADS = 8


class AtomicFolder:
    """The folder of a store. Only the thread of the event loop uses it.

    Attributes:
        staged: the temporary name of each file whose rename is decided but not made.
        marker: the file whose name has the largest seq, when no message has it; or None.
    """

    def __init__(self, path: Path, probe: Callable[[str], None]) -> None:
        """Take the path of the folder, and a function to call before each disk step."""
        self._path = path
        self._probe = probe
        # One change of thread for a whole file: `aiofiles.open` needs one for each of
        # open, write, flush, sync and close, which doubled the time.
        self._stage = aiofiles.os.wrap(self.save)
        self._settle = aiofiles.os.wrap(self._transact)
        self._threads: ThreadPoolExecutor | None = None
        self.clear()

    def clear(self) -> None:
        """Forget everything about the folder."""
        self.marker: str | None = None
        self.staged: dict[str, str] = {}
        #: The moves that are decided and not all made.
        self._unfinished: list[Move] = []
        #: The disk did not confirm a write: its contents are not certain.
        self._unsynced = False

    # -- reading -----------------------------------------------------------

    def read(self, name: str) -> Any:
        """The value in a JSON file."""
        with open(self._path / name, "rb", opener=_no_link) as file:
            return json.loads(file.read())

    def names(self, folder: str) -> list[str]:
        """The sorted names of the files in a subfolder."""
        return sorted(os.listdir(self._path / folder))

    def read_decided(self) -> list[Move]:
        """The decided moves, whether they are made or not.

        Raises:
            FileNotFoundError: no moves are decided.
        """
        moves: list[Move] = [(old, new) for old, new in self.read(COMMIT)]
        self.staged = {new: old for old, new in moves if new is not None}
        return moves

    # -- opening and closing -----------------------------------------------

    def recover(self) -> None:
        """Make the moves that an earlier process had decided when it ended."""
        if (self._path / COMMIT).exists():
            self._unfinished = [(old, new) for old, new in self.read(COMMIT)]
            self._finish()

    def start(self) -> None:
        """Get ready for commits."""
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="qos-store")

    def close(self) -> None:
        """Make the decided moves, as far as the disk permits."""
        if self._unfinished:
            with suppress(OSError):
                self._finish()
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()

    # -- writing -----------------------------------------------------------

    async def run(self, call: Callable[[], None]) -> None:
        """Call a function in a thread."""
        await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def commit(self, content: Mapping[str, Any], moves: list[Move]) -> None:
        """Write files and make moves, all or none.

        Args:
            content: the values to write, by file name.
            moves: the renames into place, and the removals.

        Raises:
            OSError: none is made. If the disk has not confirmed a write, it is not
                certain which are made.
        """
        if self._unsynced:
            raise OSError(errno.EIO, "the disk did not confirm an earlier write")
        if self._unfinished:
            await self._settle([], executor=self._threads)
        saves = [Uncancelled(self._write(*item)) for item in content.items()]
        try:
            for failure in await asyncio.gather(*saves, return_exceptions=True):
                if failure is not None:
                    raise failure
            if moves:
                await self._settle(moves, executor=self._threads)
        except BaseException:
            if not self._unsynced:
                self.discard(content)
            raise

    def commit_at_once(self, content: Mapping[str, Any], moves: list[Move]) -> None:
        """See `commit`; before `start`, and in this thread."""
        for name, value in content.items():
            self.save(name, value)
        self._transact(moves)

    async def _write(self, name: str, value: object) -> None:
        await self._stage(name, value, executor=self._threads)

    # What follows runs in threads, but one `_transact` at a time.

    def save(self, name: str, value: object) -> None:
        """Write a file under its temporary name."""
        self._probe(f"write {name}")
        with open(self._path / (name + TEMPORARY), "wb", opener=_new_file) as file:
            file.write(encode(value))
            file.flush()
            self._probe(f"sync {name}")
            os.fsync(file.fileno())

    def _transact(self, moves: list[Move]) -> None:
        """Make the moves, all or none, after any unfinished earlier moves.

        Once they are decided, a failure of one of them is no error: the next commit, or
        the next open, will make it.
        """
        if self._unfinished:
            self._finish()
        if len(moves) < 2:
            self._make(moves)
            return
        self._sync_folders(moves)
        self.save(COMMIT, moves)
        self.rename(COMMIT + TEMPORARY, COMMIT)
        self.sync(COMMIT)
        self.staged = {new: old for old, new in moves if new is not None}
        self._unfinished = moves
        with suppress(OSError):
            self._finish()

    def _finish(self) -> None:
        self._make(self._unfinished)
        self.remove(COMMIT)
        self.sync(COMMIT)
        self._unfinished = []
        self.staged = {}

    def _make(self, moves: list[Move]) -> None:
        """Make the moves that are not made yet; their order does not matter."""
        if self._threads is None or len(moves) == 1:
            for move in moves:
                self._make_one(*move)
        else:
            futures = [self._threads.submit(self._make_one, *move) for move in moves]
            # Wait for all: none may still run when this move is tried again.
            wait(futures)
            for future in futures:
                future.result()
        self._sync_folders(moves)

    def _make_one(self, old: str, new: str | None) -> None:
        if new is None:
            self.remove(old)
        elif (self._path / old).exists() or not (self._path / new).exists():
            self.rename(old, new)
            if MARKER.fullmatch(os.path.basename(new)):
                with suppress(OSError):  # It is made; this keeps the order.
                    self._mark(new)

    def _mark(self, marker: str) -> None:
        """Make this file the one whose name has the largest seq."""
        flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(self._path / marker, flags))
        if self.marker is not None and self.marker != marker:
            self.remove(self.marker)
        self.marker = marker

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        self._probe(f"rename {old}")
        os.replace(self._path / old, self._path / new)

    def remove(self, name: str) -> None:
        """Remove a file; harmless if it is gone."""
        self._probe(f"remove {name}")
        (self._path / name).unlink(missing_ok=True)

    def _sync_folders(self, moves: list[Move]) -> None:
        for name in {os.path.dirname(old): old for old, _ in moves}.values():
            self.sync(name)

    def sync(self, name: str) -> None:
        """Sync the folder of this file."""
        folder = (self._path / name).parent
        try:
            self._probe(f"sync {folder.name}/")
            sync(folder)
        except OSError:
            self._unsynced = True
            raise

    def discard(self, names: Iterable[str]) -> None:
        """Remove files with temporary names."""
        for name in names:
            with suppress(OSError):
                (self._path / (name + TEMPORARY)).unlink(missing_ok=True)


class Uncancelled(asyncio.Task[None]):
    """A task that cannot be cancelled, since its thread would go on all the same.

    A loop that cancels its tasks at its end waits for this one.
    """

    def cancel(self, msg: object = None) -> bool:
        """Refuse."""
        return False


def check_place(place: Path, url: str) -> None:
    """Raise unless we can write the folder, and nobody else can.

    Others could put links into it.

    Args:
        place: the folder.
        url: of the store, for the error.

    Raises:
        StoreError: we cannot, or others can.
    """
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise StoreDamaged(url, f"{place} is not a folder")
    if not os.access(place, os.W_OK, effective_ids=True):
        raise StoreReadOnly(url, f"{place} cannot be written")
    user = os.geteuid()
    if user != 0 and status.st_uid not in {0, user}:
        raise StoreError(url, f"{place} belongs to another user")
    if status.st_mode & stat.S_IWOTH:
        raise StoreError(url, f"everybody can write into {place}: chmod o-w it first")


def _new_file(path: str, flags: int) -> int:
    """Open a new file: nobody else has it open, and it is no link."""
    flags = (flags & ~os.O_TRUNC) | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:  # left by a write that failed
        os.unlink(path)
        return os.open(path, flags, 0o600)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
