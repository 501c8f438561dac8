"""Token buckets: in any span of time no account uses more than its rate and its burst."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from qos.core.payers import TokenBuckets

RATE, BURST_S = 8.0, 2.0

#: Multiples of 1/8 s, so that sums are exact.
STEPS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.integers(0, 40).map(lambda each: each / 8),
        st.integers(1, 40),
    ),
    max_size=60,
)


@given(STEPS)
def test_an_account_gets_its_rate_and_a_burst_and_no_more(
    steps: list[tuple[str, float, int]],
) -> None:
    """Against a model that counts tokens; the debt is at most one request."""
    buckets = TokenBuckets(RATE, BURST_S)
    now = 0.0
    tokens = dict.fromkeys("ab", RATE * BURST_S)
    for account, pause, size in steps:
        now += pause
        tokens = {
            name: min(RATE * BURST_S, each + pause * RATE)
            for name, each in tokens.items()
        }
        wait_s = buckets.wait_s(account, now)
        assert wait_s == max(0.0, -tokens[account] / RATE)
        if not wait_s:
            buckets.take(account, size, now)
            tokens[account] -= size


def test_who_waits_as_long_as_it_was_told_gets_a_token() -> None:
    buckets = TokenBuckets(RATE, BURST_S)
    buckets.take("a", 100, 5.0)
    wait_s = buckets.wait_s("a", 5.0)
    assert wait_s > 0
    assert buckets.wait_s("a", 5.0 + wait_s) == 0
    assert buckets.wait_s("a", 5.0 + wait_s - 0.25) == 0.25


def test_one_account_leaves_the_others_alone() -> None:
    buckets = TokenBuckets(RATE, BURST_S)
    buckets.take("a", 100, 0.0)
    assert buckets.wait_s("b", 0.0) == 0


def test_what_was_not_used_is_given_back() -> None:
    """A body of unknown length is counted as the longest one, until it has come."""
    buckets = TokenBuckets(RATE, BURST_S)
    buckets.take("a", 100, 0.0)
    buckets.take("a", -100, 0.0)
    buckets.take("a", -1, 0.0)
    assert buckets.wait_s("a", 0.0) == 0
    buckets.take("a", RATE * BURST_S + 1, 0.0)
    assert buckets.wait_s("a", 0.0) > 0


def test_a_rate_of_0_is_no_limit() -> None:
    buckets = TokenBuckets(0, BURST_S)
    buckets.take("a", 10**9, 0.0)
    assert buckets.wait_s("a", 0.0) == 0
    assert len(buckets) == 0


def test_full_buckets_take_no_memory() -> None:
    """However many accounts come once each."""
    buckets = TokenBuckets(RATE, BURST_S)
    for number in range(1000):
        buckets.take(str(number), 1, float(number))
        assert len(buckets) <= 2
