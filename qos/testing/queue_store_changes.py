"""Random changes of a store of a queue service, and a check of all its reads."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import pairwise, product
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

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
    SaveLock,
    SaveNode,
    SaveSubscription,
    SaveTerminus,
)
from qos.core.queue.item import (
    LOCK,
    PRIORITIES,
    EndedItem,
    Item,
    ItemOutcome,
    ItemState,
    Node,
    PurgedItems,
    Subscription,
)
from qos.core.queue.push import (
    PushLink,
    PushSubscriber,
    RemovePushLink,
    RemovePushSubscriber,
    SavePushLink,
    SavePushSubscriber,
)
from qos.core.queue.terminus import Terminus
from qos.core.record import replace
from qos.stores.queue_base import QueueStore
from qos.testing.queue_store_model import QueueModel
from qos.testing.queue_store_state import state_of
from qos.testing.store_records import NASTY_TEXTS

__all__ = ["IDS", "NODES", "Chance", "check_reads"]

NODES = ("jobs", "dead jobs", NASTY_TEXTS[1])

#: Of items, and of push subscribers.
IDS = ("1", "2", NASTY_TEXTS[0])

_JIDS = ("w@example.org/1", "w@example.org/2", *NASTY_TEXTS[4:6])
_TIMES = (0.0, 1_700_000_000.125, 1_700_000_001.0, 2e9)

_VALUES: dict[type, Sequence[object]] = {
    bool: (False, True),
    int: (0, 1, 9, 2**40),
    float: _TIMES,
    str: ("", *_JIDS, *NASTY_TEXTS),
}


class Chance:
    """Changes that a service might make, and some that it never would."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def write(self, model: QueueModel) -> list[Change]:
        """Make some changes, which the model has made."""
        changes: list[Change] = []
        for _ in range(self._chance.randint(1, 6)):
            change = self._change(model)
            model.apply(change)
            changes.append(change)
        return changes

    def _change(self, model: QueueModel) -> Change:
        pick = self._chance.choice
        node, item_id = pick(NODES), pick(IDS)
        kind = self._chance.randrange(20)
        if kind < 9:
            return self._change_of_item(model, kind, node, item_id)
        if kind < 14:
            return self._change_of_node(kind, node)
        if kind < 18:
            return self._change_of_push(model, kind, node, item_id)
        purge = PurgeNode(self._any(PurgedItems, node=node, gen=pick((0, 1))))
        slice_ = RemovePurged(pick((1, 2, 5)))
        at = pick(_TIMES)
        forget, note = ForgetOld(at, pick((1, 2, 5))), NoteSeen(at, pick(_TIMES))
        removal = RemoveNode(node, pick((0, 1)))
        return pick((removal, forget, note, purge, slice_, slice_))

    def _change_of_item(
        self, model: QueueModel, kind: int, node: str, item_id: str
    ) -> Change:
        pick = self._chance.choice
        if kind < 4 or (kind < 7 and not model.items):
            seq = model.last_seq + 1 + pick((0, 0, 3))
            item = self._any(Item, seq=seq, node=node, item_id=item_id)
            return SaveItem(item, pick(("", "<x/>" * 2000, *NASTY_TEXTS)))
        if kind < 7:
            seq = pick(sorted(model.items))
            if self._chance.randrange(2):
                lock = self._any(Item)
                changes = {name: getattr(lock, name) for name in LOCK}
                if ItemState.ARCHIVED in {model.items[seq].state, lock.state}:
                    del changes["state"]
                return SaveLock(replace(model.items[seq], **changes))
            return SaveItem(self._any(Item, seq=seq, node=node, item_id=item_id))
        if kind == 7:
            return RemoveItem(self._chance.randint(1, model.last_seq + 1))
        seq, ends = self._chance.randint(1, model.last_seq + 1), sorted(model.ended)
        end = self._any(EndedItem, seq=seq, node=node, item_id=item_id)
        if ends and self._chance.randrange(2):
            # An end that is remembered already.
            node, item_id, token, seq = pick(ends)
            end = self._any(EndedItem, node=node, item_id=item_id, seq=seq, token=token)
        return SaveEnded(end)

    def _change_of_node(self, kind: int, node: str) -> Change:
        jid = self._chance.choice(_JIDS)
        if kind == 9:
            return RemoveSubscription(node, jid)
        if kind == 10:
            return SaveSubscription(self._any(Subscription, node=node, jid=jid))
        if kind == 11:
            return SaveNode(self._any(Node, name=node))
        if kind == 12:
            return SaveTerminus(self._any(Terminus, node=node, jid=jid))
        return RemoveTerminus(jid)

    def _change_of_push(
        self, model: QueueModel, kind: int, node: str, subscriber_id: str
    ) -> Change:
        if kind == 14:
            subscriber = self._any(
                PushSubscriber, subscriber_id=subscriber_id, node=node
            )
            return SavePushSubscriber(subscriber)
        if kind == 15:
            return RemovePushSubscriber(subscriber_id)
        if kind == 16:
            seq = self._chance.randint(1, model.last_seq + 1)
            return SavePushLink(
                self._any(PushLink, subscriber_id=subscriber_id, seq=seq)
            )
        seqs = [seq for owner_id, seq in model.push_links if owner_id == subscriber_id]
        return RemovePushLink(subscriber_id, self._chance.choice(seqs or [1]))

    def _any(self, kind: Any, **fields: object) -> Any:
        """Some value of this type."""
        pick, parts = self._chance.choice, get_args(kind)
        span = range(pick((0, 0, 1, 3)))
        if hasattr(kind, "__dataclass_fields__"):
            hints = get_type_hints(kind).items()
            values = {name: self._any(hint) for name, hint in hints} | fields
            return kind(**values | (self._life(values) if kind is Item else {}))
        if isinstance(kind, UnionType):
            return pick((None, self._any(parts[0])))
        if get_origin(kind) is Mapping:
            types = (str, int, float, bool)
            return {self._any(str): self._any(pick(types)) for _ in span}
        if get_origin(kind) is dict:
            return {self._any(parts[0]): self._any(parts[1]) for _ in span}
        if get_origin(kind) in {frozenset, tuple}:
            return get_origin(kind)(self._any(parts[0]) for _ in span)
        return pick(tuple(kind) if issubclass(kind, Enum) else _VALUES[kind])

    def _life(self, values: dict[str, object]) -> dict[str, object]:
        """What makes sense of the values of an item; half of the waiting ones are plain."""
        life: dict[str, object] = {"priority": self._chance.choice(PRIORITIES)}
        if values["state"] is ItemState.ARCHIVED:
            return life | {"ended_at": self._any(float)}
        life |= {"outcome": None, "ended_at": None}
        if self._chance.randrange(2):
            life["excluded"] = frozenset()
            if self._chance.randrange(2):
                life |= {"order": 0, "history": ()}
            if self._chance.randrange(2):
                life |= {"order": 0, "available_at": values["published_at"]}
        if not (values | life)["order"]:
            life["releases"] = 0
        return life


def check_reads(store: QueueStore, model: QueueModel) -> None:
    """Make every query of an open store with the changes of a Chance.

    Raises:
        AssertionError: an answer is not that of the model.
    """
    assert state_of(store, NODES, IDS) == model.state()
    ages = [subscriber.created_at for subscriber in store.push_subscribers()]
    assert ages == sorted(ages)
    for now in _TIMES:
        assert store.has_old(now) == model.has_old(now)
    _check_ended(store, model)
    for node, outcome in product(NODES, ItemOutcome):
        _check_archived(store, model, node, outcome)


def _check_ended(store: QueueStore, model: QueueModel) -> None:
    for node, since in product(NODES, _TIMES):
        recent = store.all_ended(node, IDS, since=since)
        assert {end for ends in recent.values() for end in ends} == {
            end for end in model.all_ends() if end.node == node and end.ended_at > since
        }
    for node, item_id in product(NODES, IDS):
        assert set(store.ended(node, item_id)) == {
            end
            for end in model.all_ends()
            if (end.node, end.item_id) == (node, item_id)
        }
    for node, item_id, token, _ in model.ended:
        settled = store.settled(node, [("none", token), (item_id, token)])
        ends = [
            end
            for end in model.written_ends()
            if (end.node, end.item_id, end.token) == (node, item_id, token)
        ]
        assert settled.keys() == {end.item_id for end in ends}
        assert not ends or settled[item_id] in ends


def _check_archived(
    store: QueueStore, model: QueueModel, node: str, outcome: ItemOutcome
) -> None:
    items = model.archived(node, outcome)
    assert store.count_archived(node, outcome, most=len(items)) == len(items)
    if items:
        assert store.count_archived(node, outcome, most=len(items) - 1) is None
    assert store.archived(node, outcome, limit=1000) == items
    for now in {item.forget_at for item in items if item.forget_at is not None}:
        current = [item for item in items if item.is_kept(now)]
        assert store.archived(node, outcome, limit=1000, now=now) == current
        assert store.archived(node, outcome, limit=1, now=now) == current[:1]
        count = store.count_archived(node, outcome, most=1000, now=now)
        assert count == len(current)
    for after, item in pairwise(items):
        page = store.archived(node, outcome, after=after.seq, limit=1)
        assert page == [item]
    for item_id in IDS:
        assert store.find_archived(node, item_id, outcome) == [
            item for item in items if item.item_id == item_id
        ]
