"""Keeps messages under way, and notes their times. Knows not what a message is.

There are two forms, with the same rules: `Window` for what calls back at the end of a
message, and `keep_in_flight` for what is awaited.
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
    """Gives messages so that always as many are under way, until the time is over.

    `ended` and `failed` may be called in any thread; `ended` also before `give` returns.
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
            give: gives the message of this number to a library.
            window: messages under way at once.
            seconds: after which no other is given.
            pause_s: between the end of one and the next; then all is in one thread.
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
        """Give the first ones, and wait for the end of the last."""
        self._until = time.monotonic() + self._seconds
        for _ in range(self._window):
            self._next()
        await self._over
        return self._times

    def ended(self, number: int) -> None:
        """Note the end of this one, and give the next one."""
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
        """Let `run` raise this."""
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
    """Give message after message, so that a window of them is always under way.

    Args:
        one: gives the one of this number, and returns at its end.
        window: messages under way at once.
        seconds: after which no other is given.
        pause_s: between the end of one and the next.

    Raises:
        ExceptionGroup: what `one` has raised.
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
