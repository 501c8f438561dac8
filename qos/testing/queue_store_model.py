"""A model of a store of a queue service: its contents after changes, as dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

from qos.core.queue.contents import QueueContents
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
from qos.core.queue.item import (
    EndedItem,
    Item,
    ItemOutcome,
    ItemState,
    Node,
    Subscription,
)
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
from qos.stores.queue_base import QueueStore

__all__ = ["QueueModel", "State", "state_of"]

#: More than any test writes.
_ALL = 10_000


@dataclass
class QueueModel:
    """The contents of a store of a queue service, if nothing ever fails.

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

    def make(self, changes: Iterable[Change]) -> None:
        """Make these changes, in their order."""
        for change in changes:
            self.apply(change)

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

    # -- reading ---------------------------------------------------------------

    def contents(self) -> QueueContents:
        """See QueueStore."""
        items = [self.items[seq] for seq in sorted(self.items)]
        dead = Counter(
            item.node
            for item in items
            if item.state is ItemState.ARCHIVED and item.outcome is ItemOutcome.REJECTED
        )
        return QueueContents(
            nodes=[self.nodes[name] for name in sorted(self.nodes)],
            subscriptions=[
                self.subscriptions[key] for key in sorted(self.subscriptions)
            ],
            termini=[self.termini[jid] for jid in sorted(self.termini)],
            items=[item for item in items if item.state is not ItemState.ARCHIVED],
            dead=dict(dead),
            next_seq=self.last_seq + 1,
            next_order=1 + max((item.order for item in items), default=0),
        )

    def archived(self, node: str, outcome: ItemOutcome) -> list[Item]:
        """The items that a node keeps after this outcome, by seq."""
        kept = (ItemState.ARCHIVED, outcome, node)
        found = [
            item
            for item in self.items.values()
            if (item.state, item.outcome, item.node) == kept
        ]
        return sorted(found, key=lambda item: item.seq)

    def state(self) -> State:
        """The state that a store with these contents must show."""
        archived = {
            seq: item
            for seq, item in self.items.items()
            if item.state is ItemState.ARCHIVED and item.outcome is not None
        }
        return State(
            contents=self.contents(),
            payloads=dict(self.payloads),
            archived=archived,
            ended=frozenset(self.ended.values()),
            push_subscribers=dict(self.push_subscribers),
            push_links=dict(self.push_links),
        )


@dataclass(frozen=True, slots=True)
class State:
    """Everything that an open store shows.

    Attributes:
        contents: see QueueStore.contents.
        payloads: of all items, by seq.
        archived: the items that nodes keep after an outcome, by seq.
        ended: the remembered ends.
        push_subscribers: by their ids.
        push_links: by the id of a subscriber, and seq.
    """

    contents: QueueContents
    payloads: dict[int, str]
    archived: dict[int, Item]
    ended: frozenset[EndedItem]
    push_subscribers: dict[str, PushSubscriber]
    push_links: dict[tuple[str, int], PushLink]


def state_of(store: QueueStore, nodes: Sequence[str], ids: Sequence[str]) -> State:
    """The state of an open store.

    Args:
        store: open.
        nodes: the names of all nodes that may be in it.
        ids: all ids of items and of push subscribers that may be in it.
    """
    contents = store.contents()
    archived = [
        item
        for node, outcome in product(nodes, ItemOutcome)
        for item in store.archived(node, outcome, limit=_ALL)
    ]
    ended = [
        each
        for node in nodes
        for some in store.all_ended(node, ids).values()
        for each in some
    ]
    links = {
        (each.subscriber_id, seq): each
        for subscriber_id in ids
        for seq, each in store.push_links(subscriber_id).items()
    }
    return State(
        contents=contents,
        payloads=store.payloads(range(contents.next_seq)),
        archived={item.seq: item for item in archived},
        ended=frozenset(ended),
        push_subscribers={
            each.subscriber_id: each for each in store.push_subscribers()
        },
        push_links=links,
    )
