"""Trust: the accounts whose messages may be held."""

from __future__ import annotations

import pytest

from qos.core.message.trust import Trusted, TrustPolicy
from qos.errors import InvalidArgument

OWN = "lamp@example.org/1"


def decide(
    policy: TrustPolicy,
    sender: str = "door@example.org/a",
    *,
    subscription: str = "none",
    occupant: bool = False,
) -> Trusted:
    """A decision with all facts at their plainest."""
    return Trusted.decide(
        policy, sender, own=OWN, subscription=subscription, occupant=occupant
    )


@pytest.mark.parametrize(
    ("subscription", "trusted"),
    [("both", True), ("from", True), ("to", True), ("none", False), ("remove", False)],
)
def test_a_roster_subscription_of_either_side_makes_trust(
    subscription: str, trusted: bool
) -> None:
    """A person agreed to each of them; a roster entry alone proves nothing."""
    decision = decide(TrustPolicy("roster"), subscription=subscription)
    assert decision.trusted is trusted
    assert subscription in decision.reason


@pytest.mark.parametrize(
    "policy",
    [TrustPolicy("all"), TrustPolicy("roster"), TrustPolicy.parse("room@muc.x")],
)
def test_an_occupant_of_a_room_is_never_trusted(policy: TrustPolicy) -> None:
    """The proto-XEP names them first: anybody can enter a room."""
    decision = decide(policy, "room@muc.x/eve", subscription="both", occupant=True)
    assert not decision.trusted
    assert "room" in decision.reason


def test_other_resources_of_the_own_account_are_trusted() -> None:
    """They have the account's password."""
    decision = decide(TrustPolicy.parse("door@example.org"), "lamp@example.org/2")
    assert decision.trusted


def test_all_trusts_a_stranger() -> None:
    """The policy for closed networks."""
    assert decide(TrustPolicy("all"), "eve@evil.example/1").trusted


@pytest.mark.parametrize(
    ("entry", "trusted"),
    [
        ("door@example.org", True),
        ("Door@Example.ORG", True),
        ("door@example.org/a", True),
        ("DOOR@example.org/a", True),
        ("door@example.org/A", False),
        ("door@example.org/b", False),
        ("doo@example.org", False),
        ("example.org", False),
        ("eve@example.org, door@example.org", True),
    ],
)
def test_an_allow_list_matches_accounts_and_full_jids(
    entry: str, trusted: bool
) -> None:
    """RFC 7622: accounts compare without regard to case, resources with."""
    decision = decide(TrustPolicy.parse(entry))
    assert decision.trusted is trusted
    assert ("not on" in decision.reason) is not trusted


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("all", "all"),
        ("roster", "roster"),
        (" a@x , B@x/R ,", frozenset({"a@x", "b@x/R"})),
        (["a@x", "b@x"], frozenset({"a@x", "b@x"})),
        (("Rooms.example.org", "localhost"), {"rooms.example.org", "localhost"}),
        ("[::1],lamp@[::1]/a", {"[::1]", "lamp@[::1]/a"}),
        ("lamp@lan", {"lamp@lan"}),
        ("nobody", frozenset()),
    ],
)
def test_a_policy_is_read_from_what_users_write(
    value: str | list[str], rule: object
) -> None:
    """One option of the command and one key of a configuration."""
    policy = TrustPolicy.parse(value)
    assert policy.rule == rule
    assert policy.needs_roster is (rule == "roster")


@pytest.mark.parametrize("value", ["", " , ", []])
def test_an_empty_allow_list_is_refused(value: str | list[str]) -> None:
    """An option that is left empty rarely means "trust nobody"."""
    with pytest.raises(ValueError, match="'nobody', or JIDs"):
        TrustPolicy.parse(value)


@pytest.mark.parametrize(
    "value",
    [
        *("rooster", "Roster", "ALL", "none", "lan", "lamp", "roster,all", "a@b,all"),
        *("roster,lamp@example.org", "lamp example.org", "@example.org", "lamp@"),
        *("a@b@example.org", "lamp@example.org/", "/a", ".", "example.", "a b@c.org"),
        *(["all"], ["roster", "a@x"], [b"a@x"], [None], {"a@x": 1}, b"all", None, 5),
        *(True, 0.5, object()),
    ],
)
def test_a_misspelt_word_is_refused_and_not_taken_for_a_domain(value: object) -> None:
    """`trust="rooster"` would trust the component `rooster`, and no contact."""
    with pytest.raises(InvalidArgument, match="trust must be 'roster', 'all'"):
        TrustPolicy.parse(value)  # type: ignore[arg-type]  # what is tested


def test_nobody_is_trusted_by_the_word_nobody_but_the_own_account() -> None:
    """The empty list has a word of its own, since an empty option may be a mistake."""
    policy = TrustPolicy.parse("nobody")
    assert not decide(policy, subscription="both").trusted
    assert decide(policy, "lamp@example.org/2").trusted
