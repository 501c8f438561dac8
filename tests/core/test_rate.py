"""The rate limit on log lines about one source."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qos.core.rate import SOURCES_MAX, RateLimit

STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 25)))


@given(STEPS)
def test_one_event_per_source_and_interval_and_none_goes_uncounted(
    steps: list[tuple[str, float]],
) -> None:
    """An attacker must be able neither to flood our log nor to hide in it."""
    limit = RateLimit(10.0)
    now = 0.0
    last: dict[str, float] = {}
    left_out = dict.fromkeys("abc", 0)
    for source, pause in steps:
        now += pause
        told = limit.admit(source, now)
        if source in last and now - last[source] < 10.0:
            assert told is None
            left_out[source] += 1
        else:
            assert told == left_out[source]
            last[source], left_out[source] = now, 0


def test_a_flood_of_names_is_a_flood_from_one() -> None:
    """Names cost an attacker nothing if his own server makes them up."""
    limit = RateLimit(10.0)
    for number in range(SOURCES_MAX):
        assert limit.admit(f"eve-{number}@x", 0.0) == 0
    assert limit.admit("one more@x", 1.0) == 0, "the first of all others"
    assert limit.admit("another@x", 2.0) is None
    assert limit.admit("eve-0@x", 9.0) is None, "nobody has been forgotten for them"
    assert limit.admit("another@x", 10.0) == 0, "the time of the oldest name is over"


def test_however_many_names_there_are_the_log_has_no_more_lines() -> None:
    """Even if each source is forgotten before it comes again."""
    limit = RateLimit(10.0)
    names = [f"eve-{number}@x" for number in range(2 * SOURCES_MAX)]
    told = [limit.admit(name, 1.0) for _ in range(3) for name in names]
    assert len(told) - told.count(None) <= SOURCES_MAX + 1
