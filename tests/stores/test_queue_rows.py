"""The number of rows that a commit needs; their effect is in test_queue_store."""

from dataclasses import replace

from qos.core.queue.effects import (
    Change,
    RemoveItem,
    RemoveNode,
    SaveEnded,
    SaveItem,
    SaveLock,
)
from qos.core.queue.item import EndedItem, Item, ItemState
from qos.stores import queue_rows
from qos.stores.queue_rows import rows
from qos.stores.sqlite_changes import Kind, _size, gathered

ITEM = Item(
    seq=7,
    node="n",
    item_id="i",
    publisher="a@b",
    digest="",
    size=0,
    published_at=0.0,
    available_at=0.0,
)
LOCKED = replace(ITEM, state=ItemState.ACQUIRED, holder="w@b/1")
OTHER = replace(ITEM, seq=8, item_id="o")
ENDED = EndedItem(
    seq=7,
    node="n",
    item_id="i",
    publisher="a@b",
    digest="",
    ended_at=0.0,
    forget_at=1.0,
)


def kinds(*changes: Change) -> list[Kind]:
    return [kind for kind, _ in gathered(rows(changes))]


def test_an_item_that_is_locked_in_the_commit_that_brings_it_is_written_once() -> None:
    """Every item does this while a worker is free, and it was more than half of the
    rows.
    """
    changes = [SaveItem(ITEM, "<x/>"), SaveItem(OTHER, "<y/>"), SaveLock(LOCKED)]
    ((kind, written),) = gathered(rows(changes))
    assert kind is queue_rows._SAVE_ITEM
    assert [row[-1] for row in written] == ["<x/>", "<y/>"]
    assert "w@b/1" in written[0]


def test_a_lock_writes_its_own_columns_only() -> None:
    """A column of an index among them would change that index with each delivery."""
    lock, extension = SaveLock(LOCKED), SaveLock(replace(LOCKED, deadline=9.0))
    ((kind, written),) = gathered(rows([lock, extension]))
    assert kind is queue_rows._LOCK_ITEM
    assert (
        *("state", "receivers", "last_holder", "token", "holder", "durable"),
        *("resumable", "locked_at", "deadline", "seq"),
    ) == queue_rows._LOCK_ROW
    assert written == [("acquired", "[]", "", "", "w@b/1", False, False, 0.0, 9.0, 7)]


def test_a_lock_after_another_step_of_its_item_is_one_row_with_that() -> None:
    """An item that is given back goes to the next worker in the same commit."""
    back = SaveItem(replace(ITEM, order=3))
    lock = SaveLock(replace(LOCKED, order=3))
    ((kind, written),) = gathered(rows([back, lock]))
    assert kind is queue_rows._STEP_ITEM
    assert len(written) == 1
    assert "w@b/1" in written[0]
    assert kinds(lock, back) == [queue_rows._LOCK_ITEM, queue_rows._STEP_ITEM]


def test_items_that_end_are_removed_and_remembered_together() -> None:
    """Two kinds of rows, however many items: each is about records of its own."""
    other = replace(ENDED, seq=8, item_id="o")
    changes: list[Change] = [
        RemoveItem(7),
        SaveEnded(ENDED),
        RemoveItem(8),
        SaveEnded(other),
    ]
    removed, remembered = gathered(rows(changes))
    assert removed == (queue_rows._REMOVE_ITEM, [(7,), (8,)])
    kind, written = remembered
    assert (kind, len(written)) == (queue_rows._SAVE_ENDED, 2)


def test_a_step_of_an_item_that_was_removed_is_still_there_to_fail() -> None:
    """It builds on an item that is gone, and a lost item must not come back."""
    new, step = SaveItem(ITEM, "<x/>"), SaveItem(LOCKED)
    save_item, step_item = queue_rows._SAVE_ITEM, queue_rows._STEP_ITEM
    assert kinds(new, RemoveItem(7), step) == [
        save_item,
        queue_rows._REMOVE_ITEM,
        step_item,
    ]
    assert kinds(new, RemoveNode("n", 0), step) == [
        save_item,
        queue_rows._REMOVE_NODE,
        step_item,
    ]


def test_a_statement_has_few_rows_that_do_nothing() -> None:
    """There are also few statements, so that they stay prepared."""
    sizes = [_size(number) for number in range(1, 513)]
    assert all(
        number <= size <= number * 1.25 for number, size in enumerate(sizes, start=1)
    )
    assert len(set(sizes)) < 40
