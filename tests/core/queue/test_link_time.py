"""When the lock of an XMPP worker may end, by what the connection of the service brings."""

from __future__ import annotations

from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.item import Item
from qos.core.queue.link_time import LOOK_S, LinkTime
from qos.core.queue.requests import Configure
from queue_world import BEE, BEE_2, NODE, OWNER, PLAIN, World

LOCK_S = 10.0
KIM = consumer_jid("kim@x", "amqp", "0" * 32)


def locked(holder: str, deadline: float) -> Item:
    return Item(
        seq=1,
        node=NODE,
        item_id="a",
        publisher="shop@x",
        digest="",
        size=0,
        published_at=0.0,
        available_at=0.0,
        holder=holder,
        deadline=deadline,
    )


def world() -> World:
    """A worker has the item `a`."""
    it = World({**PLAIN, "queue#lock_timeout": f"{LOCK_S:g}"})
    it.subscribe(BEE, 1)
    it.publish("a")
    return it


def test_without_a_word_about_the_connection_a_lock_ends_in_time() -> None:
    """An engine that knows nothing of it, as in tests of other things."""
    link = LinkTime()
    assert link.is_over(locked(BEE, 10.0), 10.0)
    assert not link.in_doubt


def test_a_lock_ends_when_something_has_come_after_its_deadline() -> None:
    link = LinkTime()
    assert not link.heard(9.0, 10.0)
    assert not link.is_over(locked(BEE, 10.0), 10.0)
    assert link.in_doubt
    assert link.is_over(locked(KIM, 10.0), 10.0)
    assert not link.heard(9.0, 11.0)
    assert not link.is_over(locked(BEE, 10.0), 11.0)
    assert not link.heard(11.5, 11.6)
    assert not link.in_doubt
    assert link.is_over(locked(BEE, 10.0), 11.6)


def test_a_server_that_does_not_answer_in_time_was_away() -> None:
    link = LinkTime()
    link.heard(9.0, 10.0)
    link.is_over(locked(BEE, 10.0), 10.0)
    assert not link.heard(9.0, 13.0)
    assert link.lost_at == 9.0
    assert not link.heard(9.0, 14.0)
    assert link.heard(20.0, 20.0)
    link.back(20.0)
    assert not link.in_doubt
    assert link.is_over(locked(BEE, 10.0), 20.0)


def test_while_the_session_is_lost_nothing_that_comes_counts() -> None:
    """A stream that begins and fails has no stanzas of workers."""
    link = LinkTime()
    link.lost(5.0)
    link.lost(7.0)
    assert not link.heard(30.0, 30.0)
    assert link.lost_at == 5.0
    assert link.is_over(locked(BEE, 4.0), 30.0)
    assert not link.is_over(locked(BEE, 6.0), 30.0)
    assert link.is_over(locked(KIM, 6.0), 30.0)
    assert not link.in_doubt


def test_a_session_that_is_lost_in_a_silence_is_lost_since_the_silence_began() -> None:
    link = LinkTime()
    link.heard(9.0, 10.0)
    link.is_over(locked(BEE, 10.0), 10.0)
    link.heard(9.0, 13.0)
    link.lost(12.0)
    assert not link.heard(20.0, 20.0)
    assert link.lost_at == 9.0


def test_a_process_tells_the_next_one_until_when_workers_were_heard() -> None:
    """What it has given back itself is over for the next one."""
    link = LinkTime()
    assert link.heard_at(5.0) == 5.0
    link.lost(6.0)
    assert link.heard_at(30.0) == 6.0
    link.back(40.0)
    assert link.heard_at(6.0) == 40.0
    assert link.heard_at(41.0) == 41.0


def test_a_lock_in_doubt_is_looked_at_again_soon() -> None:
    it = world()
    it.core.link.heard(it.now, it.now)
    heard_at = it.now
    it.now += LOCK_S
    it.core.link.heard(heard_at, it.now)
    it.add(it.core.dispatch(it.now))
    at = it.core.next_at()
    assert at == it.now + LOOK_S
    # Many changes clear the timers up: this one stays.
    it.subscribe(BEE_2, 1)
    it.publish("b")
    for number in range(1500):
        it.extend("b", BEE_2, it.item("b").token, LOCK_S + number)
    it.now = at
    it.core.link.heard(it.now, it.now)
    it.add(it.core.dispatch(it.now))
    assert it.item("a").delivery_count == 1


def test_locks_move_by_what_was_lost_and_those_of_gateways_do_not() -> None:
    it = world()
    it.subscribe(KIM, 1, durable_locks="1")
    it.subscribe("bee@x/9", 1, durable_locks="1")
    it.publish("b", "c")
    before = it.live()
    it.core.link.lost(it.now)
    it.now += 100.0
    it.add(it.core.link_back(it.now))
    it.commit()
    for item_id, item in it.live().items():
        lost_s = 0.0 if item.holder == KIM else 100.0
        assert item.deadline - before[item_id].deadline == lost_s
        assert item.locked_at - before[item_id].locked_at == lost_s
    assert it.core.link_back(it.now) == []


def test_a_node_without_locks_is_left_alone() -> None:
    it = World(PLAIN)
    it.core.link.lost(it.now)
    it.ask(Configure(NODE, {}), OWNER)
    assert it.core.link_back(it.now + 1.0) == []
