"""Wrong clocks keep for too long, and never forget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.wall_clock import shift_s

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
    assert shift_s(newest, now) == moves_s


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
    for now, each_lasts_s in others:
        age_s = newest - entry
        by_s = shift_s(newest, now)
        entry += by_s
        gap_s = 0.0 if by_s else now - newest
        assert 0.0 <= gap_s <= YEAR_S
        assert now - entry == pytest.approx(age_s + gap_s, abs=1e-5)
        age_max_s += gap_s + each_lasts_s
        newest = now + each_lasts_s
    assert newest - entry == pytest.approx(age_max_s, abs=1e-4)
