"""Purges and deleted nodes in the database of a queue service.

A purge is one row of `purged`, and a deleted node one row of `deleted`, whatever the number
of items. Every query of items leaves out those that they name (`SHOWN`), and every query
of remembered ends those of deleted nodes (`SHOWN_ENDS`). The live items of a purge count as
remembered ends (`ENDS`). The rows of all these go later, some in each commit.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, Final

from qos.core.queue.effects import PurgeNode
from qos.core.queue.item import EndedItem, PurgedItems
from qos.stores.queue_base import ItemRow
from qos.stores.sqlite_changes import Kind, Statement, Value, insert, names

__all__ = [
    "ENDS",
    "HAS_PURGED",
    "HIDE_DELETED",
    "NEXT_GEN",
    "PURGE_NODE",
    "REMOVE_PURGED",
    "SHOWN",
    "SHOWN_ENDS",
    "next_purged",
    "purged_row",
]

_PURGED = tuple(field.name for field in fields(PurgedItems))
_ENDED = tuple(field.name for field in fields(EndedItem))

#: The condition on an item that a purge has removed: see PurgedItems.has.
_IS_PURGED = (
    "purged.node = item.node AND purged.gen = item.gen AND outcome IS NOT 'accepted'"
)


def _is_not_deleted(table: str) -> str:
    """The condition on a row of this table whose node was not deleted; see RemoveNode."""
    return (
        "NOT EXISTS (SELECT 1 FROM deleted"
        f" WHERE deleted.node = {table}.node AND deleted.gen >= {table}.gen)"
    )


#: The condition on an item that no purge has removed, and no deletion of its node.
SHOWN: Final = f"NOT EXISTS (SELECT 1 FROM purged WHERE {_IS_PURGED}) AND {_is_not_deleted('item')}"

#: The condition on an end whose node was not deleted.
SHOWN_ENDS: Final = _is_not_deleted("ended")


def _ends(index: str) -> str:
    """The query for the ends of purged items, with the columns of ENDED.

    See PurgedItems.end_of.

    Args:
        index: what SQL says of the index by which they are found.
    """
    return (
        "SELECT seq, item.node, item_id, publisher, digest, purged_at, purged.forget_at,"
        f" '', '', NULL, item.gen FROM purged CROSS JOIN item {index}"
        f" WHERE {_IS_PURGED} AND state <> 'archived' AND {_is_not_deleted('item')}"
    )


#: The ends of purged items; see `_ends`.
ENDS: Final = _ends("")

#: See QueueStore.has_purged.
HAS_PURGED: Final = (
    "SELECT EXISTS (SELECT 1 FROM purged) OR EXISTS (SELECT 1 FROM deleted)"
)

#: See QueueContents.next_gen.
NEXT_GEN: Final = "SELECT COALESCE(MAX(gen) + 1, 0) FROM deleted"

_FIRST_DELETED = (
    "SELECT node, gen, after_id, after_seq, after_token FROM deleted"
    " ORDER BY node LIMIT 1"
)
_FIRST_PURGED = (
    "SELECT node, gen, after_id, after_seq FROM purged ORDER BY node, gen LIMIT 1"
)

#: Id, seq, generation, outcome and state of the next items of a node, by id and seq.
_NEXT_ITEMS = (
    "SELECT item_id, seq, gen, outcome, state FROM item INDEXED BY item_by_id"
    " WHERE node = ? AND (item_id, seq) > (?, ?) ORDER BY item_id, seq LIMIT ?"
)

#: The numbers in a list as JSON: one statement for all of them, as a trigger costs more for
#: each statement than for each row.
_THESE = "(SELECT value FROM json_each(?))"

#: Hide the items and the ends of a node that is deleted, and begin to look at them.
HIDE_DELETED: Final = (
    Statement("DELETE FROM purged WHERE node = ? AND gen <= ?", "node", "gen"),
    Statement(
        "INSERT INTO deleted (node, gen) VALUES (?, ?) ON CONFLICT DO UPDATE"
        " SET gen = MAX(gen, excluded.gen), after_id = '', after_token = NULL,"
        " after_seq = 0",
        "node",
        "gen",
    ),
)


def purged_row(change: PurgeNode) -> tuple[Value, ...]:
    """The values of PURGE_NODE."""
    return tuple(getattr(change.purged, name) for name in _PURGED)


class _RemovePurged(Kind):
    """See RemovePurged."""

    def __init__(self) -> None:
        super().__init__("item", ("rows",))

    def make(self, db: sqlite3.Connection, rows: Sequence[tuple[Value, ...]]) -> None:
        """See Kind."""
        for (limit,) in rows:
            assert isinstance(limit, int)
            if deleted := db.execute(_FIRST_DELETED).fetchone():
                _look_at_deleted(db, *deleted, limit)
            elif purged := db.execute(_FIRST_PURGED).fetchone():
                _look_at_purged(db, *purged, limit)


def next_purged(query: Callable[..., list[Any]], limit: int) -> list[ItemRow]:
    """See QueueStore.

    Args:
        query: returns the rows of a statement with these values.
        limit: as in RemovePurged.
    """
    if deleted := query(_FIRST_DELETED):
        node, gen, after_id, after_seq, after_token = deleted[0]
        gens = range(gen + 1)
        if after_token is not None:
            # The ends are next.
            return []
    elif purged := query(_FIRST_PURGED):
        node, gen, after_id, after_seq = purged[0]
        gens = range(gen, gen + 1)
    else:
        return []
    items = query(_NEXT_ITEMS, node, after_id, after_seq, limit)
    return [
        ItemRow(node, item_id, seq)
        for item_id, seq, item_gen, _, state in items
        if item_gen in gens and state != "archived"
    ]


def _look_at_deleted(
    db: sqlite3.Connection,
    node: str,
    gen: int,
    after_id: str,
    after_seq: int,
    after_token: str | None,
    limit: int,
) -> None:
    if after_token is None:
        items = _next_items(db, node, after_id, after_seq, limit)
        _remove(db, [seq for _, seq, item_gen, _, _ in items if item_gen <= gen])
        # When all items have been looked at, the ends are next.
        ends_next = len(items) < limit
        last = ("", "", 0) if ends_next else (items[-1][0], None, items[-1][1])
    else:
        ends = db.execute(
            "SELECT item_id, token, seq, gen FROM ended"
            " WHERE node = ? AND (item_id, token, seq) > (?, ?, ?)"
            " ORDER BY item_id, token, seq LIMIT ?",
            (node, after_id, after_token, after_seq, limit),
        ).fetchall()
        db.executemany(
            "DELETE FROM ended WHERE node = ? AND item_id = ? AND token = ? AND seq = ?",
            [(node, *key) for *key, end_gen in ends if end_gen <= gen],
        )
        if len(ends) < limit:
            db.execute("DELETE FROM deleted WHERE node = ?", (node,))
            return
        last = ends[-1][:3]
    db.execute(
        "UPDATE deleted SET after_id = ?, after_token = ?, after_seq = ?"
        " WHERE node = ?",
        (*last, node),
    )


def _look_at_purged(
    db: sqlite3.Connection,
    node: str,
    gen: int,
    after_id: str,
    after_seq: int,
    limit: int,
) -> None:
    items = _next_items(db, node, after_id, after_seq, limit)
    seqs = [
        seq
        for _, seq, item_gen, outcome, _ in items
        if item_gen == gen and outcome != "accepted"
    ]
    ends = f"{_ends('NOT INDEXED')} AND seq IN {_THESE}"
    db.execute(
        f"INSERT OR REPLACE INTO ended ({names(_ENDED)}) {ends}", (json.dumps(seqs),)
    )
    _remove(db, seqs)
    if len(items) == limit:
        db.execute(
            "UPDATE purged SET after_id = ?, after_seq = ? WHERE node = ? AND gen = ?",
            (*items[-1][:2], node, gen),
        )
    else:
        db.execute("DELETE FROM purged WHERE node = ? AND gen = ?", (node, gen))


def _next_items(
    db: sqlite3.Connection, node: str, after_id: str, after_seq: int, limit: int
) -> list[tuple[str, int, int, str | None, str]]:
    return db.execute(_NEXT_ITEMS, (node, after_id, after_seq, limit)).fetchall()


def _remove(db: sqlite3.Connection, seqs: Sequence[int]) -> None:
    for table in ("item_payload", "item"):
        db.execute(f"DELETE FROM {table} WHERE seq IN {_THESE}", (json.dumps(seqs),))


PURGE_NODE = Kind(
    "purged",
    _PURGED,
    Statement(insert("purged", _PURGED, verb="INSERT OR REPLACE"), *_PURGED),
)
REMOVE_PURGED = _RemovePurged()
