"""The properties of an item: names with typed values, which its publisher gives it.

Selectors read them (`qos.core.queue.item_names`). They never change, and they belong to
what a repeated publish is recognised by.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Final, TypeAlias

from qos.core.content_headers import why_no_header
from qos.core.queue.selector.values import INTEGERS, Value
from qos.xml_text import is_legal

__all__ = [
    "HEADER_BYTES_MAX",
    "HOPS",
    "HOPS_MAX",
    "NAMES_MAX",
    "NAME_CHARS_MAX",
    "PROPERTIES_BYTES_MAX",
    "XML_PREFIX",
    "Properties",
    "Value",
    "content_digest",
    "header_size",
    "hops_of",
    "properties_size",
    "why_not",
    "why_stop",
]

#: Properties are for choosing items, and the service keeps them in memory: large data
#: belongs into the payload.
NAMES_MAX = 64
PROPERTIES_BYTES_MAX = 8 * 1024

#: The bytes of the properties as a header: many HTTP clients read no line over 8 KiB, and
#: there a character that is not ASCII takes three bytes for each of its own.
HEADER_BYTES_MAX = 8000

#: The longest name that a selector can have has about this length.
NAME_CHARS_MAX = 256

#: Names with this prefix are read from the payload.
XML_PREFIX = "xml."

#: The property that counts how often an item was forwarded. Push and bridges forward
#: messages by themselves: from a queue to the next one, perhaps of another service. Each
#: of them counts here, and forwards no message that was forwarded often enough, so that
#: none goes in a circle for ever: it is dead, with the reason. Copies of a topic and dead
#: letters have the properties of the item. The limits do not count this one: with it, a
#: message is forwarded that was within them.
HOPS: Final = "qos_hops"

#: As long a chain as anybody builds on purpose.
HOPS_MAX = 16

#: Values by name.
Properties: TypeAlias = Mapping[str, Value]

_OTHER_BYTES = 8

#: Of a value in a header: `, NAME=%"…"`; and of a number, `, NAME="…";type=double` at most.
_MARKS_BYTES = 6
_NUMBER_BYTES = 44
#: The bytes that stay as they are where others are written with `%`.
_PLAIN = bytes(set(range(0x20, 0x7F)) - set(b'"%'))

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def why_not(properties: Properties) -> str | None:
    """Why an item cannot have these properties; None: it can.

    Args:
        properties: their values are of the types of Value.
    """
    count = len(properties) - (HOPS in properties)
    if count > NAMES_MAX:
        return f"{count} properties, over the limit of {NAMES_MAX}"
    for name, value in properties.items():
        if not name or len(name) > NAME_CHARS_MAX:
            return f"the name of a property has 1 to {NAME_CHARS_MAX} characters"
        if not (is_legal(name) and (type(value) is not str or is_legal(value))):
            return f"{name!r} has a character that XML cannot carry"
        if name.startswith(XML_PREFIX):
            return f"{name!r}: names with {XML_PREFIX} are read from the payload"
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name!r} is not a finite number"
        if type(value) is int and value not in INTEGERS:
            return f"{name!r} has more than 64 bits"
        if why := why_no_header(name, value):
            return why
    size = properties_size(properties)
    if size > PROPERTIES_BYTES_MAX:
        return f"the properties have {size} bytes, over the limit of {PROPERTIES_BYTES_MAX}"
    header_bytes = header_size(properties)
    if header_bytes > HEADER_BYTES_MAX:
        return (
            f"the properties take {header_bytes} bytes as a header of HTTP, over the "
            f"limit of {HEADER_BYTES_MAX}; a character that is not ASCII takes six or more"
        )
    return None


def header_size(properties: Properties) -> int:
    """The most bytes that the properties take in the header `Msg-Properties`.

    HOPS is not counted: it has a header of its own.
    """
    return sum(
        len(name) + _in_header(value)
        for name, value in properties.items()
        if name != HOPS or isinstance(value, str)
    )


def _in_header(value: Value) -> int:
    if not isinstance(value, str):
        return _NUMBER_BYTES
    if value.isascii() and value.isprintable():
        return len(value) + value.count('"') + value.count("\\") + _MARKS_BYTES
    encoded = value.encode()
    return len(encoded) + 2 * len(encoded.translate(None, _PLAIN)) + _MARKS_BYTES


def properties_size(properties: Properties) -> int:
    """The bytes of the names and the values; a number counts as 8 bytes.

    HOPS is not counted.
    """
    return sum(
        len(name.encode(errors="surrogatepass"))
        + (
            len(value.encode(errors="surrogatepass"))
            if isinstance(value, str)
            else _OTHER_BYTES
        )
        for name, value in properties.items()
        if name != HOPS or isinstance(value, str)
    )


def content_digest(content: bytes, properties: Properties) -> str:
    """The digest of an item (SHA-256, hex): of its content and its properties.

    Args:
        content: the payload, or what is compared instead of it.
        properties: as they were published.
    """
    digest = hashlib.sha256(content)
    if properties:
        # A payload has no NUL, so that no other content has this digest.
        digest.update(b"\0" + _json.encode(dict(properties)).encode())
    return digest.hexdigest()


def hops_of(properties: Properties) -> int:
    """How often a message with these properties has been forwarded.

    A value that is no count is 0: publishers can write any.
    """
    count = properties.get(HOPS)
    return count if type(count) is int and count > 0 else 0


def why_stop(properties: Properties) -> str:
    """The reason not to forward a message once more; '': forward it."""
    if hops_of(properties) < HOPS_MAX:
        return ""
    return f"it was forwarded {HOPS_MAX} times, as often as is possible: in a circle?"
