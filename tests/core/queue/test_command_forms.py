"""What commands show: cut, in one line, and with the states that people know."""

from __future__ import annotations

from typing import Any

import pytest

from qos.core.queue.command_forms import (
    confirmation_form,
    counts_form,
    dead_form,
    died_here,
    items_table,
    queues_table,
    workers_table,
)
from qos.core.queue.item import (
    Failure,
    Item,
    ItemOutcome,
    ItemState,
    Subscription,
)
from qos.core.queue.results import ItemsResult


def item(seq: int = 1, **values: Any) -> Item:
    fields: dict[str, Any] = {
        "node": "orders",
        "item_id": f"i{seq}",
        "publisher": "shop@x",
        "digest": "",
        "size": 1,
        "published_at": 1_700_000_000.5,
        "available_at": 0.0,
    }
    return Item(seq=seq, **{**fields, **values})


def shown(*items: Item) -> ItemsResult:
    return ItemsResult(node="orders", items=items, count=None, now=1_700_000_100.0)


def test_counts_without_a_number_are_empty() -> None:
    counts = {"available": 2, "oldest_seconds": None, "accepted": 10**12}
    (row,) = queues_table("t", {"orders": counts}).rows
    assert row == ("orders", "2", "", "", "", "", "")
    form = counts_form("t", "orders", {**counts, "oldest_seconds": 1.26})
    values = {field.var: field.values[0] for field in form.fields}
    assert values == {
        "node": "orders",
        "available": "2",
        "accepted": "1000000000000",
        "oldest_seconds": "1.3",
    }


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "available"),
        ({"order": 1, "available_at": 2e9}, "delayed"),
        ({"state": ItemState.ACQUIRED}, "acquired"),
        ({"state": ItemState.ARCHIVED, "outcome": ItemOutcome.ACCEPTED}, "accepted"),
        ({"state": ItemState.ARCHIVED, "outcome": ItemOutcome.REJECTED}, "dead"),
    ],
)
def test_an_item_has_the_state_of_the_other_doors(
    fields: dict[str, Any], state: str
) -> None:
    (row,) = items_table("t", shown(item(**fields)), {}).rows
    assert row == ("i1", state, "4", "0", "2023-11-14 22:13:20", "", "")


def test_what_a_publisher_wrote_is_one_short_line() -> None:
    """A page of items has to fit into a stanza, and to be read at a terminal."""
    failed = Failure(1.0, "bee@x/1", "rejected: " + "because " * 100)
    hostile = item(item_id="i\n\x1b" * 1000, history=(failed,))
    (row,) = items_table("t", shown(hostile), {1: "<x>\x00" + "é" * 9000}).rows
    assert max(map(len, row)) == 200
    assert all(cell.isprintable() for cell in row)
    assert row[0].startswith("i i")
    assert row[0].endswith("…")
    assert row[5].startswith("rejected: because because")
    form = dead_form("t", {"i1": hostile}, more=False)
    ((value, label),) = form.fields[0].options
    assert value == "i1"
    assert label.startswith("i1: rejected: because")
    assert len(label) == 120


def test_only_what_died_here_can_be_requeued_here() -> None:
    moved = item(2, node="graves", item_id="orders/i9", origin="orders", origin_id="i9")
    foreign = item(3, origin="bills", origin_id="b1")
    again = item(4, item_id="i1")
    assert died_here(shown(item(1), moved, foreign, again)) == {
        "i1": again,
        "i9": moved,
    }


def test_a_worker_that_is_away_is_shown_as_such() -> None:
    here = Subscription(
        node="orders", jid="bee@x/1", subid="s", via="", queue_requests=3
    )
    away = Subscription(
        node="orders",
        jid="ant@x/1",
        subid="s",
        via="",
        queue_requests=3,
        dormant_since=1.0,
    )
    table = workers_table("t", (here, away))
    assert [row[3] for row in table.rows] == ["active", "away"]


def test_a_question_says_what_is_lost() -> None:
    form = confirmation_form("Delete a queue", "n", {"available": 3}, "All is lost.")
    assert form.instructions == (
        "All is lost. This cannot be undone. Items of 'n' now: 3 available, 0 "
        "acquired, 0 delayed, 0 dead."
    )
    assert form.fields[0].label == "Yes: delete a queue"
