"""Wrong clocks keep for too long, and never forget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.wall_clock import ClockHistory, shift

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
YEAR_S = 365 * DAY_S

#: 2026, by a clock that is right; and a device that has just started without a clock.
NOW = 1_790_000_000.0
BOOT = 12.0


@pytest.mark.parametrize(
    ("newest", "now", "moves_s"),
    [
        pytest.param(None, NOW, 0.0, id="nothing has happened yet"),
        pytest.param(NOW, NOW, 0.0, id="at the same moment"),
        pytest.param(NOW - DAY_S, NOW, 0.0, id="a day counts"),
        pytest.param(NOW - YEAR_S, NOW, 0.0, id="a year counts"),
        pytest.param(NOW - YEAR_S - 1, NOW, YEAR_S + 1, id="more than a year"),
        pytest.param(BOOT, NOW, NOW - BOOT, id="it was 1970"),
        pytest.param(NOW, BOOT, BOOT - NOW, id="it is 1970"),
        pytest.param(NOW + 5 * HOUR_S, NOW, -5 * HOUR_S, id="it was five hours ahead"),
        pytest.param(NOW + 0.5, NOW, -0.5, id="it was a moment ahead"),
        pytest.param(BOOT + DAY_S, BOOT, -DAY_S, id="1970 again"),
        pytest.param(BOOT, BOOT + 60.0, 0.0, id="1970 again, a bit later"),
        pytest.param(-DAY_S, BOOT, 0.0, id="times of before 1970 are times"),
    ],
)
def test_only_plausible_time_counts(
    newest: float | None, now: float, moves_s: float
) -> None:
    """Each row is one start of a process; what moves does not grow older."""
    by_s, history = shift(newest, now, ClockHistory())
    assert (by_s, history.moved_s) == (moves_s, moves_s)


CLOCKS = st.floats(0.0, 4e9)


@given(
    starts=st.lists(st.tuples(CLOCKS, st.floats(0.0, DAY_S)), min_size=1, max_size=8),
)
def test_an_entry_grows_older_by_time_that_a_process_or_two_clocks_have_seen(
    starts: list[tuple[float, float]],
) -> None:
    """And its age never goes back: or an entry would never be forgotten."""
    (at, lasts_s), *others = starts
    entry, newest = at, at + lasts_s
    age_max_s = lasts_s
    history = ClockHistory()
    for now, each_lasts_s in others:
        age_s = newest - entry
        by_s, history = shift(newest, now, history)
        entry += by_s
        gap_s = now - newest - by_s
        assert 0.0 <= gap_s <= YEAR_S
        assert now - entry == pytest.approx(age_s + gap_s, abs=1e-5)
        age_max_s += gap_s + each_lasts_s
        newest = now + each_lasts_s
    assert newest - entry == pytest.approx(age_max_s, abs=1e-4)


#: By how much a clock is ahead of the true time, start by start.
@pytest.mark.parametrize(
    "ahead",
    [
        pytest.param((-HOUR_S, 0.0), id="an hour behind, and right again"),
        pytest.param((-2 * HOUR_S, -HOUR_S, 0.0), id="right again in two steps"),
        pytest.param((-HOUR_S, 0.0, -HOUR_S, 0.0), id="behind twice"),
        pytest.param((-20 * YEAR_S, 0.0), id="in 2006, and right again"),
        pytest.param((-20 * YEAR_S, -HOUR_S, 0.0), id="from 2006 to an hour behind"),
        pytest.param((50 * YEAR_S, 0.0), id="in 2076, and right again"),
        pytest.param((50 * YEAR_S, -HOUR_S, 0.0), id="from 2076 to an hour behind"),
        pytest.param((-HOUR_S, 50 * YEAR_S, 0.0), id="an hour behind, then in 2076"),
        pytest.param((50 * YEAR_S, -20 * YEAR_S, -HOUR_S, 0.0), id="all of these"),
    ],
)
def test_a_clock_that_comes_back_makes_nothing_older(ahead: tuple[float, ...]) -> None:
    """What happened 25 seconds ago is no hour old; time between two starts may count."""
    true_time = entry = newest = NOW
    history = ClockHistory()
    for ahead_s in ahead:
        true_time += 25.0
        now = true_time + ahead_s
        by_s, history = shift(newest, now, history)
        entry, newest = entry + by_s, now
        assert 0.0 <= now - entry <= true_time - NOW
    # From now on the clock is right, and all time counts.
    age_s, newest = newest - entry, newest + DAY_S
    assert shift(newest, newest + DAY_S, history)[0] == pytest.approx(0.0, abs=99.0)
    assert age_s <= 25.0 * len(ahead)


def test_a_store_of_a_clock_that_was_years_ahead_grows_older_again() -> None:
    """Not only when it has been off for as long as the clock was ahead."""
    _, history = shift(NOW + 50 * YEAR_S, NOW, ClockHistory())
    assert shift(NOW, NOW + DAY_S, history) == (0.0, history)


def test_the_first_clock_may_have_been_of_1970() -> None:
    """A store that began then is right from the first right start on."""
    _, history = shift(BOOT, NOW, ClockHistory())
    by_s, history = shift(NOW, NOW - HOUR_S, history)
    assert by_s == -HOUR_S
    assert shift(NOW - HOUR_S, NOW + 25.0, history)[0] == HOUR_S


@given(
    starts=st.lists(
        st.tuples(st.floats(-YEAR_S / 2, 0.0), st.floats(0.0, DAY_S)), min_size=1
    )
)
def test_a_clock_that_is_only_ever_behind_makes_nothing_older(
    starts: list[tuple[float, float]],
) -> None:
    """Whatever it shows at each start: no age is greater than the true one."""
    true_time = entry = newest = NOW
    history = ClockHistory()
    for ahead_s, lasts_s in starts:
        true_time += lasts_s
        now = true_time + ahead_s
        by_s, history = shift(newest, now, history)
        entry, newest = entry + by_s, now
        assert now - entry <= true_time - NOW + 1e-4
