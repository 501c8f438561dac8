"""Counts of the items of a node, kept as items change, so that nobody has to look at all.

A million items wait as cheaply as ten: what a question costs does not grow with them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter

from qos.core.counting import uncount
from qos.core.queue.item import Item, ItemState

__all__ = ["ItemCounts"]


class ItemCounts:
    """Of the items of a node that are available, delayed ones too.

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
