"""Kept deliveries of suspended links: no account pushes out those of another."""

from collections.abc import Callable

import pytest

from qos.amqp.unsettled import (
    KEPT_MAX,
    KEPT_PER_ACCOUNT_MAX,
    Publications,
    Sent,
    Unsettled,
)


class Kept:
    """The deliveries of links in one direction, by their accounts and numbers."""

    def __init__(self, *, sent: bool) -> None:
        self._unsettled = Unsettled()
        self._is_sent = sent

    def keep(self, account: str, number: int) -> None:
        if self._is_sent:
            sent: Sent = {"token": None}
            self._unsettled.keep_sent(f"{account}/amqp-{number}", sent)
        else:
            name = account, "container", f"link {number}"
            self._unsettled.keep_published(name, Publications("orders"))

    def take(self, account: str, number: int) -> bool:
        """Take out those of a link; returns whether they were kept."""
        if self._is_sent:
            return bool(self._unsettled.sent(f"{account}/amqp-{number}"))
        name = account, "container", f"link {number}"
        return self._unsettled.published(name, "orders", 0.0) is not None


@pytest.fixture(params=[True, False], ids=["to consumers", "from publishers"])
def kept(request: pytest.FixtureRequest) -> Kept:
    return Kept(sent=request.param)


def taken(kept: Kept, account: str, numbers: range) -> list[int]:
    """The numbers of the links of which something was kept."""
    take: Callable[[int], bool] = lambda number: kept.take(account, number)  # noqa: E731
    return list(filter(take, numbers))


def test_one_account_has_half_of_what_is_kept(kept: Kept) -> None:
    """Its own oldest links make room for its new ones, and those of others stay."""
    kept.keep("bob@x", 0)
    for number in range(2 * KEPT_MAX):
        kept.keep("eve@x", number)
    assert kept.take("bob@x", 0)
    newest = range(2 * KEPT_MAX - KEPT_PER_ACCOUNT_MAX, 2 * KEPT_MAX)
    assert taken(kept, "eve@x", range(2 * KEPT_MAX)) == list(newest)


def test_whoever_has_the_most_links_makes_room(kept: Kept) -> None:
    """Two accounts together push out nobody either."""
    kept.keep("bob@x", 0)
    for number in range(KEPT_MAX):
        kept.keep("eve@x", number)
        kept.keep("mallory@x", number)
    assert kept.take("bob@x", 0)
    left = [taken(kept, name, range(KEPT_MAX)) for name in ("eve@x", "mallory@x")]
    assert sum(map(len, left)) == KEPT_MAX - 1
    assert all(each[-1] == KEPT_MAX - 1 for each in left)


def test_a_link_that_is_kept_again_counts_once(kept: Kept) -> None:
    """Each of its connections may suspend it."""
    for _ in range(2):
        for number in range(KEPT_PER_ACCOUNT_MAX):
            kept.keep("bob@x", number)
    everything = range(KEPT_PER_ACCOUNT_MAX)
    assert taken(kept, "bob@x", everything) == list(everything)
