"""The number of rows that a commit needs; their effect is in test_queue_store."""

from dataclasses import replace

from qos.core.queue.effects import (
    Change,
    RemoveItem,
    RemoveNode,
    SaveEnded,
    SaveItem,
)
from qos.core.queue.item import EndedItem, Item, ItemState
from qos.stores.queue_rows import rows
from qos.stores.sqlite_changes import _size

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


def kinds(*changes: Change) -> list[object]:
    return [row[0] for row in rows(changes)]


def test_an_item_that_is_locked_in_the_commit_that_brings_it_is_written_once() -> None:
    """Every item does this while a worker is free, and it was more than half of the
    rows.
    """
    written = rows([SaveItem(ITEM, "<x/>"), SaveItem(OTHER, "<y/>"), SaveItem(LOCKED)])
    assert [(row[0], row[-1]) for row in written] == [
        ("save item", "<y/>"),
        ("save item", "<x/>"),
    ]
    assert "w@b/1" in written[1]


def test_an_item_that_ends_goes_with_what_is_remembered_of_it() -> None:
    """Both in one row; alone each has its own."""
    assert kinds(RemoveItem(7), SaveEnded(ENDED)) == ["end item"]
    assert kinds(SaveEnded(ENDED), RemoveItem(7)) == ["save ended", "remove item"]
    assert kinds(RemoveItem(8), SaveEnded(ENDED)) == ["remove item", "save ended"]


def test_a_step_of_an_item_that_was_removed_is_still_there_to_fail() -> None:
    """It builds on an item that is gone, and a lost item must not come back."""
    new, step = SaveItem(ITEM, "<x/>"), SaveItem(LOCKED)
    assert kinds(new, RemoveItem(7), step) == ["save item", "remove item", "step item"]
    assert kinds(new, RemoveNode("n"), step) == [
        "save item",
        "remove node",
        "step item",
    ]


def test_a_statement_has_few_rows_that_do_nothing() -> None:
    """There are also few statements, so that they stay prepared."""
    sizes = [_size(number) for number in range(1, 513)]
    assert all(
        number <= size <= number * 1.25 for number, size in enumerate(sizes, start=1)
    )
    assert len(set(sizes)) < 40
