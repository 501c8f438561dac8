"""The body of a message that was published by AMQP, for those who speak another protocol."""

from __future__ import annotations

from qos.core.amqp.messages import as_published
from qos.core.amqp.sections import Section, Sections, split
from qos.core.amqp.values import DecodeError, decode, elements
from qos.core.opaque_body import OCTETS, is_header_value

__all__ = ["body_of"]

_CONTENT_TYPE = 6

_TEXT = "text/plain; charset=utf-8"


def body_of(payload: str) -> tuple[bytes, str] | None:
    """The body of an item and its media type.

    None: it was not published by AMQP, or its body is a list, a map or the like, or in
    several parts.
    """
    _, bare = as_published(payload)
    if not bare:
        return None
    try:
        return _body(split(bare))
    except DecodeError:
        # An XMPP client has made it up.
        return None


def _body(found: Sections) -> tuple[bytes, str] | None:
    if found.parts != 1 or found.body not in {Section.DATA, Section.VALUE}:
        return None
    kind, value = decode(found.values[found.body])
    if kind == "string":
        return str(value).encode(), _media_type(found, _TEXT)
    if kind != "binary":
        return None
    assert isinstance(value, bytes)
    return value, _media_type(found, OCTETS)


def _media_type(found: Sections, default: str) -> str:
    """What the properties name, or the default."""
    properties = found.values.get(Section.PROPERTIES)
    fields = [] if properties is None else elements(properties)
    if len(fields) <= _CONTENT_TYPE:
        return default
    _, named = decode(fields[_CONTENT_TYPE])
    return named if isinstance(named, str) and is_header_value(named) else default
