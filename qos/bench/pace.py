"""Keeps messages under way, and takes their times. Knows not what a message is."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import perf_counter

__all__ = ["Times", "keep_under_way"]


@dataclass(slots=True)
class Times:
    """What was measured.

    Attributes:
        latencies_s: of each message that came to its end.
        seconds: from the first one given to the end of the last.
    """

    latencies_s: array[float] = field(default_factory=lambda: array("d"))
    seconds: float = 0.0


async def keep_under_way(
    one: Callable[[], Awaitable[object]],
    *,
    window: int,
    seconds: float,
    pause_s: float = 0.0,
) -> Times:
    """Give message after message, so that a window of them is always under way.

    Args:
        one: gives one, and returns at its end.
        window: messages under way at once.
        seconds: after which no other is given.
        pause_s: between the end of one and the next.

    Raises:
        ExceptionGroup: what `one` has raised.
    """
    times = Times()
    began = perf_counter()

    async def lane() -> None:
        now = began
        while now < began + seconds:
            await one()
            ended = perf_counter()
            times.latencies_s.append(ended - now)
            times.seconds = ended - began
            if pause_s:
                await asyncio.sleep(pause_s)
            now = perf_counter()

    async with asyncio.TaskGroup() as lanes:
        for _ in range(window):
            lanes.create_task(lane())
    return times
