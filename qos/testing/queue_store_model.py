"""A model of a store of a queue service: its contents after changes, as dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from qos.core.queue.contents import QueueContents
from qos.core.queue.effects import (
    Change,
    ForgetOld,
    NoteSeen,
    PurgeNode,
    RemoveItem,
    RemoveNode,
    RemovePurged,
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
    PurgedItems,
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
from qos.core.wall_clock import ClockHistory, shift
from qos.stores.queue_base import ItemRow
from qos.stores.times import moved
from qos.testing.plain_model import PlainModel
from qos.testing.queue_store_state import AT, ROWS, State, plain_state

__all__ = ["QueueModel"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass
class QueueModel(PlainModel):
    """The contents of a store of a queue service, if nothing ever fails.

    Attributes:
        subscriptions: by node and JID.
        termini: by full JID.
        payloads: of the items.
        ended: the remembered ends, by node, id, token and seq; without those of purged
            items that are still there.
        purged: the purges whose items may still be there, by node and generation.
        looked_at: of each of them, id and seq of the item that was looked at last.
        deleted: the last generation of each deleted node whose items or ends may still be
            there, by its name.
        deleted_looked_at: of each of them, id, token and seq of the item or the end that
            was looked at last; while items are looked at, the token is None.
        push_subscribers: by their ids.
        push_links: by the id of a subscriber, and seq.
        last_seq: the largest seq that was ever there.
        seen: the last NoteSeen, moved as all times are; None: there was none.
        clock: what it remembers of the clocks of its starts.
    """

    subscriptions: dict[tuple[str, str], Subscription] = field(default_factory=dict)
    termini: dict[str, Terminus] = field(default_factory=dict)
    payloads: dict[int, str] = field(default_factory=dict)
    ended: dict[tuple[str, str, str, int], EndedItem] = field(default_factory=dict)
    purged: dict[tuple[str, int], PurgedItems] = field(default_factory=dict)
    looked_at: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    deleted: dict[str, int] = field(default_factory=dict)
    deleted_looked_at: dict[str, tuple[str, str | None, int]] = field(
        default_factory=dict
    )
    push_subscribers: dict[str, PushSubscriber] = field(default_factory=dict)
    push_links: dict[tuple[str, int], PushLink] = field(default_factory=dict)
    last_seq: int = 0
    seen: NoteSeen | None = None
    clock: ClockHistory = field(default_factory=ClockHistory)

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
            case SaveEnded(memory):
                end = (memory.node, memory.item_id, memory.token, memory.seq)
                self.ended[end] = memory
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
            case RemoveNode(name, gen):
                self._remove_node(name, gen)
            case PurgeNode(purged):
                self.purged[purged.node, purged.gen] = purged
                self.looked_at[purged.node, purged.gen] = ("", 0)
            case RemovePurged(rows):
                self._remove_purged(rows)
            case ForgetOld(now, rows):
                self._forget(now, rows)
            case NoteSeen():
                self.seen = change

    def _remove_pushed(self, subscriber_id: str) -> None:
        self.push_subscribers.pop(subscriber_id, None)
        for key in [key for key in self.push_links if key[0] == subscriber_id]:
            del self.push_links[key]

    def _remove(self, seq: int) -> None:
        self.items.pop(seq, None)
        self.payloads.pop(seq, None)

    def _remove_node(self, name: str, gen: int) -> None:
        self.nodes.pop(name, None)
        self.deleted[name] = max(gen, self.deleted.get(name, gen))
        self.deleted_looked_at[name] = ("", None, 0)
        for key in [key for key in self.subscriptions if key[0] == name]:
            del self.subscriptions[key]
        for terminus in [
            terminus for terminus in self.termini.values() if terminus.node == name
        ]:
            del self.termini[terminus.jid]
        for purge in [purge for purge in self.purged if purge[0] == name]:
            if purge[1] <= gen:
                del self.purged[purge], self.looked_at[purge]
        for subscriber in [
            subscriber
            for subscriber in self.push_subscribers.values()
            if subscriber.node == name
        ]:
            self._remove_pushed(subscriber.subscriber_id)

    def _remove_purged(self, rows: int) -> None:
        if self.deleted:
            self._remove_deleted(min(self.deleted), rows)
            return
        if not self.purged:
            return
        key = min(self.purged)
        purged = self.purged[key]
        behind = self._items_behind(purged.node, *self.looked_at[key])
        for _, seq in behind[:rows]:
            item = self.items[seq]
            if not purged.has(item):
                continue
            if item.state is not ItemState.ARCHIVED:
                self.apply(SaveEnded(purged.end_of(item)))
            self._remove(seq)
        if len(behind) < rows:
            del self.purged[key], self.looked_at[key]
        else:
            self.looked_at[key] = behind[rows - 1]

    def _remove_deleted(self, name: str, rows: int) -> None:
        after_id, after_token, after_seq = self.deleted_looked_at[name]
        if after_token is None:
            items = self._items_behind(name, after_id, after_seq)
            for _, seq in items[:rows]:
                if self._is_deleted(self.items[seq]):
                    self._remove(seq)
            if len(items) < rows:
                self.deleted_looked_at[name] = ("", "", 0)
            else:
                last_id, last_seq = items[rows - 1]
                self.deleted_looked_at[name] = (last_id, None, last_seq)
            return
        after = (name, after_id, after_token, after_seq)
        ends = sorted(key for key in self.ended if key[0] == name and key > after)
        for key in ends[:rows]:
            if self._is_deleted(self.ended[key]):
                del self.ended[key]
        if len(ends) < rows:
            del self.deleted[name], self.deleted_looked_at[name]
        else:
            self.deleted_looked_at[name] = ends[rows - 1][1:]

    def _items_behind(
        self, node: str, after_id: str, after_seq: int
    ) -> list[tuple[str, int]]:
        """Id and seq of the items of a node behind these, in this order."""
        return sorted(
            (item.item_id, seq)
            for seq, item in self.items.items()
            if item.node == node and (item.item_id, seq) > (after_id, after_seq)
        )

    def _is_deleted(self, record: Item | EndedItem) -> bool:
        """Whether it was in a node that was deleted."""
        return record.gen <= self.deleted.get(record.node, -1)

    def _purge_of(self, item: Item) -> PurgedItems | None:
        """The purge that has removed this item."""
        purged = self.purged.get((item.node, item.gen))
        return purged if purged is not None and purged.has(item) else None

    def is_shown(self, item: Item) -> bool:
        """Whether no purge has removed this item, and no deletion of its node."""
        return self._purge_of(item) is None and not self._is_deleted(item)

    def written_ends(self) -> list[EndedItem]:
        """The remembered ends, without those of purged items that are still there."""
        return [end for end in self.ended.values() if not self._is_deleted(end)]

    def all_ends(self) -> list[EndedItem]:
        """The remembered ends."""
        purged_ends = [
            purged.end_of(item)
            for item in self.items.values()
            if item.state is not ItemState.ARCHIVED
            and (purged := self._purge_of(item)) is not None
            and not self._is_deleted(item)
        ]
        return self.written_ends() + purged_ends

    def move(self, now: float) -> float:
        """Move all times, if they do not fit to the present time; returns by how much."""
        by_s, self.clock = shift(self._newest_at(), now, self.clock)
        self.nodes = _moved(self.nodes, by_s)
        self.subscriptions = _moved(self.subscriptions, by_s)
        self.termini = _moved(self.termini, by_s)
        self.items = _moved(self.items, by_s)
        self.ended = _moved(self.ended, by_s)
        self.purged = _moved(self.purged, by_s)
        self.push_subscribers = _moved(self.push_subscribers, by_s)
        self.push_links = _moved(self.push_links, by_s)
        if self.seen is not None:
            self.seen = NoteSeen(self.seen.now + by_s, self.seen.heard_at + by_s)
        return by_s

    @property
    def heard_at(self) -> float | None:
        """See QueueStore."""
        return self._newest_at() if self.seen is None else self.seen.heard_at

    def _newest_at(self) -> float | None:
        items = self.items.values()
        times = [item.published_at for item in items]
        times += [item.locked_at for item in items if item.token]
        times += [each.ended_at for each in self.ended.values()]
        times += [] if self.seen is None else [self.seen.now]
        return max(times, default=None)

    def _forget(self, now: float, rows: int) -> None:
        items, ends, links = self._old(now)
        for seq in items[:rows]:
            self._remove(seq)
        rows -= min(rows, len(items))
        for end in ends[:rows]:
            del self.ended[end]
        rows -= min(rows, len(ends))
        for link in links[:rows]:
            del self.push_links[link]

    def _old(
        self, now: float
    ) -> tuple[list[int], list[tuple[str, str, str, int]], list[tuple[str, int]]]:
        """The keys of what is old, of each kind in the order of ForgetOld."""
        items = sorted(
            (item.forget_at, seq)
            for seq, item in self.items.items()
            if item.forget_at is not None and item.forget_at <= now
        )
        ends = sorted(
            (end.forget_at, key)
            for key, end in self.ended.items()
            if end.forget_at <= now
        )
        links = sorted(
            (link.kept_at, key)
            for key, link in self.push_links.items()
            if link.kept_at <= now - LINK_S
        )
        return (
            [seq for _, seq in items],
            [key for _, key in ends],
            [key for _, key in links],
        )

    def has_purged(self) -> bool:
        """See QueueStore."""
        return bool(self.purged or self.deleted)

    def has_old(self, now: float) -> bool:
        """See QueueStore."""
        return any(self._old(now))

    # -- reading ---------------------------------------------------------------

    def contents(self, *, paged_at: float | None = None) -> QueueContents:
        """See QueueStore."""
        items = [self.items[seq] for seq in sorted(self.items)]
        # Also of items that nobody sees.
        last_order = max((item.order for item in items), default=0)
        items = list(filter(self.is_shown, items))
        return QueueContents(
            nodes=[self.nodes[name] for name in sorted(self.nodes)],
            subscriptions=[
                self.subscriptions[key] for key in sorted(self.subscriptions)
            ],
            termini=[self.termini[jid] for jid in sorted(self.termini)],
            items=[
                item
                for item in items
                if item.state is not ItemState.ARCHIVED
                and not (paged_at is not None and item.is_plain)
            ],
            plain=None if paged_at is None else self.plain_counts(paged_at),
            letters=self.letter_counts(),
            dead=self._dead_counts(),
            next_seq=self.last_seq + 1,
            next_order=1 + last_order,
            next_gen=1 + max(self.deleted.values(), default=-1),
        )

    def _dead_counts(self) -> dict[str, int]:
        """See QueueContents.dead."""
        return Counter(
            item.node
            for item in self.items.values()
            if item.state is ItemState.ARCHIVED
            and item.outcome is ItemOutcome.REJECTED
            and item.node in self.nodes
            and item.gen == self.nodes[item.node].gen
        )

    def live_rows(self, node: str, item_ids: Collection[str]) -> list[ItemRow]:
        """See QueueStore."""
        return [
            ItemRow(node, item.item_id, item.seq)
            for item in self.items.values()
            if item.node == node
            and item.item_id in item_ids
            and item.state is not ItemState.ARCHIVED
        ]

    def next_purged(self, rows: int) -> list[ItemRow]:
        """See QueueStore."""
        after = QueueModel(
            items=dict(self.items),
            ended=dict(self.ended),
            purged=dict(self.purged),
            looked_at=dict(self.looked_at),
            deleted=dict(self.deleted),
            deleted_looked_at=dict(self.deleted_looked_at),
        )
        after.apply(RemovePurged(rows))
        return sorted(
            ItemRow(item.node, item.item_id, seq)
            for seq, item in self.items.items()
            if seq not in after.items and item.state is not ItemState.ARCHIVED
        )

    def archived(self, node: str, outcome: ItemOutcome) -> list[Item]:
        """The items that a node keeps after this outcome, by seq."""
        key = (ItemState.ARCHIVED, outcome, node)
        items = [
            item
            for item in self.items.values()
            if (item.state, item.outcome, item.node) == key and self.is_shown(item)
        ]
        return sorted(items, key=lambda item: item.seq)

    def state(self) -> State:
        """The state that a store with these contents must show."""
        archived = {
            seq: item
            for seq, item in self.items.items()
            if item.state is ItemState.ARCHIVED
            and item.outcome is not None
            and self.is_shown(item)
        }
        contents = self.contents()
        live = contents.items
        plain = {
            (node, gen): plain_state(self, node, gen, live)
            for node, gen in {(item.node, item.gen) for item in live}
        }
        return State(
            contents=contents,
            paged=self.contents(paged_at=AT),
            plain={key: items for key, items in plain.items() if any(items)},
            payloads=dict(self.payloads),
            archived=archived,
            ended=frozenset(self.all_ends()),
            has_purged=self.has_purged(),
            next_purged=[self.next_purged(rows) for rows in ROWS],
            live_rows=frozenset(
                ItemRow(item.node, item.item_id, seq)
                for seq, item in self.items.items()
                if item.state is not ItemState.ARCHIVED
            ),
            push_subscribers=dict(self.push_subscribers),
            push_links=dict(self.push_links),
        )


def _moved(values: dict[_Key, _Value], by_s: float) -> dict[_Key, _Value]:
    return (
        {key: moved(value, by_s) for key, value in values.items()} if by_s else values
    )
