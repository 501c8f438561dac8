"""A queue that is deeper than its memory: what lies behind its head is on disk only."""

from __future__ import annotations

from typing import Any

import pytest

from deep_queue import COUNT, deep, is_due, queue_of
from qos.core.queue import backlog, item_index, timers
from qos.core.queue.contents import PlainItems
from qos.core.queue.item import ItemOutcome
from qos.core.queue.requests import Items, Publish, Purge, Requeue
from qos.core.queue.results import ItemsResult, PublishResult
from qos.core.record import replace
from queue_world import (
    ANT,
    BEE,
    BEE_2,
    NODE,
    OWNER,
    PLAIN,
    PUBLISHER,
    World,
    entry,
    retraction,
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few items are a deep queue here: it keeps 4 to 8 of them in memory, and reads 3."""
    monkeypatch.setattr(item_index, "HEAD", 4)
    monkeypatch.setattr(backlog, "READ", 3)


def browsed(it: World, **wish: Any) -> tuple[list[str], int | None]:
    """The ids of a page of the items that live, and how many there are."""
    result = it.ask(replace(Items(node=NODE), **wish), OWNER)
    assert isinstance(result, ItemsResult)
    return [item.item_id for item in result.items], result.count


def test_memory_has_the_head_alone_and_the_counts_have_all() -> None:
    """The purpose: a backlog costs disk."""
    it = deep()
    assert len(queue_of(it).items) <= 8
    assert queue_of(it).live.count == COUNT
    assert it.stats()["available"] == COUNT
    assert it.stats()["bytes"] == sum(len(f"<x>i{each}</x>") for each in range(COUNT))
    it.boot()
    assert len(queue_of(it).items) == 0
    assert it.stats()["available"] == COUNT
    assert it.stats()["oldest_seconds"] == 0.0


@pytest.mark.parametrize("booted", [False, True])
def test_workers_get_all_of_it_in_order(booted: bool) -> None:
    """Nothing is lost, doubled or overtaken on its way from the disk."""
    it = deep()
    if booted:
        it.boot()
    it.subscribe(BEE, 1)
    it.subscribe(ANT, 2)
    expected = [f"i{number}" for number in range(COUNT)]
    given: list[str] = []
    for number, item_id in enumerate(expected):
        given += [item_id for item_id, _ in it.given()]
        assert given == expected[: number + 3]
        assert len(queue_of(it).items) <= 3 + 8
        it.retract(item_id, it.item(item_id).holder)
    assert it.live() == {}
    assert it.disk.items == {}


def test_a_priority_goes_before_what_is_in_memory_and_behind_it() -> None:
    """The place of an item is its own, wherever the head ends."""
    it = deep()
    it.publish(entry("low", priority=0), entry("high", priority=9))
    it.publish(*(entry(f"h{number}", priority=9) for number in range(12)))
    it.boot()
    it.publish(entry("h12", priority=9), entry("top", priority=9))
    it.subscribe(BEE, 100)
    high = ["high", *(f"h{number}" for number in range(13)), "top"]
    usual = [f"i{number}" for number in range(COUNT)]
    assert [item_id for item_id, _ in it.given()] == [*high, *usual, "low"]


def test_what_is_given_back_comes_after_what_was_never_given() -> None:
    """It waits for its turn where they do."""
    it = deep()
    it.subscribe(BEE, 1)
    it.unlock("i0", BEE)
    it.wait(1.0)
    assert "i0" not in queue_of(it).items
    for number in range(1, COUNT):
        it.retract(f"i{number}", BEE)
    assert it.given()[-1] == ("i0", BEE)


def test_what_excludes_a_worker_comes_after_what_was_never_given() -> None:
    """It is in memory, and those that are on disk come first."""
    it = deep()
    it.subscribe(BEE, 1)
    it.unlock("i0", BEE, not_here=True)
    assert "i0" in queue_of(it).items
    it.unsubscribe(BEE)
    it.subscribe(ANT, 100)
    seen = [item_id for item_id, by in it.given() if by == ANT]
    assert seen[-1] == "i0"
    assert len(seen) == COUNT - 1, "all but the one that is not settled"


def test_an_item_that_is_too_large_for_workers_is_there_once() -> None:
    """It stays in memory, where alone this is known."""
    it = deep()
    it.subscribe(BEE, 1)
    it.add(it.core.unsendable(BEE, NODE, [it.item("i0").token], "too large", it.now))
    it.flush()
    assert "i0" in queue_of(it).items
    it.subscribe(ANT, 100)
    assert len(it.given()) == COUNT
    assert queue_of(it).live.count == COUNT
    assert it.stats()["oversized"] == 1
    assert it.stats()["bytes"] == sum(item.size for item in it.live().values())


def test_an_excluded_worker_goes_on_with_what_is_on_disk() -> None:
    """A worker that can take nothing in memory is not starved by it."""
    it = deep()
    it.subscribe(BEE, 1)
    for number in range(COUNT):
        it.unlock(f"i{number}", BEE, not_here=True)
    assert [item_id for item_id, _ in it.given()] == [f"i{n}" for n in range(COUNT)]
    it.subscribe(BEE_2, 1)
    assert it.given()[-1] == ("i0", BEE_2)


@pytest.mark.parametrize("booted", [False, True])
def test_an_id_is_known_wherever_its_item_is(booted: bool) -> None:
    """A publisher that repeats itself is told so, and no item is there twice."""
    it = deep()
    if booted:
        it.boot()
    result = it.publish("i0", "i39", "new")
    assert result == PublishResult(NODE, ("i0", "i39", "new"), ("i0", "i39"))
    assert it.publish("i0") == PublishResult(NODE, ("i0",), ("i0",))
    other = Publish(NODE, (entry("i30", "something else"),))
    assert it.refused(other, PUBLISHER) == ("conflict", "cancel", "")
    assert queue_of(it).live.count == COUNT + 1
    it.ask(Publish(NODE, (entry("drawn"),), new_ids=True), PUBLISHER)
    assert it.item("drawn").seq == COUNT + 2


def test_limits_count_what_is_on_disk() -> None:
    """They are those of the queue, not of its memory."""
    it = deep(max_items=str(COUNT + 1))
    it.boot()
    full = ("resource-constraint", "wait", "")
    two = Publish(NODE, (entry("a"), entry("b")))
    assert it.refused(two, PUBLISHER) == full
    it.publish("a")
    assert it.refused(Publish(NODE, (entry("b"),)), PUBLISHER) == full
    it.ask(retraction("i39"), PUBLISHER)
    it.publish("b")


def test_an_item_on_disk_is_withdrawn() -> None:
    """Its publisher may, and its end is remembered."""
    it = deep()
    it.ask(retraction("i39"), PUBLISHER)
    it.ask(retraction("i20"), OWNER)
    gone = ("item-not-found", "cancel", "")
    assert it.refused(retraction("i39"), PUBLISHER) == gone
    assert it.refused(retraction("i5", "token"), BEE)[0] != gone[0]
    assert it.publish("i39") == PublishResult(NODE, ("i39",), ("i39",))
    assert queue_of(it).live.count == COUNT - 2
    it.subscribe(BEE, 100)
    left = [f"i{number}" for number in range(COUNT) if number not in {20, 39}]
    assert [item_id for item_id, _ in it.given()] == left


@pytest.mark.parametrize("flushed", [False, True])
def test_a_purge_takes_what_is_on_disk_and_remembers_its_ids(flushed: bool) -> None:
    """Before the purge is written, too; and what comes after it is there."""
    it = deep()
    it.ask(Publish(NODE, (entry("late"),)), PUBLISHER, flush=flushed)
    it.ask(Purge(NODE), OWNER, flush=flushed)
    again = Publish(NODE, tuple(map(entry, ("i0", "i39", "late", "new"))))
    result = it.ask(again, PUBLISHER, flush=flushed)
    assert isinstance(result, PublishResult)
    assert result.repeated == ("i0", "i39", "late")
    it.flush()
    assert it.live().keys() == {"new"}
    it.remove_purged()
    assert it.publish("i20") == PublishResult(NODE, ("i20",), ("i20",))
    it.subscribe(BEE, 9)
    assert [item_id for item_id, _ in it.given()] == ["new"]


def test_pages_show_memory_and_disk_as_one() -> None:
    """Nobody sees where an item is."""
    it = deep()
    it.publish(entry("high", priority=9))
    it.subscribe(BEE, 2)
    expected = [*(f"i{number}" for number in range(COUNT)), "high"]
    assert browsed(it) == (expected, COUNT + 1)
    assert browsed(it, max_items=3) == (expected[:3], COUNT + 1)
    assert browsed(it, max_items=3, after="10") == (expected[10:13], COUNT + 1)
    assert browsed(it, max_items=3, last=True) == (expected[-3:], COUNT + 1)
    assert browsed(it, max_items=0) == ([], COUNT + 1)
    assert browsed(it, item_ids=("i30", "none", "i1")) == (["i1", "i30"], 2)


@pytest.mark.parametrize("selector", ["n >= 0", "n = 39", "n < 0"])
def test_a_selector_reads_what_is_on_disk_in_slices(selector: str) -> None:
    """A step reads some items, and the worker gets what it wants in order."""
    it = World(PLAIN)
    items = [entry(f"i{number}", properties={"n": number}) for number in range(COUNT)]
    it.publish(*items)
    it.subscribe(BEE, 100, selector=selector)
    steps = 0
    while queue_of(it).deliveries.classifying:
        assert queue_of(it).subscriptions.is_classifying(BEE)
        assert it.core.next_at() == it.now
        assert it.stats()["unmatched"] == 0, "not known yet"
        left = queue_of(it).live.backlog.count
        it.flush()
        assert queue_of(it).live.backlog.count >= left - 3
        steps += 1
    assert steps > 10
    wanted = {"n >= 0": range(COUNT), "n = 39": [39], "n < 0": []}[selector]
    assert [item_id for item_id, _ in it.given()] == [f"i{n}" for n in wanted]
    assert it.stats()["unmatched"] == COUNT - len(wanted)
    # All of them are in memory now; a new one joins them.
    it.publish(entry("new", properties={"n": 39}))
    assert len(queue_of(it).items) == COUNT + 1


def test_without_selectors_a_queue_has_a_head_again() -> None:
    """When those that it had to keep are gone."""
    it = World(PLAIN)
    it.subscribe(BEE, 100, selector="n < 0")
    it.publish(*(f"i{number}" for number in range(COUNT)))
    it.unsubscribe(BEE)
    assert len(queue_of(it).items) == COUNT
    it.publish("one more")
    assert len(queue_of(it).items) == COUNT + 1
    it.subscribe(ANT, 100)
    for item_id in list(it.live()):
        it.retract(item_id, ANT)
    it.unsubscribe(ANT)
    it.publish(*(f"j{number}" for number in range(COUNT)))
    assert len(queue_of(it).items) <= 8


def test_a_worker_without_a_selector_waits_for_what_comes_first() -> None:
    """While another's selector is evaluated for items that lie before those in memory."""
    it = deep()
    it.boot()
    it.subscribe(BEE, 100, selector="n < 0")
    it.subscribe(ANT, 100)
    while queue_of(it).deliveries.classifying:
        it.flush()
    assert [item_id for item_id, _ in it.given()] == [f"i{n}" for n in range(COUNT)]


def test_a_topic_keeps_all_its_items_in_memory() -> None:
    """They are read by number, and its limits drop the oldest."""
    topic = {**PLAIN, "queue#node_type": "topic", "queue#keep_items": "30"}
    it = World(topic)
    it.publish(*(f"i{number}" for number in range(COUNT)))
    it.boot()
    assert len(queue_of(it).items) == 30
    it.publish("new")
    assert [*it.live()] == [*(f"i{number}" for number in range(11, COUNT)), "new"]


def test_a_letter_finds_another_id_if_its_own_is_on_disk() -> None:
    """Two items of one id would be one."""
    it = World({**PLAIN, "queue#max_deliveries": "1", "queue#dead_letter_node": ""})
    it.create("graves", PLAIN)
    it.create("jobs", {**PLAIN, "queue#dead_letter_node": "graves"})
    taken = [f"jobs/i{number}" for number in range(COUNT)]
    it.publish(*taken, node="graves")
    it.boot()
    it.subscribe(BEE, 1, node="jobs")
    it.publish("i39", node="jobs")
    seq = it.item("i39", "jobs").seq
    it.reject("i39", BEE, node="jobs")
    assert it.item(f"jobs/i39#{seq}", "graves").origin == "jobs"


def test_a_dead_item_is_not_requeued_beside_one_on_disk() -> None:
    """Its id is in use again."""
    it = World({**PLAIN, "queue#dedupe_window": "0"})
    it.subscribe(BEE, 1)
    it.publish("i39")
    it.reject("i39", BEE)
    it.unsubscribe(BEE)
    it.publish(*(f"i{number}" for number in range(COUNT)))
    it.boot()
    assert it.refused(Requeue(NODE, ("i39",)), OWNER) == ("conflict", "cancel", "")
    it.ask(Requeue(NODE), OWNER)
    assert [item.item_id for item in it.dead()] == ["i39"]
    it.ask(retraction("i39"), OWNER)
    it.ask(Requeue(NODE), OWNER)
    assert it.dead() == []
    assert it.item("i39").outcome is None


@pytest.mark.parametrize("count", [3, COUNT])
def test_what_was_counted_wrongly_is_right_at_the_end(count: int) -> None:
    """Whoever changes the store by hand must not leave a queue that reads for ever."""
    it = World(PLAIN)
    names = [f"i{number}" for number in range(count)]
    it.publish(*names)
    it.boot()
    queue_of(it).live.backlog.count += 2
    it.subscribe(BEE, 100)
    assert [item_id for item_id, _ in it.given()] == names
    assert queue_of(it).live.backlog.count == 0
    assert queue_of(it).live.count == count


def test_a_start_counts_what_is_there() -> None:
    """Of each queue of its own: locked ones and those of others are not among them."""
    it = deep()
    it.create("other", PLAIN)
    it.publish("a", "b", node="other")
    it.subscribe(BEE, 5)
    plain = it.disk.contents(paged_at=it.now).plain
    size = sum(len(f"<x>i{number}</x>") for number in range(5, COUNT))
    assert plain == {
        NODE: PlainItems(COUNT - 5, size, counted_at=it.now),
        "other": PlainItems(2, 16, counted_at=it.now),
    }
    assert it.disk.contents().plain is None
    assert all(item.outcome is not ItemOutcome.ACCEPTED for item in it.live().values())


@pytest.mark.parametrize("priority", [3, 4, 5, 6])
def test_an_item_that_comes_while_a_selector_reads_is_there_once(priority: int) -> None:
    """It is in memory, though it lies between those that have still to be read."""
    it = World(PLAIN)
    for start, of_them in ((0, 6), (20, 4)):
        names = [f"i{number}" for number in range(start, start + 20)]
        it.publish(*(entry(name, properties={}, priority=of_them) for name in names))
    it.subscribe(BEE, 100, selector="n = 39")
    it.publish(entry("new", properties={"n": 39}, priority=priority))
    assert queue_of(it).deliveries.classifying
    while queue_of(it).deliveries.classifying:
        it.flush()
    assert it.given() == [("new", BEE)]
    assert it.stats()["available"] == COUNT == it.stats()["unmatched"]
    assert it.stats()["bytes"] == sum(item.size for item in it.live().values())
    it.retract("new", BEE)
    it.unsubscribe(BEE)
    it.subscribe(ANT, 1000)
    assert sorted(it.given()) == sorted((f"i{n}", ANT) for n in range(COUNT))
    assert it.stats()["available"] == 0


@pytest.mark.parametrize("restarts", [False, True])
def test_items_with_a_ttl_wait_on_disk_and_end_in_time(restarts: bool) -> None:
    """In the order of their ends, wherever they lie."""
    it = World(PLAIN)
    items = [entry(f"i{n}", ttl=100 - n, priority=n % 3) for n in range(COUNT)]
    it.publish(*items, "last")
    assert len(queue_of(it).items) <= 8
    ended = []
    for _ in range(100):
        before = {*it.live()}
        if restarts:
            it.boot()
        it.wait(1)
        ended += sorted(before - {*it.live()})
        assert len(queue_of(it).items) <= 9
        assert not is_due(it)
    assert ended == [f"i{n}" for n in reversed(range(COUNT))]
    assert it.stats()["dead"] == COUNT
    assert it.given() == []
    it.subscribe(BEE, COUNT)
    assert it.given() == [("last", BEE)]


def test_items_expire_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step ends some of those on disk; none is given meanwhile, and none ends twice."""
    monkeypatch.setattr(backlog, "EXPIRED_MAX", 2)
    monkeypatch.setattr(timers, "EXPIRED_MAX", 2)
    it = World({**PLAIN, "queue#dead_letter_node": ""})
    it.publish(*(entry(f"i{n}", ttl=5 + n % 2) for n in range(COUNT)), "last")
    it.wait(5)
    it.subscribe(BEE, 3)
    live = [len(it.live())]
    while is_due(it):
        it.flush()
        live.append(len(it.live()))
        assert live[-2] - live[-1] <= 4
    assert live[-1] == COUNT // 2 + 1
    holds = {item_id for item_id, _ in it.given()}
    assert holds == {"i1", "i3", "i5"}
    it.wait(2)
    while is_due(it):
        it.flush()
    assert {*it.live()} == holds | {"last"}
    assert it.stats()["dead"] == COUNT - 3
    for item_id in holds:
        it.unlock(item_id, BEE)
    assert ("last", BEE) in it.given()


def test_a_letter_has_the_id_of_an_item_that_expires_in_the_same_step() -> None:
    """The row of that item is still there to be read."""
    it = World(PLAIN)
    it.create("graves", PLAIN)
    it.create("mail", {**PLAIN, "queue#dead_letter_node": "graves"})
    it.publish("i0", node="graves")
    it.publish(*(entry(f"i{n}", ttl=5) for n in range(COUNT)), node="mail")
    it.publish(*(f"j{n}" for n in range(COUNT)), node="graves")
    it.publish(entry("mail/i9", ttl=5), node="graves")
    assert "mail/i9" not in queue_of(it, "graves").items
    it.wait(5)
    while is_due(it):
        it.flush()
    assert it.dead("graves") == [it.disk.items[2 * COUNT + 2]]
    letters = [item.item_id for item in it.live("graves").values() if item.origin]
    assert letters == [f"mail/i{n}" for n in range(COUNT)]


def test_what_was_purged_needs_no_attention() -> None:
    """Nothing of it expires."""
    it = World(PLAIN)
    it.publish(*(entry(f"i{n}", ttl=5) for n in range(COUNT)))
    it.ask(Purge(NODE), OWNER)
    it.remove_purged()
    assert queue_of(it).live.next_at() is None
    it.publish(*(entry(f"j{n}", ttl=9) for n in range(COUNT)))
    it.wait(5)
    assert it.stats()["dead"] == 0
    it.wait(4)
    assert it.stats()["dead"] == COUNT


def test_an_item_whose_time_has_come_is_not_left_on_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would be looked for in vain there: what has expired by then has been read."""
    monkeypatch.setattr(backlog, "EXPIRED_MAX", 2)
    monkeypatch.setattr(timers, "EXPIRED_MAX", 2)
    it = World(PLAIN)
    it.subscribe(BEE, 20)
    it.publish(*(entry(f"i{n}", ttl=4) for n in range(20)))
    it.unsubscribe(BEE)
    it.publish(*(entry(f"j{n}", ttl=5) for n in range(20)))
    it.publish(*(f"k{n}" for n in range(20)))
    for n in range(20):
        # In memory, since it excludes a worker; it takes the place of others in the slices.
        it.unlock(f"i{n}", BEE, not_here=True)
    it.now += 5
    for n in range(10):
        # With each step more come, and the head is made short again.
        it.publish(*(entry(f"l{n}{each}", priority=9) for each in "abc"))
    while is_due(it):
        it.flush()
    assert it.stats()["dead"] == 40
    assert len(it.live()) == 50


def test_an_item_that_expires_at_once_does_so() -> None:
    """Though others that expire at this moment have been looked for already."""
    it = World(PLAIN)
    it.publish(*(entry(f"i{n}", ttl=5) for n in range(COUNT)), *"abcdefghijklmnop")
    it.wait(5)
    it.publish(entry("z", ttl=0))
    while is_due(it):
        it.flush()
    assert it.stats()["dead"] == COUNT + 1


def test_what_comes_while_a_selector_reads_has_its_place() -> None:
    """Behind items that nobody has read yet."""
    it = deep()
    it.boot()
    it.subscribe(BEE, 1, selector="n = 1")
    it.publish(*(f"j{n}" for n in range(20)))
    assert queue_of(it).deliveries.classifying
    it.unsubscribe(BEE)
    it.publish(entry("first", priority=9))
    assert len(queue_of(it).items) <= 8
    it.subscribe(ANT, 1000)
    assert [item_id for item_id, _ in it.given()] == [
        "first",
        *(f"i{n}" for n in range(COUNT)),
        *(f"j{n}" for n in range(20)),
    ]


def test_what_has_ended_before_its_time_expires_no_more() -> None:
    """The time at which it would have is looked at, and is over then."""
    it = World(PLAIN)
    it.publish(*(entry(f"i{n}", ttl=50) for n in range(COUNT)))
    it.publish(entry("brief", ttl=5))
    it.retract("brief", OWNER)
    it.wait(5)
    assert not is_due(it)
    assert it.stats()["available"] == COUNT
    it.wait(45)
    assert it.stats()["dead"] == COUNT
