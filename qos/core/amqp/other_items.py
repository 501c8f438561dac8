"""An item that was not published by AMQP, as a bare message: properties and one data section.

The section has the content of the payload (`qos.core.contents`), or the payload. The bytes
are the same at each delivery.
"""

from __future__ import annotations

from qos.core.amqp import values
from qos.core.amqp.message_ids import CORRELATION_ID, id_text, packed_id
from qos.core.amqp.sections import Section, section
from qos.core.contents import content_of
from qos.core.queue.item import Item
from qos.core.queue.properties import XML_PREFIX, Properties
from qos.core.queue.properties import Value as PropertyValue
from qos.core.queue.replies import REPLY_TO

__all__ = ["bare_message"]

_XML_TYPE = "application/xml"

#: Fields of properties (messaging §3.2.4), by their places.
_MESSAGE_ID, _REPLY_TO, _CORRELATION_ID, _CONTENT_TYPE, _CREATION_TIME = 0, 4, 5, 6, 9


def bare_message(item: Item, payload: str) -> bytes:
    """The bare message of an item.

    Args:
        item: in any state.
        payload: of the item.
    """
    body, media_type = content_of(payload) or (payload.encode(), _XML_TYPE)
    fields = [values.NULL] * 10
    fields[_MESSAGE_ID] = values.string(item.item_id)
    fields[_CONTENT_TYPE] = values.symbol(media_type)
    fields[_CREATION_TIME] = values.timestamp(int(1000 * item.published_at))
    properties = dict(item.properties)
    reply_to = properties.get(REPLY_TO)
    if isinstance(reply_to, str):
        fields[_REPLY_TO] = values.string(reply_to)
        del properties[REPLY_TO]
    correlation_id = id_text(properties.get(CORRELATION_ID))
    if correlation_id:
        fields[_CORRELATION_ID] = packed_id(correlation_id)
        del properties[CORRELATION_ID]
    return (
        section(Section.PROPERTIES, values.pack_list(fields))
        + _application_properties(properties)
        + section(Section.DATA, values.binary(body))
    )


def _application_properties(properties: Properties) -> bytes:
    """The properties that its publisher gave to an item, in one order."""
    pairs = [
        element
        for name, value in sorted(properties.items())
        if not name.startswith(XML_PREFIX)
        for element in (values.string(name), _packed(value))
    ]
    if not pairs:
        return b""
    return section(Section.APPLICATION_PROPERTIES, values.pack_map(pairs))


def _packed(value: PropertyValue) -> bytes:
    if isinstance(value, bool):
        return values.boolean(value)
    if isinstance(value, str):
        return values.string(value)
    return values.long(value) if isinstance(value, int) else values.double(value)
