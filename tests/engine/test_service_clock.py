"""The clock of a queue service: time in which nothing is answered does not count."""

from __future__ import annotations

import pytest

from qos.engine.clock import _UNANSWERED_S, GAIN, ServiceClock, Timers
from qos.testing.clock import ManualClock


@pytest.fixture
def wall() -> ManualClock:
    return ManualClock(1000.0)


@pytest.fixture
def clock(wall: ManualClock) -> ServiceClock:
    return ServiceClock(wall)


def test_it_is_the_clock_that_it_was_given_while_it_answers(
    wall: ManualClock, clock: ServiceClock
) -> None:
    for seconds in (0.1, 3.0, 86_400.0):
        wall.advance(seconds)
        assert clock.now() == wall.now()


@pytest.mark.parametrize("looks", [0, 1, 100])
@pytest.mark.parametrize("seconds", [0.5, 1.9, 25.0, 86_400.0])
def test_of_a_time_without_answers_the_first_seconds_count(
    seconds: float, looks: int, wall: ManualClock, clock: ServiceClock
) -> None:
    """However often it is looked at meanwhile."""
    clock.pause()
    before = clock.now()
    for _ in range(looks):
        wall.advance(seconds / looks)
        assert before <= clock.now() <= before + _UNANSWERED_S
    wall.advance(0.0 if looks else seconds)
    clock.go_on()
    assert clock.now() - before == pytest.approx(min(seconds, _UNANSWERED_S))


def test_a_second_pause_is_the_same_one(wall: ManualClock, clock: ServiceClock) -> None:
    """A commit fails, and until the store is read nothing can be answered either."""
    clock.pause()
    before = clock.now()
    for _ in range(5):
        wall.advance(10.0)
        clock.pause()
    clock.go_on()
    clock.go_on()
    assert clock.now() - before == pytest.approx(_UNANSWERED_S)


def test_what_it_has_lost_it_gains_again_and_no_more(
    wall: ManualClock, clock: ServiceClock
) -> None:
    clock.pause()
    wall.advance(12.0)
    clock.go_on()
    behind_s = 12.0 - _UNANSWERED_S
    assert wall.now() - clock.now() == pytest.approx(behind_s)
    wall.advance(100.0)
    assert wall.now() - clock.now() == pytest.approx(behind_s - 100.0 * GAIN)
    wall.advance(behind_s / GAIN)
    assert clock.now() == wall.now()
    wall.advance(1000.0)
    assert clock.now() == wall.now()


def test_a_timer_fires_when_its_time_has_come_on_this_clock(
    wall: ManualClock, clock: ServiceClock
) -> None:
    """Set before a pause, within it and after it; none of them too early or twice."""
    fired: dict[str, float] = {}
    timers: Timers[str] = Timers(
        clock, lambda name: fired.__setitem__(name, clock.now())
    )
    times = {"before": clock.now() + 30.0}
    timers.set("before", times["before"])
    wall.advance(5.0)
    clock.pause()
    times["within"] = clock.now() + 20.0
    timers.set("within", times["within"])
    wall.advance(60.0)
    clock.go_on()
    assert fired == {}
    times["after"] = clock.now() + 40.0
    timers.set("after", times["after"])
    for _ in range(4000):
        wall.advance(0.01)
    assert fired == {name: pytest.approx(at, abs=0.1) for name, at in times.items()}
    assert all(fired[name] >= at for name, at in times.items())


def test_a_timer_that_is_almost_due_does_not_spin_while_time_stands_still(
    wall: ManualClock, clock: ServiceClock
) -> None:
    """It looked at the clock again and again, for as long as a commit took."""
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        if clock.now() < when:
            clock.call_at(when, look)

    clock.pause()
    when = clock.now() + _UNANSWERED_S + 1e-6
    clock.call_at(when, look)
    wall.advance(25.0)
    assert 0 < looks <= 25
    clock.go_on()
    wall.advance(2.0)
    assert clock.now() >= when
    assert looks <= 28
