"""The disk of a queue service as dictionaries, for a queue store.

It applies changes as the tables of `qos.stores.queue_store` do, and decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from qos.core.queue.effects import (
    Change,
    RemoveItem,
    RemoveNode,
    RemoveSubscription,
    RemoveTerminus,
    SaveItem,
    SaveLock,
)
from qos.core.queue.item import LOCK, EndedItem, Item, ItemState
from qos.core.record import replace
from qos.testing.queue_store_model import QueueModel

__all__ = ["QueueDisk"]


@dataclass
class QueueDisk(QueueModel):
    """The tables on disk. A change that no service would make is an error."""

    def apply(self, change: Change) -> None:
        """Make one change, as the store does."""
        match change:
            case SaveLock(item):
                before = self.items.get(item.seq)
                assert before is not None, "locked, but never written"
                lock = {name: getattr(item, name) for name in LOCK}
                assert replace(before, **lock) == item, "more than its lock is changed"
            case SaveItem(item, None):
                assert item.seq in self.items, "changed, but never written"
            case SaveItem(item):
                assert item.seq not in self.items, "a seq is used twice"
            case RemoveItem(seq):
                assert seq in self.items, "removed, but not there"
            case RemoveSubscription(node, jid):
                assert (node, jid) in self.subscriptions, "removed, but not there"
            case RemoveTerminus(jid):
                assert jid in self.termini, "removed, but not there"
            case RemoveNode(name, gen):
                assert name in self.nodes, "removed, but not there"
                assert gen == self.nodes[name].gen, "not its last generation"
            case _:
                pass
        super().apply(change)

    def all_ended(
        self, node: str, item_ids: Sequence[str], *, since: float = -math.inf
    ) -> dict[str, list[EndedItem]]:
        """The remembered ends of items with these ids, by id."""
        found: dict[str, list[EndedItem]] = {}
        for each in self.all_ends():
            asked = each.node == node and each.item_id in item_ids
            if asked and each.ended_at > since:
                found.setdefault(each.item_id, []).append(each)
        return found

    def settled(
        self, node: str, tokens: Sequence[tuple[str, str]]
    ) -> dict[str, EndedItem]:
        """The ends with these tokens, each with its item's id, by id."""
        return {
            each.item_id: each
            for each in self.written_ends()
            if each.node == node and (each.item_id, each.token) in tokens
        }

    def live(self, node: str) -> list[Item]:
        """The available and locked items, by seq."""
        found = [item for item in self.items.values() if item.node == node]
        found = list(filter(self.is_shown, found))
        found = [item for item in found if item.state is not ItemState.ARCHIVED]
        return sorted(found, key=lambda item: item.seq)
