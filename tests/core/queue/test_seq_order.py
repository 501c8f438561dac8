"""Items by seq: each page as of a sorted list, without a look at the whole of it."""

import random

import pytest

from qos.core.queue import seq_order
from qos.core.queue.item import Item
from qos.core.queue.seq_order import SeqOrder
from qos.core.record import replace


def item(seq: int) -> Item:
    return Item(
        seq=seq,
        node="orders",
        item_id=f"i{seq}",
        publisher="shop@x",
        digest="",
        size=1,
        published_at=0.0,
        available_at=0.0,
    )


def seqs(page: list[Item]) -> list[int]:
    return [each.seq for each in page]


@pytest.mark.parametrize("most", [40, 400, 40_000])
def test_a_page_is_that_of_a_sorted_list(most: int) -> None:
    """Dense and sparse, whatever comes and goes, and in any order."""
    chance = random.Random(most)
    order, there = SeqOrder(), dict[int, Item]()
    for _ in range(600):
        seq = chance.randrange(most)
        if seq in there:
            order.drop(there.pop(seq))
        else:
            there[seq] = item(seq)
            order.put(there[seq])
        after, limit = chance.randrange(-1, most), chance.randrange(1, 30)
        later = [each for each in sorted(there) if each > after]
        assert seqs(order.after(after, limit)) == later[:limit]
        assert seqs(order.latest(after, limit)) == later[-limit:]
        oldest = order.oldest()
        assert (oldest and oldest.seq) == min(there, default=None)
    for each in there.values():
        order.drop(each)
    assert order.oldest() is None
    assert order.after(0, 9) == order.latest(0, 9) == []


def test_a_page_of_a_long_queue_costs_as_much_as_one_of_a_short_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A browser of 100,000 items asks for a thousand pages; no turn looks at all items."""
    order = SeqOrder()
    for seq in range(20_000):
        order.put(item(seq))
    looked: list[int] = []

    def seq_of(it: Item) -> int:
        looked.append(it.seq)
        return it.seq

    monkeypatch.setattr(seq_order, "_seq", seq_of)
    for page in (order.after, order.latest):
        looked.clear()
        assert len(page(10_000, 100)) == 100
        assert len(looked) <= 2 * seq_order._BUCKET


def test_the_earliest_time_is_that_of_all_items_whatever_comes_and_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was looked for in each bucket that had lost its oldest item."""
    monkeypatch.setattr(seq_order, "_SLACK", 3)
    chance = random.Random(5)
    order, there = SeqOrder(), dict[int, Item]()
    for step in range(3000):
        seq = chance.randrange(2000)
        if seq in there:
            order.drop(there.pop(seq))
        else:
            # A dead letter has a time of its own.
            at = float(chance.choice((seq, 7, chance.randrange(9))))
            there[seq] = replace(item(seq), published_at=at)
            order.put(there[seq])
        if step % 3 == 0:
            earliest = min((each.published_at for each in there.values()), default=None)
            assert order.published_at() == earliest
        assert len(order) == len(there)
    for each in there.values():
        order.drop(each)
    assert (order.published_at(), len(order)) == (None, 0)


def test_an_empty_queue_that_is_passed_through_keeps_nothing() -> None:
    """A million items, one at a time."""
    order = SeqOrder()
    for seq in range(4 * seq_order._SLACK):
        order.put(item(seq))
        order.drop(item(seq))
    assert len(order._heap) <= seq_order._SLACK + 1


def test_the_earliest_time_needs_no_look_at_other_buckets() -> None:
    """Workers take the items in any order; who asks for the counts looks at one bucket."""
    order = SeqOrder()
    times = [replace(item(seq), published_at=float(seq)) for seq in range(20_000)]
    for each in times:
        order.put(each)
    gone = [each for each in times if each.seq % seq_order._BUCKET == 0]
    for each in gone:
        order.drop(each)
    assert order.published_at() == 1.0
    assert len(order._inexact) == len(gone) - 1
