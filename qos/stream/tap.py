"""A tap below the handlers of a stream, where our parts take stanzas out.

Each stream has one, shared by all our parts on it. This module knows slixmpp's filters
and events, but not which stanzas are taken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import Message
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.core.strings import ID_CHARS_MAX
from qos.stream import internals
from qos.stream.gate import Gate, in_session
from qos.stream.per_stream import ForeignFilters, one_per_stream
from qos.stream.stream_limits import StreamLimits
from qos.stream.stream_management import StreamManagement
from qos.stream.wire import Wire
from qos.xml_text import attribute

__all__ = ["Part", "SessionStarted", "Tap"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")

_FAILED = (
    "<error type='wait'>"
    "<internal-server-error xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
)


class SessionStarted(Protocol):
    """Called when there is a session."""

    def __call__(self, *, resumed: bool) -> None:
        """Go online; `resumed`: the session is the one before (XEP-0198 §5)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """A part of ours on a stream: the functions that the tap calls.

    Attributes:
        take_iq: whether it takes this iq out: then nobody else sees it.
        take_message: the same for a message; None: it takes no messages.
        saw_presence: called with each presence; returns whether it ends here, as that of
            a stranger: then slixmpp does not see it. None: not called.
        session_started: called when a session begins, and at once if there is one.
        session_lost: called at the end of a session; a second call is harmless.
    """

    take_iq: Callable[[ET.Element], bool]
    take_message: Callable[[StanzaBase], bool] | None = None
    saw_presence: Callable[[ET.Element], bool | None] | None = None
    session_started: SessionStarted
    session_lost: Callable[[], None]


class Tap:
    """The tap of one stream: sees every stanza that comes in, before any handler.

    It looks at an iq before slixmpp makes an object of it, which would take longer than
    everything that is done with the iq here. But if the application has a filter of its
    own, that filter sees the iq first. Other stanzas are seen in a last filter.

    Attributes:
        wire: sends stanzas, for all parts.
    """

    @classmethod
    def of(cls, xmpp: BaseXMPP) -> Tap:
        """The tap of this stream. A tap without parts does not touch the stream."""
        return one_per_stream(cls, xmpp)

    def __init__(self, xmpp: BaseXMPP) -> None:
        """See `of`."""
        self._xmpp = xmpp
        self._management = StreamManagement(xmpp)
        self.wire = Wire(xmpp, self._management)
        self._sizes = StreamLimits.of(xmpp).sizes
        self._parts: tuple[Part, ...] = ()
        self._set_parts(())
        self._looked_at: ET.Element | None = None
        self._filters = internals.filters(xmpp, "in")
        self._foreign = ForeignFilters(xmpp, "in")
        self._handlers = (
            ("connected", self._connected),
            ("session_start", self._session_started),
            ("session_resumed", self._session_resumed),
            ("session_end", self._session_lost),
            ("disconnected", self._session_lost),
        )

    # -- the parts ---------------------------------------------------------

    def join(self, part: Part) -> Part:
        """Add a part, which is asked before the earlier ones; returns it."""
        if not self._parts:
            self._open()
        self._set_parts((part, *self._parts))
        if in_session(self._xmpp):
            part.session_started(resumed=False)
        return part

    def leave(self, part: Part) -> None:
        """Remove a part; harmless if it has left.

        After the last part has left, the stream is as it was, except for the gate,
        which stays.
        """
        if part in self._parts:
            self._set_parts(
                tuple(member for member in self._parts if member is not part)
            )
            if not self._parts:
                self._close()

    def _set_parts(self, parts: tuple[Part, ...]) -> None:
        # Replaced, not changed in place: a part may leave while the parts are asked.
        self._parts = parts
        self._take_iq = [part.take_iq for part in parts]
        self._take_message = [e.take_message for e in parts if e.take_message]
        self._saw_presence = [e.saw_presence for e in parts if e.saw_presence]

    def _open(self) -> None:
        self._management.connected()
        self._xmpp.add_filter("in", self._filter)
        for event, handler in self._handlers:
            self._xmpp.add_event_handler(event, handler)
        Gate.of(self._xmpp).pass_to(self._take_first, f"{{{self._xmpp.default_ns}}}iq")
        if in_session(self._xmpp):
            self.wire.session_started(resumed=False)

    def _close(self) -> None:
        Gate.of(self._xmpp).pass_to(None)
        self._xmpp.del_filter("in", self._filter)
        for event, handler in self._handlers:
            self._xmpp.del_event_handler(event, handler)
        self.wire.close()

    # -- the session -------------------------------------------------------

    def _connected(self, _event: object) -> None:
        """Stay the last filter.

        XEP-0198 must have counted a stanza before it is taken.
        """
        self._management.connected()
        self._xmpp.del_filter("in", self._filter)
        self._xmpp.add_filter("in", self._filter)

    def _session_started(self, _event: object) -> None:
        self._online(resumed=False)

    def _session_resumed(self, _event: object) -> None:
        self._online(resumed=True)

    def _online(self, *, resumed: bool) -> None:
        self.wire.session_started(resumed=resumed)
        for part in reversed(self._parts):
            part.session_started(resumed=resumed)

    def _session_lost(self, _event: object) -> None:
        self.wire.session_lost()
        for part in reversed(self._parts):
            part.session_lost()

    # -- incoming stanzas --------------------------------------------------

    def filtered(self, message: Message) -> StanzaBase | None:
        """Let a message of our own pass the filters of received stanzas.

        Returns:
            What the filters have made of it; None: one of them has taken it out.
        """
        stanza: StanzaBase | None = message
        # The plugin counts it, too, though it was not received now.
        plugin = self._management.plugin
        handled = None if plugin is None else plugin.handled
        try:
            for filter_ in self._filters:
                stanza = filter_(stanza)
                if stanza is None:
                    break
        finally:
            if plugin is not None:
                plugin.handled = handled
        return stanza

    def _take_first(self, xml: ET.Element) -> bool:
        """Whether an iq is taken, before slixmpp makes an object of it."""
        if self._foreign.any():
            return False
        self._looked_at = xml
        if self._sizes.awaited:
            self._answered(xml)
        if not self._is_taken(xml, self._take_iq):
            return False
        if self._management.plugin is not None:
            self._management.received()
        return True

    def _answered(self, xml: ET.Element) -> None:
        """Note that a large stanza of ours went through, if this is the answer to it."""
        iq_id = xml.get("id", "")
        if iq_id in self._sizes.awaited and xml.get("type") in {"result", "error"}:
            self._sizes.answered(iq_id)

    def _filter(self, stanza: StanzaBase) -> StanzaBase | None:
        """The last filter, after that of XEP-0198."""
        is_taken = False
        if stanza.name == "iq":
            handled, self._looked_at = self._looked_at, None
            if stanza.xml is not handled:
                if self._sizes.awaited:
                    self._answered(stanza.xml)
                is_taken = self._is_taken(stanza.xml, self._take_iq)
        elif stanza.name == "message":
            if self._take_message:
                is_taken = self._is_taken(stanza, self._take_message)
        elif stanza.name == "presence":
            is_taken = self._ends_here(stanza.xml)
        return None if is_taken else stanza

    def _ends_here(self, presence: ET.Element) -> bool:
        """Whether slixmpp does not see this presence; all parts have seen it."""
        ends = False
        for look in self._saw_presence:
            try:
                ends = bool(look(presence)) or ends
            except Exception:
                log.exception("a presence could not be looked into")
        return ends

    def _is_taken(
        self, stanza: _T, looks: Iterable[Callable[[_T], bool | None]]
    ) -> bool:
        """Whether one of the parts takes a stanza.

        An error in a part must not end the connection: a peer repeats itself. Its request
        may have been for this part, so nobody else says that it is not known here.
        """
        failed = False
        for look in looks:
            try:
                if look(stanza):
                    return True
            except Exception:
                log.exception("a stanza could not be looked into")
                failed = True
        return failed and self._is_refused(stanza)

    def _is_refused(self, stanza: object) -> bool:
        """Whether this is a request; it is answered that it may be repeated."""
        if not isinstance(stanza, ET.Element) or not stanza.tag.endswith("}iq"):
            return False
        if stanza.get("type") not in {"get", "set"}:
            return False
        iq_id = stanza.get("id", "")
        if len(iq_id) <= ID_CHARS_MAX:
            self.wire.send(
                f"<iq type='error' id={attribute(iq_id)}"
                f"{_named('to', stanza.get('from'))}"
                f"{_named('from', stanza.get('to'))}>{_FAILED}</iq>"
            )
        return True


def _named(name: str, address: str | None) -> str:
    return "" if address is None else f" {name}={attribute(address)}"
