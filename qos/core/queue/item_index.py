"""An index of the items of a node that are available or locked, and their counts.

The items are found by id, by seq, by holder, by order of delivery, by the time at which they
need attention, and by the node where they died. Items are immutable: to change one,
drop the old value and put the new one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter

from qos.core.counting import uncount
from qos.core.queue.holders import Holders
from qos.core.queue.item import Item, ItemState
from qos.core.queue.letters import Letters
from qos.core.queue.ready_items import ReadyItems
from qos.core.queue.selector_time import SelectorTime
from qos.core.queue.seq_order import SeqOrder
from qos.core.queue.timers import ItemTimers
from qos.core.strings import bare

__all__ = ["ItemCounts", "ItemIndex"]


class ItemIndex:
    """The items of one node.

    Attributes:
        items: by id.
        order: the same by seq.
        counts: of those that are available.
        size: bytes of their payloads.
        oversized: how many of those that are available are too large for XMPP workers.
        letters: those that died in other nodes.
        holders: the locks, by holder.
        ready: the items that can be delivered now.
        timers: the times at which items need attention.
    """

    def __init__(self, selector_time: SelectorTime | None = None) -> None:
        """Begin without items.

        Args:
            selector_time: see ReadyItems.
        """
        self.items: dict[str, Item] = {}
        self.order = SeqOrder()
        self.counts = ItemCounts()
        self.size = self.oversized = 0
        self.letters = Letters()
        self.holders = Holders()
        self.ready = ReadyItems(self.items, selector_time)
        self.timers = ItemTimers(self.items.get)

    def put(self, item: Item, now: float) -> None:
        """Add an item whose id is not in the index."""
        self.items[item.item_id] = item
        self.order.put(item)
        self.counts.put(item, now)
        self.size += item.size
        if item.origin:
            self.letters.put(item)
        if item.state is ItemState.ACQUIRED:
            self.holders.add(item)
        else:
            self.oversized += self.ready.is_oversized(item)
            if not item.is_held_back(now):
                self.mark_ready(item)
        self.timers.expect(item, now, count=len(self.items))

    def drop(self, item: Item) -> None:
        """Remove an item, given as it was put."""
        del self.items[item.item_id]
        self.order.drop(item)
        self.counts.drop(item)
        self.size -= item.size
        self.ready.discard(item)
        if item.origin:
            self.letters.drop(item)
        if item.state is ItemState.ACQUIRED:
            self.holders.discard(item)
        else:
            self.oversized -= self.ready.is_oversized(item)

    def clear(self) -> dict[str, Item]:
        """Remove all items; returns them, by id."""
        items = dict(self.items)
        self.items.clear()
        self.order = SeqOrder()
        self.counts = ItemCounts()
        self.size = self.oversized = 0
        self.letters = Letters()
        self.holders.clear()
        self.ready.clear()
        self.timers = ItemTimers(self.items.get)
        return items

    def fit_again(self) -> bool:
        """Note that XMPP workers may get all items again; see `ReadyItems`."""
        self.oversized = 0
        return self.ready.fit_again()

    def mark_ready(self, item: Item) -> None:
        """Mark an item as ready for delivery."""
        self.ready.add(item)

    def locks(self, jid: str) -> list[Item]:
        """The items that this full JID holds, and those locked for its account."""
        ids = (*self.holders.held(jid), *self.holders.durable(bare(jid)))
        items = (self.items[item_id] for item_id in ids)
        return sorted(items, key=lambda item: (item.locked_at, item.seq))


class ItemCounts:
    """Counts of the items of a node that are available, delayed ones too.

    They are kept as items change. So a million items wait as cheaply as ten: what a
    question costs does not grow with them.

    Attributes:
        waiting: how many there are.
        excluding: how many exclude the same full JIDs, if they exclude any.
    """

    def __init__(self) -> None:
        """Begin without items."""
        self.waiting = 0
        self.excluding: Counter[frozenset[str]] = Counter()
        # By how often they were released in a row, if they were.
        self._releases: Counter[int] = Counter()
        # When the delays end of those that were held back when they came; and the seq.
        self._delays: list[tuple[float, int]] = []

    def put(self, item: Item, now: float) -> None:
        """Count an item, if it is available."""
        if item.state is not ItemState.AVAILABLE:
            return
        self.waiting += 1
        if item.excluded:
            self.excluding[item.excluded] += 1
        if item.releases:
            self._releases[item.releases] += 1
        if item.is_held_back(now):
            insort(self._delays, (item.available_at, item.seq))

    def drop(self, item: Item) -> None:
        """Count an item no more, given as it was put."""
        if item.state is not ItemState.AVAILABLE:
            return
        self.waiting -= 1
        if item.excluded:
            uncount(self.excluding, item.excluded)
        if item.releases:
            uncount(self._releases, item.releases)
        delay = item.available_at, item.seq
        place = bisect_left(self._delays, delay)
        if self._delays[place : place + 1] == [delay]:
            del self._delays[place]

    def delayed(self, now: float) -> int:
        """How many are held back."""
        return len(self._delays) - bisect_right(self._delays, now, key=_ends_at)

    @property
    def releases_most(self) -> int:
        """The largest number of releases in a row."""
        return max(self._releases, default=0)


def _ends_at(delay: tuple[float, int]) -> float:
    return delay[0]
