"""The kept counts of a queue: what has gone is not counted."""

from __future__ import annotations

from qos.core.queue.item import Item
from qos.core.queue.item_index import ItemCounts
from qos.core.record import replace


def test_an_item_counts_as_long_as_it_is_there() -> None:
    item = Item(
        seq=1,
        node="orders",
        item_id="a",
        publisher="shop@x",
        digest="",
        size=1,
        published_at=1.0,
        available_at=9.0,
        excluded=frozenset({"bee@x/1"}),
        releases=2,
    )
    counts = ItemCounts()
    counts.put(item, 2.0)
    counts.put(replace(item, seq=2), 2.0)
    seen = counts.waiting, counts.delayed(2.0), counts.releases_most
    assert (*seen, counts.excluding) == (2, 2, 2, {item.excluded: 2})
    counts.drop(item)
    counts.drop(replace(item, seq=2))
    seen = counts.waiting, counts.delayed(2.0), counts.releases_most
    assert (*seen, counts.excluding) == (0, 0, 0, {})
