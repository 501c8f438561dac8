"""The publisher of a queue and its workers, for any library.

These are the programs of the child processes. A module for each library has a
`Library`, and calls `main` with it. This module knows nothing of brokers and of the use
of the figures.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from benchmarks.pace import Window
from benchmarks.times import pack, packed
from qos.bench.pace import Times, keep_in_flight
from qos.testing.child import run_commands

__all__ = [
    "NUMBER_BYTES",
    "WORKERS",
    "CallbackLibrary",
    "Library",
    "call_main",
    "main",
]

WORKERS = 4

#: An item begins with its number; a shorter payload is extended to this length.
NUMBER_BYTES = 8


class WorkersLibrary(Protocol):
    """The methods that the workers need of a library, used as documented."""

    async def connect(self, port: int, **options: Any) -> None:
        """Connect to the broker."""

    async def work(self, done: Callable[[bytes], None]) -> None:
        """Create the queue, and start WORKERS independent workers; returns at once.

        Args:
            done: called with each item when its worker has acknowledged it; in any
                thread.
        """


class Library(WorkersLibrary, Protocol):
    """A library whose confirms are awaited."""

    async def publish(self, item: bytes) -> None:
        """Publish an item; returns when the broker has confirmed it."""


class CallbackLibrary(WorkersLibrary, Protocol):
    """A library that calls back when an item is confirmed."""

    async def ready(self) -> None:
        """Prepare to publish; may be called repeatedly."""

    def give(self, item: bytes, confirmed: Callable[[], None]) -> None:
        """Publish an item; in any thread, also in the callback of another item.

        Args:
            item: the item.
            confirmed: called when the broker has confirmed it; in any thread.
        """


def main(library: Callable[[], Library]) -> None:
    """Run as a child process that can be a publisher or the workers."""
    asyncio.run(_live(lambda: _Roles(library())))


def call_main(library: Callable[[], CallbackLibrary]) -> None:
    """Run likewise, with a library that calls back."""
    asyncio.run(_live(lambda: _CallbackRoles(library())))


async def _live(roles: Callable[[], _AnyRoles]) -> None:
    each = roles()
    await run_commands([each.connect, each.receive, each.received, each.send])


class _AnyRoles(ABC):
    def __init__(self, library: WorkersLibrary) -> None:
        self._library = library
        self._loop = asyncio.get_running_loop()
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
            self._loop.call_soon_threadsafe(self._complete.set)

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

        def item(number: int) -> bytes:
            return number.to_bytes(NUMBER_BYTES, "big") + filling

        return packed(await self._publish(item, window, seconds))

    @abstractmethod
    async def _publish(
        self, item: Callable[[int], bytes], window: int, seconds: float
    ) -> Times:
        """Publish items, and note their times."""


class _Roles(_AnyRoles):
    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self._publisher = library

    async def _publish(
        self, item: Callable[[int], bytes], window: int, seconds: float
    ) -> Times:
        async def one(number: int) -> None:
            await self._publisher.publish(item(number))

        return await keep_in_flight(one, window=window, seconds=seconds)


class _CallbackRoles(_AnyRoles):
    def __init__(self, library: CallbackLibrary) -> None:
        super().__init__(library)
        self._publisher = library

    async def _publish(
        self, item: Callable[[int], bytes], window: int, seconds: float
    ) -> Times:
        await self._publisher.ready()

        def give(number: int) -> None:
            self._publisher.give(item(number), partial(lanes.ended, number))

        lanes = Window(give, window=window, seconds=seconds)
        return await lanes.run()
