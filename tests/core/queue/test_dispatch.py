"""Dispatch: which worker gets which item, and when; docs/design/queue.md §4."""

import pytest

from qos.core.queue import stats
from qos.core.queue.effects import NotifyItem
from qos.core.queue.item import ItemOutcome, ItemState
from qos.core.queue.requests import Configure, SetOptions
from queue_world import (
    ANT,
    BEE,
    BEE_2,
    NODE,
    OWNER,
    PLAIN,
    World,
    entry,
    retraction,
)

NOT_HERE = ItemOutcome.MODIFIED


def drain(it: World, jid: str) -> list[str]:
    """Take all items, one after the other; returns the order."""
    order = []
    while held := [item for item in it.live().values() if item.holder == jid]:
        order.append(held[0].item_id)
        it.retract(held[0].item_id, jid)
    return order


# -- order -----------------------------------------------------------------


def test_first_deliveries_are_in_the_order_of_publishing_within_a_priority() -> None:
    """This is the usual meaning of a queue."""
    it = World(PLAIN)
    it.publish("a", entry("b", priority=9), entry("c", priority=0), "d")
    it.publish(entry("e", priority=9))
    it.subscribe(BEE)
    assert drain(it, BEE) == ["b", "e", "a", "d", "c"]


def test_all_ten_priorities_are_distinct() -> None:
    """AMQP 1.0 messaging §3.2.1."""
    it = World(PLAIN)
    it.publish(*(entry(str(n), priority=n) for n in (3, 0, 9, 5, 1, 8, 2, 7, 4, 6)))
    it.subscribe(BEE)
    assert drain(it, BEE) == list("9876543210")


def test_a_redelivery_goes_behind_the_first_deliveries_of_its_priority() -> None:
    """One that fails again and again must not hold up the rest."""
    it = World(PLAIN)
    it.publish("a", "b", entry("low", priority=1))
    it.subscribe(BEE)
    it.unlock("a", BEE)
    assert it.item("b").holder == BEE
    it.unlock("b", BEE)
    assert drain(it, BEE) == ["a", "b", "low"]


def test_a_delayed_item_takes_its_place_when_its_time_has_come() -> None:
    """A delay does not change the priority."""
    it = World(PLAIN)
    it.publish(entry("a", delay=10.0), "b", "c")
    it.subscribe(BEE)
    assert it.item("b").holder == BEE
    it.wait(10)
    it.retract("b", BEE)
    assert it.item("a").holder == BEE


def test_a_delayed_item_comes_by_itself() -> None:
    """The service wakes up for it."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish(entry("a", delay=10.0))
    assert it.core.next_at() == 1010.0
    it.wait(9.9)
    assert it.given() == []
    it.wait(0.1)
    assert it.given() == [("a", BEE)]


# -- who -------------------------------------------------------------------


def test_one_subscriber_gets_an_item_and_never_more_than_it_wants() -> None:
    """XEP-0254 §2.2 and `queue_requests`."""
    it = World(PLAIN)
    it.subscribe(BEE, 2)
    it.subscribe(ANT, 1)
    it.publish(*"abcde")
    given = it.given()
    assert len({item_id for item_id, _ in given}) == len(given) == 3
    assert sorted(jid for _, jid in given) == [ANT, BEE, BEE]


def test_the_least_loaded_is_next_and_then_it_goes_round() -> None:
    """No worker waits while another has more items."""
    it = World(PLAIN)
    workers = (BEE, BEE_2, ANT)
    for jid in workers:
        it.subscribe(jid, 10)
    it.publish("a")
    it.publish("b")
    it.publish("c")
    first = [jid for _, jid in it.given()]
    assert sorted(first) == sorted(workers)
    it.retract("b", first[1])
    it.publish("d")
    assert it.given() == [("d", first[1])]
    for item_id in "acd":
        it.retract(item_id, it.item(item_id).holder)
    order = []
    for item_id in "efghij":
        it.publish(item_id)
        order += [jid for _, jid in it.given()]
        it.retract(item_id, order[-1])
    assert order[:3] == order[3:]
    assert sorted(order[:3]) == sorted(workers)


@pytest.mark.parametrize("how", ["unlock", "fail", "time out"])
def test_not_the_one_that_just_had_it_if_there_is_another(how: str) -> None:
    """XEP-0254 §2.4: to another subscriber."""
    it = World(PLAIN)
    it.subscribe(BEE, 5)
    it.publish("a")
    it.subscribe(ANT, 5)
    it.publish("b")
    assert it.item("b").holder == ANT
    if how == "unlock":
        it.unlock("a", BEE)
    elif how == "fail":
        it.fail("a", BEE)
    else:
        it.extend("b", ANT, it.item("b").token, 1000)
        it.wait(60)
    assert it.item("a").holder == ANT


def test_alone_it_gets_it_again() -> None:
    """Otherwise a queue with one worker would stand still."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.subscribe(ANT)
    it.publish("a", "b")
    mine = next(item.item_id for item in it.live().values() if item.holder == BEE)
    it.unlock(mine, BEE)
    assert it.item(mine).holder == BEE


def test_an_item_is_not_for_whom_it_cannot_be_handled_by() -> None:
    """AMQP 1.0 messaging §3.4.5: undeliverable-here."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a", "b")
    it.unlock("a", BEE, "", NOT_HERE, not_here=True)
    assert it.item("b").holder == BEE
    it.retract("b", BEE)
    assert it.item("a").holder == ""
    assert it.stats()["excluded"] == 1
    it.subscribe(BEE_2)
    assert it.item("a").holder == BEE_2
    assert it.stats()["excluded"] == 0
    it.fail("a", BEE_2)
    it.unlock("a", BEE_2, "", NOT_HERE, failed=True, not_here=True)
    assert it.item("a").delivery_count == 2
    it.unsubscribe(BEE)
    assert it.stats()["excluded"] == 1
    it.unsubscribe(BEE_2)
    assert it.stats()["excluded"] == 0


def test_stuck_items_are_counted_among_so_many_sets_of_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With more of them the number is unknown: to find it would hold others up."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    it.unlock("a", BEE, "", NOT_HERE, not_here=True)
    assert it.stats()["excluded"] == 1
    monkeypatch.setattr(stats, "EXCLUDING_MAX", 0)
    assert it.stats()["excluded"] is None


def test_the_excluded_one_is_passed_over_and_gets_the_next() -> None:
    """Two items that exclude different workers must not block each other."""
    it = World(PLAIN)
    it.subscribe(BEE, 2)
    it.publish("a")
    it.unlock("a", BEE, "", NOT_HERE, not_here=True)
    it.publish("b", "c", "d")
    assert {item.item_id for item in it.live().values() if item.holder} == {"b", "c"}
    it.subscribe(ANT)
    assert it.item("d").holder == ANT
    it.retract("d", ANT)
    assert it.item("a").holder == ANT


def test_a_better_item_for_another_does_not_go_to_the_one_it_excludes() -> None:
    """The heaps for different exclusions are compared with each other."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish(entry("a", priority=9))
    it.unlock("a", BEE, "", NOT_HERE, not_here=True)
    it.subscribe(ANT)
    assert it.item("a").holder == ANT
    it.unlock("a", ANT)
    it.departed(ANT)
    it.publish(entry("b", priority=1))
    assert it.item("b").holder == BEE
    it.subscribe(ANT)
    assert it.item("a").holder == ANT


# -- bare subscriptions ----------------------------------------------------


def test_a_bare_subscription_is_served_by_resource() -> None:
    """Row 6: the server would route an event to a bare JID as it likes."""
    it = World(PLAIN)
    it.subscribe("bee@x", 2, by=BEE)
    it.publish("a")
    assert it.given() == [("a", BEE)]
    it.heard(BEE_2, available=True)
    it.publish("b")
    assert it.given() == [("b", BEE_2)]
    it.publish("c")
    assert it.given() == []


def test_a_resource_that_only_publishes_gets_nothing() -> None:
    """It may ignore events.

    Available presence or subscribing shows that it does not.
    """
    it = World(PLAIN)
    it.subscribe("bee@x", 5, by=BEE)
    it.publish(*"abcd", by=BEE_2)
    assert {jid for _, jid in it.given()} == {BEE}


def test_a_bare_subscription_passes_on_what_one_resource_gives_back() -> None:
    """As between two subscribers."""
    it = World(PLAIN)
    it.subscribe("bee@x", 5, by=BEE)
    it.heard(BEE_2, available=True)
    it.publish("a")
    first = it.item("a").holder
    it.unlock("a", first, "", NOT_HERE, not_here=True)
    second = it.item("a").holder
    assert {first, second} == {BEE, BEE_2}
    it.unlock("a", second, "", NOT_HERE, not_here=True)
    assert it.item("a").holder == ""
    assert it.stats()["excluded"] == 1


# -- locks -----------------------------------------------------------------


def test_a_lock_says_all_in_the_commit_that_makes_it() -> None:
    """Token, holder, receivers, count and deadline; and the event goes out after."""
    it = World(PLAIN)
    it.subscribe(BEE, batch="7", events="acknowledged")
    it.publish("a")
    (event,) = it.told(NotifyItem)
    item = event.item
    assert it.disk.items[item.seq] == item
    assert (event.to, event.batch, event.acknowledged) == (BEE, 7, True)
    assert (item.state, item.holder, item.last_holder) == (ItemState.ACQUIRED, BEE, BEE)
    assert item.token.startswith("id-")
    assert item.receivers == {"bee@x"}
    assert (item.locked_at, item.deadline) == (1000.0, 1060.0)
    assert it.core.is_live(event)
    it.retract("a", BEE)
    assert not it.core.is_live(event)


def test_each_delivery_has_a_token_of_its_own() -> None:
    """Otherwise a late retract would end a later delivery."""
    it = World({**PLAIN, "queue#max_deliveries": "100"})
    it.subscribe(BEE)
    it.publish("a")
    tokens = [it.item("a").token]
    for _ in range(20):
        it.fail("a", BEE)
        tokens.append(it.item("a").token)
    assert len(set(tokens)) == 21


def test_an_event_whose_lock_has_ended_is_not_sent() -> None:
    """Its token would be worthless."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.ask(Configure(NODE, {}), OWNER)
    it.publish("a")
    it.sent.clear()
    it.waiting.append(NotifyItem(BEE, it.item("a")))
    it.ask(retraction("a"), BEE)
    assert it.given() == []


def test_locks_are_counted_by_holder_whatever_became_of_its_subscription() -> None:
    """Otherwise unsubscribing and subscribing again would be a way to get more items."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a", "b")
    it.unsubscribe(BEE)
    it.subscribe(BEE)
    assert it.item("b").holder == ""
    it.retract("a", BEE)
    assert it.item("b").holder == BEE


def test_two_of_one_account_are_counted_each_for_itself() -> None:
    """Giving an item back makes room for that worker only."""
    it = World(PLAIN)
    it.subscribe(BEE, 2)
    it.subscribe(BEE_2)
    it.publish("a", "b", "c")
    held = {item.item_id: item.holder for item in it.live().values()}
    for item_id in [each for each, jid in held.items() if jid == BEE]:
        it.retract(item_id, BEE)
    it.publish("d", "e", "f")
    assert [jid for _, jid in it.given()][3:] == [BEE, BEE]


def test_durable_locks_are_counted_by_account() -> None:
    """The next worker of the account takes them over."""
    it = World(PLAIN)
    it.subscribe(BEE, 2, durable_locks="1")
    it.publish("a", "b", "c")
    it.departed(BEE)
    assert {item.holder for item in it.live().values()} == {BEE, ""}
    it.subscribe(BEE_2, 2, durable_locks="1")
    assert it.item("c").holder == ""
    it.retract("a", BEE_2, it.item("a").token)
    assert it.item("c").holder == BEE_2


def test_durable_locks_of_another_resource_are_not_counted_for_who_wants_none() -> None:
    """Otherwise it would wait although it has no items and will never get these."""
    it = World(PLAIN)
    it.subscribe(BEE, durable_locks="1")
    it.publish("a")
    it.subscribe(BEE_2)
    it.publish("b", "c")
    assert it.given() == [("a", BEE), ("b", BEE_2)]


def test_a_durable_lock_is_counted_for_its_holder_whatever_it_wants_now() -> None:
    """Changing the options gives no right to more items."""
    it = World(PLAIN)
    it.subscribe(BEE, durable_locks="1")
    it.publish("a", "b")
    it.subscribe(BEE)
    assert it.item("b").holder == ""
    it.retract("a", BEE)
    assert it.item("b").holder == BEE


def test_who_subscribes_for_two_gets_no_more_than_each_wants() -> None:
    """A full and a bare subscription of one account see each other's locks."""
    it = World(PLAIN)
    it.subscribe("bee@x", 1, by=BEE)
    it.subscribe(BEE, 1)
    it.publish("a", "b", "c")
    assert len(it.given()) == 1
    it.subscribe(BEE_2, 1)
    it.subscribe("bee@x", 3, by=BEE)
    assert {item.holder for item in it.live().values()} == {BEE, BEE_2}


def test_a_wish_that_is_changed_holds_from_then_on() -> None:
    """XEP-0060 §6.3: a worker changes its options when it can do more."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a", "b", "c")
    it.ask(SetOptions(NODE, BEE, {"pubsub#queue_requests": "2"}), BEE)
    assert [item_id for item_id, _ in it.given()] == ["a", "b"]
    it.ask(SetOptions(NODE, BEE, {"queue#batch": "3"}), BEE)
    assert it.core.nodes[NODE].subscriptions[BEE].queue_requests == 2
