"""The output of the command: JSON lines on stdout, everything else on stderr.

A line of stdout is written completely, or the command fails: a reader that has a line
can rely on it. Lines of stderr are for people: what stderr does not take is dropped, and
the number of dropped lines is told. Writing never blocks the event loop, however slow the
reader is: see qos.cli.writer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from qos.cli.status import CommandError, Status
from qos.cli.stdout import Stdout, stdout_descriptor, writer_at
from qos.cli.writer import Notes

__all__ = [
    "NoteHandler",
    "ProgressBar",
    "ask",
    "begin_json",
    "begin_on_new_line",
    "begin_text",
    "flush_notes",
    "is_file",
    "note",
    "print_json",
    "print_parts",
    "print_text",
    "printable",
    "put_on_stderr",
    "say",
    "stderr_notes",
    "sync_stdout",
    "time_text",
    "until_printed",
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

#: Seconds that the end of a command waits for a stderr that accepts nothing.
_FLUSH_S = 1.0


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
    await until_printed(begin_text(text))


def begin_json(record: Mapping[str, object]) -> asyncio.Future[None]:
    """Begin to write a JSON object to stdout, after what was begun before.

    Several lines are faster together than one after the other. `until_printed` waits for
    the future. When that is cancelled, the line is not written, unless it has begun.
    """
    return begin_text(_json_line(record))


def begin_text(text: str) -> asyncio.Future[None]:
    """Begin to write text to stdout; as begin_json."""
    _erase_bar()
    try:
        return _stdout().begin(text)
    finally:
        _draw_bar()


async def until_printed(printing: asyncio.Future[None]) -> None:
    """Wait until a text is written.

    Raises:
        CommandError: as print_json.
    """
    try:
        await printing
    except BrokenPipeError:
        raise CommandError("nobody reads stdout any more", Status.PIPE) from None
    except OSError as error:
        raise _cannot_write(error) from None


async def print_parts(*parts: str) -> None:
    """Write texts, such as a table and a verdict, with an empty line before each.

    Raises:
        CommandError: as print_json.
    """
    await print_text("".join(f"\n{part}\n" for part in parts))


def begin_on_new_line() -> None:
    """Let the next text begin on a new line, if stdout is a pipe.

    A process that was killed may have left a part of a line in it. In a file that can
    be seen, but not in a pipe.
    """
    descriptor = stdout_descriptor()
    if descriptor is not None and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        _stdout().begin_on_new_line()


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
    descriptor = stdout_descriptor()
    return descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode)


def _cannot_write(error: OSError) -> CommandError:
    text = f"cannot write to stdout: {error.strerror or error}"
    return CommandError(text, Status.OUTPUT)


_present: Stdout | None = None

_notes: Notes | None = None


def _stdout() -> Stdout:
    global _present
    if _present is None or _present.loop is not asyncio.get_running_loop():
        _present = Stdout()
    return _present


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
    _erase_bar()
    put_on_stderr(f"{text}\n")
    _draw_bar()


def ask(question: str) -> None:
    """Write a question to stderr, without ending the line."""
    put_on_stderr(question)


def put_on_stderr(text: str) -> None:
    """Write text to stderr soon; it is dropped if too much waits there."""
    notes = stderr_notes()
    if notes is not None:
        notes.put(text)
        return
    with suppress(OSError, ValueError):  # stderr is an object of a Python program
        sys.stderr.write(text.encode(errors="replace").decode())
        sys.stderr.flush()


def stderr_notes() -> Notes | None:
    """The notes of stderr; None: it has no descriptor."""
    global _notes
    try:
        descriptor = sys.stderr.fileno()
        writer = writer_at(descriptor)
    except (AttributeError, OSError, ValueError):
        return None
    if _notes is None or (_notes.writer, _notes.descriptor) != (writer, descriptor):
        _notes = Notes(writer, descriptor)
    return _notes


def flush_notes() -> None:
    """Wait until stderr has what was written to it, if it is read: before the end."""
    if _notes is not None:
        _notes.writer.flush(_FLUSH_S)


def _escaped(match: re.Match[str]) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    code = ord(match[0])
    return short.get(match[0]) or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


class ProgressBar:
    """A progress bar on stderr, if that is a terminal; else nothing."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def show(
        self, *, ended_count: int, read_count: int, more: bool, trouble: int
    ) -> None:
        """Draw the bar again.

        Args:
            ended_count: messages that have ended, in any way.
            read_count: messages read so far.
            more: there may be more to read.
            trouble: messages that have ended badly.
        """
        if not self._shown:
            return
        filled = _BAR_CELLS * ended_count // max(read_count, 1)
        cells = "#" * filled + "-" * (_BAR_CELLS - filled)
        bad = f", {trouble} badly" if trouble else ""
        self._set(
            f"[{cells}] {ended_count} of {read_count}{'+' if more else ''} ended{bad}"
        )

    def tell(self, text: str) -> None:
        """Draw this text in place of a bar."""
        if self._shown:
            self._set(f"  {text}")

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
        put_on_stderr(text)


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
