"""Watches whether any handler takes a message that is given to slixmpp's handlers.

slixmpp does not report it. slixmpp has handlers of its own that match messages but only
raise events, and an application may have a handler for some of these events, or for
none.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slixmpp.basexmpp import BaseXMPP
from slixmpp.xmlstream.handler.base import BaseHandler
from slixmpp.xmlstream.matcher.base import MatcherBase
from slixmpp.xmlstream.stanzabase import StanzaBase

__all__ = ["HandOver", "Takers"]

#: Handlers in these modules take nothing: they raise events for an application.
_NOT_THE_APPLICATION = (
    *("slixmpp.", "qos.stream.", "xep_qos."),
    *("xep_0254.", "xep_0337."),
)

#: Plugins of slixmpp whose handlers pass messages directly to streams, requests and
#: devices of the application, without an event: XEP-0047, XEP-0323 and XEP-0325.
_FOR_THE_APPLICATION = tuple(
    f"slixmpp.plugins.xep_{number}." for number in ("0047", "0323", "0325")
)

#: slixmpp's function that wakes an application: `await client.wait_until("message")`.
_WAKES_THE_APPLICATION = "XMLStream.wait_until."


class HandOver:
    """The observations on one message while it is handed over.

    Attributes:
        reached: whether it has passed all filters, and its handlers are looked for.
        matched: whether one of the application's handlers matches it.
    """

    def __init__(self) -> None:
        self.reached = self.matched = False

    @property
    def taken(self) -> bool:
        """Whether the message has been taken: by a handler, or by a filter."""
        return self.matched or not self.reached


class Takers:
    """The handlers of a stream that take messages."""

    def __init__(self, xmpp: BaseXMPP) -> None:
        """Begin to look at the stanzas that reach the handlers."""
        self._xmpp = xmpp
        self._hand_over: HandOver | None = None
        self._all: list[BaseHandler] = []
        self._applications: list[BaseHandler] = []
        self._probe = _Probe(self)
        xmpp.register_handler(self._probe)

    def close(self) -> None:
        """Leave the stream as it was."""
        self._xmpp.remove_handler(self._probe.name)

    @contextmanager
    def watching(self) -> Iterator[HandOver]:
        """Watch the message that is handed over in this context."""
        outer, hand_over = self._hand_over, HandOver()
        xmpp: Any = self._xmpp
        before, event = vars(xmpp).get("event"), xmpp.event

        def watched(name: str, *data: Any) -> None:
            hand_over.matched = hand_over.matched or self._is_awaited(name)
            event(name, *data)

        self._hand_over, xmpp.event = hand_over, watched
        try:
            yield hand_over
        finally:
            self._hand_over = outer
            if before is None:
                del xmpp.event
            else:
                xmpp.event = before

    def look(self, stanza: StanzaBase) -> None:
        """Look for an application's handler for a stanza that has passed filters."""
        if self._hand_over is None:
            return
        self._hand_over.reached = True
        handlers = vars(self._xmpp)["_XMLStream__handlers"]
        if handlers != self._all:
            self._all = list(handlers)
            self._applications = [each for each in handlers if _takes(each)]
        # All of them are asked: if one match raises, slixmpp runs no handler.
        matching = [each for each in self._applications if each.match(stanza)]
        self._hand_over.matched = self._hand_over.matched or bool(matching)

    def _is_awaited(self, event: str) -> bool:
        handlers = vars(self._xmpp)["_XMLStream__event_handlers"]
        return any(_is_the_applications(each) for each, _ in handlers.get(event, ()))


class _Probe(BaseHandler):
    """A handler that is asked about every stanza, and matches none."""

    def __init__(self, takers: Takers) -> None:
        super().__init__("xep_qos takers", MatcherBase(None))
        self._takers = takers

    def match(self, stanza: StanzaBase) -> bool:
        self._takers.look(stanza)
        return False


def _takes(handler: BaseHandler) -> bool:
    """Whether a handler is the application's, or one that some task waits for."""
    if isinstance(handler, _Probe):
        return False
    pointer = getattr(handler, "_pointer", None)
    if pointer is None:
        return True  # slixmpp's Waiter or Collector, or a class of the application
    if getattr(pointer, "__qualname__", "").startswith("CoroutineCallback."):
        pointer = inspect.getclosurevars(pointer).nonlocals["pointer"]
    return _is_the_applications(pointer)


def _is_the_applications(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", "")
    module = str(getattr(function, "__module__", ""))
    return (
        name.startswith(_WAKES_THE_APPLICATION)
        or module.startswith(_FOR_THE_APPLICATION)
        or not module.startswith(_NOT_THE_APPLICATION)
    )
