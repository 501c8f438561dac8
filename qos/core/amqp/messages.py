"""An AMQP 1.0 message as a queue item; `item_rendering` is the way back.

A message that was published by AMQP is stored as this payload, which XMPP workers get:

    <message xmlns='xmpp-qos:amqp:0' annotations='BASE64'>BASE64<body>text</body></message>

The text is the bare message with its footer, byte for byte, and to AMQP the same bytes
leave. The attribute has the message annotations. The child is there to be read, if the
body is a string (`<body/>`) or one data section with XML of at most READABLE_TAGS_MAX tags
(that element itself).
"""

from __future__ import annotations

import hashlib
import math
from base64 import b64encode
from collections.abc import Callable
from xml.etree import ElementTree as ET

from qos.core.amqp.delays import delay_of
from qos.core.amqp.hops import counted
from qos.core.amqp.item_rendering import NAMESPACE, REPLY_TO_FIELD
from qos.core.amqp.message_ids import CORRELATION_ID, id_property
from qos.core.amqp.sections import (
    Section,
    Sections,
    first,
    must_understand,
    split,
)
from qos.core.amqp.values import (
    NULL,
    DecodeError,
    Value,
    decode,
    decode_carried,
    elements,
)
from qos.core.content_headers import why_no_header
from qos.core.queue.item import PRIORITIES
from qos.core.queue.properties import Properties, properties_size, why_not
from qos.core.queue.properties import Value as PropertyValue
from qos.core.queue.replies import REPLY_TO
from qos.core.queue.requests import PublishedItem, Refusal
from qos.core.queue.selector.values import INTEGERS
from qos.core.record import record
from qos.core.strings import ID_CHARS_MAX, utf8_size
from qos.core.url_segments import why_no_segment
from qos.xml_reading import parse
from qos.xml_text import is_legal, render, text

__all__ = [
    "READABLE_TAGS_MAX",
    "MustDetach",
    "ReceivedMessage",
    "addressed_to",
    "read_message",
]

#: The tags of a body of XML that is written a second time, to be read by XMPP workers. All
#: of it is done at once; so many take some 2 ms.
READABLE_TAGS_MAX = 1000

#: Fields of a header (messaging §3.2.1), of properties (messaging §3.2.4), by their places.
_PRIORITY, _TTL = 1, 2
_TO, _EXPIRY = 2, 8

#: The other fields of properties that selectors know, by their places: see
#: qos.core.queue.item_names.
_STANDARD = {
    _TO: "JMSDestination",
    3: "JMSType",
    REPLY_TO_FIELD: REPLY_TO,
    5: CORRELATION_ID,
    10: "JMSXGroupID",
    11: "JMSXGroupSeq",
}

#: The constructors of strings.
_STRINGS = frozenset({0xA1, 0xB1})

_ID_KINDS = ("ulong", "uuid", "binary", "string")


class MustDetach(Refusal):
    """The message has an annotation that must be understood, and is not (messaging §3.2.10)."""


@record(frozen=True, slots=True)
class ReceivedMessage:
    """A message from a publisher.

    Attributes:
        entry: the item to publish.
        new_id: the id of the item was made for it: it has no message-id.
    """

    entry: PublishedItem
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
        now: the time; the time to live and the delay count from here.
        bytes_max: the most bytes of a payload.

    Raises:
        DecodeError: it is not an AMQP message of format 0.
        MustDetach: see there.
        Refusal: it is too large.
    """
    sections = split(message)
    # The footer is for the consumer: it is only carried.
    for kind in (Section.DELIVERY_ANNOTATIONS, Section.MESSAGE_ANNOTATIONS):
        _check_annotations(sections, kind)
    header = _fields(sections, Section.HEADER)
    properties = _fields(sections, Section.PROPERTIES)
    payload = _payload(sections, bytes_max)
    item_properties = counted(_properties(sections, properties), sections)
    size = utf8_size(payload) + properties_size(item_properties)
    if size > bytes_max:
        raise Refusal(
            f"the message takes {size} bytes as an item, over the limit of {bytes_max}",
            condition="not-acceptable",
            type="modify",
            pubsub="payload-too-big",
        )
    message_id = _item_id(properties[0] if properties else NULL)
    entry = PublishedItem(
        item_id=message_id or new_id(),
        payload=payload,
        digest=hashlib.sha256(sections.bare).hexdigest(),
        size=size,
        priority=_priority(_field(header, _PRIORITY)),
        ttl=_ttl(_field(header, _TTL), _field(properties, _EXPIRY), now),
        delay=delay_of(sections.values.get(Section.MESSAGE_ANNOTATIONS), now),
        properties=item_properties,
    )
    return ReceivedMessage(entry, not message_id)


def addressed_to(message: bytes) -> str:
    """The node that the properties of a message name, or ''; nothing else is decoded.

    Raises:
        DecodeError: it is not an AMQP message of format 0.
    """
    properties = first(message, Section.PROPERTIES)
    kind, to = _field([] if properties is None else elements(properties), _TO)
    return str(to) if kind == "string" else ""


def _check_annotations(sections: Sections, kind: Section) -> None:
    value = sections.values.get(kind)
    key = None if value is None else must_understand(value)
    if key is not None:
        raise MustDetach(
            f"{kind.name} has the key {key!r}, which is not understood and does not "
            "begin with x-opt-",
            condition="feature-not-implemented",
            type="cancel",
        )


def _fields(sections: Sections, kind: Section) -> list[bytes]:
    value = sections.values.get(kind)
    return [] if value is None else elements(value)


def _field(fields: list[bytes], place: int) -> Value:
    return decode(fields[place]) if place < len(fields) else ("null", None)


def _priority(value: Value) -> int | None:
    number = _number(value, "unsigned", "the priority")
    # Messaging §3.2.1: ten priorities are distinct; those above are the highest one.
    return None if number is None else min(number, PRIORITIES[-1])


def _ttl(ttl: Value, expiry: Value, now: float) -> float | None:
    """Seconds until the message expires: by its ttl, or by its absolute-expiry-time.

    A time of 0 is none: clients write it if nothing is set.
    """
    lifetimes = [math.inf]
    if milliseconds := _number(ttl, "unsigned", "the ttl"):
        lifetimes.append(milliseconds / 1000)
    if at := _number(expiry, "timestamp", "the absolute-expiry-time"):
        lifetimes.append(max(0.0, at / 1000 - now))
    return min(lifetimes) if len(lifetimes) > 1 else None


def _number(value: Value, kind: str, field: str) -> int | None:
    value_kind, number = value
    if value_kind == "null":
        return None
    if value_kind != kind:
        raise DecodeError(f"{field} has a wrong type", 0)
    assert isinstance(number, int)
    return number


def _item_id(message_id: bytes) -> str:
    """The id of the item; '': the message has none.

    The same value as ulong, uuid, binary and string makes four different ids (messaging
    §3.2.4), and the bytes of a string that is not UTF-8 a fifth one.
    """
    kind, value = decode_carried(message_id)
    if kind == "null":
        return ""
    if kind == "other" and message_id[0] in _STRINGS:
        return _bounded("string-bytes", message_id.hex())
    if kind not in _ID_KINDS:
        raise DecodeError("the message-id has a wrong type", 0)
    return _bounded(kind, value.hex() if isinstance(value, bytes) else str(value))


def _bounded(kind: str, content: str) -> str:
    """An id of this content, which is as long and has such characters as an item's may."""
    item_id = f"{kind}:{content}"
    fits = len(item_id) <= ID_CHARS_MAX and not why_no_segment(item_id)
    if fits and is_legal(content):
        return item_id
    return f"{kind}-sha256:{hashlib.sha256(content.encode()).hexdigest()}"


def _properties(sections: Sections, properties: list[bytes]) -> Properties:
    """The properties for selectors: application-properties, and some of the properties.

    A value that is neither text, number nor boolean is left out, and so is what XML
    cannot carry: XMPP workers are told the properties. So is what nobody can read: a
    key that is no string, a value that is compound, a text that is not UTF-8; and what
    names a header of HTTP and is none. All
    application-properties are left out if they are more than an item can have; the
    message is whole without them.

    Args:
        sections: the message.
        properties: its fields.

    Raises:
        DecodeError: the application-properties are no map.
    """
    standard = {
        name: value
        for place, name in _STANDARD.items()
        if place < len(properties)
        and (value := _standard(name, decode_carried(properties[place]))) is not None
    }
    application: dict[str, PropertyValue] = {}
    section_ = sections.values.get(Section.APPLICATION_PROPERTIES)
    pairs = [] if section_ is None else elements(section_)
    if len(pairs) % 2:
        raise DecodeError("a key without a value in application-properties", 0)
    for key, packed in zip(pairs[::2], pairs[1::2], strict=True):
        kind, name = decode_carried(key)
        value = _plain(decode_carried(packed))
        if kind != "string" or value is None or not is_legal(str(name)):
            continue
        # An HTTP consumer would get it as a header.
        if not why_no_header(str(name), value):
            application[str(name)] = value
    if not standard and not application:
        return {}
    # A consumer is not told of a queue for replies that is no property of the item.
    reply_to = {REPLY_TO: standard[REPLY_TO]} if REPLY_TO in standard else {}
    for candidate in ({**application, **standard}, standard, reply_to):
        if why_not(candidate) is None:
            return candidate
    return {}


def _standard(name: str, value: Value) -> PropertyValue | None:
    if name != CORRELATION_ID:
        return _plain(value)
    correlation_id = id_property(value)
    return correlation_id if is_legal(str(correlation_id)) else None


def _plain(value: Value) -> PropertyValue | None:
    kind, plain = value
    if kind in ("uuid", "binary", "other", "null") or isinstance(plain, bytes):
        return None
    if isinstance(plain, float) and not math.isfinite(plain):
        return None
    if isinstance(plain, str) and not is_legal(plain):
        return None
    return None if type(plain) is int and plain not in INTEGERS else plain


def _payload(sections: Sections, bytes_max: int) -> str:
    annotations = sections.values.get(Section.MESSAGE_ANNOTATIONS)
    head = f"<message xmlns='{NAMESPACE}'"
    if annotations is not None:
        head += f" annotations='{b64encode(annotations).decode()}'"
    content = b64encode(sections.bare).decode()
    readable = _readable(sections)
    if utf8_size(readable) + len(content) + len(head) > bytes_max:
        readable = ""
    return f"{head}>{content}{readable}</message>"


def _readable(sections: Sections) -> str:
    """The body as XML; '': it is no text."""
    if sections.body is Section.VALUE:
        kind, value = decode_carried(sections.values[Section.VALUE])
        if kind == "string" and is_legal(str(value)):
            return f"<body>{text(str(value))}</body>"
    elif sections.body is Section.DATA and sections.parts == 1:
        _, content = decode(sections.values[Section.DATA])
        assert isinstance(content, bytes)
        return _xml(content)
    return ""


def _xml(content: bytes) -> str:
    """The content as one element; '': it is not XML, or has declarations of its own."""
    # No DTD is ever parsed: its entities could be of any size.
    if not content.startswith(b"<") or b"<!" in content or b"<?" in content:
        return ""
    if content.count(b"<") > READABLE_TAGS_MAX:
        return ""
    try:
        content.decode()
        element = parse(content).root
        # Inside of another element: one without a namespace must not get that of ours.
        outer = ET.Element(f"{{{NAMESPACE}}}message")
        outer.append(element)
        rendered = render(outer)
    except (ET.ParseError, ValueError):
        return ""
    return rendered[rendered.index(">") + 1 : rendered.rindex("<")]
