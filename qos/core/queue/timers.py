"""Timers: when an item needs attention, and when a node does."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from qos.core.queue.item import Item, ItemState

__all__ = ["EXPIRED_MAX", "LOOKED_MAX", "ItemTimers", "NodeTimers"]

#: Items of a node that expire in one slice; a step has two of them. 100,000 that expired in
#: one step held up everybody for 4 to 7 s, and their commit took 13 s.
EXPIRED_MAX = 50

#: Entries that a slice of expiry, or a dispatch, passes over at most.
LOOKED_MAX = 500

#: The number of outdated entries that a heap may hold, beyond one for each item.
_SLACK = 1000

_Live = Callable[[str], Item | None]


class ItemTimers:
    """The times at which an item needs attention: its delay, its ttl, its lock."""

    def __init__(self, live: _Live) -> None:
        self._live = live
        # Delays and locks; and what expires, which is handled in slices.
        self._heap: list[tuple[float, str]] = []
        self._ttl_ends: list[tuple[float, str]] = []

    def expect(self, item: Item, now: float, *, count: int) -> None:
        """Note when this item needs attention next.

        Args:
            item: as it is now.
            now: the time.
            count: how many items the node has; shows when most entries are outdated.
        """
        if item.state is ItemState.ACQUIRED:
            heapq.heappush(self._heap, (item.deadline, item.item_id))
        elif item.is_held_back(now):
            heapq.heappush(self._heap, (item.available_at, item.item_id))
        if item.expires_at is not None and item.state is not ItemState.ACQUIRED:
            heapq.heappush(self._ttl_ends, (item.expires_at, item.item_id))
        for heap in (self._heap, self._ttl_ends):
            if len(heap) > 3 * count + _SLACK:
                # A delay that is over still counts until it has been acted on.
                heap[:] = [entry for entry in set(heap) if self._counts(*entry)]
                heapq.heapify(heap)

    def _counts(self, moment: float, item_id: str) -> bool:
        item = self._live(item_id)
        if item is None:
            return False
        if item.state is ItemState.ACQUIRED:
            # It may be looked at again later: see `look_again`.
            return moment >= item.deadline
        return moment in (item.available_at, item.expires_at)

    def look_again(self, item: Item, at: float) -> None:
        """Note that a lock, whose deadline has passed, needs attention later."""
        heapq.heappush(self._heap, (at, item.item_id))

    def next_at(self) -> float | None:
        """The earliest time; its reason may be gone by now."""
        first = [heap[0][0] for heap in (self._heap, self._ttl_ends) if heap]
        return min(first, default=None)

    def expired(self, now: float) -> Iterator[Item]:
        """The next items that nobody has and whose ttl is over: one slice of them.

        While there may be more, `next_at` is not after now.
        """
        heap, count = self._ttl_ends, 0
        for _ in range(LOOKED_MAX):
            if count == EXPIRED_MAX or not heap or heap[0][0] > now:
                break
            at, item_id = heapq.heappop(heap)
            item = self._live(item_id)
            if item is None or item.expires_at != at:
                continue
            if item.state is ItemState.AVAILABLE:
                count += 1
                yield item

    def due(self, now: float) -> Iterator[Item]:
        """The items whose lock or delay has ended."""
        while self._heap and self._heap[0][0] <= now:
            _, item_id = heapq.heappop(self._heap)
            item = self._live(item_id)
            if item is not None:
                yield item


class NodeTimers:
    """The time of the next timed event of each node."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        # With entries that are outdated.
        self._heap: list[tuple[float, str]] = []

    def set(self, node: str, at: float) -> None:
        """Let the timer of this node run until then, in place of any other time."""
        if self._times.get(node) != at:
            self._times[node] = at
            heapq.heappush(self._heap, (at, node))

    def stop(self, node: str) -> None:
        """Stop the timer of this node; harmless if it does not run."""
        self._times.pop(node, None)

    def next_at(self) -> float | None:
        """The earliest time; None: no timer runs."""
        heap = self._heap
        while heap and self._times.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def due(self, now: float) -> Iterator[str]:
        """The nodes whose time has come; their timers have stopped."""
        while (at := self.next_at()) is not None and at <= now:
            _, node = heapq.heappop(self._heap)
            del self._times[node]
            yield node
