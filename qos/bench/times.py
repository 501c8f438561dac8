"""When each message was given, and when it ended: noted, sent between processes, judged.

All clocks are `time.monotonic`, which is one clock for all processes of a machine.
Knows nothing of libraries and brokers.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Self

from qos.bench.processes import Process, ProcessError
from qos.bench.sample import Sample

__all__ = ["Meter", "Window", "pack", "unpack"]


def pack(times: Iterable[float]) -> str:
    """Return times as a text for JSON, ten times as fast as numbers would be."""
    return base64.b64encode(array("d", times).tobytes()).decode()


def unpack(text: str) -> array[float]:
    """Return what was packed."""
    times = array("d")
    times.frombytes(base64.b64decode(text))
    return times


class Window:
    """Gives messages so that always as many are under way, until the time is over.

    Messages are numbered from 0 on. `ended` may be called in any thread.

    Args:
        give: gives the message of this number to a library.
        window: messages under way at once.
        seconds: after which no more are given.
    """

    def __init__(
        self, give: Callable[[int], object], *, window: int, seconds: float
    ) -> None:
        self._give = give
        self._window = window
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._numbers = itertools.count()
        self._given: dict[int, float] = {}
        self._ended: dict[int, float] = {}
        self._until = sys.float_info.max
        self._started = False

    async def run(self) -> dict[str, object]:
        """Give the first ones, wait for the end of the last; returns both times."""
        self._until = time.monotonic() + self._seconds
        for _ in range(self._window):
            self._next()
        self._started = True
        self._check()
        await self._over.wait()
        return {"given": _packed(self._given), "ended": _packed(self._ended)}

    def ended(self, number: int) -> None:
        """Note the end of this one, and give the next one."""
        now = time.monotonic()
        self._ended[number] = now
        if now < self._until:
            self._next()
        else:
            self._check()

    def _next(self) -> None:
        number = next(self._numbers)
        self._given[number] = time.monotonic()
        self._give(number)

    def _check(self) -> None:
        if self._started and len(self._ended) == len(self._given):
            self._loop.call_soon_threadsafe(self._over.set)


def _packed(times: Mapping[int, float]) -> str:
    return pack(times[number] for number in range(len(times)))


class Meter:
    """Notes what processes use while it is entered.

    Args:
        processes: by what they do: `sender`, `receiver`, `server`.
    """

    def __init__(self, **processes: Process) -> None:
        self._processes = processes
        self._cpu_s: dict[str, float] = {}
        self._rss_bytes: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._cpu_s = {name: each.cpu_s for name, each in self._processes.items()}
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        # After an error they may be gone.
        if kind is None:
            for name, process in self._processes.items():
                self._cpu_s[name] = process.cpu_s - self._cpu_s[name]
                self._rss_bytes[name] = process.rss_bytes

    def sample(self, given: array[float], ended: array[float]) -> Sample:
        """Return what was measured.

        Args:
            given: when each message was given.
            ended: when the same messages ended.

        Raises:
            ProcessError: not every message has ended.
        """
        if len(given) != len(ended) or not given:
            raise ProcessError(f"{len(given)} messages given, and {len(ended)} ended")
        latencies = sorted(end - begin for begin, end in zip(given, ended, strict=True))
        return Sample(
            messages=len(given),
            seconds=max(ended) - min(given),
            p50_s=_quantile(latencies, 0.5),
            p99_s=_quantile(latencies, 0.99),
            p999_s=_quantile(latencies, 0.999),
            cpu_s=dict(self._cpu_s),
            rss_bytes=dict(self._rss_bytes),
        )


def _quantile(ordered: list[float], part: float) -> float:
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]
