"""The queue for replies that a message names: whether a consumer may be led there.

A worker posts its reply with its own rights. So a publisher could have it post to any
node that the worker may publish to. A consumer is shown the name of a node only while the
publisher of the message may publish to that node itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qos.core.queue.access import may_publish
from qos.core.queue.item import Item
from qos.core.queue.node import QueueNode
from qos.core.record import replace

__all__ = ["REPLY_TO", "for_consumer"]

#: The property with the name of the queue that replies go to.
REPLY_TO: Final = "JMSReplyTo"


def for_consumer(nodes: Mapping[str, QueueNode], item: Item) -> Item:
    """The item as a consumer sees it: perhaps without the queue for replies.

    A name that no node has stays: it may have a meaning at another service.
    """
    name = item.properties.get(REPLY_TO)
    node = nodes.get(name) if isinstance(name, str) else None
    if node is None or may_publish(node.node, node.options, item.publisher):
        return item
    properties = {
        key: item.properties[key] for key in item.properties if key != REPLY_TO
    }
    return replace(item, properties=properties)
