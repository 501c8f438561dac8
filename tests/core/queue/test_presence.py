"""Workers that come, go and fall silent, and a service that starts again."""

import pytest

from qos.core.queue import presence
from qos.core.queue.bounds import QueueBounds
from qos.core.queue.effects import NotifyItem, NotifySubscription, NotifyUnlock, Probe
from qos.core.queue.item import Affiliation, ItemOutcome, ItemState
from qos.core.queue.requests import (
    Configure,
    Delete,
    Refusal,
    SetAffiliations,
    Subscribe,
)
from queue_world import (
    ANT,
    BEE,
    BEE_2,
    NODE,
    OWNER,
    PLAIN,
    PUBLISHER,
    STRANGER,
    World,
    entry,
)

# -- unavailable presence --------------------------------------------------


def test_unavailable_presence_unlocks_and_unsubscribes() -> None:
    """XEP-0254 §4. It counts as a failure: an item that kills its workers must end."""
    it = World(PLAIN)
    it.subscribe(BEE, 2)
    it.publish("a", "b")
    it.subscribe(BEE_2, 5)
    it.sent.clear()
    it.departed(BEE)
    assert set(it.given()) == {("a", BEE_2), ("b", BEE_2)}
    assert set(it.disk.subscriptions) == {(NODE, BEE_2)}
    assert {item.delivery_count for item in it.live().values()} == {1}
    assert it.item("a").history[0].reason == "gone"
    assert it.item("a").history[0].by == BEE


def test_what_a_worker_had_is_given_out_again_in_the_order_in_which_it_had_it() -> None:
    """The order must not differ from process to process."""
    it = World(PLAIN)
    it.subscribe(BEE, 9)
    names = [f"item-{number}" for number in range(9)]
    it.publish(*names)
    it.sent.clear()
    it.departed(BEE)
    it.subscribe(BEE_2, 9)
    assert it.given() == [(name, BEE_2) for name in names]


def test_the_item_that_killed_so_many_workers_is_dead() -> None:
    """The default outcome counts, up to max_deliveries."""
    it = World({**PLAIN, "queue#max_deliveries": "3"})
    it.publish("poison")
    for number in range(3):
        it.subscribe(f"bee@x/{number}")
        it.departed(f"bee@x/{number}")
    assert it.live() == {}
    assert it.stats()["dead"] == 1


def test_durable_locks_outlive_the_presence_and_not_the_deadline() -> None:
    """AMQP's terminus durability: unsettled-state."""
    it = World(PLAIN)
    it.subscribe(BEE, durable_locks="1")
    it.publish("a")
    token = it.item("a").token
    it.departed(BEE)
    assert it.item("a").token == token
    assert it.disk.subscriptions == {}
    it.boot()
    it.wait(59)
    assert it.item("a").token == token
    it.wait(1)
    assert (it.item("a").token, it.item("a").delivery_count) == ("", 1)


def test_the_bare_subscription_ends_with_its_last_worker() -> None:
    """Another present resource continues it."""
    it = World(PLAIN)
    it.subscribe("bee@x", 5, by=BEE)
    it.heard(BEE_2, available=True)
    it.publish("a", "b")
    it.departed(BEE)
    assert set(it.disk.subscriptions) == {(NODE, "bee@x")}
    assert {item.holder for item in it.live().values()} == {BEE_2}
    it.boot()
    assert it.core.probes() == [Probe(BEE_2)]
    it.departed(BEE_2)
    assert it.disk.subscriptions == {}


def test_the_end_of_a_bare_subscription_is_told() -> None:
    """Some resources of the account may be there, though nothing was heard of them."""
    it = World(PLAIN)
    it.subscribe("bee@x", by=BEE)
    subid = it.disk.subscriptions[NODE, "bee@x"].subid
    it.departed(BEE)
    told = NotifySubscription("bee@x", NODE, "bee@x", subid)
    assert it.told(NotifySubscription) == [told]


def test_a_resource_that_was_no_worker_ends_no_bare_subscription() -> None:
    """After a start nothing was heard of anybody: this says nothing of the others."""
    it = World(PLAIN)
    it.subscribe("bee@x", 5, by=BEE)
    it.boot()
    it.departed(BEE_2)
    assert set(it.disk.subscriptions) == {(NODE, "bee@x")}
    it.departed(BEE)
    assert it.disk.subscriptions == {}


@pytest.mark.parametrize("available", [True, False], ids=["worker", "phone"])
@pytest.mark.parametrize("how", ["silent", "restarted"])
def test_a_bare_subscription_outlives_others_while_its_worker_is_not_heard(
    how: str, available: bool
) -> None:
    """It has not gone, and would not be told that it gets nothing any more."""
    it = World(PLAIN)
    it.subscribe("bee@x", by=BEE)
    it.publish("a")
    if how == "silent":
        it.wait(60)
    else:
        it.boot()
    it.heard(BEE_2, available=available)
    it.departed(BEE_2)
    assert set(it.disk.subscriptions) == {(NODE, "bee@x")}
    it.heard(BEE)
    assert it.item("a").holder == BEE


def test_a_silent_worker_stands_for_the_bare_subscription_when_the_first_goes() -> None:
    """It has not gone, and will be heard of again."""
    it = World(PLAIN)
    it.subscribe("bee@x", 2, by=BEE)
    it.heard(BEE_2, available=True)
    it.publish("a", "b")
    late = next(id_ for id_, item in it.live().items() if item.holder == BEE_2)
    early = next(id_ for id_ in it.live() if id_ != late)
    it.extend(early, BEE, it.item(early).token, 120)
    it.wait(60)
    it.departed(BEE)
    assert it.disk.subscriptions[NODE, "bee@x"].via == BEE_2
    it.heard(BEE_2)
    assert {item.holder for item in it.live().values()} == {BEE_2}


def test_unavailable_presence_of_others_means_nothing() -> None:
    """Accounts without a subscription come and go on a server."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    before = repr(it.disk)
    for jid in (STRANGER, "bee@x/other", "bee@x", ANT):
        it.departed(jid)
        it.heard(jid)
        it.heard(jid, available=True)
    assert repr(it.disk) == before


# -- silence ---------------------------------------------------------------


@pytest.mark.parametrize("how", ["time out", "bounce"])
def test_a_worker_that_failed_to_answer_gets_nothing_until_it_is_heard(
    how: str,
) -> None:
    """docs/design/queue.md §4.6.

    It may be dead, and would use up one delivery after another.
    """
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    (event,) = it.told(NotifyItem)
    if how == "time out":
        it.wait(60)
    else:
        it.bounce(event)
    item = it.item("a")
    assert item.state is ItemState.AVAILABLE
    assert item.delivery_count == (1 if how == "time out" else 0)
    it.publish("b")
    assert it.given() == []
    assert set(it.disk.subscriptions) == {(NODE, BEE)}
    it.heard(BEE_2)
    assert it.given() == []
    it.heard(BEE)
    assert it.given() == [("b", BEE)]


def test_a_silent_resource_of_a_bare_subscription_is_back_with_any_stanza() -> None:
    """It had said that it is available, and has not taken that back."""
    it = World(PLAIN)
    it.subscribe("bee@x", by=BEE)
    it.heard(BEE_2, available=True)
    it.publish("a")
    it.unlock("a", BEE, "", ItemOutcome.MODIFIED, not_here=True)
    assert it.item("a").holder == BEE_2
    it.wait(60)
    assert it.item("a").holder == ""
    it.heard(BEE_2)
    assert it.item("a").holder == BEE_2


@pytest.mark.parametrize("how", ["gone", "no session"])
def test_what_a_silent_resource_had_said_is_not_so_for_ever(how: str) -> None:
    """Unavailable presence ends it, but is lost while there is no session."""
    it = World(PLAIN)
    it.subscribe("bee@x", by=BEE)
    it.heard(BEE_2, available=True)
    it.publish("a")
    it.unlock("a", BEE, "", ItemOutcome.MODIFIED, not_here=True)
    it.wait(60)
    if how == "gone":
        it.departed(BEE_2)
    else:
        it.core.forget_presence()
    it.heard(BEE_2)
    assert it.item("a").holder == ""


def test_a_bounce_takes_back_what_was_in_the_event_and_no_more() -> None:
    """Its other items have arrived."""
    it = World(PLAIN)
    it.subscribe(BEE, 2)
    it.publish("a")
    (event,) = it.told(NotifyItem)
    it.publish("b")
    it.bounce(event)
    assert (it.item("a").holder, it.item("b").holder) == ("", BEE)
    assert it.item("a").releases == 1
    assert [one for one in it.sent if isinstance(one, NotifyUnlock)] == []


def test_a_late_bounce_does_not_touch_a_newer_delivery() -> None:
    """It says nothing about the newer delivery, nor about a node that is gone."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    (event,) = it.told(NotifyItem)
    it.unlock("a", BEE)
    token = it.item("a").token
    it.bounce(event)
    assert it.item("a").token == token
    it.publish("b")
    it.retract("a", BEE)
    assert it.item("b").holder == BEE
    it.ask(Delete(NODE), OWNER)
    it.bounce(event)


def test_a_bounce_of_a_durable_lock_s_event_is_one() -> None:
    """Whichever resource of the account it was sent to."""
    it = World(PLAIN)
    it.subscribe(BEE, durable_locks="1")
    it.publish("a")
    (event,) = it.told(NotifyItem)
    it.bounce(event)
    assert it.item("a").token == ""


def test_a_bounce_can_be_the_end_of_an_item_whose_maximum_was_lowered() -> None:
    """The maximum is compared at each unlock, this one too. Nothing is lost."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    it.fail("a", BEE)
    it.ask(Configure(NODE, {"queue#max_deliveries": "1"}), OWNER)
    it.bounce(it.told(NotifyItem)[-1])
    assert [item.item_id for item in it.dead()] == ["a"]
    assert it.stats()["dead"] == 1


def test_losing_the_right_can_be_the_end_of_an_item_likewise() -> None:
    """See above."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    it.fail("a", BEE)
    it.ask(Configure(NODE, {"queue#max_deliveries": "1"}), OWNER)
    it.ask(SetAffiliations(NODE, {"bee@x": Affiliation.OUTCAST}), OWNER)
    assert [item.item_id for item in it.dead()] == ["a"]


# -- who is listened for ---------------------------------------------------


def test_a_worker_is_heard_however_many_of_its_account_have_spoken() -> None:
    """A publisher with ever new resources must not make the service deaf."""
    it = World(PLAIN)
    it.subscribe("bee@x/old")
    for number in range(150):
        it.publish(f"i{number}", by=f"bee@x/cli{number}")
    it.subscribe(BEE)
    it.sent.clear()
    it.publish("a")
    assert len(it.core.presence.present["bee@x"]) == 2
    assert it.item("i1").holder == BEE


def test_of_too_many_resources_the_latest_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bare subscription listens to all resources; their number must be limited."""
    monkeypatch.setattr(presence, "_RESOURCES_MAX", 3)
    it = World(PLAIN)
    it.subscribe("bee@x", 100, by="bee@x/0")
    for number in range(1, 5):
        it.heard(f"bee@x/{number}", available=True)
    assert list(it.core.presence.present["bee@x"]) == ["bee@x/2", "bee@x/3", "bee@x/4"]


@pytest.mark.parametrize("last", ["settled", "timed out", "purged"])
def test_a_node_that_is_gone_troubles_nobody_who_worked_there(last: str) -> None:
    """One wrong refusal would shut the account out of the whole service."""
    it = World(PLAIN)
    it.create("other", PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    it.unsubscribe(BEE)
    if last == "settled":
        it.retract("a", BEE)
    elif last == "timed out":
        it.wait(60)
    it.ask(Delete(NODE), OWNER)
    it.departed(BEE)
    it.heard(BEE_2)
    it.subscribe(BEE, node="other")
    it.publish("b", node="other")
    assert it.live("other")["b"].holder == BEE


def test_presence_wakes_the_bare_subscription() -> None:
    """A resource that has only published so far becomes a worker."""
    it = World(PLAIN)
    it.subscribe("bee@x", 5, by=BEE)
    it.departed(ANT)
    it.boot()
    it.heard(BEE_2)
    it.publish("a")
    assert it.given() == []
    it.heard(BEE_2, available=True)
    assert it.given() == [("a", BEE_2)]
    it.heard(BEE_2, available=True)
    it.heard(BEE_2)
    assert it.given() == []


# -- a start ---------------------------------------------------------------


def test_after_a_start_locks_have_their_deadlines_and_tokens() -> None:
    """docs/design/queue.md §4.5."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    before = it.item("a")
    it.now += 30
    it.boot()
    it.flush()
    assert it.item("a") == before
    assert it.core.next_at() == 1060.0
    it.retract("a", BEE, before.token)
    assert it.live() == {}


def test_after_a_start_subscribers_are_asked_whether_they_are_there() -> None:
    """By full JID; for a bare JID, the resource that had subscribed."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.subscribe("ant@y", by=ANT)
    it.boot()
    assert it.core.probes() == [Probe(ANT), Probe(BEE)]


def test_after_a_start_nobody_gets_anything_until_it_is_heard() -> None:
    """Presence is not known; later the same token is sent again, and new ones."""
    it = World(PLAIN)
    it.subscribe(BEE, 2)
    it.publish("a")
    token = it.item("a").token
    it.boot()
    it.publish("b")
    assert it.given() == []
    it.heard(BEE)
    sent = {one.item.item_id: one.item.token for one in it.told(NotifyItem)}
    assert sent["a"] == token
    assert sent.keys() == {"a", "b"}
    it.heard(BEE)
    assert it.given() == []


def test_what_it_holds_is_sent_again_though_it_has_unsubscribed() -> None:
    """A lock outlives the subscription (docs/design/queue.md §1.9), and a restart."""
    it = World(PLAIN)
    it.subscribe(BEE, 2)
    it.publish("a", "b")
    it.unsubscribe(BEE)
    it.boot()
    it.heard(BEE)
    assert set(it.given()) == {("a", BEE), ("b", BEE)}
    assert it.told(NotifyItem) == []


def test_what_ended_while_the_service_was_down_is_not_given_out() -> None:
    """The first worker that is heard of must not get an item that has ended."""
    it = World(PLAIN)
    it.subscribe(BEE, 5)
    it.publish("locked")
    it.publish(entry("short", ttl=5.0, delay=1.0), entry("later", delay=7.0))
    it.now += 61
    it.boot()
    it.heard(BEE)
    assert set(it.live()) == {"locked", "later"}
    assert it.item("locked").token == ""
    assert [item.item_id for item in it.dead()] == ["short"]
    it.heard(BEE)
    assert set(it.given()) == {("locked", BEE), ("later", BEE)}


def test_order_goes_on_after_a_start() -> None:
    """Redeliveries stay behind, and in their order; ids and seqs are never reused."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a", "b", "c")
    it.unlock("a", BEE)
    it.unlock("b", BEE)
    it.retract("c", BEE)
    it.boot()
    it.publish("d")
    assert it.item("d").seq == 4
    it.heard(BEE)
    order = []
    while held := [item for item in it.live().values() if item.holder == BEE]:
        order.append(held[0].item_id)
        it.retract(held[0].item_id, BEE)
    assert order[-2:] == ["d", "b"] or order == ["a", "d", "b"]


def test_nothing_is_waited_for_in_an_empty_service() -> None:
    """An empty service needs no timer."""
    it = World(PLAIN)
    assert it.core.next_at() is None
    it.publish("a")
    assert it.core.next_at() is None
    it.publish(entry("b", ttl=5.0))
    it.publish(entry("c", ttl=3.0))
    assert it.core.next_at() == 1003.0
    it.ask(Delete(NODE), OWNER)
    assert it.core.next_at() is None


def test_all_wakes_that_are_due_are_served_at_once() -> None:
    """Several nodes, and letters from one to the other."""
    it = World()
    it.create("graves", PLAIN)
    it.create(NODE, {**PLAIN, "queue#dead_letter_node": "graves"})
    it.publish(entry("a", ttl=5.0))
    it.publish(entry("b", ttl=5.0), entry("c", ttl=7.0), node="graves")
    it.wait(5)
    assert set(it.live("graves")) == {"c", "orders/a"}
    assert [item.item_id for item in it.dead("graves")] == ["b"]
    assert it.core.next_at() == 1007.0


def test_stats_say_what_there_is() -> None:
    """Only to accounts that may see the node."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a", "b", entry("c", delay=9.0))
    it.retract("a", BEE)
    it.unlock("b", BEE)
    it.now += 2
    assert it.stats() == {
        "available": 0,
        "acquired": 1,
        "delayed": 1,
        "dead": 0,
        "accepted": 1,
        "subscribers": 1,
        "oldest_seconds": 2.0,
        "bytes": 16,
        "excluded": 0,
        "unmatched": 0,
        "oversized": 0,
        "releases_most": 0,
        "missed": 0,
        "repeated": 0,
    }
    it.ask(Configure(NODE, {"pubsub#access_model": "whitelist"}), OWNER)
    with pytest.raises(Refusal, match="there is no node 'orders'"):
        it.core.stats(NODE, STRANGER, it.now)
    it.ask(SetAffiliations(NODE, {"shop@x": Affiliation.PUBLISHER}), OWNER)
    assert it.core.stats(NODE, PUBLISHER, it.now)["subscribers"] == 0
    request = Subscribe("none", BEE, {"pubsub#queue_requests": "1"})
    assert it.refused(request, BEE) == ("item-not-found", "cancel", "")


# -- dormant subscriptions -------------------------------------------------

DAY_S = 24 * 3600.0


def restarted(*jids: str) -> World:
    """A service that has started again, for workers that were there before."""
    it = World(PLAIN)
    for jid in jids:
        it.subscribe(jid)
    it.boot()
    return it


def test_the_subscription_of_who_has_gone_unheard_ends_after_a_day() -> None:
    """Otherwise it would never end, and would lock its account out in time."""
    it = restarted(BEE, ANT)
    it.absent(BEE)
    assert it.stats()["subscribers"] == 1
    assert it.disk.subscriptions[NODE, BEE].dormant_since == it.now
    assert it.core.next_at() == it.now + DAY_S
    it.wait(DAY_S - 1)
    it.boot()
    assert set(it.disk.subscriptions) == {(NODE, BEE), (NODE, ANT)}
    it.wait(1)
    assert set(it.disk.subscriptions) == {(NODE, ANT)}
    assert it.core.next_at() is None
    # This resource had no subscription any more.
    it.heard(BEE)
    assert "bee@x" not in it.core.presence.present


def test_each_dormant_subscription_ends_in_its_time() -> None:
    """Whichever became dormant first."""
    it = restarted(BEE, ANT, BEE_2)
    it.absent(ANT)
    it.wait(10)
    it.absent(BEE)
    it.wait(DAY_S - 10)
    assert set(it.disk.subscriptions) == {(NODE, BEE), (NODE, BEE_2)}
    it.wait(10)
    assert set(it.disk.subscriptions) == {(NODE, BEE_2)}


@pytest.mark.parametrize("jid", [BEE, "bee@x"])
def test_a_dormant_subscription_is_as_before_when_its_holder_is_heard_of(
    jid: str,
) -> None:
    """A probe that fails proves nothing: a living client without ping fails it too."""
    it = World(PLAIN)
    it.subscribe(jid, by=BEE)
    it.boot()
    it.absent(BEE)
    it.publish("a")
    assert (it.stats()["subscribers"], it.given()) == (0, [])
    it.heard(BEE)
    assert (it.stats()["subscribers"], it.given()) == (1, [("a", BEE)])
    it.wait(2 * DAY_S)
    assert it.disk.subscriptions[NODE, jid].dormant_since is None


def test_a_probe_that_fails_after_its_holder_was_heard_of_means_nothing() -> None:
    """The probe is from the start, and the news is newer.

    The worker may be silent by now.
    """
    it = restarted(BEE)
    it.heard(BEE)
    it.absent(BEE)
    assert it.stats()["subscribers"] == 1
    it.publish("a")
    it.wait(60)
    it.absent(BEE)
    assert it.stats()["subscribers"] == 1


def test_a_bare_subscription_is_dormant_if_nobody_was_heard_of_by_which_it_works() -> (
    None
):
    """A probe of another resource has no effect, nor has one while another resource
    works.
    """
    it = World(PLAIN)
    it.subscribe("bee@x", by=BEE)
    it.subscribe(BEE_2)
    it.boot()
    it.absent(BEE_2)
    assert it.disk.subscriptions[NODE, "bee@x"].dormant_since is None
    it.heard(BEE_2, available=True)
    it.absent(BEE)
    assert it.disk.subscriptions[NODE, "bee@x"].dormant_since is None
    it.departed(BEE_2)
    it.absent(BEE)
    assert it.disk.subscriptions[NODE, "bee@x"].dormant_since is not None
    # A publisher of the account, for example, does not work.
    it.heard("bee@x/3")
    assert it.disk.subscriptions[NODE, "bee@x"].dormant_since is not None


def test_unavailable_presence_ends_a_dormant_subscription_at_once() -> None:
    """As it ends any other subscription."""
    it = restarted(BEE)
    it.absent(BEE)
    it.departed(BEE)
    assert it.disk.subscriptions == {}


def test_dormant_subscriptions_take_no_room_of_their_account() -> None:
    """Workers with random resources leave while the service is away, again and again."""
    it = World(PLAIN, bounds=QueueBounds(subscriptions_per_account=2))
    request = {"pubsub#queue_requests": "1"}
    for number in range(5):
        for worker in range(2):
            it.subscribe(f"bee@x/{number}-{worker}")
        it.boot()
        for worker in range(2):
            it.absent(f"bee@x/{number}-{worker}")
    it.subscribe(BEE)
    it.subscribe(BEE_2)
    full = ("policy-violation", "wait", "too-many-subscriptions")
    third = Subscribe(NODE, "bee@x/3", request)
    assert it.refused(third, BEE) == full
    # A worker that comes back is accepted, and counts again.
    it.departed(BEE)
    it.subscribe("bee@x/0-0")
    assert it.refused(third, BEE_2) == full


def test_an_item_that_excludes_all_but_the_dormant_is_stuck() -> None:
    """Dormant workers would not take it either."""
    it = restarted(BEE, ANT)
    it.heard(ANT)
    it.publish("a")
    it.unlock("a", ANT, "", ItemOutcome.MODIFIED, not_here=True)
    assert it.stats()["excluded"] == 0
    it.absent(BEE)
    assert it.stats()["excluded"] == 1
