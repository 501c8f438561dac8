"""Everything that an open store of a queue service shows, to compare it with a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from qos.core.queue.contents import QueueContents
from qos.core.queue.item import EndedItem, Item, ItemOutcome
from qos.core.queue.push import PushLink, PushSubscriber
from qos.stores.queue_base import QueueStore

__all__ = ["State", "state_of"]

#: More than any test writes.
_ALL = 10_000


@dataclass(frozen=True, slots=True)
class State:
    """Everything that an open store shows.

    Attributes:
        contents: see QueueStore.contents.
        payloads: of all items, by seq.
        archived: the items that nodes keep after an outcome, by seq.
        ended: the remembered ends.
        has_purged: see QueueStore.has_purged.
        push_subscribers: by their ids.
        push_links: by the id of a subscriber, and seq.
    """

    contents: QueueContents
    payloads: dict[int, str]
    archived: dict[int, Item]
    ended: frozenset[EndedItem]
    has_purged: bool
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
    return State(
        contents=contents,
        payloads=store.payloads(range(contents.next_seq)),
        archived={item.seq: item for item in archived},
        ended=frozenset(memories),
        has_purged=store.has_purged(),
        push_subscribers={
            subscriber.subscriber_id: subscriber
            for subscriber in store.push_subscribers()
        },
        push_links=links,
    )
