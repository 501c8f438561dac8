"""A gate in front of a stream: nothing is handed over before there is a session.

slixmpp dispatches every element that comes in, even before TLS and login. Until the TLS
handshake is done, anybody on the network path can write into the stream. The gate drops
what such an attacker writes:

- Before TLS, only the elements that begin a stream and TLS may pass. A client that has
  `enable_plaintext` set wants no TLS, so this rule does not apply to it.
- After `<proceed/>` (RFC 6120 §5.4.2.3), nothing passes until the stream is restarted
  over TLS, though slixmpp may have read more in the same packet.
- Before a resource is bound (RFC 6120 §7), a stream is resumed (XEP-0198 §5) or the
  handshake of a component is accepted (XEP-0114), the only stanzas that pass are the
  answers needed for this.

Elements that have passed the gate go to the tap (`qos.stream.tap`), if there is one,
and then to slixmpp. The gate knows slixmpp's events and its hook for incoming elements,
but nothing of QoS.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.stream import internals
from qos.stream.negotiation import negotiate_once
from qos.stream.parser import parse_safely
from qos.stream.per_stream import one_per_stream
from qos.stream.refusals import CUT, Refusals
from qos.stream.stream_limits import StreamLimits
from qos.stream.turns import Turns
from qos.xml_text import CLIENT, COMPONENT

__all__ = ["Gate", "Take", "in_session", "is_confidential"]

log = logging.getLogger(__name__)

#: Returns whether it takes an element out of the stream.
Take: TypeAlias = Callable[[ET.Element], bool]

_STREAM = "{http://etherx.jabber.org/streams}"
_TLS = "{urn:ietf:params:xml:ns:xmpp-tls}"
_CLIENT = f"{{{CLIENT}}}"
_COMPONENT = f"{{{COMPONENT}}}"

_PROCEED = f"{_TLS}proceed"
_HANDSHAKE = f"{_COMPONENT}handshake"
_IQS = frozenset({f"{_CLIENT}iq", f"{_COMPONENT}iq"})


def is_confidential(xmpp: BaseXMPP) -> bool:
    """Whether incoming data is from the server: over TLS, or without by choice.

    Components have no TLS (XEP-0114), and neither has a client whose `enable_plaintext`
    is set.
    """
    if xmpp.enable_plaintext:
        return True
    transport = xmpp.transport
    return transport is not None and transport.get_extra_info("ssl_object") is not None


def in_session(xmpp: BaseXMPP) -> bool:
    """Whether there is a session: a resource is bound, or a session was resumed.

    slixmpp has an event only for the first.
    """
    return xmpp.session_bind_event.is_set() or internals.is_started(xmpp)


class Gate:
    """The gate of one stream.

    Attributes:
        refused: the error by which the server has refused to make a session; or None.
    """

    @classmethod
    def of(cls, xmpp: BaseXMPP) -> Gate:
        """The gate of this stream; it is installed if there is none, and stays."""
        return one_per_stream(cls, xmpp)

    def __init__(self, xmpp: BaseXMPP) -> None:
        """Install the gate; see `of`."""
        self.refused: ET.Element | None = None
        self._tag = ""
        self._take: Take | None = None
        self._xmpp = xmpp
        self._open = in_session(xmpp)
        #: The parser that has read `<proceed/>`: the restarted stream has another one.
        self._proceeded: object = None
        self._warned = False
        self._refusals = Refusals(xmpp, self._warn)
        for event, handler in (
            ("connected", self._shut),
            ("disconnected", self._shut),
            ("session_bind", self._unlock),
            ("session_start", self._unlock),
            ("session_resumed", self._unlock),
            ("stream_error", self._stream_error),
        ):
            xmpp.add_event_handler(event, handler)
        parse_safely(xmpp)
        Turns.of(xmpp)
        negotiate_once(xmpp, self._offered)
        self._dispatch = internals.replace_dispatch(xmpp, self._came)

    def pass_to(self, take: Take | None, tag: str = "") -> None:
        """Ask `take` about each element of this name that has passed the gate.

        An element that it takes is not dispatched. None: ask nobody.
        """
        self._take, self._tag = take, tag

    def _unlock(self, _event: object) -> None:
        self._open, self._proceeded = True, None

    def _shut(self, _event: object) -> None:
        self._open = self._warned = False
        self._proceeded = self.refused = None

    def _offered(self, features: ET.Element) -> None:
        if is_confidential(self._xmpp):
            StreamLimits.of(self._xmpp).offered(features)

    def _stream_error(self, error: StanzaBase) -> None:
        if self._open and is_confidential(self._xmpp):
            StreamLimits.of(self._xmpp).stream_ended(error)

    def _came(self, xml: ET.Element) -> None:
        """Handle an incoming child of the stream, in place of slixmpp's own method."""
        if not self._open and not self._may_pass(xml):
            self._warn(
                "dropped what came before there was a session, such as %s: it may be "
                "from an attacker on the network path",
                xml.tag[:100],
            )
            return
        refusals = self._refusals
        is_known = {xml.get("from"), xml.get("to")} <= refusals.readable
        if self._open and not is_known and not refusals.admits(xml):
            return
        if len(xml) == 1 and xml[0].tag in CUT and not refusals.admits_cut(xml):
            return
        if self._take is None or xml.tag != self._tag or not self._take(xml):
            self._dispatch(xml)

    def _may_pass(self, xml: ET.Element) -> bool:
        """Whether an element that comes outside a session is needed to get one."""
        parser, tag = self._xmpp.parser, xml.tag
        if self._proceeded is not None and parser is self._proceeded:
            return False
        if not is_confidential(self._xmpp):
            if tag == _PROCEED:
                self._proceeded = parser
            return tag.startswith((_STREAM, _TLS))
        if tag in _IQS:
            kind = xml.get("type")
            if kind == "error":
                self.refused = xml
            return kind in {"result", "error"}
        return tag == _HANDSHAKE or not tag.startswith((_CLIENT, _COMPONENT))

    def _warn(self, text: str, *about: object) -> None:
        """Warn only once for each connection.

        An attacker can write as much as he likes.
        """
        if not self._warned:
            self._warned = True
            log.warning(text, *about)
