"""Refuses stanzas that slixmpp cannot take: cut ones, and those with an address that is none.

They end here, and the stream goes on. An iq is answered, where it can be. What is refused
has been received all the same, and is counted for XEP-0198.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP
from slixmpp.jid import JID, InvalidJID
from slixmpp.stanza import Iq

from qos.stream.parser import TOO_DEEP, TOO_LONG
from qos.stream.stream_management import StreamManagement
from qos.xml_reading import DEPTH_MAX, NAMESPACE_BYTES_MAX
from qos.xml_text import attribute, local

__all__ = ["CUT", "Refusals"]

#: The signs that are left in stanzas that were cut, and what they mean.
CUT: Final = {
    TOO_LONG: f"it declares a namespace of more than {NAMESPACE_BYTES_MAX} bytes",
    TOO_DEEP: f"its elements are nested more than {DEPTH_MAX} deep",
}

#: How many addresses are remembered as readable.
_READABLE_MAX: Final = 1000

_MALFORMED: Final = (
    "<error type='modify'><jid-malformed xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
    "</error></iq>"
)


class Refusals:
    """The refusals of one stream.

    Attributes:
        readable: addresses that slixmpp can read, and None. Look here before `admits`.
    """

    def __init__(self, xmpp: BaseXMPP, warn: Callable[..., None]) -> None:
        """Prepare.

        Args:
            xmpp: the stream.
            warn: logs a warning, with a format and its arguments, if it likes to.
        """
        self.readable: set[str | None] = {None}
        self._xmpp = xmpp
        self._warn = warn

    def admits(self, xml: ET.Element) -> bool:
        """Whether slixmpp can read both addresses of a stanza; else it is refused.

        A server may have other rules for addresses, and slixmpp would raise wherever it
        reads them: in a handler, and again after each restart when the stanza was stored.
        """
        for name in ("from", "to"):
            address = xml.get(name)
            if address in self.readable:
                continue
            try:
                JID(address)
            except InvalidJID:
                self._unreadable(xml, name)
                return False
            if len(self.readable) > _READABLE_MAX:
                self.readable = {None}
            self.readable.add(address)
        return True

    def admits_cut(self, xml: ET.Element) -> bool:
        """Whether a stanza that was cut goes on; else it is refused.

        An answer goes on, without what was in it: a request of ours waits for it.
        """
        why = CUT[xml[0].tag]
        if local(xml) != "iq":
            sender = xml.get("from", "the server")[:100]
            self._warn("dropped a stanza of %s: %s", sender, why)
            self._received()
            return False
        iq = Iq(self._xmpp, xml=xml)  # type: ignore[no-untyped-call]
        if iq["type"] not in {"get", "set"}:
            return True
        refusal = iq.reply()  # type: ignore[no-untyped-call]
        error = refusal["error"]
        error["type"], error["condition"] = "modify", "not-acceptable"
        error["text"] = why
        refusal.send()
        self._received()
        return False

    def _unreadable(self, xml: ET.Element, name: str) -> None:
        address = xml.get(name, "")[:100]
        self._warn("dropped a stanza: its %s is no address: %r", name, address)
        management = self._received()
        plugin = management.plugin
        if local(xml) != "iq" or xml.get("type") not in {"get", "set"}:
            return
        # slixmpp reads again what waits for an acknowledgement.
        if plugin is None or not plugin.enabled_out:
            self._xmpp.send_raw(
                f"<iq type='error' id={attribute(xml.get('id', ''))}"
                f" to={attribute(xml.get('from', ''))}"
                f" from={attribute(xml.get('to', ''))}>{_MALFORMED}"
            )

    def _received(self) -> StreamManagement:
        management = StreamManagement(self._xmpp)
        management.received()
        return management
