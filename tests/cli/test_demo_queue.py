"""The queue of `xmpp-qos demo`: its parts, without processes."""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pytest

from qos.core.queue.item import Failure
from qos.demo import queue_table
from qos.demo.bee import Packed, Run
from qos.demo.orders import KILLED, Order, fails, kill_after, orders, pieces_of
from xep_0254 import BrowsedItem


def test_of_the_orders_exactly_one_cannot_be_packed() -> None:
    """The seed decides which; wherever it comes, it is not a good order."""
    assert orders(5, 40) == orders(5, 40) != orders(6, 40)
    for seed in range(20):
        ordered = orders(seed, 40)
        assert len(ordered) == len({order.item_id for order in ordered}) == 41
        (poisoned,) = (order for order in ordered if order.poisoned)
        for order in ordered:
            payload = ET.fromstring(order.payload)  # noqa: S314 - our own
            if order is poisoned:
                with pytest.raises(ValueError, match="many"):
                    pieces_of(payload)
            else:
                assert 1 <= pieces_of(payload) <= 9


def test_a_bee_fails_at_times_and_is_killed_while_there_is_work() -> None:
    """Neither never nor always: otherwise the demo would show nothing."""
    failing = sum(fails(1, f"order-{number}") for number in range(1000))
    assert 100 < failing < 300
    assert {kill_after(seed, 30) for seed in range(50)} == set(range(6))


GOOD, BAD, POISONED = Order("a", "3"), Order("b", "4"), Order("c", "many")

LETTER = BrowsedItem(
    item_id="orders/c",
    payload="",
    origin="orders",
    origin_id="c",
    reason="failed",
    history=(Failure(1.0, "ben@localhost/device", "failed"),),
)


def queue_row(
    *packed: Order,
    accepted: str = "ab",
    dead: Sequence[BrowsedItem] = (LETTER,),
    left: int = 0,
) -> queue_table.QueueRow:
    run = Run(4, 1, [Packed(order.item_id, int(order.pieces)) for order in packed])
    return queue_table.reckon(
        [GOOD, BAD, POISONED],
        {"anna": [run], KILLED: [Run(2, 0, [])]},
        accepted=list(accepted),
        dead=dead,
        left=left,
        kills=1,
        seconds=1.26,
    )


def test_a_queue_is_exact_when_service_and_books_agree_on_each_item() -> None:
    row = queue_row(GOOD, BAD)
    assert row.exact
    assert (row.published, row.good, row.accepted_once) == (3, 2, 2)
    assert (row.pieces, row.pieces_truth, row.seconds) == (7, 7, 1.3)
    assert "c is dead (failed), after ben (failed)." in queue_table.verdict(row)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (queue_row(GOOD), "1 lost, 0 duplicated, 0 left; 3 pieces packed of 7"),
        (queue_row(GOOD, BAD, accepted="a"), "1 lost, 0 duplicated"),
        (queue_row(GOOD, BAD, BAD), "0 lost, 1 duplicated"),
        (queue_row(GOOD, BAD, accepted="abb"), "0 lost, 1 duplicated"),
        (queue_row(GOOD, BAD, left=1), "1 left"),
        (queue_row(GOOD, BAD, dead=()), "dead: none (poisoned: c)"),
        (queue_row(GOOD, BAD, dead=(LETTER, LETTER)), "dead: c, c"),
    ],
)
def test_what_is_wrong_with_a_queue_is_said(
    row: queue_table.QueueRow, says: str
) -> None:
    """Each of these alone: the exit status depends on it."""
    assert not row.exact
    assert row.as_dict()["exact"] is False
    assert says in " ".join(queue_table.verdict(row).split())


def test_the_bees_are_shown_run_by_run_and_together() -> None:
    """Items that a killed bee held are neither accepted nor failed."""
    runs = {
        "anna": [Run(3, 1, [Packed("a", 3), Packed("b", 4)])],
        KILLED: [Run(4, 0, []), Run(0, 0, [])],
    }
    text = queue_table.render(queue_table.bee_rows(runs))
    assert [line.split() for line in text.splitlines()] == [
        ["bee", "received", "accepted", "failed", "lost"],
        ["anna", "3", "2", "1", "0"],
        ["carl,", "killed", "4", "0", "0", "4"],
        ["carl,", "again", "0", "0", "0", "0"],
        ["together", "7", "2", "1", "4"],
    ]
