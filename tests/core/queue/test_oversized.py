"""Items that are too large for XMPP workers: they wait for consumers of gateways."""

from __future__ import annotations

import pytest

from qos.core.queue import ready_items
from qos.core.queue.backlog import Backlog
from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.item import ItemOutcome
from qos.core.queue.item_index import ItemIndex
from qos.core.queue.ready_items import ReadyItems
from qos.core.record import replace
from queue_world import ANT, BEE, BEE_2, NODE, PLAIN, World, entry

LINK = consumer_jid("cat@x", "amqp", "0" * 32)
OTHER_LINK = consumer_jid("dog@x", "http", "1" * 32)
LINK_OF_BEE = consumer_jid("bee@x", "amqp", "2" * 32)
NOT_HERE = ItemOutcome.MODIFIED


def unsendable(it: World, item_id: str) -> None:
    """Say that the event with this item was too large for the worker that has it."""
    item = it.item(item_id)
    it.add(it.core.unsendable(item.holder, NODE, {item.token}, "too large", it.now))
    it.flush()


def fit_again(it: World) -> None:
    it.add(it.core.fit_again())
    it.flush()


def world() -> World:
    """A node with an XMPP worker, and an item that cannot be sent to it."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a", "b")
    unsendable(it, "a")
    return it


def test_it_waits_and_the_worker_gets_the_next() -> None:
    """Before, it was dead at once, though a consumer by AMQP or HTTP could take it."""
    it = world()
    assert it.item("b").holder == BEE
    assert (it.item("a").holder, it.item("a").delivery_count) == ("", 0)
    assert (it.item("a").history, it.item("a").releases) == ((), 0)
    assert it.stats() == {**it.stats(), "dead": 0, "available": 1, "oversized": 1}


def test_no_other_xmpp_worker_gets_it_and_a_consumer_of_a_gateway_does() -> None:
    """Also a bare JID stands for XMPP clients."""
    it = world()
    for jid in (ANT, BEE_2):
        it.subscribe(jid, 5)
    it.subscribe("ant@y", 5, by=ANT)
    assert it.item("a").holder == ""
    it.subscribe(LINK)
    assert it.item("a").holder == LINK
    assert it.stats()["oversized"] == 0
    it.unlock("a", LINK)
    it.departed(LINK)
    assert (it.item("a").holder, it.stats()["oversized"]) == ("", 1)
    it.subscribe(OTHER_LINK)
    it.retract("a", OTHER_LINK)
    assert set(it.live()) == {"b"}
    assert it.stats()["oversized"] == 0


def test_a_consumer_that_cannot_handle_it_does_not_get_it_again() -> None:
    """And a worker that cannot handle other items still gets what it can."""
    it = world()
    it.subscribe(LINK)
    it.unlock("a", LINK, "", NOT_HERE, not_here=True)
    assert it.item("a").holder == ""
    it.unlock("b", BEE, "", NOT_HERE, not_here=True)
    assert it.item("b").holder == LINK
    it.subscribe(ANT, 3)
    it.unlock("b", LINK, "", NOT_HERE, not_here=True)
    assert it.item("b").holder == ANT
    assert it.item("a").holder == ""
    it.publish("c")
    assert it.item("c").holder in {ANT, BEE, LINK}
    it.subscribe(OTHER_LINK)
    assert it.item("a").holder == OTHER_LINK


def test_the_better_item_of_two_is_for_the_consumer_and_the_other_for_the_worker() -> (
    None
):
    """Both are free: the item that only one of them can take blocks nothing."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish(entry("a", priority=9))
    unsendable(it, "a")
    it.subscribe(LINK)
    assert it.item("a").holder == LINK
    it.departed(BEE)
    it.unlock("a", LINK)
    it.departed(LINK)
    it.publish(entry("b", priority=1))
    it.subscribe(BEE)
    assert (it.item("a").holder, it.item("b").holder) == ("", BEE)


def test_an_item_of_a_selector_is_for_its_consumer_only() -> None:
    """The items of each selector have heaps of their own."""
    it = World(PLAIN)
    it.subscribe(BEE, 3, selector="JMSPriority > 5")
    it.publish(entry("a", priority=9), entry("b", priority=8), entry("c", priority=1))
    unsendable(it, "a")
    it.subscribe(OTHER_LINK, selector="JMSPriority < 5")
    it.subscribe(LINK, selector="JMSPriority > 8")
    holders = {item.item_id: item.holder for item in it.live().values()}
    assert holders == {"a": LINK, "b": BEE, "c": OTHER_LINK}


def test_when_the_server_takes_more_workers_get_them_again() -> None:
    """None of them twice; an item that cannot be handled by a worker stays away from it."""
    it = World(PLAIN)
    it.subscribe(BEE, 4)
    it.publish("a", "b", "c")
    it.unlock("c", BEE, "", NOT_HERE, not_here=True)
    unsendable(it, "a")
    unsendable(it, "b")
    assert it.stats()["oversized"] == 2
    fit_again(it)
    assert it.item("c").holder == ""
    assert {it.item("a").holder, it.item("b").holder} == {BEE}
    assert it.stats()["oversized"] == 0
    it.retract("a", BEE)
    fit_again(it)
    assert set(it.live()) == {"b", "c"}


def test_a_worker_takes_no_lock_over_that_its_account_has_by_a_gateway() -> None:
    """Its event would be too large as well."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    unsendable(it, "a")
    it.unsubscribe(BEE)
    it.subscribe(LINK_OF_BEE, durable_locks="1")
    assert it.item("a").holder == LINK_OF_BEE
    it.departed(LINK_OF_BEE)
    it.subscribe(BEE, durable_locks="1")
    assert it.item("a").holder == LINK_OF_BEE
    assert it.item("a").durable


def test_a_client_that_looks_like_a_consumer_cannot_keep_it_going_round() -> None:
    """An XMPP client may choose any resource; each round would cost two commits."""
    it = world()
    it.subscribe(LINK)
    unsendable(it, "a")
    (letter,) = it.dead()
    assert [failure.reason for failure in letter.history] == ["rejected: too large"]


def test_workers_beyond_the_bound_of_excluders_get_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The heap of all XMPP workers is there in any case."""
    monkeypatch.setattr(ready_items, "EXCLUDERS_MAX", 1)
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("x")
    it.unlock("x", BEE, "", NOT_HERE, not_here=True)
    it.publish("a")
    unsendable(it, "a")
    it.subscribe(ANT, 5)
    assert it.item("x").holder == ANT
    assert it.item("a").holder == ""
    it.subscribe(LINK)
    assert it.item("a").holder == LINK


def test_nothing_happens_to_an_item_whose_delivery_has_ended() -> None:
    """It may have been given to another worker meanwhile, or its queue be gone."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    token = it.item("a").token
    it.add(it.core.unsendable(BEE, NODE, {"another token"}, "too large", it.now))
    it.add(it.core.unsendable(BEE, "no node", {token}, "too large", it.now))
    it.flush()
    assert (it.item("a").holder, it.item("a").token) == (BEE, token)


def test_what_is_remembered_of_former_items_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A queue may see many of them in its life."""
    monkeypatch.setattr(ready_items, "_SLACK", 3)
    it = world()
    index = ItemIndex(
        Backlog(it.core.nodes[NODE].node, None), it.core.nodes[NODE].live.letters
    )
    ready: ReadyItems = index.ready
    for number in range(100):
        ready.oversize(replace(it.item("a"), seq=number))
    assert len(ready._oversized) <= 4
