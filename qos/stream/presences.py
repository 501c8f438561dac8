"""Presence of strangers: slixmpp sees it only if the application asks for it.

slixmpp keeps an entry of its roster for each JID from which presence comes, for ever, and
asks each peer whose capabilities are new. This module knows slixmpp's roster and events,
but not who is a stranger.
"""

from __future__ import annotations

from typing import Any, Final
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP

from qos.core.strings import bare
from qos.stream import internals

__all__ = ["Presences"]

#: The most strangers of whom slixmpp keeps an entry, because the application wants to see
#: their presence.
_ENTRIES_MAX: Final = 1_000

#: The events that slixmpp makes of a presence, beside those that begin with `presence`.
_EVENTS: Final = frozenset(
    {
        *("got_online", "got_offline", "changed_status", "changed_subscription"),
        "entity_caps",
        *("roster_subscription_request", "roster_subscription_authorized"),
        *("roster_subscription_remove", "roster_subscription_removed"),
    }
)

#: The types by which somebody asks to see our presence, or takes that back: slixmpp
#: answers them if it is told to.
_ASKS: Final = frozenset({"subscribe", "unsubscribe"})


class Presences:
    """The presence of strangers on one stream."""

    def __init__(self, xmpp: BaseXMPP) -> None:
        self._xmpp = xmpp
        #: The entries that slixmpp has made for strangers, the latest at the end.
        self._entries: dict[tuple[str, str], None] = {}

    def ends_here(self, xml: ET.Element) -> bool:
        """Whether slixmpp does not see this presence of a stranger.

        If it does, it makes an entry in its roster, and the oldest of these is dropped.
        """
        kind = xml.get("type")
        answers = kind in _ASKS and self._xmpp.auto_authorize is not None
        if not answers and not self._is_wanted(xml):
            return True
        own = bare(xml.get("to") or self._xmpp.boundjid.bare)
        entry = own, bare(xml.get("from", ""))
        self._entries.pop(entry, None)
        self._entries[entry] = None
        if len(self._entries) > _ENTRIES_MAX:
            oldest = next(iter(self._entries))
            del self._entries[oldest]
            internals.forget_contact(self._xmpp, *oldest)
        return False

    def _is_wanted(self, xml: ET.Element) -> bool:
        """Whether the application has a handler of presence."""
        for name, handlers in internals.event_handlers(self._xmpp).items():
            if name.startswith("presence") or name in _EVENTS:
                for handler, *_ in handlers:
                    if _is_foreign(handler):
                        return True
        foreign = [
            handler
            for handler in internals.handlers(self._xmpp)
            if _is_foreign(internals.function_of(handler) or handler)
        ]
        if not foreign:
            return False
        stanza = internals.stanza_of(self._xmpp, xml)
        return any(handler.match(stanza) for handler in foreign)


def _is_foreign(function: Any) -> bool:
    """Whether a handler is the application's: neither slixmpp's nor ours."""
    if getattr(function, "__qualname__", "") == internals.WAIT_UNTIL:
        return True
    module = str(getattr(function, "__module__", ""))
    return not module.startswith(("slixmpp.", "qos.", "xep_qos.", "xep_0254."))
