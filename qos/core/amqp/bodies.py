"""The body and the id of a message that was published by AMQP, for other protocols."""

from __future__ import annotations

from qos.core.amqp.item_rendering import as_published
from qos.core.amqp.message_ids import id_property, id_text
from qos.core.amqp.sections import Section, Sections, split
from qos.core.amqp.values import DecodeError, decode, decode_carried, elements
from qos.core.content_headers import is_media_type
from qos.core.contents import OCTETS

__all__ = ["body_of", "message_id_of"]

#: Fields of properties (messaging §3.2.4), by their places.
_MESSAGE_ID, _CONTENT_TYPE = 0, 6

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


def _body(sections: Sections) -> tuple[bytes, str] | None:
    if sections.parts != 1 or sections.body not in {Section.DATA, Section.VALUE}:
        return None
    kind, value = decode(sections.values[sections.body])
    if kind == "string":
        return str(value).encode(), _media_type(sections, _TEXT)
    if kind != "binary":
        return None
    assert isinstance(value, bytes)
    return value, _media_type(sections, OCTETS)


def message_id_of(payload: str) -> str:
    """The message-id of an item, as `message_ids` writes it.

    '': it has none, or was not published by AMQP.
    """
    _, bare = as_published(payload)
    if not bare:
        return ""
    try:
        fields = _fields(split(bare))
        return id_text(id_property(decode(fields[_MESSAGE_ID]))) if fields else ""
    except DecodeError:
        # An XMPP client has made it up.
        return ""


def _fields(sections: Sections) -> list[bytes]:
    properties = sections.values.get(Section.PROPERTIES)
    return [] if properties is None else elements(properties)


def _media_type(sections: Sections, default: str) -> str:
    """The media type in the properties, or the default."""
    fields = _fields(sections)
    if len(fields) <= _CONTENT_TYPE:
        return default
    _, content_type = decode_carried(fields[_CONTENT_TYPE])
    return (
        content_type
        if isinstance(content_type, str) and is_media_type(content_type)
        else default
    )
