"""Items by seq, so that a page of a long queue costs as much as one of a short queue.

The items are in buckets of neighbouring seqs. Only the buckets of a page are sorted, and
an item is added or removed without a look at the others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import islice
from operator import attrgetter

from qos.core.queue.item import Item

__all__ = ["SeqOrder"]

#: Seqs of one bucket: sorting them takes some 20 µs.
_BUCKET = 256

_seq = attrgetter("seq")


class SeqOrder:
    """The items of one node in the order of publishing."""

    def __init__(self) -> None:
        """Begin without items."""
        self._buckets: dict[int, dict[int, Item]] = {}
        self._numbers: list[int] = []
        # The earliest time of publishing in each bucket; without those that are to be
        # looked for again.
        self._published: dict[int, float] = {}

    def put(self, item: Item) -> None:
        """Add an item."""
        number = item.seq // _BUCKET
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            insort(self._numbers, number)
            self._published[number] = item.published_at
        elif number in self._published:
            earliest = min(self._published[number], item.published_at)
            self._published[number] = earliest
        bucket[item.seq] = item

    def drop(self, item: Item) -> None:
        """Remove an item, given as it was put."""
        number = item.seq // _BUCKET
        bucket = self._buckets[number]
        del bucket[item.seq]
        if self._published.get(number) == item.published_at:
            del self._published[number]
        if not bucket:
            del self._buckets[number]
            self._published.pop(number, None)
            del self._numbers[bisect_left(self._numbers, number)]

    def oldest(self) -> Item | None:
        """The item with the smallest seq; None: there is no item."""
        if not self._numbers:
            return None
        return min(self._buckets[self._numbers[0]].values(), key=_seq)

    def published_at(self) -> float | None:
        """The earliest time of publishing; None: there is no item.

        Dead letters keep theirs, so it need not be that of the smallest seq.
        """
        published = self._published
        for number in self._buckets.keys() - published.keys():
            bucket = self._buckets[number].values()
            published[number] = min(item.published_at for item in bucket)
        return min(published.values(), default=None)

    def after(self, seq: int, limit: int) -> list[Item]:
        """The first items with a larger seq."""
        start = bisect_left(self._numbers, seq // _BUCKET)
        numbers = islice(self._numbers, start, None)
        later = (item for item in self._in(numbers) if item.seq > seq)
        return list(islice(later, limit))

    def latest(self, seq: int, limit: int) -> list[Item]:
        """The last items with a larger seq."""
        items: list[Item] = []
        for number in reversed(self._numbers):
            if len(items) >= limit or number < seq // _BUCKET:
                break
            items += [item for item in self._in((number,), last=True) if item.seq > seq]
        return items[:limit][::-1]

    def _in(self, numbers: Iterable[int], *, last: bool = False) -> Iterable[Item]:
        """The items of these buckets in order, or with the last one first."""
        for number in numbers:
            yield from sorted(self._buckets[number].values(), key=_seq, reverse=last)
