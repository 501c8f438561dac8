"""Dispatch: the choice of a worker for each item.

Within a priority, first deliveries go out in the order of publishing, and redeliveries
after them. The worker with the fewest items gets the next one; among equals, the worker
that has waited longest.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from operator import itemgetter

from qos.core.queue.item import Item, Subscription
from qos.core.queue.ready_items import Kind, ReadyItems

__all__ = ["Candidate", "Candidates"]


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
    """The workers that can take an item now, by what they can take."""

    def __init__(self, candidates: Iterable[Candidate], ready: ReadyItems) -> None:
        self._ready = ready
        self._tie = itertools.count()
        self._heaps: dict[Kind, list[tuple[int, int, int, Candidate]]] = {}
        for candidate in candidates:
            self.put(candidate)

    def __bool__(self) -> bool:
        return bool(self._heaps)

    def kinds(self) -> Collection[Kind]:
        """The kinds of items that the idle workers can take."""
        return self._heaps

    def take(self, item: Item) -> Candidate:
        """Take out the worker that gets this item, which `ReadyItems.pop` has returned.

        Another worker than the last holder is preferred, if there is one.
        """
        aside, best = [], None
        kinds = list(self._heaps)
        if len(kinds) > 1:
            kinds = [kind for kind in kinds if self._ready.takes(kind, item)]
        for kind in kinds:
            heap = self._heaps[kind]
            while heap and heap[0][3].holder == item.last_holder:
                aside.append((heapq.heappop(heap), kind))
            if heap and (best is None or heap[0] < self._heaps[best][0]):
                best = kind
        if best is None:
            chosen, best = aside.pop(aside.index(min(aside, key=itemgetter(0))))
        else:
            chosen = heapq.heappop(self._heaps[best])
        for entry, kind in aside:
            heapq.heappush(self._heaps[kind], entry)
        if not self._heaps[best]:
            del self._heaps[best]
        return chosen[3]

    def put(self, candidate: Candidate) -> None:
        """Add a worker that can take an item."""
        selector = candidate.subscription.selector
        kind = self._ready.kind_of(selector, candidate.holder)
        entry = (candidate.load, candidate.turn, next(self._tie), candidate)
        heapq.heappush(self._heaps.setdefault(kind, []), entry)
