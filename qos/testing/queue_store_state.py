"""Everything that an open store of a queue service shows, to compare it with a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from qos.core.queue.contents import QueueContents
from qos.core.queue.item import EndedItem, Item, ItemOutcome
from qos.core.queue.places import FIRST, LAST, DelayEnd, delay_end
from qos.core.queue.push import PushLink, PushSubscriber
from qos.stores.queue_base import ItemRow, QueueStore
from qos.testing.plain_model import PlainModel

__all__ = ["AT", "ROWS", "State", "plain_state", "state_of"]

#: More than any test writes.
_ALL = 10_000

#: A time between those of the items.
AT = 1_700_000_000.5

#: Numbers of rows to look at, for `State.next_purged`.
ROWS = (1, 3, _ALL)


@dataclass(frozen=True, slots=True)
class State:
    """Everything that an open store shows.

    Attributes:
        contents: see QueueStore.contents.
        paged: the same, with plain items counted at the time AT.
        plain: the plain items of each node's generation that has some: those that are not
            held back at three times, in the order of delivery; by seq, the last ones,
            those with an id, those with a ttl, and those with a delay. And its dead
            letters, by seq and by their ids.
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
    live = contents.items
    plain = {
        (node, gen): plain_state(store, node, gen, live)
        for node, gen in {(item.node, item.gen) for item in live}
    }
    return State(
        contents=contents,
        paged=store.contents(paged_at=AT),
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


def plain_state(
    store: QueueStore | PlainModel, node: str, gen: int, items: Sequence[Item]
) -> tuple[list[Item], ...]:
    """See State.plain; read by pages of two.

    Args:
        store: open.
        node: the name of a node.
        gen: a generation of it.
        items: all that are available or locked.
    """
    by_id = store.find_plain(node, gen, [item.item_id for item in items])
    return (
        *(_in_order(store, node, gen, now) for now in (-math.inf, AT, math.inf)),
        _by_seq(store, node, gen),
        store.plain_page(node, gen, after=1, limit=2, last=True),
        [by_id[item_id] for item_id in sorted(by_id)],
        _expiring(store, node, gen),
        _delayed(store, node, gen),
        *_letters(store, node, gen, items),
    )


def _in_order(
    store: QueueStore | PlainModel, node: str, gen: int, now: float
) -> list[Item]:
    items: list[Item] = []
    end = FIRST
    while end < LAST:
        page, end = store.plain(node, gen, start=end, limit=2, now=now)
        items += page
    return items


def _by_seq(store: QueueStore | PlainModel, node: str, gen: int) -> list[Item]:
    items: list[Item] = []
    while page := store.plain_page(
        node, gen, after=items[-1].seq if items else 0, limit=2
    ):
        items += page
    return items


def _expiring(store: QueueStore | PlainModel, node: str, gen: int) -> list[Item]:
    items: list[Item] = []
    moment = (-math.inf, 0)
    while page := store.expiring(node, gen, after=moment, limit=2):
        items += page
        assert page[-1].expires_at is not None
        moment = (page[-1].expires_at, page[-1].seq)
    return items


def _delayed(store: QueueStore | PlainModel, node: str, gen: int) -> list[Item]:
    """Those whose delay ends by the time AT, and then the later ones."""
    items: list[Item] = []
    end: DelayEnd = (-math.inf, 0, 0, 0)
    for until in (AT, math.inf):
        while page := store.delayed(node, gen, after=end, until=until, limit=2):
            items += page
            end = delay_end(page[-1])
    return items


def _letters(
    store: QueueStore | PlainModel, node: str, gen: int, items: Sequence[Item]
) -> tuple[list[Item], list[Item]]:
    """By the identity of the node where they died: by seq, and by id and seq."""
    by_seq: list[Item] = []
    by_id: list[Item] = []
    origin_ids = sorted({item.origin_id for item in items})
    for identity in sorted({item.origin_identity for item in items}):
        seq = 0
        while page := store.letters(node, gen, identity, after=seq, limit=2):
            by_seq += page
            seq = page[-1].seq
        for origin_id in origin_ids:
            letters = store.find_letters(node, gen, identity, [origin_id])
            by_id += sorted(letters, key=lambda item: item.seq)
        letters = store.find_letters(node, gen, identity, origin_ids)
        by_id += sorted(letters, key=lambda item: item.seq)
    return by_seq, by_id
