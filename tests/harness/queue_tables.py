"""The tables of a queue store as dictionaries: what is in them after some changes."""

from __future__ import annotations

from dataclasses import dataclass, field

from qos.core.queue.effects import (
    Change,
    ForgetOld,
    RemoveItem,
    RemoveNode,
    RemoveSubscription,
    RemoveTerminus,
    SaveEnded,
    SaveItem,
    SaveNode,
    SaveSubscription,
    SaveTerminus,
)
from qos.core.queue.item import EndedItem, Item, Node, Subscription
from qos.core.queue.push import (
    LINK_S,
    PushLink,
    PushSubscriber,
    RemovePushLink,
    RemovePushSubscriber,
    SavePushLink,
    SavePushSubscriber,
)
from qos.core.queue.terminus import Terminus

__all__ = ["QueueTables"]


@dataclass
class QueueTables:
    """The contents of a queue store.

    Attributes:
        nodes: by name.
        subscriptions: by node and JID.
        termini: by full JID.
        items: by seq, in whatever state.
        payloads: of the items.
        ended: the remembered ends, by node, id, token and seq.
        push_subscribers: by their ids.
        push_links: by the id of a subscriber, and seq.
        last_seq: the largest seq that was ever there.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    subscriptions: dict[tuple[str, str], Subscription] = field(default_factory=dict)
    termini: dict[str, Terminus] = field(default_factory=dict)
    items: dict[int, Item] = field(default_factory=dict)
    payloads: dict[int, str] = field(default_factory=dict)
    ended: dict[tuple[str, str, str, int], EndedItem] = field(default_factory=dict)
    push_subscribers: dict[str, PushSubscriber] = field(default_factory=dict)
    push_links: dict[tuple[str, int], PushLink] = field(default_factory=dict)
    last_seq: int = 0

    def apply(self, change: Change) -> None:
        """Make one change, as the store does."""
        match change:
            case SaveItem(item, payload):
                if payload is not None:
                    self.payloads[item.seq] = payload
                self.items[item.seq] = item
                self.last_seq = max(self.last_seq, item.seq)
            case RemoveItem(seq):
                self._remove(seq)
            case SaveEnded(ended):
                end = (ended.node, ended.item_id, ended.token, ended.seq)
                self.ended[end] = ended
            case SaveSubscription(subscription):
                key = (subscription.node, subscription.jid)
                self.subscriptions[key] = subscription
            case RemoveSubscription(node, jid):
                self.subscriptions.pop((node, jid), None)
            case SaveTerminus(terminus):
                self.termini[terminus.jid] = terminus
            case RemoveTerminus(jid):
                self.termini.pop(jid, None)
            case SavePushSubscriber(subscriber):
                self.push_subscribers[subscriber.subscriber_id] = subscriber
            case RemovePushSubscriber(subscriber_id):
                self._remove_pushed(subscriber_id)
            case SavePushLink(link):
                self.push_links[link.subscriber_id, link.seq] = link
            case RemovePushLink(subscriber_id, seq):
                self.push_links.pop((subscriber_id, seq), None)
            case SaveNode(saved):
                self.nodes[saved.name] = saved
            case RemoveNode(name):
                self._remove_node(name)
            case ForgetOld(now):
                self._forget(now)

    def _remove_pushed(self, subscriber_id: str) -> None:
        self.push_subscribers.pop(subscriber_id, None)
        for key in [key for key in self.push_links if key[0] == subscriber_id]:
            del self.push_links[key]

    def _remove(self, seq: int) -> None:
        self.items.pop(seq, None)
        self.payloads.pop(seq, None)

    def _remove_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        for seq in [seq for seq, item in self.items.items() if item.node == name]:
            self._remove(seq)
        for key in [key for key in self.subscriptions if key[0] == name]:
            del self.subscriptions[key]
        for each in [each for each in self.termini.values() if each.node == name]:
            del self.termini[each.jid]
        for end in [end for end in self.ended if end[0] == name]:
            del self.ended[end]
        for its in [its for its in self.push_subscribers.values() if its.node == name]:
            self._remove_pushed(its.subscriber_id)

    def _forget(self, now: float) -> None:
        for end in [end for end, each in self.ended.items() if each.forget_at <= now]:
            del self.ended[end]
        for seq, item in list(self.items.items()):
            if item.forget_at is not None and item.forget_at <= now:
                self._remove(seq)
        for key, link in list(self.push_links.items()):
            if link.kept_at <= now - LINK_S:
                del self.push_links[key]
