"""Purges in the database of a queue service: items that nobody sees, and their removal.

A purge is one row of `purged`, whatever the number of items. Every query of items leaves
out those that it names (`SHOWN`), and its live ones count as remembered ends (`ENDS`).
Their rows go later, some in each commit.
"""

# ruff: noqa: S608 - the SQL is put together of our own names; values are bound
from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import fields

from qos.core.queue.effects import PurgeNode
from qos.core.queue.item import EndedItem, PurgedItems
from qos.stores.sqlite_changes import Kind, Statement, Value, insert, names

__all__ = ["ENDS", "PURGE_NODE", "REMOVE_PURGED", "SHOWN", "purged_row"]

_PURGED = tuple(field.name for field in fields(PurgedItems))
_ENDED = tuple(field.name for field in fields(EndedItem))

#: The condition on an item that a purge has removed: see PurgedItems.has.
_IS_PURGED = (
    "purged.node = item.node AND purged.gen = item.gen AND outcome IS NOT 'accepted'"
)

#: The condition on an item that no purge has removed.
SHOWN = f"NOT EXISTS (SELECT 1 FROM purged WHERE {_IS_PURGED})"

#: The ends of purged items, with the columns of ENDED: see PurgedItems.end_of.
ENDS = (
    "SELECT seq, item.node, item_id, publisher, digest, purged_at, purged.forget_at,"
    " '', '', NULL FROM purged CROSS JOIN item"
    f" WHERE {_IS_PURGED} AND state <> 'archived'"
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
            first = db.execute(
                "SELECT node, gen, after_id, after_seq FROM purged"
                " ORDER BY node, gen LIMIT 1"
            ).fetchone()
            if first is not None:
                self._look(db, first, limit)

    def _look(
        self, db: sqlite3.Connection, first: tuple[str, int, str, int], limit: Value
    ) -> None:
        node, gen, *after = first
        looked_at = db.execute(
            "SELECT item_id, seq, gen, outcome FROM item INDEXED BY item_by_id"
            " WHERE node = ? AND (item_id, seq) > (?, ?)"
            " ORDER BY item_id, seq LIMIT ?",
            (node, *after, limit),
        ).fetchall()
        seqs = [
            (seq,)
            for _, seq, item_gen, outcome in looked_at
            if item_gen == gen and outcome != "accepted"
        ]
        db.executemany(
            f"INSERT OR REPLACE INTO ended ({names(_ENDED)}) {ENDS} AND seq = ?", seqs
        )
        for table in ("item_payload", "item"):
            db.executemany(f"DELETE FROM {table} WHERE seq = ?", seqs)
        if len(looked_at) == limit:
            db.execute(
                "UPDATE purged SET after_id = ?, after_seq = ?"
                " WHERE node = ? AND gen = ?",
                (*looked_at[-1][:2], node, gen),
            )
        else:
            db.execute("DELETE FROM purged WHERE node = ? AND gen = ?", (node, gen))


PURGE_NODE = Kind(
    "purged",
    _PURGED,
    Statement(insert("purged", _PURGED, verb="INSERT OR REPLACE"), *_PURGED),
)
REMOVE_PURGED = _RemovePurged()
