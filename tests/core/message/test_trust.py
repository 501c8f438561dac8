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
    decision = decide(TrustPolicy(contacts=True), subscription=subscription)
    assert decision.trusted is trusted
    assert subscription in decision.reason


@pytest.mark.parametrize(
    "policy",
    [
        TrustPolicy.parse(each)
        for each in ("anyone", "contacts", "room@muc.x", "@muc.x")
    ],
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


def test_anyone_trusts_a_stranger() -> None:
    """The policy for closed networks."""
    assert decide(TrustPolicy.parse("anyone"), "eve@evil.example/1").trusted


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
        ("@example.org", True),
        ("@Example.ORG.", True),
        ("@ple.org", False),
        ("@sub.example.org", False),
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


def test_contacts_and_jids_and_domains_are_one_list() -> None:
    policy = TrustPolicy.parse(["contacts", "boss@example.org", "@example.net"])
    assert decide(policy, subscription="both").trusted
    assert decide(policy, "boss@example.org/desk").trusted
    assert decide(policy, "eve@example.net/1").trusted
    assert decide(policy, "example.net").trusted
    assert not decide(policy).trusted


@pytest.mark.parametrize(
    ("value", "policy"),
    [
        ("anyone", TrustPolicy(anyone=True)),
        (["anyone"], TrustPolicy(anyone=True)),
        (" contacts,", TrustPolicy(contacts=True)),
        ("contacts,A@x", TrustPolicy(contacts=True, named=frozenset({"a@x"}))),
        (" a@x , B@x/R ,", TrustPolicy(named=frozenset({"a@x", "b@x/R"}))),
        (["a@x", "b@x"], TrustPolicy(named=frozenset({"a@x", "b@x"}))),
        (
            ("Rooms.example.org", "localhost"),
            TrustPolicy(named=frozenset({"rooms.example.org", "localhost"})),
        ),
        ("[::1],lamp@[::1]/a", TrustPolicy(named=frozenset({"[::1]", "lamp@[::1]/a"}))),
        ("lamp@lan,@LAN", TrustPolicy(named=frozenset({"lamp@lan", "@lan"}))),
        ("nobody", TrustPolicy()),
    ],
)
def test_a_policy_is_read_from_what_users_write(
    value: str | list[str], policy: TrustPolicy
) -> None:
    """One option of the command and one key of a configuration."""
    assert TrustPolicy.parse(value) == policy


@pytest.mark.parametrize("value", ["", " , ", []])
def test_an_empty_list_is_refused(value: str | list[str]) -> None:
    """An option that is left empty rarely means "trust nobody"."""
    with pytest.raises(ValueError, match="'nobody', or a list of"):
        TrustPolicy.parse(value)


@pytest.mark.parametrize(
    "value",
    [
        *("rooster", "Contacts", "ANYONE", "none", "lan", "lamp", "a@b,anyone"),
        *("contacts,anyone", "contacts,nobody", "lamp example.org", "@", "lamp@"),
        *("a@b@example.org", "lamp@example.org/", "@example.org/a", "/a", ".", "@a@b"),
        *("example.", "a b@c.org", ["nobody"], ["anyone", "a@x"], [b"a@x"], [None]),
        *({"a@x": 1}, b"anyone", None, 5, True, 0.5, object()),
    ],
)
def test_a_misspelt_word_is_refused_and_not_taken_for_a_domain(value: object) -> None:
    """`trust="rooster"` would trust the component `rooster`, and no contact."""
    with pytest.raises(InvalidArgument, match="trust must be 'anyone', 'nobody'"):
        TrustPolicy.parse(value)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize(
    ("value", "word"),
    [("all", "anyone"), ("roster", "contacts"), ("roster,a@b.c", "contacts")],
)
def test_a_word_of_an_earlier_version_is_told(value: str, word: str) -> None:
    with pytest.raises(InvalidArgument, match=f"is '{word}' now"):
        TrustPolicy.parse(value)


def test_nobody_is_trusted_by_the_word_nobody_but_the_own_account() -> None:
    """The empty list has a word of its own, since an empty option may be a mistake."""
    policy = TrustPolicy.parse("nobody")
    assert not decide(policy, subscription="both").trusted
    assert decide(policy, "lamp@example.org/2").trusted
