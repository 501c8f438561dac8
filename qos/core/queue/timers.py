"""Timers: when an item needs attention, and when a node does."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from qos.core.queue.item import Item, ItemState

__all__ = ["ItemTimers", "NodeTimers"]

#: The number of outdated entries that a heap may hold, beyond one for each item.
_SLACK = 1000

_Live = Callable[[str], Item | None]


class ItemTimers:
    """The times at which an item needs attention: its delay, its ttl, its lock."""

    def __init__(self, live: _Live) -> None:
        self._live = live
        self._heap: list[tuple[float, str]] = []

    def expect(self, item: Item, now: float, *, count: int) -> None:
        """Note when this item needs attention next.

        Args:
            item: as it is now.
            now: the time.
            count: how many items the node has; shows when most entries are outdated.
        """
        for moment in _moments(item, now):
            heapq.heappush(self._heap, (moment, item.item_id))
        if len(self._heap) > 3 * count + _SLACK:
            # A delay that is over still counts until it has been acted on.
            self._heap = [entry for entry in set(self._heap) if self._counts(*entry)]
            heapq.heapify(self._heap)

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
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[Item]:
        """The items whose time has come."""
        while self._heap and self._heap[0][0] <= now:
            _, item_id = heapq.heappop(self._heap)
            item = self._live(item_id)
            if item is not None:
                yield item


def _moments(item: Item, now: float) -> Iterator[float]:
    if item.state is ItemState.ACQUIRED:
        yield item.deadline
        return
    if item.is_held_back(now):
        yield item.available_at
    if item.expires_at is not None:
        yield item.expires_at


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
