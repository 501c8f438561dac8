"""How far the time of a fleet has come, though some of its clocks are wrong.

One clock that is ahead must not close a day for all other nodes. So the day counts that
a quarter of the nodes of a journal have reached, and of these days the one that a quarter
of the journals have reached; of two or more it must be two at least. Whoever writes into
one folder only can invent nodes there, but no other folders. Nodes and journals that have
not come to the days that are open do not count: they may be gone for good.

This module is pure, and knows nothing of Spark.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Final

__all__ = ["watermark"]

#: One of this many must have reached a day.
_OF: Final = 4


def watermark(
    nodes: Iterable[tuple[int | None, date, int]], open_from: date | None
) -> date | None:
    """The last day that enough nodes have reached; None: there is no node.

    Args:
        nodes: a journal, a day, and the number of nodes of the journal of which this is
            the last day.
        open_from: the first day that is open; None: any.
    """
    by_journal: dict[int | None, Counter[date]] = defaultdict(Counter)
    for journal, day, count in nodes:
        if open_from is None or day >= open_from:
            by_journal[journal][day] += count
    if not by_journal:
        return None
    return _reached(Counter(map(_reached, by_journal.values())))


def _reached(counts: Mapping[date, int]) -> date:
    """The last day that enough have reached, of those with some last day."""
    total = sum(counts.values())
    quorum = max(-(-total // _OF), min(total, 2))
    reached = 0
    for day in sorted(counts, reverse=True):
        reached += counts[day]
        if reached >= quorum:
            return day
    raise AssertionError(counts)
