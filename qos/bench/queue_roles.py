"""The publisher of a queue and its workers, for any library.

These are the programs of the child processes. A module for each library has a
`Library`, and calls `main` with it. This module knows nothing of brokers and of the use
of the figures.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable
from typing import Any, Protocol

from qos.bench.pace import keep_in_flight
from qos.bench.times import pack
from qos.testing.child import run_commands

__all__ = ["NUMBER_BYTES", "WORKERS", "Library", "main"]

WORKERS = 4

#: An item begins with its number; a shorter payload is extended to this length.
NUMBER_BYTES = 8


class Library(Protocol):
    """The methods that both roles need of a library, used as documented."""

    async def connect(self, port: int, **options: Any) -> None:
        """Connect to the broker."""

    async def publish(self, item: bytes) -> None:
        """Publish an item; returns when the broker has confirmed it."""

    async def work(self, done: Callable[[bytes], None]) -> None:
        """Create the queue, and start WORKERS independent workers; returns at once.

        Args:
            done: called with each item when its worker has acknowledged it.
        """


def main(library: Callable[[], Library]) -> None:
    """Run as a child process that can be a publisher or the workers."""

    async def live() -> None:
        roles = _Roles(library())
        await run_commands([roles.connect, roles.receive, roles.received, roles.send])

    asyncio.run(live())


class _Roles:
    def __init__(self, library: Library) -> None:
        self._library = library
        # For the workers.
        self._ended: dict[int, float] = {}
        self._wanted = 0
        self._complete = asyncio.Event()

    async def connect(self, *, port: int, **options: Any) -> None:
        await self._library.connect(port, **options)

    # -- the workers -------------------------------------------------------

    async def receive(self) -> None:
        """Begin to work."""
        await self._library.work(self._done)

    def _done(self, item: bytes) -> None:
        number = int.from_bytes(item[:NUMBER_BYTES], "big")
        self._ended[number] = time.monotonic()
        if len(self._ended) == self._wanted:
            self._complete.set()

    async def received(self, *, messages: int) -> dict[str, object]:
        """Wait for this number of items.

        Returns when each was acknowledged, and forgets them.
        """
        self._complete.clear()
        self._wanted = messages
        if len(self._ended) < messages:
            await self._complete.wait()
        ended, self._ended, self._wanted = self._ended, {}, 0
        # An unknown or missing number is an error here.
        return {"ended": pack(array("d", (ended[each] for each in range(messages))))}

    # -- the publisher -----------------------------------------------------

    async def send(
        self, *, window: int, payload_bytes: int, seconds: float
    ) -> dict[str, str]:
        """Publish.

        Returns when each item was given, and when the broker confirmed it.
        """
        filling = b"x" * max(payload_bytes - NUMBER_BYTES, 0)

        async def one(number: int) -> None:
            item = number.to_bytes(NUMBER_BYTES, "big") + filling
            await self._library.publish(item)

        times = await keep_in_flight(one, window=window, seconds=seconds)
        return times.packed()
