"""Keeps messages in flight, for a library that calls back at the end of a message.

It has the rules of `qos.bench.pace.keep_in_flight`, which is for one that is awaited.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable

from qos.bench.pace import Times

__all__ = ["Window"]


class Window:
    """Gives messages to a library so that always as many are in flight, for some time.

    `ended` and `failed` may be called in any thread; `ended` also before `give`
    returns.
    """

    def __init__(
        self,
        give: Callable[[int], object],
        *,
        window: int,
        seconds: float,
        pause_s: float = 0.0,
    ) -> None:
        """Prepare.

        Args:
            give: gives the message with this number to a library.
            window: the number of messages in flight.
            seconds: the time after which no further message is given.
            pause_s: the time between the end of a message and the next; then all calls
                must be in one thread.
        """
        self._give = give
        self._window = window
        self._seconds = seconds
        self._pause_s = pause_s
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._times = Times()
        self._until = sys.float_info.max
        self._lanes = window
        self._lock = threading.Lock()

    async def run(self) -> Times:
        """Give the first messages, and wait for the end of the last."""
        self._until = time.monotonic() + self._seconds
        for _ in range(self._window):
            self._next()
        await self._over
        return self._times

    def ended(self, number: int) -> None:
        """Note the end of this message, and give the next one."""
        now = self._times.end(number)
        if now + self._pause_s < self._until:
            if self._pause_s:
                self._loop.call_later(self._pause_s, self._next)
            else:
                self._next()
            return
        with self._lock:
            self._lanes -= 1
            last = not self._lanes
        if last:
            self._loop.call_soon_threadsafe(self._finish, None)

    def failed(self, error: Exception) -> None:
        """Make `run` raise this error."""
        self._loop.call_soon_threadsafe(self._finish, error)

    def _next(self) -> None:
        self._give(self._times.begin())

    def _finish(self, error: Exception | None) -> None:
        if self._over.done():
            return
        if error is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(error)
