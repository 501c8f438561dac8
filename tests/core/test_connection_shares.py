"""Shares of connections, by address before login and by account after it."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from qos.core.connection_shares import (
    ConnectionLimits,
    ConnectionShares,
    Place,
    TooMany,
    payer_of,
)


def shares(total: int = 8, address: int = 3, account: int = 2) -> ConnectionShares:
    return ConnectionShares(ConnectionLimits(total, address, account))


@pytest.mark.parametrize(
    ("address", "payer"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("a path", "a path"),
    ],
)
def test_a_host_pays_for_its_whole_network(address: str, payer: str) -> None:
    """One host has 2**64 IPv6 addresses, and can use each of them once."""
    assert payer_of(address) == payer


def test_an_address_has_a_share_before_login() -> None:
    all_ = shares()
    for number in range(3):
        all_.arrive(f"2001:db8::{number}")
    with pytest.raises(TooMany, match=r"2001:db8::/64 has 3 connections that are not"):
        all_.arrive("2001:db8::ffff")
    all_.arrive("2001:db8:0:1::")


def test_an_account_has_a_share_after_login_and_its_address_is_free_again() -> None:
    all_ = shares()
    places = [all_.arrive("192.0.2.1")[0] for _ in range(3)]
    for place in places[:2]:
        all_.log_in(place, "a@x.org")
        all_.log_in(place, "a@x.org")
    with pytest.raises(TooMany, match=r"a@x\.org has 2 connections"):
        all_.log_in(places[2], "a@x.org")
    assert (places[2].payer, places[2].account) == ("192.0.2.1", "")
    for _ in range(2):
        all_.arrive("192.0.2.1")
    all_.leave(places[0])
    all_.log_in(places[2], "a@x.org")
    assert len(all_) == 4


def test_a_connection_can_change_its_account() -> None:
    """A proxy sends the requests of all users through the same connections."""
    all_ = shares()
    place, _ = all_.arrive("192.0.2.1")
    all_.log_in(place, "a@x.org")
    all_.log_in(place, "b@x.org")
    for _ in range(2):
        all_.log_in(all_.arrive("192.0.2.2")[0], "a@x.org")
    assert len(all_) == 3


def test_the_address_with_the_most_strangers_makes_room() -> None:
    all_ = shares(total=8, address=4)
    held = [all_.arrive("192.0.2.1")[0] for _ in range(3)]
    all_.arrive("192.0.2.2")
    _, ended = all_.arrive("192.0.2.3")
    assert ended is held[0]
    assert len(all_) == 4
    # Now no address has more than a newcomer would have.
    _, ended = all_.arrive("192.0.2.4")
    assert ended is held[1]
    with pytest.raises(TooMany, match="all doors together have 4 connections"):
        all_.arrive("192.0.2.5")
    all_.leave(held[0])
    assert len(all_) == 4


def test_who_is_logged_in_makes_no_room() -> None:
    all_ = shares(total=4, address=4, account=4)
    for _ in range(4):
        all_.log_in(all_.arrive("192.0.2.1")[0], "a@x.org")
    with pytest.raises(TooMany, match="all doors together have 4"):
        all_.arrive("192.0.2.2")


def test_one_connection_is_always_possible() -> None:
    assert ConnectionLimits(total=1).strangers == 1


class Shares(RuleBasedStateMachine):
    """Against a list of what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = shares(total=6)
        self.places: list[Place] = []

    @rule(host=st.integers(1, 3))
    def arrive(self, host: int) -> None:
        try:
            place, ended = self.shares.arrive(f"192.0.2.{host}")
        except TooMany:
            return
        if ended is not None:
            self.places.remove(ended)
        self.places.append(place)

    @rule(number=st.integers(0, 5), account=st.sampled_from(["a", "b", "c"]))
    def log_in(self, number: int, account: str) -> None:
        if number < len(self.places):
            try:
                self.shares.log_in(self.places[number], account)
            except TooMany:
                return

    @rule(number=st.integers(0, 5))
    def leave(self, number: int) -> None:
        if number < len(self.places):
            self.shares.leave(self.places.pop(number))

    @invariant()
    def every_share_is_kept(self) -> None:
        assert len(self.shares) == len(self.places) <= 6
        strangers = [each.payer for each in self.places if not each.account]
        accounts = [each.account for each in self.places if each.account]
        assert len(strangers) <= 3
        assert all(strangers.count(each) <= 3 for each in strangers)
        assert all(accounts.count(each) <= 2 for each in accounts)


TestShares = Shares.TestCase
