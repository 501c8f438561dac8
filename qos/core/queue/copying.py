"""Copying: a new item of a topic goes into each queue that subscribes to the topic.

The copies are decided together with the item, so they are in the commit that publishes
it: after a crash there are all of them, or none and no item. The topic alone decides
whether an item is new, so a repeat makes no second copy.

A queue that is full gets no copy. It misses the item, and counts that (`Node.missed`):
if the publish were refused, as it is at a queue of its own, one subscriber that has gone
to sleep could stop the publisher and everybody else. What the queue has already is not
dropped for it: its items are promised to workers, and some are locked. A subscriber that
has missed items can read them from the topic, for as long as that keeps them.

A queue with a dear selector misses an item too, if the step has no time left for that, or
if the account that created it cannot pay (`selector_time`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from qos.core.queue.effects import QueueEffect, SaveItem, SaveNode
from qos.core.queue.item_names import (
    ItemNames,
    is_read_from_payload,
    names_of_payload,
)
from qos.core.queue.node import SEQ_CHARS, QueueNode
from qos.core.queue.properties import Properties
from qos.core.queue.publishing import new_item
from qos.core.queue.requests import PublishedItem
from qos.core.queue.selector_time import TimedSelector
from qos.core.queue.service import Queues
from qos.core.queue.topic_node import TopicNode
from qos.core.record import replace
from qos.core.strings import ID_CHARS_MAX

__all__ = ["copies"]


def copies(
    service: Queues,
    topic: TopicNode,
    entries: Sequence[PublishedItem],
    publisher: str,
    now: float,
) -> list[QueueEffect]:
    """Copy items that are new in a topic into the queues that subscribe to it.

    Args:
        service: all nodes.
        topic: the topic.
        entries: the new items, in order.
        publisher: the bare JID.
        now: the time.
    """
    ttl = topic.options.ttl
    entries = [
        replace(entry, ttl=ttl) if entry.ttl is None else entry for entry in entries
    ]
    queues = service.topics.of(topic.node.name)
    names_by_queue = {
        name: _payload_names(service.queue(name), timed)
        for name, timed in queues.items()
    }
    all_names = frozenset[str]().union(*names_by_queue.values())
    # Once for all queues: a payload can be large.
    payload_values = [names_of_payload(entry.payload, all_names) for entry in entries]
    effects: list[QueueEffect] = []
    for name, timed in queues.items():
        parts = [
            {key: values[key] for key in names_by_queue[name] if key in values}
            if values
            else values
            for values in payload_values
        ]
        effects += _copies(service, name, timed, entries, parts, publisher, now)
    return effects


def _payload_names(queue: QueueNode, timed: TimedSelector | None) -> set[str]:
    """The names that selectors of a queue want to know of a payload."""
    names = set(queue.live.ready.payload_names)
    if timed is not None:
        names |= {name for name in timed.selector.names if is_read_from_payload(name)}
    return names


def _copies(
    service: Queues,
    name: str,
    timed: TimedSelector | None,
    entries: Sequence[PublishedItem],
    payload_values: Sequence[Properties],
    publisher: str,
    now: float,
) -> list[QueueEffect]:
    """The copies into one queue.

    Args:
        service: all nodes.
        name: of the queue.
        timed: its condition on the items of the topic.
        entries: the new items, in order.
        payload_values: of each, what the selectors of the queue want to know of its
            payload.
        publisher: the bare JID.
        now: the time.
    """
    queue = service.queue(name)
    effects: list[QueueEffect] = []
    missed, bytes_left = 0, service.bytes_left(queue)
    for entry, parts in zip(entries, payload_values, strict=True):
        item = new_item(entry, publisher, queue.node, queue.options, parts, 0, now)
        passes: bool | None = True
        if timed is not None:
            passes = service.selector_time.matches(timed, ItemNames(item))
        if passes is False:
            continue
        if passes is None or item.size > bytes_left or not queue.has_room(item.size):
            missed += 1
            continue
        bytes_left -= item.size
        seq = service.next_seq()
        item = replace(item, seq=seq, item_id=_id(queue, item.item_id, seq))
        queue.live.put(item, now)
        effects.append(SaveItem(item, entry.payload))
    if missed:
        queue.node = replace(queue.node, missed=queue.node.missed + missed)
        effects.append(SaveNode(queue.node))
    return effects


def _id(queue: QueueNode, item_id: str, seq: int) -> str:
    """The id of a copy: another one if an item that the topic has forgotten has it."""
    if queue.live.takes(item_id) and len(item_id) > ID_CHARS_MAX - SEQ_CHARS:
        item_id = hashlib.sha256(item_id.encode()).hexdigest()
    return queue.free_id(item_id, seq)
