"""A place below the handlers of a stream, where stanzas are taken out.

It knows slixmpp's filters and events, and not what is looked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.stream.gate import Gate

__all__ = ["Handlers", "Tap", "is_foreign", "passes_iqs"]

log = logging.getLogger(__name__)

#: Names of slixmpp's events, and what is to be called.
Handlers: TypeAlias = Iterable[tuple[str, Callable[[Any], None]]]

_F = TypeVar("_F", bound=Callable[..., Any])

_MARK = "passes_iqs"


class Tap:
    """Sees every stanza that comes in, before any handler.

    An iq is looked at before slixmpp makes an object of it, which would take longer
    than all that is done with it here; unless the application has a filter of its own,
    which is to see it first.
    """

    def __init__(
        self,
        xmpp: BaseXMPP,
        *,
        take_iq: Callable[[ET.Element], bool],
        take: Callable[[StanzaBase], bool],
        taken: Callable[[], None],
        handlers: Handlers,
    ) -> None:
        """Step into the stream.

        Args:
            xmpp: the stream.
            take_iq: whether it takes this iq out: then nobody else sees it.
            take: the same of other stanzas.
            taken: called for each iq that no filter has seen, XEP-0198's included.
            handlers: of events, for as long as this is there.
        """
        self._xmpp = xmpp
        self._take_iq = take_iq
        self._take = take
        self._taken = taken
        self._iq = f"{{{xmpp.default_ns}}}iq"
        self._looked_at: ET.Element | None = None
        known: dict[str, list[Any]] = getattr(xmpp, "_XMLStream__filters", {})
        self._known = known.get("in", [])
        self._filters: list[Any] = []
        self._first = False
        self._closed = False
        self._handlers = (("connected", self._connected), *handlers)
        xmpp.add_filter("in", self._filter)
        for event, handler in self._handlers:
            xmpp.add_event_handler(event, handler)
        self._gate = Gate.of(xmpp)
        self._gate.add(self._take_first)

    def close(self) -> None:
        """Leave the stream as it was, but for the gate, which stays."""
        self._closed = True
        self._gate.remove(self._take_first)
        self._xmpp.del_filter("in", self._filter)
        for event, handler in self._handlers:
            self._xmpp.del_event_handler(event, handler)

    def _connected(self, _event: object) -> None:
        """Stay a last filter: XEP-0198 must have counted what is taken out."""
        self._xmpp.del_filter("in", self._filter)
        self._xmpp.add_filter("in", self._filter)

    def _take_first(self, xml: ET.Element) -> bool:
        """Before slixmpp makes an object of it."""
        if xml.tag == self._iq and not self._closed and self._is_first():
            self._looked_at = xml
            if self._safely(self._take_iq, xml):
                self._taken()
                return True
        return False

    def _is_first(self) -> bool:
        if self._known != self._filters:
            self._filters = list(self._known)
            self._first = not any(map(is_foreign, self._filters))
        return self._first

    def _filter(self, received: StanzaBase) -> StanzaBase | None:
        if received.name != "iq":
            taken = self._safely(self._take, received)
        else:
            seen, self._looked_at = self._looked_at, None
            taken = received.xml is not seen and self._safely(
                self._take_iq, received.xml
            )
        return None if taken else received

    def _safely(self, take: Callable[[Any], bool], stanza: object) -> bool:
        """What fails here must not end the connection: a peer repeats itself."""
        try:
            return take(stanza)
        except Exception:
            log.exception("a stanza could not be looked into")
            return False


def passes_iqs(filter_: _F) -> _F:
    """Mark a filter that lets every iq pass, and wants to see none.

    An object of each iq would be made for it otherwise.
    """
    filter_.__dict__[_MARK] = True
    return filter_


def is_foreign(filter_: object) -> bool:
    """Whether a filter is the application's: neither slixmpp's nor one of ours.

    One that `passes_iqs` is none of those that have to be asked.
    """
    if getattr(filter_, _MARK, False):
        return False
    module = str(getattr(filter_, "__module__", ""))
    return not module.startswith(("slixmpp.", "qos.stream.", "xep_qos.", "xep_0254."))
