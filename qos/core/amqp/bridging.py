"""Messages of a broker as queue items, and queue items as messages for a broker.

What decides whether a message is the same one again is its message-id, so it is kept in
both directions. Annotations are not carried: delivery annotations are for one hop
(messaging §3.2.2), and RabbitMQ ends the connection on them; a broker may change message
annotations with each delivery, and the repeat would then look like another message. The
one exception is ours: it counts how often a message was forwarded (`qos.core.amqp.hops`).
"""

from __future__ import annotations

from collections.abc import Callable

from qos.core.amqp import values
from qos.core.amqp.hops import annotation, counted
from qos.core.amqp.item_rendering import render_item
from qos.core.amqp.messages import read_message
from qos.core.amqp.sections import Section, section, split, without
from qos.core.amqp.values import NULL, elements
from qos.core.queue.item import Item
from qos.core.queue.properties import hops_of
from qos.core.queue.requests import PublishedItem
from qos.core.record import replace

__all__ = ["item_of", "message_of"]

_MESSAGE_ID = 0


def item_of(
    message: bytes, *, new_id: Callable[[], str], now: float, bytes_max: int
) -> PublishedItem:
    """A message of a broker as an item; see `read_message` for arguments and errors."""
    sections = split(message)
    header = sections.values.get(Section.HEADER)
    head = b"" if header is None else section(Section.HEADER, header)
    entry = read_message(
        head + sections.bare, new_id=new_id, now=now, bytes_max=bytes_max
    ).entry
    return replace(entry, properties=counted(entry.properties, sections))


def message_of(item: Item, payload: str, now: float) -> bytes:
    """An item as a message for a broker, the same bytes each time but for its ttl.

    It is durable, and it has a message-id: that of the publisher, or else the id of the
    item.

    Args:
        item: as a worker got it.
        payload: of the item.
        now: the remaining time to live is counted from here.
    """
    rendered = split(render_item(item, payload, now))
    # Durable, priority and ttl. To the broker it is new: it counts deliveries itself.
    fields = elements(rendered.values[Section.HEADER])[:3]
    head = section(Section.HEADER, values.pack_list(fields))
    head += annotation(hops_of(item.properties) + 1)
    return head + _with_message_id(rendered.bare, item.item_id)


def _with_message_id(bare: bytes, item_id: str) -> bytes:
    """The bare message with a message-id; unchanged if it has one."""
    sections = split(bare)
    properties = sections.values.get(Section.PROPERTIES)
    fields = [NULL] if properties is None else elements(properties) or [NULL]
    if fields[_MESSAGE_ID] != NULL:
        return bare
    fields[_MESSAGE_ID] = values.string(item_id)
    section_bytes = section(Section.PROPERTIES, values.pack_list(fields))
    return section_bytes + without(bare, Section.PROPERTIES)
