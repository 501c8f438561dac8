"""What the command writes: JSON lines to stdout, everything else to stderr."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from qos.cli.status import CommandError, Status

__all__ = ["NoteHandler", "ProgressBar", "note", "print_json", "time_text"]

#: The progress bar, as it stands in the last line of the terminal. There is one
#: terminal, and whoever else writes to it has to step around the bar.
_bar = ""

_BAR_CELLS = 20


def print_json(record: Mapping[str, object]) -> None:
    """Write one JSON object as a line of its own, at once.

    Raises:
        CommandError: nobody reads stdout any more, or it cannot be written.
    """
    line = json.dumps(record, ensure_ascii=False)
    _erase_bar()
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise CommandError("nobody reads stdout any more", Status.PIPE) from None
    except OSError as error:
        text = f"cannot write to stdout: {error.strerror or error}"
        raise CommandError(text, Status.OUTPUT) from None
    _draw_bar()


def time_text(moment: float | None) -> str | None:
    """A moment as all commands print it, in UTC; None: there is none, or no such year."""
    if moment is None:
        return None
    try:
        return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None


def note(text: str, *, name: str = "xmpp-qos: ") -> None:
    """Write a line for people; one that cannot be written is left out."""
    try:
        _erase_bar()
        sys.stderr.write(f"{name}{text}\n")
        sys.stderr.flush()
        _draw_bar()
    except (OSError, ValueError):
        return


class ProgressBar:
    """A bar on stderr where that is a terminal; elsewhere nothing."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()

    def show(self, *, ended: int, read: int, more: bool, trouble: int) -> None:
        """Draw it anew.

        Args:
            ended: messages that have ended, in whatever way.
            read: messages there are so far.
            more: there may be more to read.
            trouble: how many have ended badly.
        """
        if not self._shown:
            return
        filled = _BAR_CELLS * ended // max(read, 1)
        cells = "#" * filled + "-" * (_BAR_CELLS - filled)
        bad = f", {trouble} badly" if trouble else ""
        self._set(f"[{cells}] {ended} of {read}{'+' if more else ''} ended{bad}")

    def close(self) -> None:
        """Take it away."""
        if self._shown:
            self._set("")

    def _set(self, text: str) -> None:
        global _bar
        _erase_bar()
        _bar = text
        _draw_bar()


def _erase_bar() -> None:
    if _bar:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _draw_bar() -> None:
    if _bar:
        sys.stderr.write(_bar)
        sys.stderr.flush()


class NoteHandler(logging.Handler):
    """Log records as notes: one line each, with the error's text if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging."""
        lines = record.getMessage().splitlines() or [""]
        text = lines[0]
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text = f"{text}: {type(error).__name__}: {error}"
        note(text)
