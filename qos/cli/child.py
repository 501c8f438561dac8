"""Runs a user's command with data on its stdin, and never outlives it.

This module knows processes and pipes, and nothing of queues.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

__all__ = ["Exit", "run_child"]

#: Seconds to read what is left in the pipe after the command has ended. A process that
#: inherited its stderr may keep the pipe open for ever.
_LAST_WORDS_S = 0.2

#: The longest part of a stderr line that is kept; a longer line is passed on in parts.
_LINE_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a child: its status or its signal.

    Attributes:
        status: its exit status; None: a signal has ended it.
        signal: the name of this signal, or None.
        last_line: the last line that it wrote to stderr, or ''.
    """

    status: int | None
    signal: str | None
    last_line: str


async def run_child(
    command: Sequence[str], *, stdin: bytes, environment: Mapping[bytes, bytes]
) -> Exit:
    """Run a command to its end; its stdout and stderr go to our stderr.

    If this call is cancelled, the command is killed with all processes of its group.

    Args:
        command: the program and its arguments.
        stdin: the data on its stdin.
        environment: all of its environment variables.

    Raises:
        OSError: it cannot be started.
    """
    loop = asyncio.get_running_loop()
    read_end, write_end = os.pipe()
    reading, stderr = await loop.connect_read_pipe(_Stderr, os.fdopen(read_end, "rb"))
    try:
        try:
            with _file_with(stdin) as source:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=source,
                    stdout=_stderr_number(),
                    stderr=write_end,
                    env=environment,
                    # Ctrl-C on our terminal must not reach it, and its own children
                    # must be killed with it.
                    process_group=0,
                )
        finally:
            os.close(write_end)
        try:
            status = await process.wait()
        except asyncio.CancelledError:
            # We may not kill a process of another user (started by sudo): wait for it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            raise
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stderr.ended.wait(), _LAST_WORDS_S)
    finally:
        reading.close()
        stderr.pass_on()
    if status >= 0:
        return Exit(status, None, stderr.last_line)
    return Exit(None, _signal_name(-status), stderr.last_line)


def _file_with(content: bytes) -> IO[bytes]:
    """A file with this content.

    A pipe would need a writer if the command does not read it.
    """
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by who asks
    file.write(content)
    file.seek(0)
    return file


class _Stderr(asyncio.Protocol):
    """Passes on what a command writes, in whole lines, and keeps the last line."""

    def __init__(self) -> None:
        self.last_line = ""
        self.ended = asyncio.Event()
        self._begun = b""

    def data_received(self, data: bytes) -> None:
        """Take data; called by asyncio."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._begun) > _LINE_BYTES_MAX:
            self.pass_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on the rest; called by asyncio."""
        self.ended.set()

    def pass_on(self) -> None:
        """Treat the unfinished line as a whole one."""
        if self._begun:
            self._line(self._begun)
            self._begun = b""

    def _line(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        self.last_line = text.strip()[:_LINE_BYTES_MAX] or self.last_line
        try:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return


def _stderr_number() -> int:
    try:
        return sys.stderr.fileno()
    except (OSError, ValueError):
        return asyncio.subprocess.DEVNULL


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
