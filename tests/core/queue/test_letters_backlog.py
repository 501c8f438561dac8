"""Dead letters wait on disk, as other items do; they are found there."""

from __future__ import annotations

import pytest

from deep_queue import COUNT, is_due, queue_of
from qos.core.queue import backlog, item_index, requeuing
from qos.core.queue.requests import Configure, Delete, Items, Purge, Requeue
from qos.core.queue.results import ItemsResult, RequeueResult
from qos.core.record import replace
from queue_world import ANT, BEE, NODE, OWNER, PLAIN, World

GRAVES = "graves"
NAMES = [f"i{number}" for number in range(COUNT)]
LETTERS = [f"{NODE}/{name}" for name in NAMES]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue keeps 4 to 8 items in memory, and reads 3."""
    monkeypatch.setattr(item_index, "HEAD", 4)
    monkeypatch.setattr(backlog, "READ", 3)


@pytest.fixture(params=[False, True])
def it(request: pytest.FixtureRequest) -> World:
    """All items of a queue have died, and are in another one; perhaps after a start."""
    world = World(PLAIN)
    world.create(GRAVES, PLAIN)
    world.ask(Configure(NODE, {"queue#dead_letter_node": GRAVES}), OWNER)
    world.publish(*NAMES)
    world.subscribe(BEE, COUNT)
    for name in NAMES:
        world.reject(name, BEE)
    world.unsubscribe(BEE)
    if request.param:
        world.boot()
    return world


def dead(it: World, node: str, after: str = "") -> tuple[list[str], int | None]:
    """The ids of a page of dead items, and how many there are."""
    wish = Items(node=node, state="dead", max_items=5)
    page = it.ask(replace(wish, after=after) if after else wish, OWNER)
    assert isinstance(page, ItemsResult)
    return [item.item_id for item in page.items], page.count


def test_letters_wait_on_disk_and_are_handled_in_order(it: World) -> None:
    """A dead-letter queue is as deep as its disk."""
    assert len(queue_of(it, GRAVES).items) <= 8
    assert it.stats()["dead"] == COUNT
    assert it.stats(GRAVES)["available"] == COUNT
    it.subscribe(ANT, 3, node=GRAVES)
    for number, name in enumerate(LETTERS):
        it.retract(name, ANT, node=GRAVES)
        assert it.stats()["dead"] == COUNT - 1 - number
        assert len(queue_of(it, GRAVES).items) <= 3 + 8
    assert dead(it, NODE) == dead(it, GRAVES) == ([], 0)


def test_a_letter_that_comes_in_the_step_that_reads_past_it_is_not_lost() -> None:
    """The disk does not have it yet, nor is it known to be on its way."""
    it = World(
        {**PLAIN, "queue#lock_timeout": "10", "queue#max_deliveries": "1"},
    )
    it.create(GRAVES, PLAIN)
    it.ask(Configure(NODE, {"queue#dead_letter_node": GRAVES}), OWNER)
    it.publish("i0")
    it.publish("g0", "g1", "g2", "g3", node=GRAVES)
    it.boot()
    it.subscribe(BEE, 1)
    it.now += 10.0
    # In one step the item dies, and this worker takes all there is.
    it.given()
    it.subscribe(ANT, 100, node=GRAVES)
    while is_due(it):
        it.flush()
    given = [item_id for item_id, _ in it.given()]
    assert given == [f"{NODE}/i0", "g0", "g1", "g2", "g3"]


@pytest.mark.parametrize("node", [NODE, GRAVES])
def test_pages_and_ids_show_letters_wherever_they_are(it: World, node: str) -> None:
    """Of the queue where they died, and of the one where they are; locked ones too."""
    it.subscribe(ANT, 2, node=GRAVES)
    assert dead(it, node) == (LETTERS[:5], COUNT)
    assert dead(it, node, after="30") == (LETTERS[30:35], COUNT)
    names = NAMES if node == NODE else LETTERS
    ids = (names[0], names[20], "none", names[39])
    page = it.ask(Items(node=node, state="dead", item_ids=ids), OWNER)
    assert isinstance(page, ItemsResult)
    assert [item.item_id for item in page.items] == [
        LETTERS[0],
        LETTERS[20],
        LETTERS[39],
    ]


def test_letters_are_requeued_wherever_they_are(
    it: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some by their names, then all, but for one that somebody has."""
    monkeypatch.setattr(requeuing, "_LOOKED_AT_MAX", 7)
    it.subscribe(ANT, 1, node=GRAVES)
    assert it.refused(Requeue(NODE, ("i0",)), OWNER)[0] == "conflict"
    it.ask(Requeue(NODE, ("i39", "i20")), OWNER)
    assert it.stats()["available"] == 2
    assert it.stats()["dead"] == COUNT - 2
    after, requeued = "", 2
    while True:
        result = it.ask(Requeue(NODE, after=after), OWNER)
        assert isinstance(result, RequeueResult)
        requeued += len(result.item_ids)
        if not (after := result.last):
            break
    assert requeued == COUNT - 1
    assert it.stats()["dead"] == 1
    it.given()
    it.subscribe(BEE, 100)
    assert [name for name, by in it.given() if by == BEE] == NAMES[1:]


def test_letters_of_a_deleted_queue_are_those_of_no_other(it: World) -> None:
    """They stay where they are, and a queue of that name has none of them."""
    it.ask(Delete(NODE), OWNER)
    it.create(NODE, PLAIN)
    assert it.stats()["dead"] == 0
    assert dead(it, NODE) == ([], 0)
    assert dead(it, GRAVES) == (LETTERS[:5], COUNT)


def test_a_purge_takes_letters_from_both_queues(it: World) -> None:
    """That of the queue where they are; and those that come after it are there."""
    it.ask(Purge(GRAVES), OWNER)
    assert it.stats()["dead"] == it.stats(GRAVES)["available"] == 0
    assert dead(it, NODE) == dead(it, GRAVES) == ([], 0)
    it.publish("late")
    it.subscribe(BEE, 1)
    it.reject("late", BEE)
    assert dead(it, NODE) == dead(it, GRAVES) == ([f"{NODE}/late"], 1)


def test_a_letter_that_an_older_version_has_written_stays_in_memory(it: World) -> None:
    """Its `available_at` says when it came, and holds it back no longer."""
    seq = 7
    old = it.disk.items[seq]
    it.disk.items[seq] = replace(old, available_at=it.now + 9.0)
    it.boot()
    assert [*queue_of(it, GRAVES).items] == [old.item_id]
    it.subscribe(ANT, 100, node=GRAVES)
    assert [name for name, _ in it.given()] == LETTERS
    assert dead(it, NODE)[1] == COUNT
