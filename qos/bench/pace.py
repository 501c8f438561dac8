"""Keeps messages in flight, and notes their times. It does not know what a message is.

There are two forms, with the same rules: `Window` for a library that calls back at the
end of a message, and `keep_in_flight` for one that is awaited.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable

from qos.bench.times import Times

__all__ = ["Window", "keep_in_flight"]


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


async def keep_in_flight(
    one: Callable[[int], Awaitable[object]],
    *,
    window: int,
    seconds: float,
    pause_s: float = 0.0,
) -> Times:
    """Give message after message, so that a window of them is always in flight.

    Args:
        one: gives the message with this number, and returns at its end.
        window: the number of messages in flight.
        seconds: the time after which no further message is given.
        pause_s: the time between the end of a message and the next.

    Raises:
        ExceptionGroup: the errors of `one`.
    """
    times = Times()
    until = time.monotonic() + seconds

    async def lane() -> None:
        while True:
            number = times.begin()
            await one(number)
            if times.end(number) + pause_s >= until:
                return
            if pause_s:
                await asyncio.sleep(pause_s)

    async with asyncio.TaskGroup() as lanes:
        for _ in range(window):
            lanes.create_task(lane())
    return times
