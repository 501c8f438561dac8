"""The writer of everything that a command puts on stdout and stderr.

A pipe that nobody reads, a stopped terminal, the socket of a journal, or a file on a lost
network may keep write(2) waiting for ever. So a thread writes, and nothing else waits: the
event loop goes on, locks are kept, and signals are heard.

`Writer` writes texts in their order, and reports the end of each. `Notes` is for lines
that may be lost: it keeps a bounded number of bytes, and says how many lines it dropped.
Both know descriptors, and nothing of what the texts say.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

__all__ = ["NOTES_BYTES_MAX", "Notes", "Piece", "Writer"]

#: The most bytes of notes that wait. One note goes in whatever its size, if none waits.
NOTES_BYTES_MAX: Final = 256 * 1024

#: Texts that wait are written together, up to about this size.
_BATCH_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A text to be written.

    Attributes:
        descriptor: where to.
        data: the bytes.
        ended: called in the thread of the writer, with the error or None.
    """

    descriptor: int
    data: bytes
    ended: Callable[[OSError | None], None]


class Writer:
    """Writes to one place, such as a pipe or a terminal, in the order of `put`.

    Several descriptors may lead to the place; `2>&1` is the usual case.

    Attributes:
        torn: the place ends in the middle of a line, which the next text ends first.
    """

    def __init__(self, *, torn: bool = False) -> None:
        self.torn = torn
        self._waiting: deque[Piece] = deque()
        self._writing: list[Piece] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, piece: Piece) -> None:
        """Write this after everything that waits; returns at once."""
        with self._changed:
            self._waiting.append(piece)
            if self._thread is None:
                # A daemon: the process can end while the thread stands in write(2).
                thread = threading.Thread(
                    target=self._run, name="qos.cli.writer", daemon=True
                )
                # With too many threads, the next text tries again.
                with suppress(RuntimeError):
                    thread.start()
                    self._thread = thread
            self._changed.notify_all()

    def withdraw(self, piece: Piece) -> bool:
        """Do not write this; False: it is being written, or has been."""
        with self._changed:
            try:
                self._waiting.remove(piece)
            except ValueError:
                return False
            return True

    @property
    def idle(self) -> bool:
        """Whether everything has been written."""
        return not self._waiting and not self._writing

    def flush(self, timeout_s: float) -> bool:
        """Block until everything is written; False: nothing was, for this long."""
        with self._changed:
            # Each notice is a batch that has ended, or a new text.
            while not self.idle:
                if not self._changed.wait(timeout_s):
                    return False
        return True

    def close(self) -> None:
        """End the thread, after what waits is written."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    # -- in the thread -----------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writing = []
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    self._thread = None
                    return
                batch = self._writing = self._next_batch()
                torn, self.torn = self.torn, False
            data = b"".join([b"\n" * torn, *(piece.data for piece in batch)])
            size, error = _write(batch[0].descriptor, data)
            if error is not None:
                with self._changed:
                    self.torn = not data[:size].endswith(b"\n") if size else torn
            end = int(torn)
            for piece in batch:
                end += len(piece.data)
                piece.ended(None if end <= size else error)

    def _next_batch(self) -> list[Piece]:
        batch = [self._waiting.popleft()]
        size = len(batch[0].data)
        while (
            self._waiting
            and self._waiting[0].descriptor == batch[0].descriptor
            and size + len(self._waiting[0].data) <= _BATCH_BYTES
        ):
            batch.append(self._waiting.popleft())
            size += len(batch[-1].data)
        return batch


def _write(descriptor: int, data: bytes) -> tuple[int, OSError | None]:
    """Write all of it, however long that takes; returns how much, and the error."""
    size = 0
    while size < len(data):
        try:
            size += os.write(descriptor, data[size : size + _BATCH_BYTES])
        except BlockingIOError:
            # Others, such as ssh, make a descriptor non-blocking that they share with us.
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()
        except OSError as error:
            return size, error
    return size, None


class Notes:
    """Lines for people at one descriptor: written soon, or dropped and counted.

    When lines were dropped, all further ones are, until those that wait are written. Then
    a line says how many are missing at this place.
    """

    def __init__(self, writer: Writer, descriptor: int) -> None:
        self.writer = writer
        self.descriptor = descriptor
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._dropped = 0
        self._has_room: list[Callable[[], None]] = []

    @property
    def is_full(self) -> bool:
        """Whether more than half of what may wait does."""
        return self._waiting_bytes > NOTES_BYTES_MAX // 2

    def when_room(self, call: Callable[[], None]) -> None:
        """Call this in the thread of the writer, once the notes are not full any more."""
        with self._lock:
            if self.is_full:
                self._has_room.append(call)
                return
        call()

    def put(self, text: str) -> None:
        """Write this text, or drop it; its lines count."""
        data = text.encode(errors="replace")
        with self._lock:
            waits = self._waiting_bytes > 0
            fits = self._waiting_bytes + len(data) <= NOTES_BYTES_MAX
            if waits and (self._dropped or not fits):
                self._dropped += data.count(b"\n")
                return
            self._say_dropped()
            self._begin(data)

    def _say_dropped(self) -> None:
        if self._dropped:
            count, self._dropped = self._dropped, 0
            lines = "1 line was" if count == 1 else f"{count} lines were"
            text = f"xmpp-qos: {lines} dropped here: stderr could not be written\n"
            self._begin(text.encode(), count)

    def _begin(self, data: bytes, lines: int | None = None) -> None:
        self._waiting_bytes += len(data)
        lines = data.count(b"\n") if lines is None else lines

        def ended(error: OSError | None) -> None:
            self._ended(len(data), lines, error)

        self.writer.put(Piece(self.descriptor, data, ended))

    def _ended(self, size: int, lines: int, error: OSError | None) -> None:
        calls: list[Callable[[], None]] = []
        with self._lock:
            self._waiting_bytes -= size
            if error is not None:
                self._dropped += lines
            elif not self._waiting_bytes:
                self._say_dropped()
            if not self.is_full:
                calls, self._has_room = self._has_room, []
        for call in calls:
            call()
