"""The plain items of a queue (`Item.is_plain`), and its dead letters, in its database.

Each read takes its time by what it returns, however many items there are: an index has
them in the order in which they are asked for. A lock changes none of these indices. So a
read passes over the rows that are locked.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from qos.core.queue.contents import Moment
from qos.core.queue.item import PRIORITIES, Item
from qos.core.queue.places import LAST, DelayEnd, Place, behind, place_of
from qos.stores.queue_conditions import HAS_DELAY, LETTER, PLAIN

__all__ = ["IDS", "LOOKED_AT", "PlainReads"]

#: The number of ids that one statement looks up.
IDS = 256

#: The rows that one look for items that are not held back may pass over: 0.2 ms.
LOOKED_AT = 1000

_IN_ORDER = f"INDEXED BY item_plain WHERE {PLAIN} AND node = ? AND gen = ?"

#: The places from one up to another, of items with one priority: of those that were never
#: given back, and of the others, of which no two have the same order.
_RANGES = (
    'priority = ? AND "order" = 0 AND seq >= ? AND seq < ?',
    'priority = ? AND "order" >= ? AND ("order" > ? OR seq >= ?)'
    ' AND "order" <= ? AND ("order" < ? OR seq < ?)',
)

#: Larger than each seq, and than each order.
_MAX = 2**62


def _range(start: Place, end: Place) -> tuple[int, ...]:
    """The values of _RANGES."""
    priority, order, seq, _ = start
    end_order, end_seq = end[1:3] if end[0] == priority else (_MAX, 0)
    if order:
        return (-priority, order, order, seq, end_order, end_order, end_seq)
    return (-priority, seq, _MAX if end_order else end_seq)


class PlainReads:
    """The reads of a store; each method is one of QueueStore."""

    #: Run a statement, and return its rows.
    _read: Callable[..., list[Any]]

    #: The items that these clauses find.
    _items: Callable[..., list[Item]]

    def plain(
        self, node: str, gen: int, *, start: Place, limit: int, now: float
    ) -> tuple[list[Item], Place]:
        """See QueueStore."""
        items: list[Item] = []
        while (segment := self._segment(node, gen, start)) is not None:
            start, end = segment
            stop = self._end_of_look(node, gen, start, end)
            items += self._items(
                f"{_IN_ORDER} AND {_RANGES[start[1] > 0]} AND state = 'available'"
                ' AND (available_at <= ? OR "order" = 0 AND available_at <= published_at)'
                ' ORDER BY "order", seq LIMIT ?',
                *(node, gen, *_range(start, stop), now, limit - len(items)),
            )
            if len(items) == limit:
                return items, behind(place_of(items[-1]))
            if stop < end:
                return items, stop
            start = end
        return items, LAST

    def _segment(self, node: str, gen: int, start: Place) -> tuple[Place, Place] | None:
        """The next places that an index has in one order; None: nothing is left.

        They are those of one priority: of the items that were never given back, or of the
        others.
        """
        rows = self._read(
            f"SELECT priority FROM item {_IN_ORDER} AND priority <= ?"
            " ORDER BY priority DESC LIMIT 1",
            *(node, gen, -start[0]),
        )
        if not rows:
            return None
        priority = -rows[0][0]
        start = max(start, (priority, 0, 0, ""))
        given_back, end = (priority, 1, 0, ""), (priority + 1, 0, 0, "")
        return start, end if start >= given_back else given_back

    def _end_of_look(self, node: str, gen: int, start: Place, end: Place) -> Place:
        """The place up to which one look goes that may find nothing."""
        rows = self._read(
            f'SELECT "order", seq FROM item {_IN_ORDER} AND {_RANGES[start[1] > 0]}'
            ' ORDER BY "order", seq LIMIT 1 OFFSET ?',
            *(node, gen, *_range(start, end), LOOKED_AT),
        )
        return (start[0], *rows[0], "") if rows else end

    def plain_page(
        self, node: str, gen: int, *, after: int, limit: int, last: bool = False
    ) -> list[Item]:
        """See QueueStore."""
        direction = "DESC" if last else "ASC"
        rest = (
            "node = ? AND gen = ? AND seq > ? AND state = 'available'"
            f" ORDER BY seq {direction} LIMIT ?"
        )
        values = (node, gen, after, limit)
        items = self._items(
            f'INDEXED BY item_given_back WHERE {PLAIN} AND "order" > 0 AND {rest}',
            *values,
        )
        # The others have the order of their seq, one priority after the other.
        for priority in PRIORITIES:
            items += self._items(
                f"INDEXED BY item_plain WHERE {PLAIN} AND priority = ?"
                f' AND "order" = 0 AND {rest}',
                *(priority, *values),
            )
        items.sort(key=lambda item: item.seq)
        return items[max(0, len(items) - limit) :] if last else items[:limit]

    def expiring(self, node: str, gen: int, *, after: Moment, limit: int) -> list[Item]:
        """See QueueStore."""
        return self._after(
            f"INDEXED BY item_expiring WHERE {PLAIN} AND expires_at IS NOT NULL",
            ("expires_at", "seq"),
            after,
            (node, gen, limit),
        )

    def delayed(
        self, node: str, gen: int, *, after: DelayEnd, until: float, limit: int
    ) -> list[Item]:
        """See QueueStore."""
        return self._after(
            f"INDEXED BY item_delayed WHERE {PLAIN} AND {HAS_DELAY}",
            ("available_at", "-priority", '"order"', "seq"),
            after,
            (node, gen, limit),
            until,
        )

    def _after(
        self,
        index: str,
        columns: Sequence[str],
        after: Sequence[float],
        of: tuple[str, int, int],
        until: float = math.inf,
    ) -> list[Item]:
        """The items of a node, generation and number that come after a place in an order.

        SQLite finds a place in an index by one inequality only, in the last column that it
        compares. So those with the same values in the first columns come first.
        """
        node, gen, limit = of
        items: list[Item] = []
        for same in reversed(range(len(columns))):
            place = [f"{column} = ?" for column in columns[:same]]
            place.append(f"{columns[same]} > ?")
            values = after[: same + 1]
            if not same:
                place.append(f"{columns[same]} <= ?")
                values = (*values, until)
            items += self._items(
                f"{index} AND node = ? AND gen = ? AND {' AND '.join(place)}"
                f" AND state = 'available' ORDER BY {', '.join(columns)} LIMIT ?",
                *(node, gen, *values, limit - len(items)),
            )
            if len(items) == limit:
                break
        return items

    def letters(
        self, node: str, gen: int, identity: str, *, after: int, limit: int
    ) -> list[Item]:
        """See QueueStore."""
        return self._items(
            f"INDEXED BY item_letter WHERE {LETTER} AND node = ? AND gen = ?"
            " AND origin_identity = ? AND seq > ? ORDER BY seq LIMIT ?",
            *(node, gen, identity, after, limit),
        )

    def find_letters(
        self, node: str, gen: int, identity: str, origin_ids: Collection[str]
    ) -> list[Item]:
        """See QueueStore."""
        items: list[Item] = []
        ids = list(origin_ids)
        for start in range(0, len(ids), IDS):
            batch = ids[start : start + IDS]
            marks = ", ".join("?" * len(batch))
            items += self._items(
                f"INDEXED BY item_letter_by_id WHERE {LETTER} AND node = ? AND gen = ?"
                f" AND origin_identity = ? AND origin_id IN ({marks})",
                *(node, gen, identity, *batch),
            )
        return items

    def next_delay(self, node: str, gen: int, now: float) -> float | None:
        """See QueueStore."""
        ((at,),) = self._read(
            f"SELECT MIN(available_at) FROM item INDEXED BY item_delayed WHERE {PLAIN}"
            f" AND {HAS_DELAY} AND node = ? AND gen = ? AND available_at > ?",
            *(node, gen, now),
        )
        return None if at is None else float(at)

    def find_plain(
        self, node: str, gen: int, item_ids: Collection[str]
    ) -> dict[str, Item]:
        """See QueueStore."""
        items: dict[str, Item] = {}
        ids = list(item_ids)
        for start in range(0, len(ids), IDS):
            batch = ids[start : start + IDS]
            marks = ", ".join("?" * len(batch))
            batch_items = self._items(
                f"INDEXED BY item_by_id WHERE node = ? AND item_id IN ({marks})"
                f" AND gen = ? AND state = 'available' AND {PLAIN} ORDER BY seq",
                node,
                *batch,
                gen,
            )
            items.update((item.item_id, item) for item in batch_items)
        return items
