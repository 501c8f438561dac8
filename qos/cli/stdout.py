"""stdout: whole lines, written by the thread of a writer, and awaited in the event loop.

This module also knows which writer belongs to a descriptor; see qos.cli.writer.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import sys
from collections import deque
from contextlib import suppress

from qos.cli.writer import Piece, Writer

__all__ = ["Stdout", "stdout_descriptor", "writer_at"]


class Stdout:
    """Writes to stdout without blocking the event loop, one text after another.

    Attributes:
        loop: the event loop that it belongs to.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._descriptor = stdout_descriptor()
        self._writer: Writer | None = None
        self._ends: deque[tuple[asyncio.Future[None], OSError | None]] = deque()
        self._is_told = False
        if self._descriptor is not None:
            self._writer = writer_at(self._descriptor)
            if _ends_torn(self._descriptor):
                self._writer.torn = True

    def begin_on_new_line(self) -> None:
        """End the line that stands there, if it may be a part of one."""
        if self._writer is not None:
            self._writer.torn = True

    def begin(self, text: str) -> asyncio.Future[None]:
        """Begin to write; the future is done when all of the text is written.

        Its error is an OSError: the write failed, and a part may have been written. When
        it is cancelled, the text is not written, unless that has begun.
        """
        future: asyncio.Future[None] = self.loop.create_future()
        if self._descriptor is None or self._writer is None:
            try:
                sys.stdout.write(text)  # stdout is an object of a Python program
                sys.stdout.flush()
            except OSError as error:
                future.set_exception(error)
            else:
                future.set_result(None)
            return future

        def ended(error: OSError | None) -> None:
            self._ends.append((future, error))
            if self._is_told:
                return
            self._is_told = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._set_ends)

        writer = self._writer
        piece = Piece(self._descriptor, text.encode(errors="replace"), ended)
        writer.put(piece)
        future.add_done_callback(lambda end: end.cancelled() and writer.withdraw(piece))
        return future

    def _set_ends(self) -> None:
        """Take the ends that the thread has noted, of many lines together."""
        self._is_told = False
        while self._ends:
            future, error = self._ends.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


#: The writer of each place that stdout and stderr lead to, with a descriptor of it.
_writers: dict[tuple[int, int], tuple[int, Writer]] = {}


def writer_at(descriptor: int) -> Writer:
    """The writer of the place that a descriptor leads to.

    There is one for `2>&1`, so that texts come in the order in which they were written.

    Raises:
        OSError: the descriptor is closed.
    """
    for place, (number, writer) in tuple(_writers.items()):
        if not _leads_to(number, place):  # closed, and perhaps used for another file
            writer.close()
            del _writers[place]
    return _writers.setdefault(_place(descriptor), (descriptor, Writer()))[1]


def _place(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _leads_to(descriptor: int, place: tuple[int, int]) -> bool:
    try:
        return _place(descriptor) == place
    except OSError:
        return False


def stdout_descriptor() -> int | None:
    """The descriptor of stdout; None: it has none that is open."""
    try:
        descriptor = sys.stdout.fileno()
        os.fstat(descriptor)
        return descriptor
    except (AttributeError, OSError, ValueError):
        return None


def _ends_torn(descriptor: int) -> bool:
    """Whether stdout appends to a file that ends in the middle of a line.

    An earlier process may have been stopped, or the disk may have been full.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
        return False
    appends = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND
    if not appends and os.lseek(descriptor, 0, os.SEEK_CUR) != status.st_size:
        return False
    try:
        # The file is opened again: stdout itself is mostly open for writing only.
        with open(f"/proc/self/fd/{descriptor}", "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"
    except OSError:  # we may not read it
        return False
