"""The names by which selectors know an item.

Those of JMS and of AMQP's selector filter mean what the service knows; a publisher
cannot set them. Names with `xml.` are read from the payload when it is published, those
that a selector of the node has at that time. Any other name is a property of the item.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from xml.etree import ElementTree as ET

from qos.core.queue.item import Item
from qos.core.queue.properties import XML_PREFIX, Properties
from qos.core.queue.selector import Untyped, Value

__all__ = [
    "TEXT_CHARS_MAX",
    "ItemNames",
    "is_read_from_payload",
    "names_of_payload",
]

#: The length of a text that is read from a payload; a longer one is not there for
#: selectors. All of them stay in memory with the item.
TEXT_CHARS_MAX = 256


def _ms(at: float) -> int:
    return round(1000 * at)


def _expiry(item: Item) -> int:
    return 0 if item.expires_at is None else _ms(item.expires_at)


_GETTERS: Mapping[str, Callable[[Item], Value]] = {
    "JMSMessageID": lambda item: item.item_id,
    "JMSPriority": lambda item: item.priority,
    "JMSTimestamp": lambda item: _ms(item.published_at),
    "JMSExpiration": _expiry,
    "JMSRedelivered": lambda item: item.delivery_count > 0,
    "JMSXDeliveryCount": lambda item: item.delivery_count + 1,
    "JMSXUserID": lambda item: item.publisher,
    "amqp.message_id": lambda item: item.item_id,
    "amqp.priority": lambda item: item.priority,
    "amqp.creation_time": lambda item: _ms(item.published_at),
    "amqp.absolute_expiry_time": _expiry,
    "amqp.delivery_count": lambda item: item.delivery_count,
    "amqp.user_id": lambda item: item.publisher,
}

#: AMQP's names for what JMS clients send as properties.
_ALIASES: Mapping[str, str] = {
    "amqp.correlation_id": "JMSCorrelationID",
    "amqp.reply_to": "JMSReplyTo",
    "amqp.to": "JMSDestination",
    "amqp.subject": "JMSType",
    "amqp.group_id": "JMSXGroupID",
    "amqp.group_sequence": "JMSXGroupSeq",
}


class ItemNames:
    """The values of an item by name, for `Selector.matches`."""

    __slots__ = ("_item",)

    def __init__(self, item: Item) -> None:
        self._item = item

    def get(self, name: str, /) -> Value | None:
        """The value of a name; None: NULL."""
        getter = _GETTERS.get(name)
        if getter is not None:
            return getter(self._item)
        properties = self._item.properties
        value = properties.get(name)
        if value is None:
            alias = _ALIASES.get(name)
            return None if alias is None else properties.get(alias)
        return Untyped(value) if name.startswith(XML_PREFIX) else value


# -- the payload -----------------------------------------------------------


def is_read_from_payload(name: str) -> bool:
    """Whether a name stands for a part of the payload."""
    return name.startswith(XML_PREFIX)


def names_of_payload(payload: str, names: Collection[str]) -> Properties:
    """The values of these names in a payload; a missing one is left out.

    `xml.element` and `xml.namespace` are the root's, `xml.attr.NAME` is its attribute,
    `xml.text.NAME` the text of its first child NAME, in any namespace.

    Args:
        payload: one element or ''.
        names: names with `xml.`.
    """
    if not payload or not names:
        return {}
    root = ET.fromstring(payload)  # noqa: S314 - written by qos.xml_text
    children: dict[str, ET.Element] = {}
    for child in root:
        children.setdefault(child.tag.rpartition("}")[2], child)
    values = {
        name: _of_root(root, children, name.removeprefix(XML_PREFIX)) for name in names
    }
    return {
        name: value
        for name, value in values.items()
        if value is not None and len(value) <= TEXT_CHARS_MAX
    }


def _of_root(
    root: ET.Element, children: Mapping[str, ET.Element], name: str
) -> str | None:
    namespace, _, local = root.tag.removeprefix("{").rpartition("}")
    if name == "element":
        return local
    if name == "namespace":
        return namespace
    kind, _, rest = name.partition(".")
    if kind == "attr":
        return root.get(rest)
    if kind == "text":
        child = children.get(rest)
        return None if child is None else "".join(child.itertext())
    return None
