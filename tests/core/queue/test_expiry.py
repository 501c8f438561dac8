"""Expiry of many items: in slices, with other requests between them, and over a kill."""

from __future__ import annotations

import pytest

from qos.core.queue import timers
from qos.core.queue.effects import SaveItem
from qos.core.queue.requests import Configure
from queue_world import ANT, BEE, NODE, OWNER, PLAIN, World, entry

GRAVES, SMALL = "graves", "small"
#: A dispatch passes time twice where a timer has ended.
STEP = 2 * timers.EXPIRED_MAX
COUNT = 3 * STEP + 20


def world(*, graves: bool = False) -> World:
    """A node with items whose ttl is over in 5 s, and a small one beside it."""
    it = World(PLAIN)
    it.create(GRAVES, PLAIN)
    it.create(SMALL, PLAIN)
    if graves:
        it.ask(Configure(NODE, {"queue#dead_letter_node": GRAVES}), OWNER)
    it.publish(*(entry(f"i{number}", ttl=5) for number in range(COUNT)))
    return it


def ended(it: World, *, graves: bool) -> int:
    """How many have ended, as dead or as dead letters."""
    return len(it.live(GRAVES)) if graves else len(it.dead())


@pytest.mark.parametrize("graves", [False, True])
def test_many_items_expire_in_slices_with_requests_between_them(graves: bool) -> None:
    """100,000 items with one ttl held up everybody for 20 s."""
    it = world(graves=graves)
    it.now += 5
    steps, at_once = 0, list[int]()
    while len(it.live()):
        woken_at = it.core.next_at()
        assert woken_at is not None
        assert woken_at <= it.now, "not woken for the next slice"
        before = ended(it, graves=graves)
        # Everybody is answered in the step of a slice.
        it.publish(f"s{steps}", node=SMALL)
        at_once.append(ended(it, graves=graves) - before)
        steps += 1
        assert it.stats() == {
            **it.stats(),
            "available": len(it.live()),
            "dead": COUNT - len(it.live()),
        }
    assert max(at_once) <= STEP
    assert (sum(at_once), len(it.live(SMALL))) == (COUNT, steps)
    assert steps >= COUNT // STEP
    at = it.core.next_at()
    assert at is None or at > it.now, "woken for nothing"


@pytest.mark.parametrize("kill", range(8))
def test_a_kill_in_a_slice_loses_and_doubles_nothing(kill: int) -> None:
    """After the start, the items whose end was not yet on disk expire."""
    it = world(graves=True)
    it.now += 5
    for _ in range(kill // 2):
        it.flush()
    if kill % 2:
        # Decided, and never written.
        it.add(it.core.dispatch(it.now))
    it.boot()
    while it.live():
        it.flush()
    letters = [item.origin_id for item in it.live(GRAVES).values()]
    assert sorted(letters) == sorted(f"i{number}" for number in range(COUNT))
    assert it.disk.items == {item.seq: item for item in it.live(GRAVES).values()}
    assert it.stats()["dead"] == COUNT


@pytest.mark.parametrize("looked", [3, 500])
def test_an_item_whose_ttl_is_over_is_never_given(
    monkeypatch: pytest.MonkeyPatch, looked: int
) -> None:
    """It waits for its slice; what comes after it is given in the meantime, or soon."""
    monkeypatch.setattr(timers, "EXPIRED_MAX", 2)
    monkeypatch.setattr("qos.core.queue.deliveries.LOOKED_MAX", looked)
    it = World(PLAIN)
    it.publish(*(entry(f"i{number}", ttl=5) for number in range(20)), "last")
    it.now += 5
    it.subscribe(BEE, 2)
    assert bool(it.item("last").holder) is (looked == 500)
    while len(it.live()) > 1:
        it.flush()
    given = [item_id for item_id, _ in it.given()]
    assert given == ["last"]


def test_a_locked_item_expires_when_it_comes_back_and_takes_no_place_in_a_slice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody waits for a lock; the slice goes on with the others."""
    monkeypatch.setattr(timers, "LOOKED_MAX", 3)
    it = World(PLAIN)
    it.subscribe(BEE, 5)
    it.publish(*(entry(f"i{number}", ttl=5) for number in range(9)))
    it.now += 5
    while (it.core.next_at() or 0.0) <= it.now:
        it.flush()
    assert sorted(it.live()) == [f"i{number}" for number in range(5)]
    it.subscribe(ANT, 5)
    it.unlock("i0", BEE)
    assert sorted(it.live()) == [f"i{number}" for number in range(1, 5)]
    assert [item.item_id for item in it.dead()] == [
        "i0",
        *(f"i{n}" for n in range(5, 9)),
    ]


def test_a_lock_ends_in_time_however_many_items_expire() -> None:
    """It is not behind them."""
    it = World({**PLAIN, "queue#lock_timeout": "5"})
    it.subscribe(BEE)
    it.publish("locked")
    it.publish(*(entry(f"i{number}", ttl=4) for number in range(COUNT)))
    it.now += 5
    effects = it.core.dispatch(it.now)
    saved = [each.item for each in effects if isinstance(each, SaveItem)]
    assert [item.token for item in saved if item.item_id == "locked"] == [""]
