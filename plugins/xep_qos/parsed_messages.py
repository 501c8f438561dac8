"""The elements of received messages, until the messages are handed over.

A message is stored as text, and handed over as an element. The element that was read
need not be made again from the text, if not too much has come meanwhile.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from qos.core.message.model import Incoming
from qos.xml_text import CLIENT

__all__ = ["ParsedMessages"]

#: The most characters of the texts whose elements are kept. The smallest elements take
#: some 40 times as much memory as their text.
_CHARS_MAX = 256 * 1024

_MESSAGE = f"{{{CLIENT}}}message"


class ParsedMessages:
    """The latest elements, each until it is taken once."""

    def __init__(self) -> None:
        # By the identity of the payload, which is the same object in a record that was
        # not read from a store.
        self._kept: dict[int, tuple[str, ET.Element]] = {}
        self._chars = 0

    def keep(self, payload: str, message: ET.Element) -> None:
        """Keep an element for the hand-over of its payload, and no longer than others.

        An element in another namespace than that of its text is not kept.
        """
        if message.tag != _MESSAGE:
            return
        self._kept[id(payload)] = payload, message
        self._chars += len(payload)
        while self._chars > _CHARS_MAX:
            self._pop(next(iter(self._kept)))

    def take(self, record: Incoming) -> ET.Element | None:
        """The element of a message, with the addresses of its iq, if it is kept."""
        if id(record.payload) not in self._kept:
            return None
        message = self._pop(id(record.payload))
        message.tail = None
        message.attrib.pop("from", None)
        message.set("to", record.to)
        if record.source:
            message.set("from", record.source)
        return message

    def _pop(self, key: int) -> ET.Element:
        payload, message = self._kept.pop(key)
        self._chars -= len(payload)
        return message
