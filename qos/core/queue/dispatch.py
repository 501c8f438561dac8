"""Dispatch: the order of the items, and the choice of a worker for each.

Within a priority, first deliveries go out in the order of publishing, and redeliveries
after them. The worker with the fewest items gets the next one; among equals, the worker
that has waited longest.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from qos.core.queue.item import Item, ItemState, Subscription

__all__ = ["Candidate", "Candidates", "ItemTimers", "ReadyItems"]

#: The number of outdated entries that a heap may hold, beyond one for each item.
_SLACK = 1000

_Live = Callable[[str], Item | None]


class ReadyItems:
    """The items that can be delivered now, in order.

    There is one heap for each set of workers that cannot handle an item, so as a rule
    there is one heap. An entry whose item is no longer ready is dropped when it comes
    to the top.
    """

    def __init__(self, live: _Live) -> None:
        self._live = live
        self._heaps: dict[frozenset[str], list[tuple[int, int, int, str]]] = {}
        self._entries = 0

    def add(self, item: Item, *, count: int) -> None:
        """Add an item that is available and not delayed.

        Args:
            item: the item.
            count: how many items the node has; shows when most entries are outdated.
        """
        heap = self._heaps.setdefault(item.excluded, [])
        heapq.heappush(heap, (-item.priority, item.order, item.seq, item.item_id))
        self._entries += 1
        if self._entries > 2 * count + _SLACK:
            self._clean()

    def _clean(self) -> None:
        """Drop outdated and duplicate entries."""
        for excluded, heap in list(self._heaps.items()):
            heap[:] = [entry for entry in set(heap) if self._item(entry, excluded)]
            heapq.heapify(heap)
            if not heap:
                del self._heaps[excluded]
        self._entries = sum(map(len, self._heaps.values()))

    def any(self) -> bool:
        """Whether an item may be ready; True can be wrong, False cannot."""
        return bool(self._heaps)

    def pop(self, free: Candidates) -> Item | None:
        """The next item that one of these workers can take; None: there is none."""
        best: frozenset[str] | None = None
        for excluded in list(self._heaps):
            heap = self._heaps[excluded]
            while heap and self._item(heap[0], excluded) is None:
                heapq.heappop(heap)
                self._entries -= 1
            if not heap:
                del self._heaps[excluded]
            elif free.any_but(excluded) and (
                best is None or heap[0] < self._heaps[best][0]
            ):
                best = excluded
        if best is None:
            return None
        self._entries -= 1
        return self._item(heapq.heappop(self._heaps[best]), best)

    def _item(
        self, entry: tuple[int, int, int, str], excluded: frozenset[str]
    ) -> Item | None:
        _, order, seq, item_id = entry
        item = self._live(item_id)
        if (
            item is not None
            and item.state is ItemState.AVAILABLE
            and (item.seq, item.order, item.excluded) == (seq, order, excluded)
        ):
            return item
        return None


@dataclass(slots=True)
class Candidate:
    """A worker that can take an item.

    Attributes:
        subscription: the subscription by which it gets items.
        holder: the full JID that will hold the item.
        load: how many items it holds.
        turn: when it was served last, as a number that grows with each delivery.
    """

    subscription: Subscription
    holder: str
    load: int
    turn: int


class Candidates:
    """The workers that can take an item now."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._tie = itertools.count()
        self._heap: list[tuple[int, int, int, Candidate]] = []
        for candidate in candidates:
            self.put(candidate)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def any_but(self, excluded: frozenset[str]) -> bool:
        """Whether at least one worker is not among the excluded ones."""
        return not excluded or any(
            entry[3].holder not in excluded for entry in self._heap
        )

    def take(self, item: Item) -> Candidate:
        """Take out the worker that gets this item, which `ReadyItems.pop` has returned.

        Another worker than the last holder is preferred, if there is one.
        """
        aside = []
        while (
            self._heap[0][3].holder in item.excluded
            or self._heap[0][3].holder == item.last_holder
        ):
            aside.append(heapq.heappop(self._heap))
            if not self._heap:
                break
        if self._heap:
            chosen = heapq.heappop(self._heap)
        else:
            chosen = next(e for e in aside if e[3].holder not in item.excluded)
            aside.remove(chosen)
        for entry in aside:
            heapq.heappush(self._heap, entry)
        return chosen[3]

    def put(self, candidate: Candidate) -> None:
        """Add a worker that can take an item."""
        entry = (candidate.load, candidate.turn, next(self._tie), candidate)
        heapq.heappush(self._heap, entry)


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
            return moment == item.deadline
        return moment in (item.available_at, item.expires_at)

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
