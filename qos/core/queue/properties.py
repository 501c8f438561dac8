"""The properties of an item: names with typed values, which its publisher gives it.

Selectors read them (`qos.core.queue.item_names`). They never change, and they belong to
what a repeated publish is recognised by.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import TypeAlias

from qos.core.queue.selector.values import INTEGERS, Value
from qos.xml_text import is_legal

__all__ = [
    "NAMES_MAX",
    "NAME_CHARS_MAX",
    "PROPERTIES_BYTES_MAX",
    "XML_PREFIX",
    "Properties",
    "Value",
    "content_digest",
    "properties_size",
    "why_not",
]

#: Properties are for choosing items, and the service keeps them in memory: large data
#: belongs into the payload.
NAMES_MAX = 64
PROPERTIES_BYTES_MAX = 8 * 1024

#: The longest name that a selector can have has about this length.
NAME_CHARS_MAX = 256

#: Names with this prefix are read from the payload.
XML_PREFIX = "xml."

#: Values by name.
Properties: TypeAlias = Mapping[str, Value]

_OTHER_BYTES = 8

_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def why_not(properties: Properties) -> str | None:
    """Why an item cannot have these properties; None: it can.

    Args:
        properties: their values are of the types of Value.
    """
    if len(properties) > NAMES_MAX:
        return f"{len(properties)} properties, over the limit of {NAMES_MAX}"
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
    size = properties_size(properties)
    if size > PROPERTIES_BYTES_MAX:
        return f"the properties have {size} bytes, over the limit of {PROPERTIES_BYTES_MAX}"
    return None


def properties_size(properties: Properties) -> int:
    """The bytes of the names and the values; a number counts as 8 bytes."""
    return sum(
        len(name.encode(errors="surrogatepass"))
        + (
            len(value.encode(errors="surrogatepass"))
            if isinstance(value, str)
            else _OTHER_BYTES
        )
        for name, value in properties.items()
    )


def content_digest(content: bytes, properties: Properties) -> str:
    """The digest of an item (SHA-256, hex): of its content and its properties.

    Args:
        content: the payload, or what is compared instead of it.
        properties: as they were published.
    """
    made = hashlib.sha256(content)
    if properties:
        # A payload has no NUL, so that no other content has this digest.
        made.update(b"\0" + _json.encode(dict(properties)).encode())
    return made.hexdigest()
