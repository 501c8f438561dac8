"""The clock of a service: what it does not listen to is not its peers' time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from qos.engine.clock import _TICK_S, GAIN, ListeningClock, LoopClock, Timers

DAY_S = 86_400.0


class Loop:
    """An event loop whose time a test turns, and which calls what is due."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.calls: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, call: Callable[[], object]) -> Any:
        entry = when, call
        self.calls.append(entry)

        class Handle:
            def cancel(_) -> None:
                if entry in self.calls:
                    self.calls.remove(entry)

        return Handle()

    def call_later(self, delay: float, call: Callable[[], object]) -> Any:
        return self.call_at(self.now_s + delay, call)

    def run(self, seconds: float) -> None:
        """Let time pass, and call what is due when it is."""
        until = self.now_s + seconds
        while self.calls and min(when for when, _ in self.calls) <= until:
            first = min(self.calls, key=lambda entry: entry[0])
            self.now_s = max(self.now_s, first[0])
            self.calls.remove(first)
            first[1]()
        self.now_s = until

    def stop(self, seconds: float) -> None:
        """Let time pass in which nothing is called, as of a process that is stopped."""
        self.now_s += seconds


@pytest.fixture
def loop() -> Loop:
    return Loop()


def clock_of(loop: Loop) -> ListeningClock:
    clock = ListeningClock(
        cast(asyncio.AbstractEventLoop, loop), monotonic=lambda: loop.now_s
    )
    clock.start()
    return clock


def test_time_goes_on_while_it_listens(loop: Loop) -> None:
    """Also where nobody asks for a day."""
    clock = clock_of(loop)
    began = clock.now()
    loop.run(DAY_S)
    assert clock.now() - began == pytest.approx(DAY_S)


@pytest.mark.parametrize("looks_first", [True, False])
@pytest.mark.parametrize("seconds", [3.0, 60.0, DAY_S])
def test_a_stop_is_a_tick_at_most(
    seconds: float, looks_first: bool, loop: Loop
) -> None:
    """Whoever comes first after it: the next request, or the clock itself."""
    clock = clock_of(loop)
    loop.run(10.5)
    began = clock.now()
    loop.stop(seconds)
    if not looks_first:
        loop.run(0.0)
    assert 0.0 <= clock.now() - began <= _TICK_S
    assert clock.now() >= began, "it never goes back"


def test_a_late_tick_is_no_stop(loop: Loop) -> None:
    """A busy machine is late by a second now and then."""
    clock = clock_of(loop)
    began = clock.now()
    for _ in range(100):
        loop.stop(1.9)
        loop.run(0.0)
    assert clock.now() - began == pytest.approx(190.0)


def test_what_is_lost_is_gained_again_slowly(loop: Loop) -> None:
    """Else its times would be behind those of all others for ever."""
    clock = clock_of(loop)
    wall = LoopClock(cast(asyncio.AbstractEventLoop, loop))
    loop.stop(61.0)
    loop.run(0.0)
    behind = wall.now() - clock.now()
    assert behind == pytest.approx(60.0, abs=_TICK_S)
    before = clock.now()
    loop.run(100.0)
    assert clock.now() - before == pytest.approx(100.0 * (1 + GAIN), rel=0.01)
    loop.run(60.0 / GAIN)
    assert clock.now() == pytest.approx(wall.now())


def test_a_deadline_moves_by_the_stop(loop: Loop) -> None:
    """A timer that was armed before fires as late as its time is."""
    clock = clock_of(loop)
    fired: list[str] = []
    timers: Timers[str] = Timers(clock, fired.append)
    timers.set("lock", clock.now() + 10.0)
    loop.run(5.0)
    loop.stop(60.0)
    loop.run(0.0)
    assert fired == []
    loop.run(3.0)
    assert fired == []
    loop.run(3.0)
    assert fired == ["lock"]


def test_a_loop_whose_time_a_test_turns_was_not_stopped(loop: Loop) -> None:
    """Nor was one whose time stands still while a test does."""
    really_s = 0.0
    clock = ListeningClock(
        cast(asyncio.AbstractEventLoop, loop), monotonic=lambda: really_s
    )
    clock.start()
    began = clock.now()
    loop.stop(600.0)
    assert clock.now() - began == pytest.approx(600.0)
    loop.run(0.0)
    really_s += 600.0
    assert clock.now() - began == pytest.approx(600.0)


def test_a_clock_that_is_stopped_leaves_no_timer(loop: Loop) -> None:
    clock = clock_of(loop)
    began = clock.now()
    clock.stop()
    assert loop.calls == []
    loop.stop(60.0)
    assert clock.now() - began == pytest.approx(60.0)
