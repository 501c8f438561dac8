"""A tap below the handlers of a stream, where our parts take stanzas out.

One on each stream, which all parts of ours on it share. It knows slixmpp's filters and
events, and not what is looked for.
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

from qos.stream.filters import ForeignFilters
from qos.stream.gate import Gate, in_session
from qos.stream.stream_management import StreamManagement
from qos.stream.wire import Wire

__all__ = ["Part", "SessionStarted", "Tap"]

log = logging.getLogger(__name__)

#: Where a stream has its tap.
_ATTRIBUTE = "_xep_qos_tap"

_T = TypeVar("_T")


class SessionStarted(Protocol):
    """Called when there is a session."""

    def __call__(self, *, resumed: bool) -> None:
        """Go online; resumed: the session is the one before (XEP-0198 §5)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """A part of ours on a stream: what it takes out, and what it is told.

    Attributes:
        take_iq: whether it takes this iq out: then nobody else sees it.
        take_message: the same of a message; None: it takes none.
        saw_presence: called with each presence; None: it is not.
        session_started: called when there is a session, and at once if there is one.
        session_lost: called when there is none any more; twice is no harm.
    """

    take_iq: Callable[[ET.Element], bool]
    take_message: Callable[[StanzaBase], bool] | None = None
    saw_presence: Callable[[ET.Element], None] | None = None
    session_started: SessionStarted
    session_lost: Callable[[], None]


class Tap:
    """The tap of one stream: sees every stanza that comes in, before any handler.

    An iq is looked at before slixmpp makes an object of it, which would take longer than
    all that is done with it here; unless the application has a filter of its own, which
    is to see it first. Everything else is looked at in a last filter.

    Attributes:
        wire: the way out, for all parts.
    """

    @classmethod
    def of(cls, xmpp: BaseXMPP) -> Tap:
        """The tap of this stream. While it has no parts it leaves the stream alone."""
        tap = xmpp.__dict__.get(_ATTRIBUTE)
        if tap is None:
            tap = xmpp.__dict__[_ATTRIBUTE] = cls(xmpp)
        assert isinstance(tap, cls)
        return tap

    def __init__(self, xmpp: BaseXMPP) -> None:
        """See `of`."""
        self._xmpp = xmpp
        self._management = StreamManagement(xmpp)
        self.wire = Wire(xmpp, self._management)
        self._parts: tuple[Part, ...] = ()
        self._set_parts(())
        self._iq = f"{{{xmpp.default_ns}}}iq"
        self._looked_at: ET.Element | None = None
        #: A message of our own, until it has passed all filters.
        self._fed: StanzaBase | None = None
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
        """Ask this part, before those that joined before it; returns it."""
        if not self._parts:
            self._open()
        self._set_parts((part, *self._parts))
        if in_session(self._xmpp):
            part.session_started(resumed=False)
        return part

    def leave(self, part: Part) -> None:
        """Ask this part no more; no harm if it has left.

        With the last one the stream is as it was, but for the gate, which stays.
        """
        if part in self._parts:
            self._set_parts(tuple(each for each in self._parts if each is not part))
            if not self._parts:
                self._close()

    def _set_parts(self, parts: tuple[Part, ...]) -> None:
        # Replaced, not changed: one may leave while they are asked.
        self._parts = parts
        self._take_iq = [each.take_iq for each in parts]
        self._take_message = [e.take_message for e in parts if e.take_message]
        self._saw_presence = [e.saw_presence for e in parts if e.saw_presence]

    def _open(self) -> None:
        self._management.connected()
        self._xmpp.add_filter("in", self._filter)
        for event, handler in self._handlers:
            self._xmpp.add_event_handler(event, handler)
        Gate.of(self._xmpp).pass_to(self._take_first)
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
        """Stay a last filter: XEP-0198 must have counted what is taken out."""
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

    # -- what comes in -----------------------------------------------------

    def feed(self, message: Message) -> None:
        """Have a message of our own processed as one that has come."""
        self._fed = message
        try:
            with self._management.uncounted():
                self._xmpp.recv_stanza(message)
        finally:
            self._fed = None

    def _take_first(self, xml: ET.Element) -> bool:
        """Before slixmpp makes an object of it: whether an element is taken."""
        if xml.tag != self._iq or self._foreign.any():
            return False
        self._looked_at = xml
        if self._is_taken(xml, self._take_iq):
            self._management.received()
            return True
        return False

    def _filter(self, stanza: StanzaBase) -> StanzaBase | None:
        """The last filter, behind that of XEP-0198."""
        if stanza is self._fed:
            self._fed = None
            self._management.passed()
        taken = False
        if stanza.name == "iq":
            seen, self._looked_at = self._looked_at, None
            if stanza.xml is not seen:
                taken = self._is_taken(stanza.xml, self._take_iq)
        elif stanza.name == "message":
            taken = self._is_taken(stanza, self._take_message)
        elif stanza.name == "presence":
            self._is_taken(stanza.xml, self._saw_presence)
        return None if taken else stanza

    def _is_taken(
        self, stanza: _T, looks: Iterable[Callable[[_T], bool | None]]
    ) -> bool:
        """Whether one of the parts takes it.

        What fails in one must not end the connection: a peer repeats itself.
        """
        for look in looks:
            try:
                if look(stanza):
                    return True
            except Exception:
                log.exception("a stanza could not be looked into")
        return False
