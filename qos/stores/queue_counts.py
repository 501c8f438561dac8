"""The counts of items in the database of a queue service, so that a start counts nothing.

Each count is a row of `item_count`, by node and generation. Triggers change it together
with the rows that it counts, so that it is true after each commit, whatever has changed
them. A recount (`differences`) says whether it is.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from qos.core.counting import uncount
from qos.core.queue.contents import PlainItems
from qos.stores.queue_conditions import HAS_DELAY, IN_MEMORY, LETTER, PLAIN

__all__ = ["MIGRATION", "CountReads", "Difference", "differences"]

#: Delays are counted by the time of their end, in spans of so many seconds. (A float is
#: divided by a power of two without an error.)
_SPAN_S: Final = 64


class _Count(NamedTuple):
    """A kind of count.

    Attributes:
        kind: its name.
        condition: on an item that it counts.
        value: what it counts items by, in a node and generation.
        columns: those that the condition and the value depend on.
    """

    kind: str
    condition: str
    value: str
    columns: tuple[str, ...]


_PLAIN_COLUMNS: Final = (
    *("ended_at", "excluded", '"order"', "history", "available_at", "published_at"),
)

_COUNTS: Final = (
    _Count("plain", PLAIN, "''", _PLAIN_COLUMNS),
    _Count(
        "delayed",
        f"{PLAIN} AND {HAS_DELAY}",
        f"CAST(available_at / {_SPAN_S} AS INTEGER)",
        _PLAIN_COLUMNS,
    ),
    _Count(
        "released",
        f'{PLAIN} AND "order" > 0 AND releases > 0',
        "releases",
        (*_PLAIN_COLUMNS, "releases"),
    ),
    _Count(
        "letter", LETTER, "origin_identity", ("ended_at", "origin", "origin_identity")
    ),
    _Count(
        "dead",
        "ended_at IS NOT NULL AND outcome = 'rejected'",
        "''",
        ("ended_at", "outcome"),
    ),
)

#: What each count depends on, beside its own columns.
_OF_ALL: Final = ("node", "gen", "size")

_COLUMN: Final = re.compile(
    r"(?<![\w'])(\"order\"|"
    + "|".join({name for count in _COUNTS for name in (*count.columns, *_OF_ALL)})
    + r")(?![\w'])"
)


def _of(row: str, expression: str) -> str:
    """The expression about the columns of NEW or OLD."""
    return _COLUMN.sub(rf"{row}.\1", expression)


def _triggers(count: _Count) -> Iterator[str]:
    """The triggers that change a count."""
    columns = (*_OF_ALL, *count.columns)
    has_changed = " IS NOT ".join(
        f"({_of(row, ', '.join(columns))})" for row in ("OLD", "NEW")
    )
    changed = f"UPDATE OF {', '.join(columns)}"
    key = _of("OLD", f"node, gen, '{count.kind}', {count.value}")
    less = (
        "UPDATE item_count SET items = items - 1, size = size - OLD.size"
        f" WHERE (node, gen, kind, value) = ({key});"
        f" DELETE FROM item_count WHERE (node, gen, kind, value) = ({key}) AND items = 0;"
    )
    more = (
        "INSERT INTO item_count (node, gen, kind, value, items, size) VALUES"
        f" ({_of('NEW', f'node, gen, {count.kind!r}, {count.value}')}, 1, NEW.size)"
        " ON CONFLICT DO UPDATE"
        " SET items = items + excluded.items, size = size + excluded.size;"
    )
    for name, event, row, when, body in (
        ("inserted", "INSERT", "NEW", "", more),
        ("deleted", "DELETE", "OLD", "", less),
        ("changed_from", changed, "OLD", f"{has_changed} AND", less),
        ("changed_to", changed, "NEW", f"{has_changed} AND", more),
    ):
        yield (
            f"CREATE TRIGGER {count.kind}_{name} AFTER {event} ON item"
            f" WHEN {when} {_of(row, count.condition)} BEGIN {body} END"
        )


def _recount(count: _Count) -> str:
    return (
        f"SELECT node, gen, '{count.kind}' AS kind, {count.value} AS value,"
        " COUNT(*) AS items, SUM(size) AS size"
        f" FROM item WHERE {count.condition} GROUP BY node, gen, {count.value}"
    )


_RECOUNT: Final = " UNION ALL ".join(map(_recount, _COUNTS))

#: From version 16: the counts.
MIGRATION: Final = (
    """CREATE TABLE item_count (
        node TEXT NOT NULL,
        gen INTEGER NOT NULL,
        kind TEXT NOT NULL,
        value NOT NULL,
        items INTEGER NOT NULL,
        size INTEGER NOT NULL,
        PRIMARY KEY (node, gen, kind, value)
    ) WITHOUT ROWID""",
    f"INSERT INTO item_count {_RECOUNT}",
    *(trigger for count in _COUNTS for trigger in _triggers(count)),
)


class Difference(NamedTuple):
    """A count that is not that of the rows.

    Attributes:
        node: the queue.
        kind: what is counted.
        items: the items that it says, and those that are there.
        size: the bytes that it says, and those that are there.
    """

    node: str
    kind: str
    items: tuple[int, int]
    size: tuple[int, int]


def differences(query: Callable[..., list[Any]]) -> list[Difference]:
    """Count all items, and compare: what it returns is empty if all is well.

    It takes some seconds a million items.

    Args:
        query: returns the rows of a statement.
    """
    columns = "node, gen, kind, value"
    rows = query(
        "SELECT node, kind, SUM(noted), SUM(items), SUM(noted_size), SUM(size) FROM ("
        f" SELECT {columns}, items AS noted, 0 AS items, size AS noted_size, 0 AS size"
        " FROM item_count UNION ALL"
        f" SELECT {columns}, 0, items, 0, size FROM ({_RECOUNT})"
        f") GROUP BY {columns} HAVING SUM(noted) <> SUM(items)"
        " OR SUM(noted_size) <> SUM(size) ORDER BY node, gen, kind, value"
    )
    return [
        Difference(node, kind, (noted, items), (noted_size, size))
        for node, kind, noted, items, noted_size, size in rows
    ]


#: Of each node the counts of its generation.
_OF_NODES: Final = (
    "FROM node JOIN item_count ON item_count.node = name AND item_count.gen = node.gen"
    " AND kind ="
)


class CountReads:
    """The counts of a store; a store has them by `contents`."""

    #: Run a statement, and return its rows.
    _read: Callable[..., list[Any]]

    def _plain_counts(self, now: float) -> dict[str, PlainItems]:
        of_node = f"WHERE {PLAIN} AND node = name AND item.gen = node.gen"
        counts = self._read(
            "SELECT name, items, item_count.size, (SELECT MIN(expires_at) FROM item"
            f" INDEXED BY item_expiring {of_node} AND expires_at IS NOT NULL)"
            f" {_OF_NODES} 'plain'"
        )
        delays = self._delays(now)
        releases: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for name, in_a_row, count in self._read(
            f"SELECT name, value, items {_OF_NODES} 'released'"
        ):
            releases[name][in_a_row] = count
        plain = {
            name: PlainItems(count, size, at, *delays.get(name, (0, None)), now)
            for name, count, size, at in counts
        }
        for name, size, is_delayed, in_a_row in self._acquired(now):
            all_of_it = plain[name]
            plain[name] = all_of_it._replace(
                items=all_of_it.items - 1,
                size=all_of_it.size - size,
                delayed=all_of_it.delayed - is_delayed,
            )
            if in_a_row:
                uncount(releases[name], in_a_row)
        return {
            name: counted._replace(releases=tuple(sorted(releases[name].items())))
            for name, counted in plain.items()
            if counted.items
        }

    def _delays(self, now: float) -> dict[str, tuple[int, float | None]]:
        """How many plain items of each node are held back, and the end of the first delay.

        Of those whose delay ends in the span of this moment, the rows are counted.
        """
        span = int(now / _SPAN_S)
        of_node = (
            f"INDEXED BY item_delayed WHERE {PLAIN} AND {HAS_DELAY}"
            " AND node = name AND item.gen = node.gen AND available_at > ?"
        )
        rows = self._read(
            "SELECT name, (SELECT COALESCE(SUM(items), 0) FROM item_count"
            " WHERE node = name AND item_count.gen = node.gen AND kind = 'delayed'"
            f" AND value > ?) + (SELECT COUNT(*) FROM item {of_node} AND available_at < ?),"
            f" (SELECT MIN(available_at) FROM item {of_node}) FROM node",
            *(span, now, (span + 1) * _SPAN_S, now),
        )
        return {name: (count, until) for name, count, until in rows}

    def _acquired(self, now: float) -> Sequence[tuple[str, int, int, int]]:
        """The node, size, whether it is delayed, and releases of each that is locked.

        They are found without a look at the others.
        """
        return self._read(
            f"SELECT name, size, {HAS_DELAY} AND available_at > ?, releases"
            " FROM item INDEXED BY item_in_memory"
            " JOIN node ON item.node = name AND item.gen = node.gen"
            f" WHERE {IN_MEMORY} AND state = 'acquired' AND {PLAIN}",
            now,
        )

    def _letter_counts(self) -> dict[str, dict[str, int]]:
        counts: dict[str, dict[str, int]] = {}
        for name, identity, count in self._read(
            f"SELECT name, value, items {_OF_NODES} 'letter'"
        ):
            counts.setdefault(name, {})[identity] = count
        return counts

    def _dead_counts(self) -> dict[str, int]:
        return dict(self._read(f"SELECT name, items {_OF_NODES} 'dead'"))
