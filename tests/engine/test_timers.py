"""One timer for everything that waits."""

from __future__ import annotations

from qos.engine.clock import Timers
from qos.testing.clock import ManualClock


def test_what_is_cleared_again_and_again_costs_no_memory() -> None:
    """A held message may be held for a week, and is released within a second."""
    clock = ManualClock(1000.0)
    fired: list[int] = []
    timers: Timers[int] = Timers(clock, fired.append)
    timers.set(-1, clock.now() + 5)
    for number in range(10_000):
        timers.set(number, clock.now() + 7 * 24 * 3600)
        timers.clear(number)
    assert len(timers._heap) < 200
    clock.advance(10)
    assert fired == [-1]


def test_what_is_kept_comes_in_its_order_whatever_was_cleared_between() -> None:
    """Removing outdated timers must neither lose nor repeat the others."""
    clock = ManualClock(1000.0)
    fired: list[int] = []
    timers: Timers[int] = Timers(clock, fired.append)
    for number in range(1000):
        timers.set(number, clock.now() + 1 + number % 7)
        timers.set(number, clock.now() + 1000 - number)
        if number % 10:
            timers.clear(number)
    clock.advance(2000)
    assert fired == list(range(990, -1, -10))
