"""A queue store against a model of dicts, through any changes and any crash."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise, product
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from killed_runs import Runs
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
    PushLink,
    PushSubscriber,
    RemovePushLink,
    RemovePushSubscriber,
    SavePushLink,
    SavePushSubscriber,
)
from qos.core.queue.terminus import Terminus
from qos.stores.queue_store import QueueStore
from qos.testing.store_records import NASTY_TEXTS
from queue_tables import QueueTables

NODES = ("jobs", "dead jobs", NASTY_TEXTS[1])
IDS = ("1", "2", NASTY_TEXTS[0])
JIDS = ("w@example.org/1", "w@example.org/2", *NASTY_TEXTS[4:6])
TIMES = (0.0, 1_700_000_000.125, 1_700_000_001.0, 2e9)

VALUES: dict[type, Sequence[object]] = {
    bool: (False, True),
    int: (0, 1, 9, 2**40),
    float: TIMES,
    str: ("", *JIDS, *NASTY_TEXTS),
}


async def write(store: QueueStore, *changes: Change) -> None:
    written = store.write(changes)
    if written is not None:
        await written


@asynccontextmanager
async def opened(store: QueueStore) -> AsyncIterator[QueueContents]:
    contents = store.open()
    try:
        yield contents
    finally:
        await store.close()


# -- the model --------------------------------------------------------------


@dataclass
class Model(QueueTables):
    """The contents that a store must have after some changes."""

    @property
    def next_seq(self) -> int:
        return self.last_seq + 1

    def contents(self) -> QueueContents:
        items = [self.items[seq] for seq in sorted(self.items)]
        dead = [
            item
            for item in items
            if item.state is ItemState.ARCHIVED and item.outcome is ItemOutcome.REJECTED
        ]
        return QueueContents(
            nodes=[self.nodes[name] for name in sorted(self.nodes)],
            subscriptions=[
                self.subscriptions[key] for key in sorted(self.subscriptions)
            ],
            items=[item for item in items if item.state is not ItemState.ARCHIVED],
            dead=dict(Counter(item.node for item in dead)),
            next_seq=self.next_seq,
            termini=[self.termini[jid] for jid in sorted(self.termini)],
            next_order=1 + max([0, *(item.order for item in items)]),
        )

    def archived(self, node: str, outcome: ItemOutcome) -> list[Item]:
        items = [self.items[seq] for seq in sorted(self.items)]
        kept = (ItemState.ARCHIVED, outcome, node)
        return [each for each in items if (each.state, each.outcome, each.node) == kept]


def found(store: QueueStore, contents: QueueContents) -> Model:
    """The contents of an open store, read piece by piece."""
    seqs = range(contents.next_seq)
    items = [item for seq in seqs if (item := store.get(seq))]
    pairs = product(NODES, IDS)
    ended = [ended for pair in pairs for ended in store.ended(*pair)]
    return Model(
        nodes={node.name: node for node in contents.nodes},
        subscriptions={(each.node, each.jid): each for each in contents.subscriptions},
        termini={each.jid: each for each in contents.termini},
        items={item.seq: item for item in items},
        payloads=store.payloads(seqs),
        push_subscribers={
            each.subscriber_id: each for each in store.push_subscribers()
        },
        push_links={
            (each.subscriber_id, each.seq): each
            for item_id in IDS
            for each in store.push_links(item_id).values()
        },
        ended={(each.node, each.item_id, each.token, each.seq): each for each in ended},
        last_seq=contents.next_seq - 1,
    )


def check_reads(store: QueueStore, model: Model) -> None:
    """Make every query of an open store."""
    assert found(store, model.contents()) == model
    for node, since in product(NODES, TIMES):
        recent = store.all_ended(node, IDS, since=since)
        assert {each for some in recent.values() for each in some} == {
            ended
            for ended in model.ended.values()
            if ended.node == node and ended.ended_at > since
        }
    for node, item_id, token, _ in model.ended:
        settled = store.settled(node, [("none", token), (item_id, token)])
        assert settled.keys() == {item_id}
        seq = settled[item_id].seq
        assert settled[item_id] == model.ended[node, item_id, token, seq]
    for node, outcome in product(NODES, ItemOutcome):
        items = model.archived(node, outcome)
        assert store.count_archived(node, outcome) == len(items)
        assert store.archived(node, outcome, limit=1000) == items
        for now in {item.forget_at for item in items if item.forget_at is not None}:
            kept = [item for item in items if item.is_kept(now)]
            assert store.archived(node, outcome, limit=1000, now=now) == kept
            first = store.archived(node, outcome, limit=1, now=now)
            assert first == kept[:1]
            assert store.count_archived(node, outcome, now=now) == len(kept)
        for after, item in pairwise(items):
            found_next = store.archived(node, outcome, after=after.seq, limit=1)
            assert found_next == [item]
        for item_id in IDS:
            assert store.find_archived(node, item_id, outcome) == [
                item for item in items if item.item_id == item_id
            ]


# -- any changes ------------------------------------------------------------


class Chance:
    """Changes that a service might make, and some that it never would."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def write(self, model: Model) -> list[Change]:
        """Make some changes, which the model has made."""
        changes = []
        for _ in range(self._chance.randint(1, 6)):
            change = self._change(model)
            model.apply(change)
            changes.append(change)
        return changes

    def _change(self, model: Model) -> Change:
        pick = self._chance.choice
        node, item_id, jid = pick(NODES), pick(IDS), pick(JIDS)
        kind = self._chance.randrange(20)
        if kind < 4 or (kind < 7 and not model.items):
            seq = model.next_seq + pick((0, 0, 3))
            item = self._any(Item, seq=seq, node=node, item_id=item_id)
            return SaveItem(item, pick(("", "<x/>" * 2000, *NASTY_TEXTS)))
        if kind < 7:
            seq = pick(sorted(model.items))
            return SaveItem(self._any(Item, seq=seq, node=node, item_id=item_id))
        if kind == 7:
            return RemoveItem(self._chance.randint(1, model.next_seq))
        if kind == 8:
            seq, known = self._chance.randint(1, model.next_seq), sorted(model.ended)
            ended = self._any(EndedItem, seq=seq, node=node, item_id=item_id)
            if known and self._chance.randrange(2):
                # An end that is remembered already.
                node, item_id, token, seq = pick(known)
                ended = self._any(
                    EndedItem, node=node, item_id=item_id, seq=seq, token=token
                )
            return SaveEnded(ended)
        if kind == 9:
            return RemoveSubscription(node, jid)
        if kind == 10:
            return SaveSubscription(self._any(Subscription, node=node, jid=jid))
        if kind == 11:
            return SaveNode(self._any(Node, name=node))
        if kind == 12:
            return SaveTerminus(self._any(Terminus, node=node, jid=jid))
        if kind == 13:
            return RemoveTerminus(jid)
        if kind == 14:
            subscriber = self._any(PushSubscriber, subscriber_id=item_id, node=node)
            return SavePushSubscriber(subscriber)
        if kind == 15:
            return RemovePushSubscriber(item_id)
        if kind == 16:
            seq = self._chance.randint(1, model.next_seq)
            return SavePushLink(self._any(PushLink, subscriber_id=item_id, seq=seq))
        if kind == 17:
            seqs = [seq for its_id, seq in model.push_links if its_id == item_id]
            return RemovePushLink(item_id, pick(seqs or [1]))
        return pick((RemoveNode(node), ForgetOld(pick(TIMES))))

    def _any(self, kind: Any, **given: object) -> Any:
        """Some value of this type."""
        pick, parts = self._chance.choice, get_args(kind)
        some = range(pick((0, 0, 1, 3)))
        if hasattr(kind, "__dataclass_fields__"):
            hints = get_type_hints(kind).items()
            values = {name: self._any(hint) for name, hint in hints}
            return kind(**values | given)
        if isinstance(kind, UnionType):
            return pick((None, self._any(parts[0])))
        if get_origin(kind) is Mapping:
            types = (str, int, float, bool)
            return {self._any(str): self._any(pick(types)) for _ in some}
        if get_origin(kind) is dict:
            return {self._any(parts[0]): self._any(parts[1]) for _ in some}
        if get_origin(kind) in {frozenset, tuple}:
            return get_origin(kind)(self._any(parts[0]) for _ in some)
        return pick(tuple(kind) if issubclass(kind, Enum) else VALUES[kind])


@pytest.mark.parametrize("seed", range(20))
def test_a_store_holds_what_dicts_would_hold(ram_path: Path, seed: int) -> None:
    """Visible at once, and after any number of restarts."""
    dice = random.Random(seed)
    chance, model = Chance(dice), Model()

    async def one_life() -> None:
        store = QueueStore(ram_path / "store.db")
        async with opened(store) as contents:
            assert contents == model.contents()
            check_reads(store, model)
            for _ in range(dice.randint(1, 5)):
                await write(store, *chance.write(model))
                check_reads(store, model)

    for _ in range(4):
        asyncio.run(one_life())


# -- any death --------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_killed_at_the_nth_step_for_growing_n(ram_path: Path) -> None:
    """Of a write all or nothing is there, and everything acknowledged is there."""
    chance, model = Chance(random.Random("a queue")), Model()
    writes: list[Sequence[Change]] = []
    states = [deepcopy(model)]
    for _ in range(6):
        writes.append(chance.write(model))
        states.append(deepcopy(model))
    step, alive, seen = 0, False, set()

    async def written() -> int:
        """How many of the writes are in the store."""
        store = QueueStore(folder / "store.db")
        async with opened(store) as contents:
            there = found(store, contents)
            number = max(n for n, state in enumerate(states) if state == there)
            assert contents == states[number].contents()
            return number

    with Runs(Path(__file__).with_name("crashing_queue_writer.py")) as writer:
        while not alive:
            folder = ram_path / str(step)
            folder.mkdir()
            (folder / "writes").write_bytes(pickle.dumps(writes))
            alive = writer.survives(folder, step)
            acks = folder / "acks"
            acknowledged = acks.stat().st_size if acks.exists() else 0
            count = asyncio.run(written())
            assert count >= acknowledged
            seen.add(count)
            step += 1
    # The writes that were made at once shared a commit.
    assert seen == {0, 1, len(writes)}
    assert step > 40
