"""Quotas: how much may be held for others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.quota import Ledger, Quotas, Share, own_domains

ACCOUNTS = st.sampled_from(("a@x", "b@x", "c@y", "d@y"))
SIZES = st.integers(0, 12)
QUOTAS = st.builds(
    Quotas,
    messages=st.integers(0, 4),
    bytes=st.integers(0, 30),
    total_messages=st.integers(0, 6),
    total_bytes=st.integers(0, 50),
    domain_messages=st.integers(0, 5),
    domain_bytes=st.integers(0, 40),
)


@given(QUOTAS, st.lists(st.tuples(ACCOUNTS, SIZES)))
def test_the_ledger_stays_within_its_quotas_and_returns_to_zero(
    quotas: Quotas, wishes: list[tuple[str, int]]
) -> None:
    """A wrong count ends with a receiver that refuses everybody."""
    ledger = Ledger(quotas, {"x"})
    held = []
    for account, size in wishes:
        credit = ledger.credit(account, size)
        assert (credit > 0) == (ledger.refusal(account, size) is None)
        if credit:
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
        foreign = [one for name, one in held if name.endswith("@y")]
        assert len(foreign) <= max(quotas.messages, quotas.domain_messages)
        assert sum(foreign) <= max(quotas.bytes, quotas.domain_bytes)
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
    """Each of the four is a limit of its own, and the log must name it."""
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


def test_one_foreign_domain_does_not_take_the_total() -> None:
    """The owner of a server can make as many accounts as he likes."""
    ledger = Ledger(
        Quotas(messages=2, bytes=20, domain_messages=3, domain_bytes=25), {"x"}
    )
    for account in ("a@y", "b@y", "c@y"):
        ledger.reserve(account, 5)
    assert ledger.refusal("d@y", 0) == "domain_messages"
    assert ledger.refusal("d@z", 0) is None
    ledger.refund("c@y", 5)
    assert ledger.refusal("d@y", 16) == "domain_bytes"
    assert ledger.refusal("d@y", 15) is None


def test_the_accounts_of_the_own_domain_are_bounded_one_by_one_and_by_the_total() -> (
    None
):
    """The users of an endpoint must not lock each other out by their common domain."""
    ledger = Ledger(Quotas(messages=2, domain_messages=2, total_messages=4), {"x"})
    for account in ("a@x", "b@x", "c@x", "d@x"):
        assert ledger.refusal(account, 1) is None
        ledger.reserve(account, 1)
    assert ledger.refusal("e@x", 1) == "total_messages"


def test_the_bound_of_a_domain_is_never_less_than_that_of_an_account() -> None:
    """A user who raises one of them has raised it for accounts of foreign domains too."""
    ledger = Ledger(Quotas(messages=5, domain_messages=3))
    for _ in range(4):
        ledger.reserve("a@y", 1)
    assert ledger.refusal("a@y", 1) is None
    assert ledger.refusal("b@y", 1) is None


@pytest.mark.parametrize(
    ("jid", "component", "domains"),
    [
        ("a@x.org/1", False, {"x.org"}),
        ("queue.x.org", True, {"queue.x.org", "x.org"}),
        ("queue", True, {"queue"}),
    ],
)
def test_a_component_is_also_of_the_domain_above_its_own(
    jid: str, component: bool, domains: set[str]
) -> None:
    """The accounts of its server have that domain."""
    assert own_domains(jid, component=component) == domains


@pytest.mark.parametrize(
    "name",
    [
        *("messages", "bytes", "total_messages", "total_bytes"),
        *("domain_messages", "domain_bytes"),
    ],
)
def test_a_negative_quota_is_refused_at_once(name: str) -> None:
    """It would refuse everybody, which is noticed too late."""
    with pytest.raises(ValueError, match=rf"{name} = -1"):
        Quotas(**{name: -1})


def test_a_negative_share_is_refused_likewise() -> None:
    """Of nodes or subscriptions."""
    with pytest.raises(ValueError, match="total = -1"):
        Share(1, 1, -1)
