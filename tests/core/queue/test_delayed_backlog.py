"""Items that are held back, or were: they wait on disk, and their time comes."""

from __future__ import annotations

import math

import pytest

from deep_queue import COUNT, deep, is_due, queue_of
from qos.core.queue import backlog, item_index
from qos.core.queue.places import LAST
from qos.core.queue.requests import Purge, Requeue
from qos.core.record import replace
from queue_world import ANT, BEE, NODE, OWNER, PLAIN, World, entry, retraction


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue keeps 4 to 8 items in memory and 4 that are held back, and reads 3."""
    monkeypatch.setattr(item_index, "HEAD", 4)
    monkeypatch.setattr(backlog, "READ", 3)


#: Its locks are not over before a test is.
PATIENT = {**PLAIN, "queue#lock_timeout": "900"}


def names(of_them: str, count: int = COUNT) -> list[str]:
    return [f"{of_them}{number}" for number in range(count)]


def flush_all(it: World) -> int:
    """Make all steps that are due; returns how many."""
    steps = 0
    while is_due(it):
        it.flush()
        steps += 1
        assert steps < 1000
    return steps


def given(it: World) -> list[str]:
    return [item_id for item_id, _ in it.given()]


@pytest.mark.parametrize("booted", [False, True])
def test_delayed_items_wait_on_disk_and_come_in_time(booted: bool) -> None:
    """In the order in which their delays end, whatever order they came in."""
    it = World(PATIENT)
    it.publish(*(entry(f"d{n}", delay=100.0 - n) for n in range(COUNT)))
    if booted:
        it.boot()
    assert len(queue_of(it).items) <= 4
    it.subscribe(BEE, 100)
    assert it.stats()["delayed"] == COUNT
    assert it.stats()["available"] == 0
    flush_all(it)
    it.wait(60.0)
    for number in reversed(range(COUNT)):
        assert given(it) == []
        assert not is_due(it)
        it.wait(1.0)
        assert given(it) == [f"d{number}"]
        assert it.stats()["delayed"] == number
    assert queue_of(it).live.backlog.count == 0
    assert queue_of(it).live.backlog.delayed_until is None


@pytest.mark.parametrize("booted", [False, True])
def test_what_is_due_at_one_moment_is_given_by_its_place(booted: bool) -> None:
    """Some in each step, the highest priority first."""
    it = World(PATIENT)
    it.publish(*(entry(f"d{n}", delay=5.0, priority=n % 3) for n in range(COUNT)))
    if booted:
        it.boot()
        assert len(queue_of(it).items) == 0
    it.subscribe(BEE, 100)
    it.wait(5.0)
    flush_all(it)
    expected = [f"d{n}" for of_them in (2, 1, 0) for n in range(of_them, COUNT, 3)]
    # Without a restart four of them are in memory, and come at once.
    apart = set() if booted else {"d0", "d1", "d2", "d3"}
    seen = given(it)
    assert {*seen} == {*expected}
    assert [name for name in seen if name not in apart] == [
        name for name in expected if name not in apart
    ]


def test_a_worker_finds_what_lies_behind_delayed_items() -> None:
    """A step looks at some of them only, and the next one goes on."""
    it = World(PATIENT)
    it.publish(*(entry(f"d{n}", delay=50.0, priority=9) for n in range(COUNT)))
    it.publish(*names("i", 3))
    it.boot()
    it.subscribe(BEE, 100)
    assert given(it) == []
    assert is_due(it)
    assert flush_all(it) > 5
    assert given(it) == names("i", 3)
    assert queue_of(it).live.backlog.frontier == LAST
    assert len(queue_of(it).items) == 3
    it.publish("at once")
    assert given(it) == ["at once"]
    it.wait(50.0)
    flush_all(it)
    assert sorted(given(it)) == sorted(names("d"))


@pytest.mark.parametrize("delay", ["0", "7"])
def test_what_comes_back_in_the_step_that_reads_the_rest_is_not_lost(
    delay: str,
) -> None:
    """The disk does not have it yet, nor is it known to be on its way."""
    it = World({**PLAIN, "queue#lock_timeout": "10", "queue#backoff": delay})
    it.publish(*names("i", 5))
    it.boot()
    it.subscribe(BEE, 2)
    assert given(it) == names("i", 2)
    it.now += 10.0
    # In one step the locks time out, and this worker takes all there is.
    it.subscribe(ANT, 100)
    flush_all(it)
    assert it.stats()["acquired"] == (3 if delay == "7" else 5)
    it.wait(7.0)
    flush_all(it)
    assert sorted(given(it)) == names("i", 5)


def test_a_delay_that_ends_in_the_step_that_begins_another_is_followed_by_it() -> None:
    """The disk knew of no other delay, so that the second one had no end (seed 36117)."""
    it = World({**PLAIN, "queue#lock_timeout": "10", "queue#backoff": "7"})
    it.publish("i0", "i1", *(entry(f"d{n}", delay=10.0) for n in range(2)))
    it.boot()
    it.subscribe(BEE, 2)
    assert given(it) == names("i", 2)
    # There is no room in memory for more that is held back.
    it.publish(*(entry(f"m{n}", delay=99.0) for n in range(4)))
    it.wait(10.0)
    flush_all(it)
    assert it.stats()["delayed"] == 2 + 4
    it.wait(7.0)
    flush_all(it)
    assert it.stats()["delayed"] == 4
    it.subscribe(ANT, 100)
    flush_all(it)
    assert sorted(given(it)) == sorted([*names("i", 2), *names("d", 2)])


def test_a_ttl_that_ends_in_the_step_that_gives_an_item_back_is_not_the_last() -> None:
    """The disk knew of no other ttl."""
    it = World({**PLAIN, "queue#lock_timeout": "10"})
    it.publish(*(entry(f"g{n}", ttl=20.0) for n in range(2)))
    it.publish(*(entry(f"t{n}", ttl=10.0) for n in range(4)), *names("i"))
    it.boot()
    it.subscribe(BEE, 2)
    assert given(it) == names("g", 2)
    it.wait(10.0)
    flush_all(it)
    assert sorted(it.live()) == sorted([*names("g", 2), *names("i")])
    it.wait(10.0)
    flush_all(it)
    assert sorted(it.live()) == sorted(names("i"))


def test_nobody_looks_for_items_without_a_worker_for_them() -> None:
    """A step that finds nobody free is not followed by another one."""
    it = World(PATIENT)
    it.publish(*(entry(f"d{n}", delay=50.0) for n in range(COUNT)), "i0")
    it.boot()
    it.subscribe(BEE, 1)
    assert is_due(it)
    it.unsubscribe(BEE)
    assert not is_due(it)
    assert it.stats()["available"] == 1


@pytest.mark.parametrize("delay", [0, 30])
def test_what_is_given_back_waits_on_disk(delay: int) -> None:
    """A worker whose database is down gives everything back."""
    it = deep(backoff=str(delay), lock_timeout="900")
    it.subscribe(BEE, 1)
    for name in names("i"):
        it.unlock(name, BEE)
        assert len(queue_of(it).items) <= 13
        assert delay or it.stats()["delayed"] == 0
    assert it.stats()["acquired"] == (not delay)
    if not delay:
        assert it.given()[-1] == ("i0", BEE)
        return
    assert it.stats()["delayed"] == COUNT
    it.unsubscribe(BEE)
    it.boot()
    assert it.stats()["delayed"] == COUNT
    assert it.stats()["releases_most"] == 1
    it.wait(delay)
    flush_all(it)
    assert it.stats()["delayed"] == 0
    assert it.stats()["available"] == COUNT
    assert len(queue_of(it).items) <= 8
    it.subscribe(ANT, 100)
    flush_all(it)
    assert [item_id for item_id, by in it.given() if by == ANT] == names("i")


def test_delays_end_without_a_worker_and_memory_has_the_head_alone() -> None:
    """Those behind the head stay where they are, and are ready there."""
    it = World(PATIENT)
    for number in range(COUNT):
        it.publish(entry(f"d{number}", delay=1.0 + number / 8))
    for number in range(8):
        it.wait(1.0)
        flush_all(it)
        assert len(queue_of(it).items) <= 12
        assert it.stats()["delayed"] == max(0, COUNT - 1 - 8 * number)
    assert it.stats()["available"] == COUNT
    assert queue_of(it).live.next_at() is None
    it.subscribe(BEE, 100)
    assert given(it) == names("d")


def test_a_delay_that_is_over_does_not_begin_again() -> None:
    """Though the clock is set back."""
    it = World(PATIENT)
    it.publish(*(entry(f"d{n}", delay=5.0) for n in range(COUNT)))
    it.wait(5.0)
    flush_all(it)
    assert it.stats()["delayed"] == 0
    it.now -= 4.0
    it.subscribe(BEE, 100)
    flush_all(it)
    it.now += 4.0
    it.flush()
    flush_all(it)
    assert {*given(it)} == {*names("d")}


def test_the_counts_of_releases_are_those_of_disk_and_memory() -> None:
    """The largest number is that of what waits, wherever it does."""
    it = deep()
    it.subscribe(BEE, 1)
    for name in ("i0", "i1"):
        it.unlock(name, BEE)
    assert it.stats()["releases_most"] == 1
    assert queue_of(it).live.backlog.releases_most == 1
    for name in ("i0", "i1"):
        it.ask(retraction(name), OWNER)
        assert it.stats()["releases_most"] == (name == "i0")
    it.unlock("i2", BEE)
    it.ask(Purge(NODE), OWNER)
    assert it.stats()["releases_most"] == 0


def test_delayed_items_are_browsed_withdrawn_and_purged() -> None:
    """As all others are."""
    it = World(PATIENT)
    it.publish(*(entry(f"d{n}", delay=50.0) for n in range(COUNT)))
    it.ask(retraction("d39"), OWNER)
    it.ask(retraction("d0"), OWNER)
    assert it.stats()["delayed"] == COUNT - 2
    it.ask(Purge(NODE), OWNER)
    assert it.stats()["delayed"] == 0
    assert queue_of(it).live.next_at() is None
    it.remove_purged()
    it.publish(entry("late", delay=5.0))
    it.subscribe(BEE, 1)
    it.wait(5.0)
    assert given(it) == ["late"]


def test_delayed_items_with_a_ttl_end_in_time() -> None:
    """Before their delay is over, or after that."""
    it = World(PATIENT)
    it.publish(
        *(entry(f"d{n}", delay=10.0, ttl=5.0 + n % 2 * 10) for n in range(COUNT))
    )
    it.boot()
    it.wait(5.0)
    flush_all(it)
    assert it.stats()["dead"] == COUNT // 2
    assert it.stats()["delayed"] == COUNT // 2
    it.wait(5.0)
    flush_all(it)
    assert it.stats()["available"] == COUNT // 2
    it.wait(5.0)
    flush_all(it)
    assert it.stats()["dead"] == COUNT
    assert queue_of(it).live.backlog.count == 0


def test_what_is_given_back_too_late_ends() -> None:
    """Its ttl was over while somebody had it, and others on disk have ended since."""
    it = World(PATIENT)
    it.subscribe(BEE, 5)
    it.publish(*(entry(f"d{n}", ttl=5.0) for n in range(COUNT)))
    it.publish(*names("i"))
    it.wait(5.0)
    flush_all(it)
    assert it.stats()["dead"] == COUNT - 5
    for name in names("d", 5):
        it.unlock(name, BEE)
        flush_all(it)
    assert it.stats()["dead"] == COUNT


@pytest.mark.parametrize("booted", [False, True])
def test_selectors_see_delayed_items_when_their_time_has_come(booted: bool) -> None:
    """Those on disk too, and in the order of their places."""
    it = World(PATIENT)
    it.publish(
        *(entry(f"d{n}", delay=5.0, properties={"n": n}) for n in range(COUNT)),
        *(entry(f"i{n}", properties={"n": n}) for n in range(COUNT)),
    )
    if booted:
        it.boot()
    it.subscribe(BEE, 100, selector="n > 36")
    flush_all(it)
    assert given(it) == ["i37", "i38", "i39"]
    it.wait(5.0)
    flush_all(it)
    assert given(it) == ["d37", "d38", "d39"]
    assert it.stats()["unmatched"] == 2 * 37


def test_a_topic_has_its_delayed_items_in_memory() -> None:
    """As all of its items."""
    topic = {**PATIENT, "queue#node_type": "topic", "queue#keep_items": "30"}
    it = World(topic)
    it.publish(*(entry(f"d{n}", delay=5.0) for n in range(20)))
    it.boot()
    assert [*queue_of(it).items] == names("d", 20)
    assert it.stats()["delayed"] == 20


def test_requeued_items_wait_on_disk() -> None:
    """Where those lie that were never given; a letter had its own place for a while."""
    it = World({**PATIENT, "queue#max_deliveries": "1", "queue#dead_letter_node": ""})
    it.publish(*names("i"))
    it.subscribe(BEE, 1)
    for name in names("i"):
        it.reject(name, BEE)
    it.unsubscribe(BEE)
    it.wait(9.0)
    last = it.ask(Requeue(NODE), OWNER)
    assert last.last == ""  # type: ignore[union-attr]
    assert it.stats()["available"] == COUNT
    assert len(queue_of(it).items) <= 8
    it.boot()
    it.subscribe(ANT, 100)
    assert [item_id for item_id, by in it.given() if by == ANT] == names("i")


def test_items_that_an_older_version_has_requeued_stay_in_memory() -> None:
    """Their delay says when they were requeued, and holds them back no longer."""
    it = World(PATIENT)
    it.publish("i0")
    it.subscribe(BEE, 1)
    it.reject("i0", BEE)
    it.ask(Requeue(NODE), OWNER)
    it.reject("i0", BEE)
    it.unsubscribe(BEE)
    (dead,) = it.dead()
    it.ask(Requeue(NODE), OWNER)
    old = it.disk.items[dead.seq]
    it.disk.items[dead.seq] = replace(old, available_at=it.now + 9.0)
    it.boot()
    assert [*queue_of(it).items] == ["i0"]
    it.subscribe(ANT, 1)
    assert it.given()[-1] == ("i0", ANT)


def test_what_was_counted_wrongly_is_right_when_nothing_is_delayed() -> None:
    """Whoever changes the store by hand must not leave counts that stay wrong."""
    it = World(PATIENT)
    it.publish(*(entry(f"d{n}", delay=5.0) for n in range(COUNT)))
    it.boot()
    queue_of(it).live.backlog.delayed += 2
    it.wait(5.0)
    flush_all(it)
    assert it.stats()["delayed"] == 0
    assert not math.isinf(queue_of(it).live.backlog._over[0])
