"""The presence of peers, below slixmpp's handlers: that of strangers ends here."""

from __future__ import annotations

from collections.abc import Callable, Container
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP

from qos.core.capabilities import HASHES
from qos.core.strings import bare
from qos.stream.presences import Presences
from xep_qos.discovery import Discovery
from xep_qos.features import Version
from xep_qos.guard import Guard

__all__ = ["PeerPresence"]

_CAPS = "{http://jabber.org/protocol/caps}c"
_MUC_USER = "{http://jabber.org/protocol/muc#user}x"

#: RFC 6121 §4.7.2.3.
_PRIORITIES = range(-128, 128)


class PeerPresence:
    """Gives each presence to the parts that need it.

    What a stranger sends is remembered beside what is known of others, for a while: we may
    be about to send to that stranger.

    Attributes:
        addressed: the accounts to which presence was sent.
    """

    def __init__(
        self,
        xmpp: BaseXMPP,
        guard: Guard,
        discovery: Discovery,
        *,
        sends_to: Callable[[str], bool],
        peer_arrived: Callable[[str], None],
    ) -> None:
        """Prepare.

        Args:
            xmpp: the stream.
            guard: knows who is a stranger.
            discovery: gets who is there.
            sends_to: whether messages to an account are in flight.
            peer_arrived: called with the account of a peer that has come.
        """
        self._xmpp = xmpp
        self._guard = guard
        self._discovery = discovery
        self._sends_to = sends_to
        self._peer_arrived = peer_arrived
        self._presences = Presences(xmpp)
        self.addressed: Container[str] = frozenset()

    def saw(self, xml: ET.Element) -> bool:
        """Take a presence; returns whether slixmpp does not see it."""
        jid, to = xml.get("from", ""), xml.get("to", "")
        account = bare(jid)
        addressed = account in self.addressed or self._sends_to(account)
        stranger = self._guard.is_stranger(jid, to, addressed=addressed)
        if xml.find(_MUC_USER) is not None:
            self._guard.saw_occupant(jid, stranger=stranger)
        kind = xml.get("type")
        own = bare(to or self._xmpp.boundjid.full)
        jid = jid or self._xmpp.boundjid.bare
        if kind is None:
            self._discovery.arrived(
                jid, own, _priority_of(xml), _version_of(xml), stranger=stranger
            )
            if not stranger:
                self._peer_arrived(bare(jid))
        elif kind == "unavailable":
            self._discovery.departed(jid, own)
        return stranger and self._presences.ends_here(xml)


def _priority_of(xml: ET.Element) -> int:
    text = (xml.findtext("{*}priority") or "").strip()
    try:
        priority = int(text) if len(text) <= len("-128") else 0
    except ValueError:
        return 0
    return priority if priority in _PRIORITIES else 0


def _version_of(xml: ET.Element) -> Version | None:
    """The version of its capabilities; a hash that nobody can check is none."""
    caps = xml.find(_CAPS)
    if caps is None or caps.get("hash") not in HASHES:
        return None
    return Version(caps.get("hash", ""), caps.get("ver", ""))
