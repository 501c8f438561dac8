"""The places of items in the orders of a queue: of delivery, and of the ends of delays.

A place is compared as a tuple is. No two items of a queue have the same one.
"""

from __future__ import annotations

from typing import TypeAlias

from qos.core.queue.item import PRIORITIES, Item

__all__ = [
    "FIRST",
    "LAST",
    "DelayEnd",
    "Place",
    "before",
    "behind",
    "delay_end",
    "place_of",
]

#: The place of an item in the order of delivery: the priority (negative), `Item.order`,
#: `Item.seq`; then the id. Without an id: in front of the item with this seq.
Place: TypeAlias = tuple[int, int, int, str]

#: In front of all items, and behind all.
FIRST: Place = (1 - PRIORITIES.stop, 0, 0, "")
LAST: Place = (1 - PRIORITIES.start, 0, 0, "")

#: The place of an item in the order in which delays end: the time; then as above.
DelayEnd: TypeAlias = tuple[float, int, int, int]


def place_of(item: Item) -> Place:
    """The place of an item in the order of delivery."""
    return (-item.priority, item.order, item.seq, item.item_id)


def behind(place: Place) -> Place:
    """The place right behind an item."""
    priority, order, seq, _ = place
    return (priority, order, seq + 1, "")


def before(place: Place) -> Place:
    """The place right before an item."""
    return (*place[:3], "")


def delay_end(item: Item) -> DelayEnd:
    """The place of an item in the order in which delays end."""
    return (item.available_at, -item.priority, item.order, item.seq)
