"""Items by seq, so that a page of a long queue costs as much as one of a short queue.

The items are in buckets of neighbouring seqs. Only the buckets of a page are sorted, and
an item is added or removed without a look at the others.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter

from qos.core.queue.item import Item

__all__ = ["SeqOrder", "is_seq"]

#: Seqs of one bucket: sorting them takes some 20 µs.
_BUCKET = 256

#: The number of outdated entries that the heap of times may hold, beyond one a bucket.
_SLACK = 1000

#: The most digits of a seq that surely fits into SQLite's 64-bit integers.
_SEQ_CHARS_MAX = 18

_seq = attrgetter("seq")


def is_seq(text: str) -> bool:
    """Whether a part of a cursor may be a seq; those that we give always are."""
    return text.isascii() and text.isdecimal() and len(text) <= _SEQ_CHARS_MAX


class SeqOrder:
    """The items of one node in the order of publishing."""

    def __init__(self) -> None:
        """Begin without items."""
        self._buckets: dict[int, dict[int, Item]] = {}
        self._numbers: list[int] = []
        self._count = 0
        # A time of publishing for each bucket: that of its oldest item. After that item
        # has gone, until somebody asks, the others are not older, and the bucket is
        # inexact.
        self._published: dict[int, float] = {}
        self._inexact: set[int] = set()
        # The same with the earliest one first, and with entries that are outdated.
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return self._count

    def put(self, item: Item) -> None:
        """Add an item."""
        number = item.seq // _BUCKET
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            insort(self._numbers, number)
        if item.published_at < self._published.get(number, math.inf):
            self._note(number, item.published_at)
        bucket[item.seq] = item
        self._count += 1

    def drop(self, item: Item) -> None:
        """Remove an item, given as it was put."""
        number = item.seq // _BUCKET
        bucket = self._buckets[number]
        del bucket[item.seq]
        self._count -= 1
        if self._published[number] == item.published_at:
            self._inexact.add(number)
        if not bucket:
            del self._buckets[number], self._published[number]
            self._inexact.discard(number)
            del self._numbers[bisect_left(self._numbers, number)]

    def _note(self, number: int, published_at: float) -> None:
        """Note the time of publishing of the oldest item of a bucket."""
        self._published[number] = published_at
        self._inexact.discard(number)
        heapq.heappush(self._heap, (published_at, number))
        if len(self._heap) > 2 * len(self._buckets) + _SLACK:
            self._heap = [(at, bucket) for bucket, at in self._published.items()]
            heapq.heapify(self._heap)

    def oldest(self) -> Item | None:
        """The item with the smallest seq; None: there is no item."""
        if not self._numbers:
            return None
        return min(self._buckets[self._numbers[0]].values(), key=_seq)

    def published_at(self) -> float | None:
        """The earliest time of publishing; None: there is no item.

        Dead letters keep theirs, so it need not be that of the smallest seq.
        """
        while self._heap:
            published_at, number = self._heap[0]
            if self._published.get(number) != published_at:
                heapq.heappop(self._heap)
            elif number in self._inexact:
                heapq.heappop(self._heap)
                bucket = self._buckets[number].values()
                self._note(number, min(item.published_at for item in bucket))
            else:
                return published_at
        return None

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

    def _in(self, numbers: Iterable[int], *, last: bool = False) -> Iterator[Item]:
        """The items of these buckets in order, or with the last one first."""
        for number in numbers:
            yield from sorted(self._buckets[number].values(), key=_seq, reverse=last)
