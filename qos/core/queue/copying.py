"""Copying: a new item of a topic goes into each queue that subscribes to the topic.

The copies are decided together with the item, so they are in the commit that publishes
it: after a crash there are all of them, or none and no item. The topic alone decides
whether an item is new, so a repeat makes no second copy.

A queue that is full gets no copy. It misses the item, and counts that (`Node.missed`):
if the publish were refused, as it is at a queue of its own, one subscriber that has gone
to sleep could stop the publisher and everybody else. What the queue has already is not
dropped for it: its items are promised to workers, and some are locked. A subscriber that
has missed items can read them from the topic, for as long as that keeps them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from qos.core.queue.effects import QueueEffect, SaveItem, SaveNode
from qos.core.queue.item_names import ItemNames, is_read_from_payload
from qos.core.queue.node import SEQ_CHARS, QueueNode
from qos.core.queue.publishing import new_item
from qos.core.queue.requests import PublishedItem
from qos.core.queue.selector import Selector
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
    entries = [replace(each, ttl=ttl) if each.ttl is None else each for each in entries]
    effects: list[QueueEffect] = []
    for name, selector in service.topics.of(topic.node.name).items():
        effects += _copies(
            service.queue(name), selector, entries, publisher, service.next_seq, now
        )
    return effects


def _copies(
    queue: QueueNode,
    selector: Selector | None,
    entries: Sequence[PublishedItem],
    publisher: str,
    next_seq: Callable[[], int],
    now: float,
) -> list[QueueEffect]:
    name, wanted = queue.node.name, set(queue.live.ready.payload_names)
    if selector is not None:
        wanted |= {each for each in selector.names if is_read_from_payload(each)}
    effects: list[QueueEffect] = []
    missed = 0
    for entry in entries:
        item = new_item(entry, publisher, name, queue.options, wanted, 0, now)
        if selector is not None and not selector.matches(ItemNames(item)):
            continue
        if not queue.has_room(item.size):
            missed += 1
            continue
        seq = next_seq()
        item = replace(item, seq=seq, item_id=_id(queue, item.item_id, seq))
        queue.live.put(item, now)
        effects.append(SaveItem(item, entry.payload))
    if missed:
        queue.node = replace(queue.node, missed=queue.node.missed + missed)
        effects.append(SaveNode(queue.node))
    return effects


def _id(queue: QueueNode, item_id: str, seq: int) -> str:
    """The id of a copy: another one if an item that the topic has forgotten has it."""
    if item_id in queue.items and len(item_id) > ID_CHARS_MAX - SEQ_CHARS:
        item_id = hashlib.sha256(item_id.encode()).hexdigest()
    return queue.free_id(item_id, seq)
