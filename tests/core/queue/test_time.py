"""Locks that run out, extensions, ttl and delays; docs/design/queue.md §4 and §5."""

import pytest

from qos.core.queue.effects import NotifyItem, NotifyUnlock
from qos.core.queue.item import ItemOutcome
from qos.core.queue.requests import Configure, Extend, Publish, Requeue
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

NOT_HERE = ItemOutcome.MODIFIED


def test_a_late_worker_is_told_and_its_item_goes_on() -> None:
    """XEP-0254 §4, the third note."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    it.subscribe(ANT)
    it.sent.clear()
    assert it.core.next_at() == 1060.0
    it.wait(60)
    assert [one for one in it.sent if isinstance(one, NotifyUnlock)] == [
        NotifyUnlock(BEE, NODE, ("a",))
    ]
    assert it.given() == [("a", ANT)]
    item = it.item("a")
    assert item.delivery_count == 1
    assert item.history[0].reason == "timed out"


def test_an_extended_lock_ends_later() -> None:
    """The worker is still working."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    token = it.item("a").token
    it.wait(50)
    assert it.extend("a", BEE, token, 100) == 100
    it.wait(99)
    assert it.item("a").token == token
    assert it.extend("a", BEE, token, 0.5) == 1
    it.wait(1)
    assert it.item("a").token == ""


@pytest.mark.parametrize(
    ("item_id", "who", "token", "expected"),
    [
        ("a", BEE, "", ("unexpected-request", "wait", "")),
        ("a", BEE, "stale", ("unexpected-request", "wait", "")),
        ("a", BEE_2, "live", ("conflict", "cancel", "")),
        ("a", STRANGER, "live", ("forbidden", "auth", "")),
        ("a", PUBLISHER, "live", ("forbidden", "auth", "")),
        ("b", BEE, "live", ("forbidden", "auth", "")),
        ("b", BEE, "", ("forbidden", "auth", "")),
        ("c", BEE, "live", ("item-not-found", "cancel", "")),
        ("d", BEE, "", ("unexpected-request", "wait", "")),
    ],
)
def test_an_extension_needs_the_live_token(
    item_id: str, who: str, token: str, expected: tuple[str, str, str]
) -> None:
    """Otherwise a delivery that is over could be extended."""
    it = World({**PLAIN, "queue#backoff": "100"})
    it.subscribe(BEE)
    it.publish("d")
    it.unlock("d", BEE)
    it.publish("a", "b")
    fence = {"live": it.item("a").token}.get(token, token)
    tokens = [(item_id, fence)]
    if item_id != "a":
        tokens.insert(0, ("a", it.item("a").token))
    assert (
        it.refused(Extend(NODE, 500.0, tuple(tokens)), who if item_id == "a" else BEE)
        == expected
    )
    assert it.item("a").deadline == 1060.0


def test_a_durable_lock_can_be_extended_by_its_account() -> None:
    """As it can be settled by it."""
    it = World(PLAIN)
    it.subscribe(BEE, durable_locks="1")
    it.publish("a")
    assert it.extend("a", BEE_2, it.item("a").token, 100) == 100


def test_a_reconfigure_changes_no_running_deadline() -> None:
    """docs/design/queue.md §5.10."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a", entry("b", ttl=500.0))
    it.ask(Configure(NODE, {"queue#lock_timeout": "5", "queue#ttl": "1"}), OWNER)
    it.wait(10)
    assert it.item("a").deadline == 1060.0
    assert it.item("b").expires_at == 1500.0
    it.retract("a", BEE)
    assert it.item("b").deadline == 1015.0


def test_what_is_not_locked_expires_and_what_is_locked_does_not() -> None:
    """docs/design/queue.md §5.4; AMQP would take it away from the worker."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish(entry("a", ttl=5.0), entry("b", ttl=5.0))
    it.wait(5)
    assert set(it.live()) == {"a"}
    assert [item.history[-1].reason for item in it.dead()] == ["expired"]
    it.unlock("a", BEE)
    assert it.live() == {}
    assert it.given() == [("a", BEE)]


def test_a_lock_that_times_out_over_its_ttl_expires() -> None:
    """Both times are over: it is not delivered again."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish(entry("a", ttl=5.0))
    it.wait(60)
    assert it.live() == {}
    assert [failure.reason for failure in it.dead()[0].history] == [
        "timed out",
        "expired",
    ]


def test_a_delay_that_ends_while_the_service_tidies_up_is_not_lost() -> None:
    """Outdated entries are dropped in between.

    A delay that has not been acted on is not.
    """
    it = World(PLAIN)
    it.subscribe(BEE, 1000)
    it.publish(entry("late", delay=50), "a")
    it.now += 50
    for number in range(1500):
        token = it.item("a").token
        request = Extend(NODE, 60 + number / 10_000, (("a", token),))
        it.ask(request, BEE, flush=False)
    it.flush()
    assert it.item("late").holder == BEE


def test_time_passes_everywhere_before_anything_is_given_out() -> None:
    """After a restart: a worker whose lock has timed out in one queue gets nothing.

    Whichever of them comes first.
    """
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("held")
    nodes = [f"other-{number}" for number in range(8)]
    for node in nodes:
        it.create(node, PLAIN)
        it.subscribe(BEE, node=node)
    it.boot()
    for node in nodes:
        it.ask(Publish(node, (entry("a"),)), PUBLISHER, flush=False)
    it.add(it.core.heard(BEE))
    it.told(NotifyItem)
    it.wait(86_400)
    assert it.given() == []


def test_what_comes_and_goes_without_a_worker_leaves_nothing_behind() -> None:
    """Months of items without a consumer must not fill the memory."""
    it = World(PLAIN)
    it.publish("stays", by=OWNER)
    for number in range(1500):
        it.publish(f"i{number}")
        it.retract(f"i{number}", PUBLISHER)
    ready = it.core.nodes[NODE].live.ready
    assert len(ready._all.plain) < 1200
    it.subscribe(BEE)
    assert it.given() == [("stays", BEE)]


def test_an_item_that_excludes_and_is_gone_leaves_nothing_behind() -> None:
    """The sets of excluded workers must not stay either."""
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    it.unlock("a", BEE, "", NOT_HERE, not_here=True)
    it.unsubscribe(BEE)
    it.retract("a", OWNER)
    for number in range(1100):
        it.publish(f"i{number}")
        it.retract(f"i{number}", PUBLISHER)
    ready = it.core.nodes[NODE].live.ready
    assert (ready._all.excluding, ready._excluders, ready._all.own) == ([], {}, {})


def test_moments_of_what_is_gone_are_forgotten() -> None:
    """For example a ttl of a year on each of a million items that were done at once."""
    it = World(PLAIN)
    for number in range(1100):
        it.publish(entry(f"i{number}", ttl=5000.0))
        it.retract(f"i{number}", PUBLISHER)
    assert len(it.core.nodes[NODE].live.timers._heap) < 1010
    it.publish(entry("a", ttl=5000.0))
    it.wait(5000)
    assert [item.item_id for item in it.dead()] == ["a"]


def test_the_deadline_of_a_lock_that_has_ended_wakes_nothing() -> None:
    """A delay that is longer than the rest of the lock is kept."""
    it = World({**PLAIN, "queue#backoff": "100"})
    it.subscribe(BEE)
    it.publish("a")
    it.wait(10)
    it.unlock("a", BEE)
    it.wait(50)
    assert it.item("a").holder == ""
    it.wait(49.9)
    assert it.item("a").holder == ""
    it.wait(0.1)
    assert it.item("a").holder == BEE


def test_a_clock_that_was_set_back_makes_no_delay_where_there_was_none() -> None:
    """Otherwise, after a restart, later items overtake it, and it waits for hours."""
    it = World({**PLAIN, "queue#max_deliveries": "1"})
    it.subscribe(BEE)
    it.publish("again")
    it.wait(60)
    it.unsubscribe(BEE)
    it.ask(Requeue(NODE), OWNER)
    it.publish("first", entry("later", delay=5.0))
    it.now -= 3600
    it.boot()
    it.flush()
    it.publish("second")
    assert (it.stats()["available"], it.stats()["delayed"]) == (3, 1)
    assert it.core.next_at() == 1065.0
    it.subscribe(BEE, 5)
    assert [item_id for item_id, _ in it.given()] == ["again", "first", "second"]
    it.wait(3605)
    it.heard(BEE)
    assert it.item("later").holder == BEE


def test_the_first_acquirer_is_known() -> None:
    """AMQP 1.0 messaging §3.2.1.

    False once a worker has had it, even if it was given back.
    """
    it = World(PLAIN)
    it.subscribe(BEE)
    it.publish("a")
    assert it.item("a").order == 0
    it.unlock("a", BEE)
    assert it.item("a").order > 0
    it.reject("a", BEE)
    it.unsubscribe(BEE)
    it.ask(Requeue(NODE), OWNER)
    assert it.item("a").order == 0
