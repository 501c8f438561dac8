"""How often a source may be written about in our log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qos.core.rate import SOURCES_MAX, RateLimit

STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 25)))


@given(STEPS)
def test_one_event_per_source_and_interval_and_none_goes_uncounted(
    steps: list[tuple[str, float]],
) -> None:
    """An attacker must not turn our log into his amplifier, nor hide in it."""
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


def test_a_flood_of_names_costs_no_more_memory_than_the_limit() -> None:
    """The oldest name is forgotten, and may be written about again."""
    limit = RateLimit(10.0)
    for number in range(SOURCES_MAX + 1):
        assert limit.admit(f"eve-{number}@x", 0.0) == 0
    assert limit.admit("eve-1@x", 1.0) is None, "still remembered"
    assert limit.admit("eve-0@x", 1.0) == 0, "forgotten"
