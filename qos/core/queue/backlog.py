"""The items of a queue that wait on disk only: those behind its head, and delayed ones.

A queue can hold more items than memory has room for. So it keeps the first ones that are
ready in memory, its *head*, and leaves the rest where they are written. What lies behind
the head is known by number and size alone. When the head is given out, the next ones are
read.

That is so for *plain* items (`Item.is_plain`), which have the same order on disk as here.
All others stay in memory: those that are locked, or exclude a worker.

The *frontier* is the end of the head. Every plain item in front of it is in memory, if it
is ready, whatever comes and goes. So a worker gets the item at the top of memory if that
is not behind the frontier, and else the next ones are read first.

Delays end in the order of time, wherever the items lie. Some held back ones are in memory,
the rest on disk, also in front of the frontier. When the time of one on disk has come, it
is read if it lies in front of the frontier. From then on it is an item like others.

The store knows what earlier steps have decided, and nothing of the present one. So no read
goes past an item that was put there in this step: the next step goes on.

Items expire in the order of time, too. Those whose time has come are read into memory, some
at a time, and end there. From then on nobody finds them here, though their rows may still
be written or read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Container, Iterable

from qos.core.counting import uncount
from qos.core.queue.contents import Moment, PlainItems, StoredItems
from qos.core.queue.item import Item, Node
from qos.core.queue.places import FIRST, LAST, DelayEnd, before, delay_end, place_of
from qos.core.queue.timers import EXPIRED_MAX

__all__ = ["READ", "Backlog"]

#: The items that are read at once when the head is given out: it takes 2 ms.
READ = 128

#: Before each moment, and after each.
_NEVER: Moment = (-math.inf, 0)
_NO_MOMENT: Moment = (math.inf, 0)


def _moment(item: Item) -> Moment:
    return (math.inf if item.expires_at is None else item.expires_at, item.seq)


def _earlier(until: float | None, at: float) -> float:
    return at if until is None else min(until, at)


class Backlog:
    """The plain items of one queue that are on disk only.

    Attributes:
        is_used: items may be left on disk.
        count: how many there are.
        size: bytes of their payloads.
        frontier: the end of the head.
        passes: the items that were looked at last are all held back, so that the next ones
            are to be looked at in the next step.
        expires_at: none of the items expires before; None: none of them does.
        delayed: how many are held back, or were when this was looked at last.
        delayed_until: none of these delays ends before; None: there is none.
        new: the items that were decided in the present step, here or in memory: the store
            does not know them.
    """

    def __init__(
        self,
        node: Node,
        store: StoredItems | None,
        plain: PlainItems | None = None,
    ) -> None:
        """Begin with what the store has; all of it is behind the frontier.

        Args:
            node: the queue.
            store: has the items; None: all of them stay in memory.
            plain: those that it has; None: it has none.
        """
        plain = plain or PlainItems()
        self._node, self._gen = node.name, node.gen
        self._store = store
        self.is_used = store is not None
        self.count, self.size = plain.items, plain.size
        self.frontier = FIRST if plain.items else LAST
        self.passes = False
        self.expires_at = plain.expires_at
        # Each item that expires before, or then, is in memory or has ended.
        self._expired: Moment = _NEVER
        self.delayed, self.delayed_until = plain.delayed, plain.delayed_until
        # Each delay that ends before, or then, is over.
        self._over: DelayEnd = (plain.counted_at, *LAST[:3])
        self._releases = Counter(dict(plain.releases))
        self.new: list[Item] = []

    def _unknown(self, in_memory: Container[str]) -> list[Item]:
        """Those that the store does not know yet."""
        return [item for item in self.new if item.item_id not in in_memory]

    def end(self) -> None:
        """Leave no items on disk from now on; there are none."""
        assert not self.count
        self.is_used, self.frontier = False, LAST
        self.expires_at = self.delayed_until = None

    @property
    def is_unread(self) -> bool:
        """Whether there may be items behind the frontier."""
        return self.frontier < LAST

    @property
    def releases_most(self) -> int:
        """The largest number of releases in a row."""
        return max(self._releases, default=0)

    def may_wait(self, item: Item) -> bool:
        """Whether a plain item may be left on disk: it is not about to expire."""
        return item.expires_at is None or _moment(item) > self._expired

    def put(self, item: Item) -> None:
        """Leave a plain item on disk, which is held back or lies behind the frontier."""
        self.count += 1
        self.size += item.size
        if item.releases:
            self._releases[item.releases] += 1
        if item.expires_at is not None:
            self.expires_at = _earlier(self.expires_at, item.expires_at)
        if self._is_delayed(item):
            self.delayed += 1
            self.delayed_until = _earlier(self.delayed_until, item.available_at)

    def _is_delayed(self, item: Item) -> bool:
        """Whether an item is counted as delayed."""
        return item.has_delay and delay_end(item) > self._over

    def drop(self, item: Item) -> None:
        """Note that one of the items ends, or is in memory from now on."""
        self.count -= 1
        self.size -= item.size
        if item.releases:
            uncount(self._releases, item.releases)
        self.delayed -= self._is_delayed(item)

    def clear(self, gen: int) -> None:
        """Note that the queue has been purged, and has this generation now."""
        self._gen = gen
        self.count = self.size = self.delayed = 0
        self.frontier, self.passes = LAST, False
        self.expires_at = self.delayed_until = None
        self._expired = _NEVER
        self._releases.clear()
        self.new.clear()

    def read(self, now: float, in_memory: Container[str]) -> list[Item]:
        """Take the next items out that are not held back; they will be in the head.

        Args:
            now: the time.
            in_memory: the ids of the items that are in memory already.
        """
        assert self._store is not None
        page, end = self._store.plain(
            self._node,
            self._gen,
            start=self.frontier,
            limit=READ,
            # A delay that has ended does not begin again if the clock is set back.
            now=max(now, self._over[0]),
        )
        new = [
            before(place_of(item))
            for item in self._unknown(in_memory)
            if not item.is_held_back(now)
        ]
        self.frontier = min([end, *new])
        page = [item for item in page if place_of(item) < self.frontier]
        items = self._taken(page, in_memory)
        self.passes = self.is_unread and not items
        if not (self.is_unread or self.delayed):
            # That is the end, whatever was counted.
            self.count = self.size = 0
        return items

    def read_expired(self, now: float, in_memory: Container[str]) -> list[Item]:
        """Take the next items out whose ttl is over; see `read`.

        Call it when `expires_at` has come. While there may be more, that is not after now.
        """
        assert self._store is not None
        page = self._store.expiring(
            self._node, self._gen, after=self._expired, limit=EXPIRED_MAX + 1
        )
        new = min(map(_moment, self._unknown(in_memory)), default=_NO_MOMENT)
        page = [item for item in page if _moment(item) < new]
        moments = [_moment(item) for item in page]
        count = sum(at <= now for at, _ in moments[:EXPIRED_MAX])
        items = self._taken(page[:count], in_memory)
        self.expires_at = moments[count][0] if count < len(page) else None
        if new < _NO_MOMENT:
            self.expires_at = _earlier(self.expires_at, new[0])
        if count:
            self._expired = moments[count - 1]
        return items

    def read_due(self, now: float, in_memory: Container[str]) -> list[Item]:
        """Take the next items out whose delay is over, if they lie in the head.

        Call it when `delayed_until` has come. While there may be more, that is not after
        now. See `read`.
        """
        assert self._store is not None
        page = self._store.delayed(
            self._node, self._gen, after=self._over, until=now, limit=READ
        )
        unknown = filter(self._is_delayed, self._unknown(in_memory))
        new = min(map(delay_end, unknown), default=(math.inf, *LAST[:3]))
        is_all = len(page) < READ and new[0] > now
        page = [item for item in page if delay_end(item) < new]
        due = len(self._on_disk(page, in_memory))
        in_head = [item for item in page if place_of(item) < self.frontier]
        items = self._taken(in_head, in_memory)
        self.delayed -= due - len(items)
        if is_all:
            self._over = max(self._over, (now, *LAST[:3]))
            self.delayed_until = self._store.next_delay(self._node, self._gen, now)
            if new[0] < math.inf:
                self.delayed_until = _earlier(self.delayed_until, new[0])
            if self.delayed_until is None:
                self.delayed = 0
        else:
            self.delayed_until = now
            if page:
                self._over = delay_end(page[-1])
        return items

    def _on_disk(self, page: Iterable[Item], in_memory: Container[str]) -> list[Item]:
        """Those of the items that have been read that are here."""
        return [
            item
            for item in page
            if item.item_id not in in_memory and self.may_wait(item)
        ]

    def _taken(self, page: Iterable[Item], in_memory: Container[str]) -> list[Item]:
        items = self._on_disk(page, in_memory)
        for item in items:
            self.drop(item)
        return items

    def find(self, item_ids: Collection[str]) -> dict[str, Item]:
        """Those of the items that have these ids, by id."""
        if not item_ids:
            return {}
        assert self._store is not None
        return self._store.find_plain(self._node, self._gen, item_ids)

    def has(self, item_id: str) -> bool:
        """Whether one of the items has this id; asked in the middle of a step.

        Raises:
            StepFailed: the store cannot be read.
        """
        if not self.count:
            return False
        assert self._store is not None
        item = self._store.plain_item(self._node, self._gen, item_id)
        return item is not None and self.may_wait(item)

    def page(self, after: int, limit: int, *, last: bool = False) -> list[Item]:
        """The first plain items with a larger seq, or the last ones, by seq.

        Those that are in memory may be among them.
        """
        if not self.count:
            return []
        assert self._store is not None
        return self._store.plain_page(
            self._node, self._gen, after=after, limit=limit, last=last
        )
