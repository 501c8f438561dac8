"""The disk of a queue service as dictionaries, for `qos.stores.queue_store`.

It applies changes as the tables do, and decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from qos.core.queue.effects import (
    Change,
    ForgetOld,
    RemoveItem,
    RemoveNode,
    RemoveSubscription,
    SaveEnded,
    SaveItem,
    SaveNode,
    SaveSubscription,
)
from qos.core.queue.item import (
    EndedItem,
    Item,
    ItemOutcome,
    ItemState,
    Node,
    Subscription,
)
from qos.core.queue.service import QueueContents

__all__ = ["QueueDisk"]


@dataclass
class QueueDisk:
    """The contents of the disk.

    Attributes:
        nodes: by name.
        subscriptions: by node and JID.
        items: by seq, in any state.
        payloads: of the items.
        ended: the remembered ends, by node, id, token and seq.
        last_seq: the largest that was ever there.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    subscriptions: dict[tuple[str, str], Subscription] = field(default_factory=dict)
    items: dict[int, Item] = field(default_factory=dict)
    payloads: dict[int, str] = field(default_factory=dict)
    ended: dict[tuple[str, str, str, int], EndedItem] = field(default_factory=dict)
    last_seq: int = 0

    def apply(self, change: Change) -> None:
        """Write one change, as the store does."""
        match change:
            case SaveItem(item, payload):
                if payload is None:
                    assert item.seq in self.items, "changed, but never written"
                else:
                    assert item.seq not in self.items, "a seq is used twice"
                    self.payloads[item.seq] = payload
                    self.last_seq = max(self.last_seq, item.seq)
                self.items[item.seq] = item
            case RemoveItem(seq):
                del self.items[seq], self.payloads[seq]
            case SaveEnded(ended):
                end = (ended.node, ended.item_id, ended.token, ended.seq)
                self.ended[end] = ended
            case SaveSubscription(subscription):
                key = (subscription.node, subscription.jid)
                self.subscriptions[key] = subscription
            case RemoveSubscription(node, jid):
                del self.subscriptions[node, jid]
            case SaveNode(saved):
                self.nodes[saved.name] = saved
            case RemoveNode(name):
                self._remove_node(name)
            case ForgetOld(now):
                self._forget(now)

    def _remove_node(self, name: str) -> None:
        del self.nodes[name]
        for seq in [seq for seq, item in self.items.items() if item.node == name]:
            del self.items[seq], self.payloads[seq]
        for key in [key for key in self.subscriptions if key[0] == name]:
            del self.subscriptions[key]
        for end in [end for end in self.ended if end[0] == name]:
            del self.ended[end]

    def _forget(self, now: float) -> None:
        for key in [key for key, one in self.ended.items() if one.forget_at <= now]:
            del self.ended[key]
        for seq, item in list(self.items.items()):
            if item.forget_at is not None and item.forget_at <= now:
                del self.items[seq], self.payloads[seq]

    def all_ended(
        self, node: str, item_ids: Sequence[str], *, since: float = -math.inf
    ) -> dict[str, list[EndedItem]]:
        """The remembered ends of items with these ids, by id."""
        found: dict[str, list[EndedItem]] = {}
        for (at, item_id, *_), each in self.ended.items():
            if at == node and item_id in item_ids and each.ended_at > since:
                found.setdefault(item_id, []).append(each)
        return found

    def settled(
        self, node: str, tokens: Sequence[tuple[str, str]]
    ) -> dict[str, EndedItem]:
        """The ends with these tokens, each with its item's id, by id."""
        return {
            item_id: each
            for (at, item_id, token, _), each in self.ended.items()
            if at == node and (item_id, token) in tokens
        }

    def live(self, node: str) -> list[Item]:
        """The available and locked items, by seq."""
        found = [item for item in self.items.values() if item.node == node]
        found = [item for item in found if item.state is not ItemState.ARCHIVED]
        return sorted(found, key=lambda item: item.seq)

    def archived(self, node: str, outcome: ItemOutcome) -> list[Item]:
        """The archived items with this outcome, by seq."""
        found = [item for item in self.items.values() if item.node == node]
        found = [item for item in found if item.outcome is outcome]
        return sorted(found, key=lambda item: item.seq)

    def start(self) -> QueueContents:
        """The contents that a service gets when it starts."""
        dead = {
            name: len(self.archived(name, ItemOutcome.REJECTED)) for name in self.nodes
        }
        return QueueContents(
            nodes=list(self.nodes.values()),
            subscriptions=list(self.subscriptions.values()),
            items=[item for name in self.nodes for item in self.live(name)],
            dead={name: count for name, count in dead.items() if count},
            next_seq=self.last_seq + 1,
            next_order=max((each.order for each in self.items.values()), default=0) + 1,
        )
