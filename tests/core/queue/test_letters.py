"""Dead letters: their numbers and pages, without a look at all of them."""

from __future__ import annotations

import pytest

from qos.core.queue import browsing, seq_order
from qos.core.queue.effects import RemoveNode
from qos.core.queue.item import Item
from qos.core.queue.requests import Configure, Delete, Items, Requeue
from qos.core.queue.results import ItemsResult, RequeueResult
from queue_world import BEE, NODE, OWNER, PLAIN, World

GRAVES = "graves"


def world(count: int = 0) -> World:
    """A node whose dead items go to another, and so many of them."""
    it = World(PLAIN)
    it.create(GRAVES, PLAIN)
    it.ask(Configure(NODE, {"queue#dead_letter_node": GRAVES}), OWNER)
    if count:
        it.publish(*(f"i{number}" for number in range(count)))
        it.subscribe(BEE, count)
        for item in list(it.live().values()):
            it.reject(item.item_id, BEE)
        it.unsubscribe(BEE)
    return it


@pytest.mark.parametrize("node", [NODE, GRAVES])
def test_a_page_of_dead_letters_costs_as_much_as_one_of_few(
    monkeypatch: pytest.MonkeyPatch, node: str
) -> None:
    """`dead list` of 100,000 letters held up everybody for 330 ms a page."""
    it = world(600)
    looked = list[int]()

    def seq_of(item: Item) -> int:
        looked.append(item.seq)
        return item.seq

    monkeypatch.setattr(seq_order, "_seq", seq_of)
    monkeypatch.setattr(seq_order, "_BUCKET", 256)
    monkeypatch.setattr(browsing, "_seq", seq_of)
    page = it.ask(Items(node=node, state="dead", max_items=5, after="300"), OWNER)
    assert isinstance(page, ItemsResult)
    assert ([item.seq for item in page.items], page.count) == (
        [301, 302, 303, 304, 305],
        600,
    )
    assert 5 <= len(looked) <= 12
    looked.clear()
    name = "i299" if node == NODE else f"{NODE}/i299"
    one = it.ask(Items(node=node, state="dead", item_ids=(name,)), OWNER)
    assert isinstance(one, ItemsResult)
    assert ([item.seq for item in one.items], one.count) == ([300], 1)
    assert len(looked) == 1
    if node == NODE:
        looked.clear()
        it.ask(Requeue(NODE, (name,)), OWNER)
        assert looked == []
        assert set(it.live()) == {name}


def test_dead_letters_are_counted_until_they_are_gone() -> None:
    """Where they died and where they are: handled there, requeued, or left alone."""
    it = world(3)
    assert it.stats()["dead"] == 3
    it.subscribe(BEE, node=GRAVES)
    it.retract(f"{NODE}/i0", BEE, node=GRAVES)
    it.unsubscribe(BEE, node=GRAVES)
    it.flush()
    assert it.stats()["dead"] == 2
    it.ask(Requeue(NODE, ("i2",)), OWNER)
    assert (it.stats()["dead"], it.stats()["available"]) == (1, 1)
    it.ask(Delete(NODE), OWNER)
    it.create(NODE, PLAIN)
    assert it.stats()["dead"] == 0
    page = it.ask(Items(node=GRAVES, state="dead"), OWNER)
    assert isinstance(page, ItemsResult)
    assert ([item.origin for item in page.items], page.count) == ([NODE], 1)


def test_a_delete_changes_no_letter_however_many_there_are() -> None:
    """And a node that has the name later has none of them."""
    it = world(30)
    letters = it.live(GRAVES)
    (identity,) = {item.origin_identity for item in letters.values()}
    it.ask(Delete(NODE), OWNER, flush=False)
    assert it.pending == [RemoveNode(NODE, 0)]
    it.flush()
    assert it.live(GRAVES) == letters
    it.create(NODE, PLAIN)
    assert it.core.nodes[NODE].node.identity != identity
    for request in (Items(node=NODE, state="dead"), Items(node=NODE, item_ids=("i1",))):
        page = it.ask(request, OWNER)
        assert isinstance(page, ItemsResult)
        assert (page.items, page.count) == ((), 0)
    assert it.ask(Requeue(NODE), OWNER) == RequeueResult(NODE, ())
    assert it.refused(Requeue(NODE, ("i1",)), OWNER)[0] == "item-not-found"


def test_a_letter_dies_where_it_is_after_the_node_where_it_died_first() -> None:
    """A dead letter moves once, whatever is deleted meanwhile."""
    it = world(1)
    it.create("depths", PLAIN)
    it.ask(Configure(GRAVES, {"queue#dead_letter_node": "depths"}), OWNER)
    it.ask(Delete(NODE), OWNER)
    it.subscribe(BEE, node=GRAVES)
    it.reject(f"{NODE}/i0", BEE, node=GRAVES)
    assert not it.live("depths")
    assert it.stats(GRAVES)["dead"] == 1
