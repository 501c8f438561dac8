"""Everything that an open store of a queue service shows, to compare it with a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from qos.core.queue.contents import QueueContents
from qos.core.queue.item import PRIORITIES, EndedItem, Item, ItemOutcome
from qos.core.queue.push import PushLink, PushSubscriber
from qos.stores.queue_base import ItemRow, QueueStore

__all__ = ["ROWS", "State", "state_of"]

#: More than any test writes.
_ALL = 10_000

#: Numbers of rows to look at, for `State.next_purged`.
ROWS = (1, 3, _ALL)


@dataclass(frozen=True, slots=True)
class State:
    """Everything that an open store shows.

    Attributes:
        contents: see QueueStore.contents.
        paged: the same, with plain items counted.
        plain: the plain items of each node's generation that has some: in the order of
            delivery, by seq, the last ones first, those with an id, and those with a ttl.
        payloads: of all items, by seq.
        archived: the items that nodes keep after an outcome, by seq.
        ended: the remembered ends.
        has_purged: see QueueStore.has_purged.
        next_purged: see QueueStore.next_purged, for each of ROWS.
        live_rows: see QueueStore.live_rows, of all nodes.
        push_subscribers: by their ids.
        push_links: by the id of a subscriber, and seq.
    """

    contents: QueueContents
    paged: QueueContents
    plain: dict[tuple[str, int], tuple[list[Item], ...]]
    payloads: dict[int, str]
    archived: dict[int, Item]
    ended: frozenset[EndedItem]
    has_purged: bool
    next_purged: list[list[ItemRow]]
    live_rows: frozenset[ItemRow]
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
    memories = [
        memory
        for node in nodes
        for by_id in store.all_ended(node, ids).values()
        for memory in by_id
    ]
    links = {
        (link.subscriber_id, seq): link
        for subscriber_id in ids
        for seq, link in store.push_links(subscriber_id).items()
    }
    plain = {
        (node, gen): _plain(store, node, gen, [item.item_id for item in contents.items])
        for node, gen in {(item.node, item.gen) for item in contents.items}
    }
    return State(
        contents=contents,
        paged=store.contents(paged=True),
        plain={key: items for key, items in plain.items() if any(items)},
        payloads=store.payloads(range(contents.next_seq)),
        archived={item.seq: item for item in archived},
        ended=frozenset(memories),
        has_purged=store.has_purged(),
        next_purged=[store.next_purged(rows) for rows in ROWS],
        live_rows=frozenset(
            row for name in nodes for row in store.live_rows(name, ids)
        ),
        push_subscribers={
            subscriber.subscriber_id: subscriber
            for subscriber in store.push_subscribers()
        },
        push_links=links,
    )


def _plain(
    store: QueueStore, node: str, gen: int, ids: Sequence[str]
) -> tuple[list[Item], ...]:
    """See State.plain; read by pages of two."""
    in_order: list[Item] = []
    after = (max(PRIORITIES) + 1, 0)
    while page := store.plain(node, gen, after=after, limit=2):
        in_order += page
        after = (page[-1].priority, page[-1].seq)
    by_seq: list[Item] = []
    while page := store.plain_page(
        node, gen, after=by_seq[-1].seq if by_seq else 0, limit=2
    ):
        by_seq += page
    last = store.plain_page(node, gen, after=1, limit=2, last=True)
    by_id = store.find_plain(node, gen, ids)
    expiring: list[Item] = []
    moment = (-math.inf, 0)
    while page := store.expiring(node, gen, after=moment, limit=2):
        expiring += page
        assert page[-1].expires_at is not None
        moment = (page[-1].expires_at, page[-1].seq)
    with_ids = [by_id[item_id] for item_id in sorted(by_id)]
    return in_order, by_seq, last, with_ids, expiring
