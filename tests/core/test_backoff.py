"""The delay before the next attempt."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.backoff import Backoff

FIRST = st.floats(0.001, 100)
FACTOR = st.floats(1, 1_000)
JITTER = st.floats(0, 1, exclude_max=True)
TRIES = st.integers(1, 10**9)


@given(FIRST, FACTOR, JITTER, TRIES)
def test_a_delay_never_leaves_its_clamps(
    first_s: float, factor: float, jitter: float, tries: int
) -> None:
    """Below the range, the peer has no time to answer.

    Above it, an outage lasts too long.
    """
    backoff = Backoff(first_s, first_s * factor)
    assert first_s <= backoff.delay_s(tries, jitter) <= backoff.max_s


@given(FIRST, FACTOR, JITTER, TRIES)
def test_a_delay_never_shrinks_with_the_tries(
    first_s: float, factor: float, jitter: float, tries: int
) -> None:
    """A peer that is away for long is asked less and less often."""
    backoff = Backoff(first_s, first_s * factor)
    assert backoff.delay_s(tries, jitter) <= backoff.delay_s(tries + 1, jitter)


@pytest.mark.parametrize(
    ("tries", "jitter", "expected"),
    [
        (1, 0.0, 2.0),
        (1, 0.99, 2.0),
        (2, 0.5, 2.0),
        (2, 0.75, 3.0),
        (3, 0.75, 6.0),
        (8, 0.5, 128.0),
        (9, 0.5, 150.0),
        (10_000, 0.5, 150.0),
        (10_000, 0.0, 2.0),
    ],
)
def test_the_ceiling_doubles_up_to_the_cap(
    tries: int, jitter: float, expected: float
) -> None:
    """Full jitter takes its part of this ceiling, so that clients spread."""
    assert Backoff(2.0, 300.0).delay_s(tries, jitter) == expected


@pytest.mark.parametrize(
    ("first_s", "max_s"), [(0, 1), (-1, 1), (2, 1), (math.nan, 1), (1, math.nan)]
)
def test_delays_that_make_no_sense_are_refused_at_once(
    first_s: float, max_s: float
) -> None:
    """A zero delay would be a flood that is noticed too late."""
    with pytest.raises(ValueError, match="retry delays"):
        Backoff(first_s, max_s)


def test_a_constant_delay_is_allowed() -> None:
    """First and cap may be equal."""
    assert Backoff(5, 5).delay_s(7, 0.5) == 5
