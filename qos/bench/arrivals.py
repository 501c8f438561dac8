"""A pipe by which a receiver tells its sender of each message, outside of what is measured.

For what gives a sender no word of its messages: or a window would mean nothing. Between
two clients of one server a stream keeps the order, so that a byte is enough.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["Arrivals"]

_READ_BYTES = 65_536


class Arrivals:
    """One end of it.

    Args:
        path: a named pipe, which `make` has made.
    """

    def __init__(self, path: str | Path) -> None:
        # Opened for both by both: no end waits for the other, nor sees it go.
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    @staticmethod
    def make(path: Path) -> str:
        """Make the pipe; returns its path, which is JSON."""
        os.mkfifo(path)
        return str(path)

    def tell(self) -> None:
        """One has come."""
        os.write(self._pipe, b".")

    def listen(self, arrived: Callable[[], None]) -> None:
        """Call this for each one that the other end tells of, from now on."""

        def read() -> None:
            for _ in os.read(self._pipe, _READ_BYTES):
                arrived()

        asyncio.get_running_loop().add_reader(self._pipe, read)

    def close(self) -> None:
        """Leave the event loop as it was."""
        asyncio.get_running_loop().remove_reader(self._pipe)
        os.close(self._pipe)
