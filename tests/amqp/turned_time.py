"""Timers and deadlines of a service that are due when a test says so, and at no other time.

clock = turned(monkeypatch, doors, heartbeats)
async with gateway(tmp_path) as bench:
    clock.advance(doors.LOGIN_S)
"""

import asyncio
from collections.abc import Callable
from types import ModuleType
from typing import Any, Self

import pytest

from qos.testing import ManualClock
from qos.testing.clock import ManualTimer

__all__ = ["turned"]


class _Loop:
    """The running loop, with the time and the timers of a clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()

    def time(self) -> float:
        return self._clock.now()

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object
    ) -> ManualTimer:
        return self._clock.call_at(when, lambda: callback(*args))

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: object
    ) -> ManualTimer:
        return self.call_at(self.time() + delay, callback, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class _Asyncio:
    """The module asyncio as far as it knows the time; everything else is as it was."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def get_running_loop(self) -> _Loop:
        return _Loop(self._clock)

    async def sleep(self, delay: float) -> None:
        if delay <= 0:
            await asyncio.sleep(0)
            return
        over = asyncio.Event()
        timer = self._clock.call_at(self._clock.now() + delay, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def timeout(self, delay: float | None) -> "_Timeout":
        when = None if delay is None else self._clock.now() + delay
        return _Timeout(self._clock, when)

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


class _Timeout:
    """Like asyncio.Timeout, with the time of a clock."""

    def __init__(self, clock: ManualClock, when: float | None) -> None:
        self._clock = clock
        self._when = when
        self._timer: ManualTimer | None = None
        self._timeout = asyncio.timeout(None)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self.reschedule(self._when)
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._stop()
        await self._timeout.__aexit__(*error)

    def when(self) -> float | None:
        return self._when

    def reschedule(self, when: float | None) -> None:
        self._when = when
        self._stop()
        if when is not None and when <= self._clock.now():
            self._timeout.reschedule(0)
        elif when is not None:
            self._timer = self._clock.call_at(when, lambda: self._timeout.reschedule(0))

    def expired(self) -> bool:
        return self._timeout.expired()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def turned(
    monkeypatch: pytest.MonkeyPatch,
    *modules: ModuleType,
    clock: ManualClock | None = None,
) -> ManualClock:
    """Let timers, sleeps and deadlines of these modules run by a clock.

    Args:
        monkeypatch: of the test.
        modules: as they use asyncio.
        clock: the test moves it; None: a new one.
    """
    # Proton takes the time 0 for none.
    clock = clock or ManualClock(1000.0)
    for module in modules:
        monkeypatch.setattr(module, "asyncio", _Asyncio(clock))
    return clock
