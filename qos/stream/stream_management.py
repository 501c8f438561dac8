"""The counts of stream management (XEP-0198) on one stream.

slixmpp's plugin counts stanzas in two filters, one for received and one for sent
stanzas. This module counts the stanzas that pass neither. It also corrects the count
for a stanza that passes, but was not sent by the server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import Iq, Message

from qos.xml_text import CLIENT

__all__ = ["StreamManagement", "parsed"]

#: XEP-0198 §4: counters wrap.
_COUNT_MAX = 2**32


class StreamManagement:
    """The counts of one stream; without XEP-0198 nothing is counted.

    Attributes:
        plugin: slixmpp's plugin; None: there is none, and nothing needs to be counted.
    """

    def __init__(self, xmpp: BaseXMPP) -> None:
        """Count on this stream."""
        self._xmpp = xmpp
        self.plugin: Any = None
        self.connected()

    def connected(self) -> None:
        """Look for the plugin.

        It counts on a connection if it was loaded at its start.
        """
        has_plugin = not self._xmpp.is_component and "xep_0198" in self._xmpp.plugin
        self.plugin = self._xmpp.plugin["xep_0198"] if has_plugin else None

    def received(self) -> None:
        """Count a stanza that was taken out before the plugin could see it."""
        plugin = self.plugin
        if plugin is not None and plugin.enabled_in:
            plugin.handled = (plugin.handled + 1) % _COUNT_MAX

    def sent(self, texts: Iterable[str]) -> None:
        """Count sent texts, as slixmpp's filter does for objects."""
        plugin = self.plugin
        if plugin is None or not plugin.enabled_out:
            return
        for text in texts:
            plugin.seq = (plugin.seq + 1) % _COUNT_MAX
            plugin.unacked_queue.append((plugin.seq, SentText(text)))
            plugin.window_counter -= 1
            if plugin.window_counter == 0:
                plugin.window_counter = plugin.window
                plugin.request_ack()

    def keep_as_text(self, stanza: object, text: str) -> None:
        """Make slixmpp use this text if it has to send a just counted stanza again."""
        plugin = self.plugin
        if plugin is not None and plugin.unacked_queue:
            seq, last = plugin.unacked_queue[-1]
            if last is stanza:
                plugin.unacked_queue[-1] = (seq, SentText(text))


class SentText(str):
    """A sent text in the queue of XEP-0198, read as a stanza when it is sent again."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        stanza_class = Message if self.startswith("<message") else Iq
        return stanza_class(xml=parsed(str(self), CLIENT))[key]


def parsed(text: str, namespace: str) -> ET.Element:
    """Parse a stanza of ours, which names its namespace or is in this one."""
    name = text[1:].partition(" ")[0]
    if not text.startswith(f"<{name} xmlns="):
        text = text.replace(f"<{name}", f"<{name} xmlns='{namespace}'", 1)
    return ET.fromstring(text)  # noqa: S314 - our own text
