"""Shares by account: nobody takes all that a node or the service has only so much of."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from qos.core.queue import ready_items, topics
from qos.core.queue.bounds import QueueBounds
from qos.core.queue.item import Affiliation, Item
from qos.core.queue.requests import (
    Create,
    Delete,
    KeepTerminus,
    Refusal,
    SetAffiliations,
    Subscribe,
)
from qos.core.queue.shares import OWNERS_MAX, has_room
from qos.core.queue.terminus import Terminus
from qos.core.record import replace
from queue_world import NODE, PLAIN, World, entry

MOST = 16
BOUNDS = QueueBounds(
    nodes=MOST,
    nodes_per_account=MOST // 2,
    nodes_per_domain=MOST,
    subscriptions=MOST,
    subscriptions_per_account=MOST // 2,
    subscriptions_per_domain=MOST,
    termini=MOST,
    termini_per_account=MOST // 2,
    termini_per_domain=MOST,
    bytes_per_account=100,
)
TOPIC = "prices"
NUMBERS = count()


def a_selector(it: World, account: str) -> None:
    number = next(NUMBERS)
    jid = f"{account}/{number}"
    options = {"pubsub#queue_requests": "1", "queue#selector": f"n = {number}"}
    it.ask(Subscribe(NODE, jid, options), jid)


def a_copying_queue(it: World, account: str) -> None:
    it.ask(Create(f"q{next(NUMBERS)}", {"queue#topic": TOPIC}), f"{account}/1")


def a_node(it: World, account: str) -> None:
    it.ask(Create(f"q{next(NUMBERS)}", {}), f"{account}/1")


def a_subscription(it: World, account: str) -> None:
    jid = f"{account}/{next(NUMBERS)}"
    it.ask(Subscribe(NODE, jid, {"pubsub#queue_requests": "1"}), jid)


def a_terminus(it: World, account: str) -> None:
    number = next(NUMBERS)
    jid = f"{account}/{number}"
    terminus = Terminus(
        jid=jid,
        container="c",
        link=f"l{number}",
        node=NODE,
        address=NODE,
        durability=1,
    )
    it.ask(KeepTerminus(terminus), jid)


def excluded(it: World, account: str) -> None:
    """A worker with heaps of its own, of the items that exclude somebody."""
    live, number = it.core.nodes[NODE].live, next(NUMBERS)
    jid = f"{account}/{number}"
    item = Item(
        seq=number,
        node=NODE,
        item_id=f"i{number}",
        publisher="shop@x",
        digest="",
        size=1,
        published_at=it.now,
        available_at=it.now,
        excluded=frozenset({jid}),
    )
    live.put(item, it.now)
    if not live.ready.takes_excluding(jid):
        raise Refusal("no heaps", condition="resource-constraint", type="wait")


def some_bytes(it: World, account: str) -> None:
    """Items in a node that the account has created."""
    name = f"of-{account}"
    if name not in it.core.nodes:
        it.create(name, PLAIN, f"{account}/1")
    it.publish(entry(f"i{next(NUMBERS)}", payload="<x>1234567890</x>"), node=name)


Take = Callable[[World, str], None]


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_items, "FILTERS_MAX", MOST)
    monkeypatch.setattr(ready_items, "EXCLUDERS_MAX", MOST)
    monkeypatch.setattr(topics, "QUEUES_MAX", MOST)


def world(take: Take) -> World:
    wide = QueueBounds()
    named = {a_node, a_subscription, a_terminus, some_bytes}
    it = World(bounds=BOUNDS if take in named else wide)
    it.create(NODE, PLAIN)
    if take is a_copying_queue:
        it.create(TOPIC, {**PLAIN, "queue#node_type": "topic"})
    return it


def taken(it: World, take: Take, account: str) -> int:
    """How many an account gets until it is refused."""
    for number in range(3 * MOST):
        try:
            take(it, account)
        except Refusal:
            return number
    raise AssertionError("there is no bound")


@pytest.mark.parametrize(
    "take",
    [
        a_selector,
        a_copying_queue,
        a_node,
        a_subscription,
        a_terminus,
        excluded,
        some_bytes,
    ],
)
@pytest.mark.usefixtures("bounded")
def test_one_account_does_not_take_what_all_have_together(take: Take) -> None:
    """And one whose share is used up gets no more by another way."""
    it = world(take)
    first = taken(it, take, "bee@x")
    assert 1 <= first <= MOST // 2
    assert taken(it, take, "bee@x") == 0
    second = taken(it, take, "ant@y")
    assert 1 <= second <= first
    # All of them together have a bound, but for the bytes, which the disk ends.
    if take is not some_bytes:
        assert first + second <= MOST


@pytest.mark.parametrize("take", [a_selector, a_copying_queue])
@pytest.mark.usefixtures("bounded")
def test_an_owner_gets_in_when_all_is_taken(take: Take) -> None:
    """It is his node; and even many owners do not make it endless."""
    it = world(take)
    for number in range(MOST + 5):
        taken(it, take, f"bee{number}@x")
    assert taken(it, take, "late@x") == 0
    assert taken(it, take, "boss@x") == MOST // 2
    owners = {f"boss{number}@x": Affiliation.OWNER for number in range(5)}
    for node in (NODE, *({TOPIC} & it.core.nodes.keys())):
        it.ask(SetAffiliations(node, owners), "boss@x/desk")
    total = sum(taken(it, take, owner) for owner in owners)
    assert total == (OWNERS_MAX - 1) * MOST - MOST // 2


def test_the_rule_leaves_something_for_the_next_one() -> None:
    """Until there is nothing: 16, 8, 4, 2, 1, and the last one."""
    total, shares = 0, []
    while total < 32:
        own = 0
        while has_room(own, total, 32):
            own, total = own + 1, total + 1
        shares.append(own)
    assert shares == [16, 8, 4, 2, 1, 1]
    assert not has_room(0, 32, 32)
    assert has_room(0, 32, 32, owner=True)
    assert not has_room(0, 64, 32, owner=True)


def test_a_removed_node_takes_nothing_of_its_creators_share() -> None:
    it = World(bounds=BOUNDS)
    it.ask(Create("gone", PLAIN), "bee@x/1")
    it.ask(Create("stays", PLAIN), "bee@x/1")
    it.publish(entry("a", payload="x" * 90), node="gone")
    assert it.core.bytes_left(it.core.nodes["stays"]) == 10
    it.ask(Delete("gone"), "bee@x/1")
    assert it.core.bytes_left(it.core.nodes["stays"]) == 100


def test_a_full_account_misses_the_items_of_topics_and_gets_no_more() -> None:
    """Its publishers are told to come again; others are not concerned."""
    it = World(bounds=BOUNDS)
    it.create(TOPIC, {**PLAIN, "queue#node_type": "topic"})
    for account in ("bee@x", "ant@y"):
        it.ask(Create(f"copy-{account}", {"queue#topic": TOPIC}), f"{account}/1")
    taken(it, some_bytes, "bee@x")
    it.publish(entry("a", payload="<x>1234567890</x>"), node=TOPIC)
    assert it.core.nodes["copy-bee@x"].node.missed == 1
    assert it.live("copy-ant@y").keys() == {"a"}
    it.ask(Create("plain", PLAIN), "bee@x/1")
    with pytest.raises(Refusal, match="hold as many bytes as are possible"):
        it.publish(entry("b", payload="<x>1234567890</x>"), node="plain")


def test_what_is_published_again_needs_no_room() -> None:
    """The share may have become smaller since: the answer to a repeat is the same."""
    it = World(bounds=BOUNDS)
    it.ask(Create("full", PLAIN), "bee@x/1")
    it.publish(entry("a", payload="x" * 90), node="full")
    it.bounds = replace(BOUNDS, bytes_per_account=50)
    it.boot()
    it.publish(entry("a", payload="x" * 90), node="full")
    assert it.live("full").keys() == {"a"}
    with pytest.raises(Refusal, match="hold as many bytes as are possible"):
        it.publish(entry("b", payload="x"), node="full")
