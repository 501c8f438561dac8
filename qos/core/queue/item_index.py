"""An index of the items of a node that are available or locked, and their counts.

Plain items that are delayed, or behind the head of a queue, are on disk only, and this
index knows of them what their `Backlog` knows. All others are in memory, and are found by id, by seq, by holder, by order of delivery, by the time at which they
need attention, and by the node where they died. Items are immutable: to change one,
drop the old value and put the new one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from qos.core.counting import uncount
from qos.core.queue.backlog import READ, Backlog
from qos.core.queue.holders import Holders
from qos.core.queue.item import Item, ItemState
from qos.core.queue.letters import Letters
from qos.core.queue.places import behind, place_of
from qos.core.queue.ready_items import Kind, ReadyItems
from qos.core.queue.selector_time import SelectorTime
from qos.core.queue.seq_order import SeqOrder
from qos.core.queue.timers import ItemTimers
from qos.core.strings import bare

__all__ = ["HEAD", "ItemCounts", "ItemIndex"]

#: The plain items of a queue that stay in memory when more than twice as many are ready:
#: 0.8 kB each. With four times as many it keeps them all, which happens after selectors
#: only. And as many that are held back.
HEAD = 256


class ItemIndex:
    """The items of one node.

    Attributes:
        backlog: those that are on disk only.
        items: the others, by id.
        order: the same by seq.
        counts: of those that are available.
        oversized: how many of those that are available are too large for XMPP workers.
        letters: those that died in other nodes, wherever they are.
        holders: the locks, by holder.
        ready: the items that can be delivered now.
        timers: the times at which items need attention.
    """

    def __init__(
        self,
        backlog: Backlog,
        letters: Letters,
        selector_time: SelectorTime | None = None,
    ) -> None:
        """Begin without items in memory.

        Args:
            backlog: the items on disk.
            letters: of the node.
            selector_time: see ReadyItems.
        """
        self.backlog = backlog
        self.items: dict[str, Item] = {}
        self.order = SeqOrder()
        self.counts = ItemCounts()
        self._size = self.oversized = 0
        # The plain ones in memory that are in the head, by seq.
        self._plain: dict[int, Item] = {}
        self.letters = letters
        self.holders = Holders()
        self.ready = ReadyItems(self.items, selector_time, backlog)
        self.timers = ItemTimers(self.items.get)

    @property
    def count(self) -> int:
        """How many items there are."""
        return len(self.items) + self.backlog.count

    @property
    def size(self) -> int:
        """Bytes of their payloads."""
        return self._size + self.backlog.size

    def find(self, item_ids: Sequence[str]) -> dict[str, Item]:
        """Those of the items that have these ids, by id."""
        items = {
            item_id: self.items[item_id]
            for item_id in item_ids
            if item_id in self.items
        }
        if self.backlog.count:
            rest = [item_id for item_id in item_ids if item_id not in items]
            items |= self.backlog.find(rest)
        return items

    def get(self, item_id: str) -> Item | None:
        """The item with this id; None: there is none."""
        item = self.items.get(item_id)
        if item is None and self.backlog.count:
            item = self.backlog.find([item_id]).get(item_id)
        return item

    def takes(self, item_id: str) -> bool:
        """Whether an item has this id; see `Backlog.has`."""
        return item_id in self.items or self.backlog.has(item_id)

    def page(self, after: int, limit: int, *, last: bool = False) -> list[Item]:
        """The first items with a larger seq, or the last ones; by seq."""
        page = self.order.latest if last else self.order.after
        items = {item.seq: item for item in self.backlog.page(after, limit, last=last)}
        items |= {item.seq: item for item in page(after, limit)}
        seqs = sorted(items)
        return [items[seq] for seq in (seqs[-limit:] if last else seqs[:limit])]

    def published_at(self) -> float | None:
        """The earliest time of publishing; None: there is no item.

        Of those on disk it is that of the first one.
        """
        first = [item.published_at for item in self.backlog.page(0, 1)]
        in_memory = self.order.published_at()
        return min(first if in_memory is None else [*first, in_memory], default=None)

    def load(self, items: Iterable[Item], now: float) -> None:
        """Add items that the store has; the letters among them are counted already."""
        for item in items:
            self._place(item, now)

    def put(self, item: Item, now: float) -> None:
        """Add an item whose id is not in the index."""
        if item.origin:
            self.letters.put(item)
        if item.state is ItemState.AVAILABLE:
            self.backlog.new.append(item)
        self._place(item, now)

    def _place(self, item: Item, now: float) -> None:
        """Add an item, to memory or to those on disk only."""
        backlog = self.backlog
        if (
            backlog.is_used
            and item.is_plain
            and backlog.may_wait(item)
            and not self.ready.is_oversized(item)
        ):
            if item.is_held_back(now):
                stays = self.counts.delayed(now) < HEAD
            else:
                stays = place_of(item) < backlog.frontier
                if stays:
                    self._plain[item.seq] = item
            if not stays:
                backlog.put(item)
                return
        self._keep(item, now)
        if len(self._plain) > 2 * HEAD:
            self._shorten()

    def _shorten(self) -> None:
        """Leave the plain items that come last on disk only, unless there are too many."""
        if self.ready.has_selectors or len(self._plain) > 4 * HEAD:
            return
        plain = sorted(self._plain.values(), key=place_of)
        for item in plain[HEAD:]:
            del self._plain[item.seq]
            if self.backlog.may_wait(item):
                self._remove(item)
                self.backlog.put(item)
        self.backlog.frontier = behind(place_of(plain[HEAD - 1]))

    def read(self, now: float) -> None:
        """Take the next items that are on disk only into memory."""
        self._take(self.backlog.read(now, self.items), now)

    def _take(self, items: Iterable[Item], now: float) -> None:
        """Take items that were on disk only into the head."""
        for item in items:
            self._plain[item.seq] = item
            self._keep(item, now)

    def next_at(self) -> float | None:
        """The earliest time at which an item needs attention; its reason may be gone."""
        first = self.timers.next_at()
        for at in (self.backlog.expires_at, self.backlog.delayed_until):
            if at is not None and (first is None or at < first):
                first = at
        return first

    def expired(self, now: float) -> Iterator[Item]:
        """The next items that nobody has and whose ttl is over: one slice of them.

        While there may be more, `next_at` is not after now.
        """
        end = self.backlog.expires_at
        if end is not None and end <= now:
            for item in self.backlog.read_expired(now, self.items):
                self._keep(item, now)
        return self.timers.expired(now)

    def delay_over(self, item: Item, now: float) -> None:
        """Note that an item in memory is not held back any more."""
        self._remove(item)
        self._place(item, now)

    def read_due(self, now: float) -> None:
        """Take a slice of the items on disk whose delay is over, as far as they are next.

        While there may be more, `next_at` is not after now.
        """
        until = self.backlog.delayed_until
        if until is None or until > now:
            return
        self._take(self.backlog.read_due(now, self.items), now)
        if len(self._plain) > 2 * HEAD:
            self._shorten()

    def keep_all(self, now: float) -> None:
        """Take all items into memory, and leave none on disk only from now on."""
        after = 0
        while page := self.backlog.page(after, READ):
            after = page[-1].seq
            for item in page:
                self.backlog.drop(item)
                self._keep(item, now)
        self.backlog.end()

    def pop(self, kinds: Collection[Kind], now: float) -> Item | None:
        """See `ReadyItems.pop`; what comes next is read, unless that goes in slices."""
        item = self.ready.pop(kinds)
        while item is None and self.backlog.is_unread and not self.ready.has_selectors:
            self.read(now)
            if self.backlog.passes:
                break
            item = self.ready.pop(kinds)
        return item

    def classify(self, now: float) -> None:
        """See `ReadyItems.classify`; selectors see all items, so these are read first."""
        if self.backlog.is_unread and self.ready.has_selectors:
            self.read(now)
        self.ready.classify()

    def _keep(self, item: Item, now: float) -> None:
        """Take an item into memory."""
        self.items[item.item_id] = item
        self.order.put(item)
        self.counts.put(item, now)
        self._size += item.size
        if item.state is ItemState.ACQUIRED:
            self.holders.add(item)
        else:
            self.oversized += self.ready.is_oversized(item)
            if not item.is_held_back(now):
                self.mark_ready(item)
        self.timers.expect(item, now, count=len(self.items))

    def drop(self, item: Item) -> None:
        """Remove an item, given as it was put."""
        if item.origin:
            self.letters.drop(item)
        if item.item_id in self.items:
            self._remove(item)
        else:
            self.backlog.drop(item)

    def _remove(self, item: Item) -> None:
        """Remove an item from memory."""
        del self.items[item.item_id]
        self._plain.pop(item.seq, None)
        self.order.drop(item)
        self.counts.drop(item)
        self._size -= item.size
        self.ready.discard(item)
        if item.state is ItemState.ACQUIRED:
            self.holders.discard(item)
        else:
            self.oversized -= self.ready.is_oversized(item)

    def clear(self, gen: int) -> dict[str, Item]:
        """Remove all items; returns those that are in memory, by id.

        Args:
            gen: the generation of the node from now on.
        """
        items = dict(self.items)
        self.items.clear()
        self._plain.clear()
        self.backlog.clear(gen)
        self.order = SeqOrder()
        self.counts = ItemCounts()
        self._size = self.oversized = 0
        self.letters.clear(gen)
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
        """The largest number of releases in a row, of those in memory."""
        return max(self._releases, default=0)


def _ends_at(delay: tuple[float, int]) -> float:
    return delay[0]
