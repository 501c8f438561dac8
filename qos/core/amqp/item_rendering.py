"""A queue item as the AMQP 1.0 message that a consumer gets.

An item that was published by AMQP leaves with the same bytes, out of the payload that
`qos.core.amqp.messages` describes. Any other item leaves as `qos.core.amqp.other_items`
says.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from functools import lru_cache

from qos.core.amqp import values
from qos.core.amqp.other_items import bare_message
from qos.core.amqp.sections import (
    Section,
    Sections,
    merged,
    section,
    split,
    without,
)
from qos.core.amqp.values import NULL, DecodeError, decode_carried, elements
from qos.core.queue.item import Item
from qos.core.queue.replies import REPLY_TO

__all__ = [
    "ANNOTATIONS_BYTES_MAX",
    "NAMESPACE",
    "REPLY_TO_FIELD",
    "as_published",
    "render_item",
    "with_annotations",
]

#: The most bytes of the annotations that consumers add to an item: they are in memory.
ANNOTATIONS_BYTES_MAX = 4 * 1024

#: The namespace of the payload of an item that was published by AMQP.
NAMESPACE = "xmpp-qos:amqp:0"

#: The payload as it is written by `qos.core.amqp.messages`, or by an XMPP library from what
#: it has read.
_PAYLOAD = re.compile(
    rf"<message xmlns=(['\"]){NAMESPACE}\1"
    r"(?: annotations=(['\"])(?P<annotations>[A-Za-z0-9+/=]*)\2)?>"
    r"(?P<bare>[A-Za-z0-9+/=]+)<"
)

#: The place of the field among properties (messaging §3.2.4).
REPLY_TO_FIELD = 4

#: The types of an address that can be the name of a node.
_NAMES = frozenset({"string", "symbol"})


def render_item(item: Item, payload: str, now: float) -> bytes:
    """The message that a consumer gets: its bare part is the same each time.

    No intermediary may change it (messaging §3.2). There is one exception: a queue for replies
    that the item does not name any more (`qos.core.queue.replies`) is left out.

    Args:
        item: as it was locked.
        payload: of the item.
        now: the remaining time to live is counted from here.
    """
    annotations, sections = _as_published(payload)
    bare = b""
    if sections is not None:
        try:
            bare = _shown(item, sections)
        except DecodeError:
            # As below.
            annotations = b""
    if item.annotations:
        annotations = merged(annotations, b64decode(item.annotations))
    if annotations:
        annotations = section(Section.MESSAGE_ANNOTATIONS, annotations)
    return _header(item, now) + annotations + (bare or bare_message(item, payload))


def _shown(item: Item, sections: Sections) -> bytes:
    """The bare message without a queue for replies that its item does not name."""
    properties = sections.values.get(Section.PROPERTIES)
    fields = [] if properties is None else elements(properties)
    reply_to = fields[REPLY_TO_FIELD] if len(fields) > REPLY_TO_FIELD else NULL
    kind, name = decode_carried(reply_to)
    if kind not in _NAMES or name == item.properties.get(REPLY_TO):
        return sections.bare
    fields[REPLY_TO_FIELD] = NULL
    section_bytes = section(Section.PROPERTIES, values.pack_list(fields))
    return section_bytes + without(sections.bare, Section.PROPERTIES)


def with_annotations(item: Item, changes: bytes) -> str:
    """The annotations of an item after a modified outcome, packed for the item.

    They are as before if they would be too large: the outcome itself counts.

    Args:
        item: as it was locked.
        changes: an encoded map, of the outcome.

    Raises:
        DecodeError: it is no map.
    """
    after = merged(b64decode(item.annotations), changes)
    small = len(after) <= ANNOTATIONS_BYTES_MAX
    return b64encode(after).decode() if small else item.annotations


def _header(item: Item, now: float) -> bytes:
    left_ms = 0
    if item.expires_at is not None:
        # 0 would be no time to live for many clients.
        left_ms = max(1, int(1000 * (item.expires_at - now)))
    return _packed_header(item.priority, left_ms, not item.order, item.delivery_count)


# Most items have the same one.
@lru_cache(maxsize=64)
def _packed_header(
    priority: int, left_ms: int, first_acquirer: bool, delivery_count: int
) -> bytes:
    fields = (
        values.boolean(True),  # durable: every item is on disk
        values.ubyte(priority),
        values.uint(min(left_ms, 0xFFFF_FFFF)) if left_ms else values.NULL,
        values.boolean(first_acquirer),
        values.uint(delivery_count),
    )
    return section(Section.HEADER, values.pack_list(fields))


def as_published(payload: str) -> tuple[bytes, bytes]:
    """Read the annotations and the bare message in a payload; b'' both: not published by AMQP."""
    annotations, sections = _as_published(payload)
    return annotations, b"" if sections is None else sections.bare


def _as_published(payload: str) -> tuple[bytes, Sections | None]:
    match = _PAYLOAD.match(payload)
    if match is None:
        return b"", None
    try:
        bare = b64decode(match["bare"], validate=True)
        annotations = b64decode(match["annotations"] or "", validate=True)
        sections = split(bare)
        if sections.bare == bare:
            if annotations:
                split(section(Section.MESSAGE_ANNOTATIONS, annotations))
            return annotations, sections
    except (binascii.Error, DecodeError):
        # An XMPP client has made up such an element: to AMQP it is XML like any other.
        pass
    return b"", None
