"""The writer of the journal of one node.

Only a commit of the store waits for the journal (`qos.stores.group_commit`), and a
failure of the journal never stops a message. A line that could not be written leaves a
gap of one number in seq, is counted (`lost`) and logged.

`group_commit` explains the order that keeps journal and store in agreement. For it,
this module guarantees three things. Lines come into the file in the order in which they
were noted: several threads may write, but one at a time, and each continues where the
last one ended. When the function returned by `commit_begins` has run, the kernel has
the lines, so they survive the end of the process. A file has no gap inside: after a
failure another file is started. (A power cut may lose the last lines although the store
on disk has their changes: files are synced only when they are closed.)

The lines of role `journal` come from the writer itself. No commit waits for them, and
they need not be written before one: `counted` says nothing of the store, but sums up
earlier lines of the file. If a process dies in between, a window has lines but no
count. A reader takes such a window as incomplete, never as one without messages.
Recovery ignores these lines: no message or item begins or ends with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import tempfile
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Self

import aiofiles.os

from qos.errors import JournalError
from qos.journal.counts import WINDOW_S, WindowCounts
from qos.journal.file_series import FileSeries
from qos.journal.files import Begun
from qos.journal.schema import ITEMS, Entry, JournalEvent
from qos.private import make_private

__all__ = ["ROTATE_BYTES", "ROTATE_S", "JournalWriter", "check_folder"]

log = logging.getLogger(__name__)

#: A file is closed, so that readers see it, at this size or this age.
ROTATE_BYTES = 16 * 2**20
ROTATE_S = 300.0

#: Entries without a commit are written together, after this time.
_SOON_S = 0.01


class JournalWriter:
    """A journal being written, in the folder DIR.

    Attributes:
        boot: identifies this life of the writer.
        begun: what a dead boot of the same store has begun; see `Begun`. The engines
            note what really became of each. Until they have, the files of that boot
            stay hidden.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        node: str,
        *,
        now: Callable[[], float] = time.time,
        store_id: str = "",
        of_items: bool = False,
        boot: str | None = None,
        rotate_bytes: int = ROTATE_BYTES,
        rotate_s: float = ROTATE_S,
        window_s: float = WINDOW_S,
    ) -> None:
        """Take over the files of dead writers of the node, and start a new file.

        Blocks.

        Args:
            folder: DIR; it is created if needed.
            node: the JID of the node that the journal belongs to.
            now: the time, seconds since the epoch.
            store_id: of the store that the journal belongs to, or ''.
            of_items: no line of a message is ever noted; see qos.journal.schema.ITEMS.
            boot: letters and digits, never used before; None: random.
            rotate_bytes: the largest size of a file, except for one line that is
                longer.
            rotate_s: the largest age of a file, in seconds.
            window_s: the length of the counted windows; see qos.journal.counts.

        Raises:
            JournalError: the folder cannot be written.
        """
        # A prefix that distinguishes this store from other stores of the same node.
        ours = store_id[:12]
        self.boot = boot or ours + secrets.token_hex(8) + (ITEMS if of_items else "")
        self.node = node
        self._now = now
        self._rotate_s = rotate_s
        began_at = now()
        self._counts = WindowCounts(node, at=began_at, window_s=window_s)
        try:
            self._files = FileSeries(
                Path(folder),
                node=node,
                boot=self.boot,
                ours=ours,
                began_at=began_at,
                counts=self._counts,
                rotate_bytes=rotate_bytes,
            )
        except OSError as error:
            raise _journal_error(Path(folder), error) from error
        self.begun: list[Begun] = self._files.begun
        # Filled by the loop, emptied by the thread that holds the lock. An entry None
        # means that a window may have ended.
        self._noted: deque[tuple[float, Entry | None]] = deque()
        self._writing = threading.Lock()
        # Numbers of lines: noted so far; noted before the current commit; noted before
        # the last commit that has ended.
        self._last = self._in_commit = self._committed = 0
        self._idle = True
        self._task: asyncio.Task[None] | None = None
        self._closed = self._ended = False
        self._soon: asyncio.TimerHandle | None = None
        self._aged: asyncio.TimerHandle | None = None
        self._window: asyncio.TimerHandle | None = None
        # An own thread: those of the loop may all be busy with the user's work.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="qos-journal")
        # One change of thread for all lines: `aiofiles.open` needs one for each step.
        self._write_noted = aiofiles.os.wrap(self._write)
        self._finish = aiofiles.os.wrap(self._end)
        self._files.write_lines([(began_at, Entry(JournalEvent.OPENED))])
        with contextlib.suppress(RuntimeError):  # there is no loop yet
            self._await_window()

    @classmethod
    def of_store(
        cls,
        folder: str | os.PathLike[str],
        node: str,
        now: Callable[[], float],
        store_id: str,
        *,
        of_items: bool = False,
    ) -> Self:
        """The journal of a node with a store."""
        return cls(folder, node, now=now, store_id=store_id, of_items=of_items)

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(
        cls,
        folder: str | os.PathLike[str] | None,
        node: str,
        store_id: str = "",
        *,
        of_items: bool = False,
    ) -> AsyncIterator[Self | None]:
        """The journal of a node, closed at the end; None if no folder is given."""
        if folder is None:
            yield None
            return
        # Set once, as the clocks of the engines are: no line says that time has passed
        # which has not, when the clock of the machine is put right.
        ahead_s = time.time() - time.monotonic()
        writer = cls(
            folder,
            node,
            now=lambda: time.monotonic() + ahead_s,
            store_id=store_id,
            of_items=of_items,
        )
        try:
            yield writer
        finally:
            await writer.close()

    @property
    def lost(self) -> int:
        """How many lines could not be written."""
        return self._files.lost

    @property
    def probe(self) -> Callable[[str], None]:
        """For tests: called before each step on the disk, in the thread that makes it.

        It gets the name of the step.
        """
        return self._files.probe

    @probe.setter
    def probe(self, probe: Callable[[str], None]) -> None:
        self._files.probe = probe

    # -- for the engines ---------------------------------------------------

    def note(self, *entries: Entry) -> None:
        """Write these events soon; as soon as a loop runs, if none does yet."""
        if self._closed or not entries:
            return
        at = self._now()
        for entry in entries:
            self._noted.append((at, entry))
        self._last += len(entries)
        if self._soon is None and self._task is None:
            self._write_soon()

    def commit_wanted(self) -> None:
        """See qos.stores.base.Journal."""
        self._idle = False

    def commit_begins(self) -> Callable[[], None] | None:
        """See qos.stores.base.Journal."""
        self._in_commit = self._last
        # Lines that another thread is writing have left _noted, but are not in the file
        # yet.
        if not self._noted and not self._writing.locked():
            return None
        self._grow_old()
        return partial(self._write, self._settled())

    def commit_ended(self, *, idle: bool) -> None:
        """See qos.stores.base.Journal."""
        self._committed = self._in_commit
        self._idle = idle
        if self._files.full:
            self._wake()

    async def close(self) -> None:
        """Write all noted lines and put the files into place. May be repeated.

        Call it after the store is closed.
        """
        self._closed = True
        for timer in (self._soon, self._aged, self._window):
            if timer is not None:
                timer.cancel()
        self._wake()
        while self._task is not None:
            await asyncio.wait([self._task])
        if not self._ended:
            self._ended = True
            await self._finish(self._now(), executor=self._thread)
        self._thread.shutdown()

    # -- writing, in the loop ----------------------------------------------

    def _write_soon(self) -> None:
        """Wait a moment for more lines.

        A change of thread costs more than writing them.
        """
        with contextlib.suppress(RuntimeError):  # there is no loop yet
            loop = asyncio.get_running_loop()
            self._soon = loop.call_later(_SOON_S, self._wake)

    def _wake(self) -> None:
        """Start to write, if there is something to write."""
        self._soon = None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # Lines noted before a loop runs are written with the next ones.
        if self._task is not None and self._task.get_loop() is not loop:
            self._task = None  # The task belongs to a loop that has ended.
        if self._task is None and self._has_work():
            self._task = loop.create_task(self._write_all())

    def _has_work(self) -> bool:
        return (
            bool(self._noted)
            or self._files.too_old
            or self._files.has_settled(self._settled())
        )

    def _settled(self) -> int:
        """The last line that is settled: its commit has ended, or it needs none.

        An engine that notes a line for a commit asks for the commit in the same turn of
        the loop.
        """
        return self._last if self._idle else self._committed

    async def _write_all(self) -> None:
        """Write what there is; repeat while the writer is closing and more has come."""
        while self._has_work():
            await self._write_noted(self._settled(), executor=self._thread)
            self._grow_old()
            if self._noted and not self._closed:
                break
        self._task = None
        if self._noted:
            self._write_soon()

    def _grow_old(self) -> None:
        """Start the timer that closes a file when it is old."""
        if self._aged is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._aged = loop.call_later(self._rotate_s, self._age)
        self._await_window()

    def _age(self) -> None:
        self._aged = None
        self._files.too_old = True
        self._wake()

    def _await_window(self) -> None:
        """Start the timer for the end of the window.

        It makes an idle node write its count.
        """
        if self._window is None and not self._closed:
            loop = asyncio.get_running_loop()
            ends_in = self._counts.ends_in(self._now())
            self._window = loop.call_later(ends_in, self._window_ended)

    def _window_ended(self) -> None:
        self._window = None
        self._noted.append((self._now(), None))
        self._wake()
        self._await_window()

    # -- writing, in a thread ----------------------------------------------

    def _write(self, settled: int) -> None:
        """Write the noted lines, and publish the settled files. Raises nothing."""
        with self._writing:
            batch = [self._noted.popleft() for _ in range(len(self._noted))]
            try:
                self._files.write(batch, settled)
            except Exception:  # a bug of ours: it must not delay the commit
                self._files.lost += len(batch)
                log.exception("the journal failed")

    def _end(self, at: float) -> None:
        with self._writing:
            self._files.end(at)


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Create the folder of a journal if needed, and check that it can be written.

    For callers that would otherwise have opened a store for nothing.

    Raises:
        JournalError: the folder cannot be written.
    """
    place = Path(folder)
    try:
        make_private(place)
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise _journal_error(place, error) from error


def _journal_error(folder: Path, error: OSError) -> JournalError:
    path = folder if error.filename is None else error.filename
    return JournalError(os.fsdecode(path), error.strerror or str(error))
