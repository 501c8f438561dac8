"""The output of the command: JSON lines on stdout, everything else on stderr.

A line of stdout is written completely, or the command fails: a reader that has a line
can rely on it. Writing never blocks the event loop, however slow the reader is.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import re
import select
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from qos.cli.status import CommandError, Status

__all__ = [
    "NoteHandler",
    "ProgressBar",
    "begin_on_new_line",
    "is_file",
    "note",
    "print_json",
    "print_text",
    "printable",
    "say",
    "sync_stdout",
    "time_text",
]

#: The progress bar as it stands in the last line of the terminal. There is one
#: terminal, and all other output to it must step around the bar.
_bar = ""

_BAR_CELLS = 20

#: Characters that change the state of a terminal or end a line: the control characters
#: C0, DEL and C1, line and paragraph separators, and bidi marks. Also the halves of
#: surrogate pairs, which UTF-8 cannot carry.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

#: POSIX: a pipe that has room takes this many bytes at once, without blocking.
_PIPE_BYTES = select.PIPE_BUF

#: Seconds before the next attempt, if another process has taken the room in a pipe.
_AGAIN_S = 0.01

#: A note is dropped if stderr accepts nothing for this many milliseconds.
_NOTE_MS_MAX = 1000


async def print_json(*records: Mapping[str, object]) -> None:
    """Write JSON objects to stdout, one a line: all of them, or the command fails.

    Raises:
        CommandError: stdout is closed at the other end, or cannot be written. A part of
            a line may have been written; the next one begins on a new line.
    """
    await print_text("".join(map(_json_line, records)))


def _json_line(record: Mapping[str, object]) -> str:
    # All of them stand inside strings: dumps() puts none between the tokens.
    return printable(json.dumps(record, ensure_ascii=False)) + "\n"


def printable(text: str) -> str:
    """A text in which nothing can change the state of a terminal, or end a line."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


async def print_text(text: str) -> None:
    """Write text to stdout: all of it, or the command fails.

    Raises:
        CommandError: as print_json.
    """
    # Lets the command be stopped in the middle of a long list.
    await asyncio.sleep(0)
    _erase_bar()
    try:
        await _stdout().write(text)
    except BrokenPipeError:
        raise CommandError("nobody reads stdout any more", Status.PIPE) from None
    except OSError as error:
        raise _cannot_write(error) from None
    finally:
        _draw_bar()


def begin_on_new_line() -> None:
    """Let the next text begin on a new line, if stdout is a pipe.

    A process that was killed may have left a part of a line in it. In a file that can
    be seen, but not in a pipe.
    """
    descriptor = _descriptor()
    if descriptor is not None and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        _stdout().torn = True


async def sync_stdout() -> None:
    """Wait until everything written to stdout, a file, is on disk.

    Raises:
        CommandError: it may not be on disk.
    """
    loop = asyncio.get_running_loop()
    try:
        await loop.run_in_executor(None, os.fsync, sys.stdout.fileno())
    except OSError as error:
        raise _cannot_write(error) from None


def is_file() -> bool:
    """Whether stdout is a regular file."""
    descriptor = _descriptor()
    return descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode)


def _cannot_write(error: OSError) -> CommandError:
    text = f"cannot write to stdout: {error.strerror or error}"
    return CommandError(text, Status.OUTPUT)


class _Stdout:
    """Writes to stdout without blocking the event loop, one text after another.

    Attributes:
        loop: the event loop that it belongs to.
        torn: the last line of stdout may be incomplete.
    """

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()
        self._descriptor = _descriptor()
        self._is_file = is_file()
        self.torn = self._descriptor is not None and _ends_torn(self._descriptor)

    async def write(self, text: str) -> None:
        """Write all of the text.

        Raises:
            OSError: the write failed; a part may have been written.
        """
        async with self._turn:
            if self._descriptor is None:  # stdout is an object of a Python program
                sys.stdout.write(text)
                sys.stdout.flush()
                return
            data = (b"\n" if self.torn else b"") + text.encode(errors="replace")
            written = 0
            try:
                while written < len(data):
                    written += await self._write_some(self._descriptor, data[written:])
            finally:
                if written:
                    self.torn = not data[:written].endswith(b"\n")

    async def _write_some(self, descriptor: int, data: bytes) -> int:
        """Write as much as there is room for; returns the number of bytes written."""
        if self._is_file:
            return os.write(descriptor, data)
        # stdout may be shared with other processes, so it is not made non-blocking.
        await self._writable(descriptor)
        try:
            return os.write(descriptor, data[:_PIPE_BYTES])
        except BlockingIOError:
            await asyncio.sleep(_AGAIN_S)
            return 0

    async def _writable(self, descriptor: int) -> None:
        """Wait until there is room, or the other end is closed."""
        if _has_room(descriptor, 0):
            return
        room = asyncio.Event()
        self.loop.add_writer(descriptor, room.set)
        try:
            await room.wait()
        finally:
            self.loop.remove_writer(descriptor)


_writer: _Stdout | None = None


def _stdout() -> _Stdout:
    global _writer
    if _writer is None or _writer.loop is not asyncio.get_running_loop():
        _writer = _Stdout()
    return _writer


def _descriptor() -> int | None:
    """The descriptor of stdout; None: it has none."""
    try:
        return sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def _has_room(descriptor: int, timeout_ms: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(timeout_ms))


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


def time_text(moment: float | None) -> str | None:
    """A time as all commands print it, in UTC.

    None: there is no time, or it is outside the years that can be printed.
    """
    if moment is None:
        return None
    try:
        return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None


def note(text: str, *, name: str = "xmpp-qos: ") -> None:
    """Write one line for people to stderr; if it cannot be written, it is dropped.

    Characters that would end the line, or change the state of a terminal, are escaped:
    the text may come from somebody else.
    """
    say(f"{name}{_UNSAFE.sub(_escaped, text)}")


def say(text: str) -> None:
    """Write our own text, of any number of lines, to stderr, if that can be written."""
    with suppress(OSError, ValueError):
        descriptor = sys.stderr.fileno()
        if not _has_room(descriptor, _NOTE_MS_MAX):
            return
    with suppress(OSError, ValueError):
        _erase_bar()
        # Flushed at once: the rest of a text that cannot be written must not come
        # later.
        sys.stderr.write(text.encode(errors="replace").decode() + "\n")
        sys.stderr.flush()
        _draw_bar()


def _escaped(found: re.Match[str]) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(found[0])
    return short.get(found[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


class ProgressBar:
    """A progress bar on stderr, if that is a terminal; else nothing."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def show(self, *, ended: int, read: int, more: bool, trouble: int) -> None:
        """Draw the bar again.

        Args:
            ended: messages that have ended, in any way.
            read: messages read so far.
            more: there may be more to read.
            trouble: messages that have ended badly.
        """
        if not self._shown:
            return
        filled = _BAR_CELLS * ended // max(read, 1)
        cells = "#" * filled + "-" * (_BAR_CELLS - filled)
        bad = f", {trouble} badly" if trouble else ""
        self._set(f"[{cells}] {ended} of {read}{'+' if more else ''} ended{bad}")

    def close(self) -> None:
        """Remove the bar."""
        if self._shown:
            self._set("")

    def _set(self, text: str) -> None:
        global _bar
        _erase_bar()
        _bar = text
        _draw_bar()


def _erase_bar() -> None:
    _show("\r\x1b[K")


def _draw_bar() -> None:
    _show(_bar)


def _show(text: str) -> None:
    if _bar:
        with suppress(OSError, ValueError):  # the terminal is gone
            sys.stderr.write(text)
            sys.stderr.flush()


class NoteHandler(logging.Handler):
    """Log records as notes: one line each, with the error's text if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show the record; called by logging."""
        lines = record.getMessage().splitlines() or [""]
        text = lines[0]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text = f"{text}: {type(error).__name__}: {error}"
        note(text)
