"""How long an answer takes, and how much may be on its way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.message.flow import ByteWindow, Pace

FIRST_S, MAX_S = 2.0, 300.0
KB, MB = 1024, 1024 * 1024


def pace(*answers: tuple[float, int]) -> Pace:
    made = Pace(FIRST_S, MAX_S)
    for took_s, size in answers:
        made.answered(took_s, size)
    return made


def test_nothing_is_known_at_first() -> None:
    """A small message has the first delay; a large one as much more as it may need."""
    assert pace().patience_s(1, 16 * KB) == 2.0
    assert pace().patience_s(1, 16 * KB + 25_000) == 12.0


def test_quick_answers_leave_the_first_delay_as_it_is() -> None:
    """Then the delays between attempts grow and spread by themselves."""
    quick = pace(*[(0.05, 500)] * 20)
    assert [round(quick.patience_s(tries, 0), 3) for tries in (0, 1, 5)] == [2.0] * 3


def test_slow_answers_are_waited_for() -> None:
    """RFC 6298 §2: the first round trip, and twice its length as the margin."""
    slow = pace((5.0, 500))
    assert [slow.patience_s(tries, 0) for tries in (1, 2, 3)] == [15.0, 30.0, 60.0]
    assert slow.patience_s(100, 0) == MAX_S
    steady = pace(*[(5.0, 500)] * 50)
    assert 5.0 < steady.patience_s(1, 0) < 5.1


def test_a_changing_link_has_a_larger_margin() -> None:
    """The mean alone would be too short every other time."""
    changing = pace(*[(1.0, 500), (9.0, 500)] * 20)
    assert changing.patience_s(1, 0) > 15.0


def test_the_rate_is_what_the_link_has_carried() -> None:
    """A repeat halves it, down to a kilobyte a second: it may have become slower."""
    seen = pace((1.0, 100_000))
    small_s = seen.patience_s(1, 0)
    large = 16 * KB + 100_000
    assert seen.patience_s(1, large) == pytest.approx(small_s + 1.0)
    seen.repeated()
    assert seen.patience_s(1, large) == pytest.approx(small_s + 2.0)
    for _ in range(50):
        seen.repeated()
    assert seen.patience_s(1, large) == pytest.approx(small_s + 100.0)
    seen.answered(0.0, 10**9)  # no time: it says nothing about the rate
    assert seen.patience_s(1, large) > 100.0


@given(
    st.lists(st.tuples(st.floats(0, 1_000), st.integers(0, 10**7))),
    st.integers(0, 10**6),
    st.integers(0, 10**7),
)
def test_patience_is_never_shorter_than_the_first_delay(
    answers: list[tuple[float, int]], tries: int, ahead: int
) -> None:
    """Whatever the answers were; and it has an end."""
    patience_s = pace(*answers).patience_s(tries, ahead)
    assert FIRST_S <= patience_s <= MAX_S + ahead / 1_000


def test_a_window_of_bytes() -> None:
    """It opens by what was read, to a megabyte; one larger message goes alone."""
    window = ByteWindow()
    assert window.admits(10 * MB)
    window.used += 10 * MB
    assert not window.admits(1)
    window.read(10 * MB)
    assert (window.used, window.limit) == (0, MB)
    window.used += MB - 1
    assert window.admits(1)
    assert not window.admits(2)


def test_a_window_narrows_when_a_ping_waits_behind_it() -> None:
    """By two seconds more than on the idle link, and to 16 kB at least."""
    window = ByteWindow()
    window.answered(5.0)  # a far server
    window.asked(6.9)
    assert window.limit == 64 * KB
    window.asked(7.1)
    assert window.limit == 32 * KB
    for _ in range(9):
        window.asked(60.0)
    assert window.limit == 16 * KB
    window.used += KB
    window.lost()
    assert window.used == 0
    window.asked(60.0)
    assert window.limit == 16 * KB, "no idle time is known of the new connection"
