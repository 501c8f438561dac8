"""A pipe that takes 4 KiB, and is read only when a test says so: a stderr that nobody reads.

with pipe.as_stderr() as commands.function:
    running = await commands.start(…)
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import pytest

import fork_settings

__all__ = ["DROPPED", "SmallPipe"]

#: The line in place of those that were dropped.
DROPPED = re.compile(
    rb"^xmpp-qos: (\d+) lines? w(?:as|ere) dropped here: stderr could not be written$",
    re.MULTILINE,
)


class SmallPipe:
    """The pipe.

    Attributes:
        writer: the end to write to.
        data: all that was read.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, 4096)
        os.set_blocking(self._reader, False)
        self.data = b""

    def read(self) -> bytes:
        """Read what is there; returns all that was read so far."""
        with contextlib.suppress(BlockingIOError):
            self.data += os.read(self._reader, 1 << 20)
        return self.data

    def replace(self, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Be our stdout or stderr."""
        file = os.fdopen(self.writer, "w", closefd=False)
        monkeypatch.setattr(f"sys.{stream}", file)

    @contextlib.contextmanager
    def as_stderr(self) -> Iterator[Callable[..., int]]:
        """The command for a fork, whose stderr is this pipe."""
        with Connection(os.dup(self.writer), readable=False) as carried:
            yield functools.partial(fork_settings.command, stderr=carried)

    def dropped(self) -> list[int]:
        """Read what is there; returns how many lines were dropped, at each place."""
        return list(map(int, DROPPED.findall(self.read())))

    def fill(self) -> None:
        """Leave no room: the next write waits until somebody reads."""
        path = f"/proc/self/fd/{self.writer}"
        number = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(number, b"\n")
        os.close(number)

    def close(self) -> None:
        """Close both ends."""
        os.close(self._reader)
        os.close(self.writer)
