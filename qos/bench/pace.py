"""Keeps messages in flight, and notes their times. It does not know what a message is.

All clocks are `time.monotonic`, which is one clock for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence

__all__ = ["Times", "keep_in_flight", "percentile"]


class Times:
    """Notes the times of messages, which are numbered from 0 on; in any thread.

    Attributes:
        given: when each message was given to a library.
        ended: when each message ended, NaN before that.
    """

    def __init__(self) -> None:
        self.given = array("d")
        self.ended = array("d")
        self._lock = threading.Lock()

    def begin(self) -> int:
        """Note that the next message is given; returns its number."""
        with self._lock:
            number = len(self.given)
            self.ended.append(math.nan)
            self.given.append(time.monotonic())
        return number

    def end(self, number: int) -> float:
        """Note the end of this message; returns its time."""
        now = self.ended[number] = time.monotonic()
        return now


async def keep_in_flight(
    send: Callable[[int], Awaitable[object]],
    *,
    window: int,
    seconds: float,
    pause_s: float = 0.0,
) -> Times:
    """Give message after message, so that a window of them is always in flight.

    Args:
        send: gives the message with this number, and returns at its end.
        window: the number of messages in flight.
        seconds: the time after which no further message is given.
        pause_s: the time between the end of a message and the next.

    Raises:
        Exception: the first error of `send`; then no message is given any more.
    """
    times = Times()
    until = time.monotonic() + seconds

    async def lane() -> None:
        while True:
            number = times.begin()
            await send(number)
            if times.end(number) + pause_s >= until:
                return
            if pause_s:
                await asyncio.sleep(pause_s)

    try:
        async with asyncio.TaskGroup() as lanes:
            for _ in range(window):
                lanes.create_task(lane())
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return times


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least value that this share of the values does not exceed (nearest rank).

    Args:
        ordered: in ascending order; not empty.
        share: more than 0, and at most 1.
    """
    # As a float, a share such as 0.07 of 100 is a little more than 7.
    rank = math.ceil(round(share * len(ordered), 6))
    return ordered[max(rank, 1) - 1]
