"""A place below the handlers of a stream, where stanzas are taken out.

It knows slixmpp's filters and events, and not what is looked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from slixmpp.basexmpp import BaseXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

__all__ = ["Handlers", "Tap"]

log = logging.getLogger(__name__)

#: Names of slixmpp's events, and what is to be called.
Handlers: TypeAlias = Iterable[tuple[str, Callable[[Any], None]]]


class Tap:
    """Sees every stanza that comes in, before any handler."""

    def __init__(
        self, xmpp: BaseXMPP, take: Callable[[StanzaBase], bool], handlers: Handlers
    ) -> None:
        """Step into the stream.

        Args:
            xmpp: the stream.
            take: whether it takes this stanza out: then nobody else sees it.
            handlers: of events, for as long as this is there.
        """
        self._xmpp = xmpp
        self._take = take
        self._handlers = (("connected", self._connected), *handlers)
        xmpp.add_filter("in", self._filter)
        for event, handler in self._handlers:
            xmpp.add_event_handler(event, handler)

    def close(self) -> None:
        """Leave the stream as it was."""
        self._xmpp.del_filter("in", self._filter)
        for event, handler in self._handlers:
            self._xmpp.del_event_handler(event, handler)

    def _connected(self, _event: object) -> None:
        """Stay a last filter: XEP-0198 must have counted what is taken out."""
        self._xmpp.del_filter("in", self._filter)
        self._xmpp.add_filter("in", self._filter)

    def _filter(self, received: StanzaBase) -> StanzaBase | None:
        """What fails here must not end the connection: a peer repeats itself."""
        try:
            taken = self._take(received)
        except Exception:
            log.exception("a stanza could not be looked into")
            taken = False
        return None if taken else received
