"""An AMQP 1.0 message as a queue item, and a queue item as an AMQP 1.0 message.

A message that was published by AMQP is stored as this payload, which XMPP workers get:

    <message xmlns='xmpp-qos:amqp:0' annotations='BASE64'>BASE64<body>text</body></message>

The text is the bare message with its footer, byte for byte, and to AMQP the same bytes
leave. The attribute has the message annotations. The child is there to be read, if the
body is a string (`<body/>`) or one data section with XML (that element itself).

Any other item leaves as `qos.core.amqp.other_items` says.
"""

from __future__ import annotations

import binascii
import hashlib
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import lru_cache
from xml.etree import ElementTree as ET

from qos.core.amqp import values
from qos.core.amqp.message_ids import CORRELATION_ID, id_property
from qos.core.amqp.other_items import REPLY_TO, bare_message
from qos.core.amqp.sections import (
    Section,
    Sections,
    check_annotations,
    merged,
    section,
    split,
)
from qos.core.amqp.values import DecodeError, Value, decode, elements
from qos.core.queue.item import PRIORITIES, Item
from qos.core.queue.properties import Properties, properties_size, why_not
from qos.core.queue.properties import Value as PropertyValue
from qos.core.queue.requests import PublishedItem, Refusal
from qos.core.queue.selector.values import INTEGERS
from qos.core.record import record
from qos.core.strings import ID_CHARS_MAX, utf8_size
from qos.xml_text import is_legal, render, text

__all__ = [
    "ANNOTATIONS_BYTES_MAX",
    "NAMESPACE",
    "MustDetach",
    "ReceivedMessage",
    "as_published",
    "read_message",
    "render_item",
    "with_annotations",
]

#: The most bytes of the annotations that consumers add to an item: they are in memory.
ANNOTATIONS_BYTES_MAX = 4 * 1024

#: The namespace of the payload of an item that was published by AMQP.
NAMESPACE = "xmpp-qos:amqp:0"

#: The payload as it is written here, or by an XMPP library from what it has read.
_PAYLOAD = re.compile(
    rf"<message xmlns=(['\"]){NAMESPACE}\1"
    r"(?: annotations=(['\"])(?P<annotations>[A-Za-z0-9+/=]*)\2)?>"
    r"(?P<bare>[A-Za-z0-9+/=]+)<"
)

#: Fields of a header (§3.2.1) and of properties (§3.2.4), by their places.
_PRIORITY, _TTL = 1, 2
_MESSAGE_ID, _TO, _EXPIRY = 0, 2, 8

#: The other fields of properties that selectors know, by their places: see
#: qos.core.queue.item_names.
_STANDARD = {
    _TO: "JMSDestination",
    3: "JMSType",
    4: REPLY_TO,
    5: CORRELATION_ID,
    10: "JMSXGroupID",
    11: "JMSXGroupSeq",
}

#: The constructors of lists, maps and arrays, and of described values.
_COMPOUND = frozenset({0x00, 0x45, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0})

_ID_KINDS = ("ulong", "uuid", "binary", "string")


class MustDetach(Refusal):
    """The message has an annotation that must be understood, and is not (§3.2.10)."""


@record(frozen=True, slots=True)
class ReceivedMessage:
    """A message from a publisher.

    Attributes:
        entry: the item to publish.
        to: the node that its properties name, or ''.
        new_id: the id of the item was made for it: it has no message-id.
    """

    entry: PublishedItem
    to: str
    new_id: bool


# -- from a publisher ------------------------------------------------------


def read_message(
    message: bytes, *, new_id: Callable[[], str], now: float, bytes_max: int
) -> ReceivedMessage:
    """A message as an item to publish.

    Its digest is that of the bare message: a message that is sent again is the same,
    although its header and its annotations may have changed.

    Args:
        message: as it came.
        new_id: makes an id for an item without a message-id.
        now: the time; the time to live counts from here.
        bytes_max: the most bytes of a payload.

    Raises:
        DecodeError: it is not an AMQP message of format 0.
        MustDetach: see there.
        Refusal: it is too large.
    """
    found = split(message)
    for which in (
        Section.DELIVERY_ANNOTATIONS,
        Section.MESSAGE_ANNOTATIONS,
        Section.FOOTER,
    ):
        _check_annotations(found, which)
    header = _fields(found, Section.HEADER)
    properties = _fields(found, Section.PROPERTIES)
    payload = _payload(found, bytes_max)
    named = _properties(found, properties)
    size = utf8_size(payload) + properties_size(named)
    if size > bytes_max:
        raise Refusal(
            f"the message takes {size} bytes as an item, over the limit of {bytes_max}",
            condition="not-acceptable",
            type="modify",
            pubsub="payload-too-big",
        )
    message_id = _item_id(_field(properties, _MESSAGE_ID))
    entry = PublishedItem(
        item_id=message_id or new_id(),
        payload=payload,
        digest=hashlib.sha256(found.bare).hexdigest(),
        size=size,
        priority=_priority(_field(header, _PRIORITY)),
        ttl=_ttl(_field(header, _TTL), _field(properties, _EXPIRY), now),
        properties=named,
    )
    kind, to = _field(properties, _TO)
    node = str(to) if kind == "string" else ""
    return ReceivedMessage(entry, node, not message_id)


def _check_annotations(found: Sections, which: Section) -> None:
    value = found.values.get(which)
    key = None if value is None else check_annotations(value)
    if key is not None:
        raise MustDetach(
            f"{which.name} has the key {key!r}, which is not understood and does not "
            "begin with x-opt-",
            condition="feature-not-implemented",
            type="cancel",
        )


def _fields(found: Sections, which: Section) -> list[bytes]:
    value = found.values.get(which)
    return [] if value is None else elements(value)


def _field(fields: list[bytes], place: int) -> Value:
    return decode(fields[place]) if place < len(fields) else ("null", None)


def _priority(value: Value) -> int | None:
    number = _number(value, "unsigned", "the priority")
    # §3.2.1: ten priorities are distinct; those above are the highest one.
    return None if number is None else min(number, PRIORITIES[-1])


def _ttl(ttl: Value, expiry: Value, now: float) -> float | None:
    """Seconds until the message expires: by its ttl, or by its absolute-expiry-time.

    A time of 0 is none: clients write it if nothing is set.
    """
    left = [math.inf]
    if milliseconds := _number(ttl, "unsigned", "the ttl"):
        left.append(milliseconds / 1000)
    if at := _number(expiry, "timestamp", "the absolute-expiry-time"):
        left.append(max(0.0, at / 1000 - now))
    return min(left) if len(left) > 1 else None


def _number(value: Value, kind: str, what: str) -> int | None:
    its, number = value
    if its == "null":
        return None
    if its != kind:
        raise DecodeError(f"{what} has a wrong type", 0)
    assert isinstance(number, int)
    return number


def _item_id(message_id: Value) -> str:
    """The id of the item; '': the message has none.

    The same value as ulong, uuid, binary and string makes four different ids (§3.2.4).
    """
    kind, value = message_id
    if kind == "null":
        return ""
    if kind not in _ID_KINDS:
        raise DecodeError("the message-id has a wrong type", 0)
    content = value.hex() if isinstance(value, bytes) else str(value)
    item_id = f"{kind}:{content}"
    if len(item_id) <= ID_CHARS_MAX and is_legal(content):
        return item_id
    return f"{kind}-sha256:{hashlib.sha256(content.encode()).hexdigest()}"


def _properties(found: Sections, properties: list[bytes]) -> Properties:
    """The properties for selectors: application-properties, and some of the properties.

    A value that is neither text, number nor boolean is left out, and so is what XML
    cannot carry: XMPP workers are told the properties. All application-
    properties are left out if they are more than an item can have; the message is
    whole without them.

    Args:
        found: the message.
        properties: its fields.

    Raises:
        DecodeError: a key is no string, or a value is a list, a map or an array.
    """
    standard = {
        name: value
        for place, name in _STANDARD.items()
        if place < len(properties)
        and (value := _standard(name, decode(properties[place]))) is not None
    }
    given: dict[str, PropertyValue] = {}
    section_ = found.values.get(Section.APPLICATION_PROPERTIES)
    pairs = [] if section_ is None else elements(section_)
    if len(pairs) % 2:
        raise DecodeError("a key without a value in application-properties", 0)
    for key, packed in zip(pairs[::2], pairs[1::2], strict=True):
        kind, name = decode(key)
        if kind != "string":
            raise DecodeError("a key of application-properties is no string", 0)
        if packed[0] in _COMPOUND:
            raise DecodeError("application-properties have simple values only", 0)
        value = _plain(decode(packed))
        if value is not None and is_legal(str(name)):
            given[str(name)] = value
    if not standard and not given:
        return {}
    for each in ({**given, **standard}, standard):
        if why_not(each) is None:
            return each
    return {}


def _standard(name: str, value: Value) -> PropertyValue | None:
    if name != CORRELATION_ID:
        return _plain(value)
    found = id_property(value)
    return found if is_legal(str(found)) else None


def _plain(value: Value) -> PropertyValue | None:
    kind, plain = value
    if kind in ("uuid", "binary", "other", "null") or isinstance(plain, bytes):
        return None
    if isinstance(plain, float) and not math.isfinite(plain):
        return None
    if isinstance(plain, str) and not is_legal(plain):
        return None
    return None if type(plain) is int and plain not in INTEGERS else plain


def _payload(found: Sections, bytes_max: int) -> str:
    annotations = found.values.get(Section.MESSAGE_ANNOTATIONS)
    head = f"<message xmlns='{NAMESPACE}'"
    if annotations is not None:
        head += f" annotations='{b64encode(annotations).decode()}'"
    content = b64encode(found.bare).decode()
    readable = _readable(found)
    if utf8_size(readable) + len(content) + len(head) > bytes_max:
        readable = ""
    return f"{head}>{content}{readable}</message>"


def _readable(found: Sections) -> str:
    """The body as XML; '': it is no text."""
    if found.body is Section.VALUE:
        kind, value = decode(found.values[Section.VALUE])
        if kind == "string" and is_legal(str(value)):
            return f"<body>{text(str(value))}</body>"
    elif found.body is Section.DATA and found.parts == 1:
        _, content = decode(found.values[Section.DATA])
        assert isinstance(content, bytes)
        return _xml(content)
    return ""


def _xml(content: bytes) -> str:
    """The content as one element; '': it is not XML, or has declarations of its own."""
    # No DTD is ever parsed: its entities could be of any size.
    if not content.startswith(b"<") or b"<!" in content or b"<?" in content:
        return ""
    try:
        element = ET.fromstring(content.decode())  # noqa: S314 - no DTD
        # Inside of another element: one without a namespace must not get that of ours.
        outer = ET.Element(f"{{{NAMESPACE}}}message")
        outer.append(element)
        rendered = render(outer)
    except (ET.ParseError, ValueError):
        return ""
    return rendered[rendered.index(">") + 1 : rendered.rindex("<")]


# -- to a consumer ---------------------------------------------------------


def render_item(item: Item, payload: str, now: float) -> bytes:
    """The message that a consumer gets: its bare part is the same each time.

    Args:
        item: as it was locked.
        payload: of the item.
        now: the remaining time to live is counted from here.
    """
    annotations, bare = as_published(payload)
    if item.annotations:
        annotations = merged(annotations, b64decode(item.annotations))
    if annotations:
        annotations = section(Section.MESSAGE_ANNOTATIONS, annotations)
    return _header(item, now) + annotations + (bare or bare_message(item, payload))


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
    match = _PAYLOAD.match(payload)
    if match is None:
        return b"", b""
    try:
        bare = b64decode(match["bare"], validate=True)
        annotations = b64decode(match["annotations"] or "", validate=True)
        if split(bare).bare == bare:
            if annotations:
                split(section(Section.MESSAGE_ANNOTATIONS, annotations))
            return annotations, bare
    except (binascii.Error, DecodeError):
        # An XMPP client has made up such an element: to AMQP it is XML like any other.
        pass
    return b"", b""
