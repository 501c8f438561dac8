"""The items of a queue that wait on disk only: those behind its head.

A queue can hold more items than memory has room for. So it keeps the first plain ones in
memory, its *head*, and leaves the rest where they are written. What lies behind the head
is known by number and size alone. When the head is given out, the next ones are read.

*Plain* items (`Item.is_plain`) have the same order on disk as here. All others stay in
memory: those that are locked, held back, were given back, exclude a worker or died
elsewhere.

The *frontier* is the last item of the head. Every plain item in front of it is in memory,
whatever comes and goes. So a worker gets the item at the top of memory if that is not behind
the frontier, and else the next ones are read first. Behind it there are some in memory, too:
those that came while the queue had selectors, and those that expire.

Plain items expire in the order of time, wherever they lie. Those whose time has come are
read into memory, some at a time, and end there. From then on nobody finds them here, though
their rows may still be written or read.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Sequence
from typing import TypeAlias

from qos.core.queue.contents import Moment, StoredItems
from qos.core.queue.item import PRIORITIES, Item, Node
from qos.core.queue.timers import EXPIRED_MAX

__all__ = ["READ", "Backlog", "Place", "place_of"]

#: The items that are read at once when the head is given out: it takes 2 ms.
READ = 128

#: The place of an item in the order of delivery: the priority (negative), `Item.order`,
#: `Item.seq`; then the id.
Place: TypeAlias = tuple[int, int, int, str]

#: Before each place.
_FIRST: Place = (-PRIORITIES.stop, 0, 0, "")


#: Before each moment.
_NEVER: Moment = (-math.inf, 0)


def place_of(item: Item) -> Place:
    """The place of an item in the order of delivery."""
    return (-item.priority, item.order, item.seq, item.item_id)


def _moment(item: Item) -> Moment:
    return (math.inf if item.expires_at is None else item.expires_at, item.seq)


class Backlog:
    """The plain items of one queue that are on disk only.

    Attributes:
        is_used: items may be left on disk.
        count: how many there are.
        size: bytes of their payloads.
        frontier: the place of the last plain item of the head.
        expires_at: none of the items expires before; None: none of them does.
    """

    def __init__(
        self,
        node: Node,
        store: StoredItems | None,
        count: int = 0,
        size: int = 0,
        expires_at: float | None = None,
    ) -> None:
        """Begin with what the store has; all of it is behind the frontier.

        Args:
            node: the queue.
            store: has the items; None: all of them stay in memory.
            count: how many plain items there are.
            size: bytes of their payloads.
            expires_at: see there.
        """
        self._node, self._gen = node.name, node.gen
        self._store = store
        self.is_used = store is not None
        self.count, self.size = count, size
        self.frontier = _FIRST
        self.expires_at = expires_at
        # Each item that expires before, or then, is in memory or has ended.
        self._expired: Moment = _NEVER

    def end(self) -> None:
        """Leave no items on disk from now on; there are none."""
        assert not self.count
        self.is_used, self.expires_at = False, None

    def may_wait(self, item: Item) -> bool:
        """Whether a plain item may be left on disk: its time has not come yet."""
        return item.expires_at is None or _moment(item) > self._expired

    def put(self, item: Item) -> None:
        """Leave a plain item, which lies behind the frontier, on disk."""
        self.count += 1
        self.size += item.size
        if item.expires_at is not None:
            first = self.expires_at
            self.expires_at = (
                item.expires_at if first is None else min(first, item.expires_at)
            )

    def drop(self, item: Item) -> None:
        """Note that one of the items ends."""
        self.count -= 1
        self.size -= item.size

    def clear(self, gen: int) -> None:
        """Note that the queue has been purged, and has this generation now."""
        self._gen = gen
        self.count = self.size = 0
        self.frontier = _FIRST
        self.expires_at = None
        self._expired = _NEVER

    def read(self, in_memory: Container[str]) -> list[Item]:
        """Take the next items out, which will be in the head.

        Args:
            in_memory: the ids of the items that are in memory already.
        """
        assert self._store is not None
        priority, _, seq, _ = self.frontier
        page = self._store.plain(
            self._node, self._gen, after=(-priority, seq), limit=READ
        )
        if page:
            self.frontier = place_of(page[-1])
        items = self._taken(page, in_memory)
        if len(page) < READ:
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
        moments = [_moment(item) for item in page]
        count = sum(at <= now for at, _ in moments[:EXPIRED_MAX])
        items = self._taken(page[:count], in_memory)
        self.expires_at = moments[count][0] if count < len(page) else None
        if count:
            self._expired = moments[count - 1]
        return items

    def _taken(self, page: Sequence[Item], in_memory: Container[str]) -> list[Item]:
        items = [
            item
            for item in page
            if item.item_id not in in_memory and self.may_wait(item)
        ]
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
