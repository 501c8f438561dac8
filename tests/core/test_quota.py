"""How much may be held for others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.quota import Ledger, Quotas

ACCOUNTS = st.sampled_from(("a@x", "b@x", "c@x"))
SIZES = st.integers(0, 12)
QUOTAS = st.builds(
    Quotas,
    messages=st.integers(0, 4),
    bytes=st.integers(0, 30),
    total_messages=st.integers(0, 6),
    total_bytes=st.integers(0, 50),
)


@given(QUOTAS, st.lists(st.tuples(ACCOUNTS, SIZES)))
def test_the_ledger_stays_within_its_quotas_and_returns_to_zero(
    quotas: Quotas, wishes: list[tuple[str, int]]
) -> None:
    """A count that drifts ends in a receiver that refuses everyone."""
    ledger = Ledger(quotas)
    held = []
    for account, size in wishes:
        if ledger.refusal(account, size) is None:
            ledger.reserve(account, size)
            held.append((account, size))
        sizes = [one for name, one in held if name == account]
        assert ledger.used(account) == (len(sizes), sum(sizes))
        assert len(sizes) <= quotas.messages
        assert sum(sizes) <= quotas.bytes
        messages, octets = ledger.used()
        assert messages == len(held) <= quotas.total_messages
        assert octets == sum(one for _, one in held) <= quotas.total_bytes
        assert ledger.accounts == len({name for name, _ in held})
    for account, size in held:
        ledger.refund(account, size)
    assert ledger.used() == (0, 0)
    assert ledger.accounts == 0, "an account without messages costs nothing"


@pytest.mark.parametrize(
    ("account", "size", "expected"),
    [
        ("a@x", 0, "messages"),
        ("b@x", 21, "bytes"),
        ("b@x", 11, "total_bytes"),
        ("b@x", 10, None),
        ("c@x", 0, None),
    ],
)
def test_a_refusal_names_the_quota_that_would_be_exceeded(
    account: str, size: int, expected: str | None
) -> None:
    """Each of the four is its own limit, and the log says which it was."""
    ledger = Ledger(Quotas(messages=2, bytes=20, total_messages=3, total_bytes=20))
    ledger.reserve("a@x", 5)
    ledger.reserve("a@x", 5)
    assert ledger.refusal(account, size) == expected


def test_the_number_of_all_messages_is_a_limit_of_its_own() -> None:
    """Many accounts with one message each fill the memory as well."""
    ledger = Ledger(Quotas(messages=2, bytes=20, total_messages=2, total_bytes=20))
    ledger.reserve("a@x", 1)
    ledger.reserve("b@x", 1)
    assert ledger.refusal("c@x", 1) == "total_messages"


def test_what_was_held_before_counts_even_over_a_quota_that_has_shrunk() -> None:
    """An accepted message is never dropped because a setting has changed."""
    ledger = Ledger(Quotas(messages=1, bytes=5))
    for _ in range(3):
        ledger.reserve("a@x", 5)
    assert ledger.used("a@x") == (3, 15)
    assert ledger.refusal("a@x", 0) == "messages"


@pytest.mark.parametrize("name", ["messages", "bytes", "total_messages", "total_bytes"])
def test_a_negative_quota_is_refused_at_once(name: str) -> None:
    """It would refuse everyone, found out too late."""
    with pytest.raises(ValueError, match=rf"{name} = -1"):
        Quotas(**{name: -1})
