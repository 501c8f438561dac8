"""The manual clock runs timers like a real one, but only on request."""

import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.testing.clock import ManualClock


def test_time_stands_still_unless_moved() -> None:
    clock = ManualClock(100.0)
    assert clock.now() == clock.now() == 100.0
    clock.advance(0.5)
    assert clock.now() == 100.5


def test_timers_run_in_order_of_time_then_registration_and_see_their_own_moment() -> (
    None
):
    clock = ManualClock()
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, clock.now()))

    for name, when in (("c", 3.0), ("a", 1.0), ("b1", 2.0), ("b2", 2.0), ("d", 9.0)):
        clock.call_at(when, partial(note, name))
    clock.advance(5)
    assert seen == [("a", 1.0), ("b1", 2.0), ("b2", 2.0), ("c", 3.0)]
    assert clock.now() == 5.0
    assert clock.deadline() == 9.0


def test_a_timer_registered_by_a_timer_runs_if_it_falls_due_on_the_way() -> None:
    clock = ManualClock()
    seen: list[float] = []

    def again() -> None:
        seen.append(clock.now())
        clock.call_at(clock.now() + 1, again)

    clock.call_at(1, again)
    clock.advance(3.5)
    assert seen == [1.0, 2.0, 3.0]


def test_a_cancelled_timer_never_runs_and_is_no_deadline() -> None:
    clock = ManualClock()
    seen: list[int] = []
    timer = clock.call_at(1, lambda: seen.append(1))
    assert timer.pending
    timer.cancel()
    timer.cancel()
    assert clock.deadline() is None
    clock.advance(2)
    assert not seen
    assert not timer.pending


def test_a_timer_can_cancel_one_that_is_due_at_the_same_moment() -> None:
    clock = ManualClock()
    seen: list[str] = []
    clock.call_at(1, lambda: second.cancel())
    second = clock.call_at(1, lambda: seen.append("second"))
    clock.advance(1)
    assert not seen


def test_a_moment_that_has_passed_is_due_at_the_next_move_and_not_before() -> None:
    clock = ManualClock(10)
    seen: list[float] = []
    clock.call_at(5, lambda: seen.append(clock.now()))
    assert not seen
    clock.advance(0)
    assert seen == [10.0]


def test_after_a_jump_all_that_is_due_sees_the_new_time() -> None:
    clock = ManualClock()
    seen: list[tuple[str, float]] = []
    clock.call_at(2, lambda: seen.append(("b", clock.now())))
    clock.call_at(1, lambda: seen.append(("a", clock.now())))
    clock.jump(60)
    assert seen == [("a", 60.0), ("b", 60.0)]


def test_a_jump_back_makes_nothing_due() -> None:
    clock = ManualClock(100)
    seen: list[float] = []
    clock.call_at(101, lambda: seen.append(clock.now()))
    clock.jump(50)
    assert clock.now() == 50.0
    clock.advance(50)
    assert not seen
    clock.advance(1)
    assert seen == [101.0]


def test_an_error_in_a_callback_comes_out_at_its_moment_and_costs_no_other_timer() -> (
    None
):
    clock = ManualClock()
    seen: list[float] = []

    def fail() -> None:
        raise LookupError

    clock.call_at(1, fail)
    clock.call_at(2, lambda: seen.append(clock.now()))
    with pytest.raises(LookupError):
        clock.advance(5)
    assert clock.now() == 1.0
    clock.advance(1)
    assert seen == [2.0]


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_time_never_advances_by_nonsense(bad: float) -> None:
    with pytest.raises(ValueError, match="seconds"):
        ManualClock().advance(bad)


def test_moments_are_finite() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="when"):
        clock.call_at(math.nan, lambda: None)
    with pytest.raises(ValueError, match="to"):
        clock.jump(math.inf)
    with pytest.raises(ValueError, match="now"):
        ManualClock(math.nan)


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 5)))
def test_however_time_passes_each_timer_runs_once_at_its_moment(
    moments: list[int], steps: list[int]
) -> None:
    clock = ManualClock()
    ran: list[tuple[int, int, float]] = []

    def note(when: int, index: int) -> None:
        ran.append((when, index, clock.now()))

    for index, when in enumerate(moments):
        clock.call_at(when, partial(note, when, index))
    for step in steps:
        clock.advance(step)
    end = sum(steps)
    due = sorted((when, index) for index, when in enumerate(moments) if when <= end)
    assert ran == [(when, index, when) for when, index in due] if steps else not ran
