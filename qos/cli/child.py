"""Runs a user's command with data on its stdin, and never outlives it.

This module knows processes and pipes, and nothing of queues.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from qos.cli.children import Child, Children
from qos.cli.output import put_on_stderr, stderr_notes

__all__ = ["Exit", "run_child"]

#: Seconds to read what is left in a pipe after the command has ended. A process that
#: inherited the pipe may keep it open for ever.
_LAST_WORDS_S = 0.2

#: The longest part of a line that is kept; a longer line is passed on in parts.
_LINE_BYTES_MAX = 4096

#: Seconds that a command waits when our stderr has no room. Then its lines are dropped,
#: until there is room again.
_PATIENCE_S = 1.0


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
    command: Sequence[str],
    *,
    stdin: bytes,
    environment: Mapping[bytes, bytes],
    started: Callable[[], None] = lambda: None,
) -> Exit:
    """Run a command to its end; its stdout and stderr go to our stderr, in whole lines.

    If this call is cancelled, the command is killed with all processes of its group.

    Args:
        command: the program and its arguments.
        stdin: the data on its stdin.
        environment: all of its environment variables.
        started: called when it has been started.

    Raises:
        OSError: it cannot be started.
    """
    async with contextlib.AsyncExitStack() as stack:
        with contextlib.ExitStack() as until_started:
            stdout, its_stdout = await _relay(stack, until_started)
            stderr, its_stderr = await _relay(stack, until_started)
            child = Children.of_loop().start(
                command,
                stdin=until_started.enter_context(_file_with(stdin)),
                stdout=its_stdout,
                stderr=its_stderr,
                environment=environment,
            )
        started()
        code = await _end_of(child)
        for relay in (stdout, stderr):
            await relay.drained()
    if code >= 0:
        return Exit(code, None, stderr.last_line)
    return Exit(None, _signal_name(-code), stderr.last_line)


async def _end_of(child: Child) -> int:
    """Wait for its end, and return its code; if cancelled, kill it."""
    try:
        return await asyncio.shield(child.ended)
    except asyncio.CancelledError:
        child.kill()
        await asyncio.wait((child.ended,))
        raise


async def _relay(
    stack: contextlib.AsyncExitStack, until_started: contextlib.ExitStack
) -> tuple[_Relay, int]:
    """A pipe to our stderr, and the descriptor that is the end of the command.

    Args:
        stack: closes our end.
        until_started: closes the other end.
    """
    read_end, write_end = os.pipe()
    until_started.callback(os.close, write_end)
    reader = stack.enter_context(os.fdopen(read_end, "rb"))
    loop = asyncio.get_running_loop()
    transport, relay = await loop.connect_read_pipe(_Relay, reader)
    stack.callback(relay.pass_on)
    stack.callback(transport.close)
    return relay, write_end


def _file_with(content: bytes) -> IO[bytes]:
    """A file with this content.

    A pipe would need a writer if the command does not read it. The file is in memory: a
    container may have no folder that can be written.
    """
    file = _new_file()
    file.write(content)
    file.seek(0)
    return file


def _new_file() -> IO[bytes]:
    try:
        number = os.memfd_create("stdin of a command", os.MFD_CLOEXEC)
    except (AttributeError, PermissionError):  # a libc, or a container, has none
        return tempfile.TemporaryFile()
    return os.fdopen(number, "w+b")


class _Relay(asyncio.Protocol):
    """Passes on what a command writes, in whole lines, and keeps the last line.

    When our stderr has no room, the command waits: so a reader that is slow gets all
    lines. A reader that takes nothing for a while does not keep the command waiting.
    """

    def __init__(self) -> None:
        self.last_line = ""
        self._begun = b""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.ReadTransport | None = None
        self._ended = asyncio.Event()
        self._reading = asyncio.Event()
        self._reading.set()
        self._patient = True
        self._timer: asyncio.TimerHandle | None = None

    async def drained(self) -> None:
        """Return when all is read, or when nothing more comes after the command's end."""
        while not self._ended.is_set():
            await self._reading.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _LAST_WORDS_S)
                return
            if self._reading.is_set():
                return

    def pass_on(self) -> None:
        """Treat the unfinished line as a whole one."""
        if self._begun:
            self._line(self._begun)
            self._begun = b""

    # -- called by asyncio -------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._line(line)
        if len(self._begun) > _LINE_BYTES_MAX:
            self.pass_on()
        self._wait_for_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._ended.set()
        self._reading.set()
        if self._timer is not None:
            self._timer.cancel()

    # -- the room at our stderr --------------------------------------------

    def _wait_for_room(self) -> None:
        notes = stderr_notes()
        if notes is None or not notes.is_full or self._transport is None:
            return
        if self._patient and self._reading.is_set():
            self._transport.pause_reading()
            self._reading.clear()
            self._timer = self._loop.call_later(_PATIENCE_S, self._lose_patience)
            notes.when_room(self._room_soon)

    def _room_soon(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._has_room)

    def _has_room(self) -> None:
        self._patient = True
        self._read_on()

    def _lose_patience(self) -> None:
        self._patient = False
        self._read_on()

    def _read_on(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None and not self._reading.is_set():
            self._reading.set()
            self._transport.resume_reading()

    def _line(self, line: bytes) -> None:
        text = line.decode(errors="replace")
        self.last_line = text.strip()[:_LINE_BYTES_MAX] or self.last_line
        put_on_stderr(f"{text}\n")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
