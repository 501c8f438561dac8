"""A pipe by which a receiver reports messages to its sender, and is not measured.

Some ways to send give a sender no answer; without the pipe, a window would mean nothing
there. Between two clients of one server a stream keeps the order, so that one byte is
enough for each message.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["Arrivals"]

_READ_BYTES = 65_536


class Arrivals:
    """One end of the pipe.

    Args:
        path: a named pipe, made by `make`.
    """

    def __init__(self, path: str | Path) -> None:
        # Both ends open it for both directions: neither waits for the other, nor sees
        # its end.
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    @staticmethod
    def make(path: Path) -> str:
        """Make the pipe; returns its path, as JSON."""
        os.mkfifo(path)
        return str(path)

    def tell(self) -> None:
        """Report one message."""
        os.write(self._pipe, b".")

    def listen(self, arrived: Callable[[], None]) -> None:
        """Call this for each message that the other end reports, from now on."""

        def read() -> None:
            for _ in os.read(self._pipe, _READ_BYTES):
                arrived()

        asyncio.get_running_loop().add_reader(self._pipe, read)

    def close(self) -> None:
        """Leave the event loop as it was."""
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
