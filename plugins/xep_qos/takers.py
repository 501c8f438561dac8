"""Gives messages to slixmpp's handlers, and learns whether the application takes them.

slixmpp does not report it. slixmpp has handlers of its own that match messages but only
raise events, and an application may have a handler for some of these events, or for
none. And slixmpp asks every handler about every stanza, also those for an iq or for a
presence, which takes longer than all else that a hand-over takes. Here only those are
asked that can match a message.
"""

from __future__ import annotations

import functools
import inspect
import logging
import re
from operator import attrgetter
from typing import Any

from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import Message
from slixmpp.xmlstream.handler.base import BaseHandler
from slixmpp.xmlstream.matcher import MatchXPath, StanzaPath
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.stream.tap import Tap

__all__ = ["Takers"]

log = logging.getLogger(__name__)

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

#: A StanzaPath that begins with one of these matches a message only if the message has
#: a plugin of this name.
_OTHER_STANZAS = frozenset({"iq", "presence"})

#: An XPath that begins with the full name of an element, and goes on with that of a
#: child of it, or not by a name alone.
_ELEMENT = r"\{[^{}*]*\}[^][{}/*.]+"
_XPATH = re.compile(f"({_ELEMENT})(?:/({_ELEMENT})(?=/|$))?")


_tag = attrgetter("tag")


class Takers:
    """The handlers of a stream that take messages."""

    def __init__(self, xmpp: BaseXMPP, tap: Tap) -> None:
        """Prepare; the stream is touched only during a hand-over."""
        self._xmpp = xmpp
        self._tap = tap
        self._message = f"{{{xmpp.default_ns}}}message"
        # The handlers of the stream when they were looked at last; those among them
        # that can match a message, each with the part that the message then has, and
        # whether that is all that it asks for; and those that are the application's.
        self._all: list[BaseHandler] = []
        self._able: list[tuple[BaseHandler, str, bool]] = []
        self._applications: set[BaseHandler] = set()

    def hand_over(self, message: Message, msg_id: str) -> bool:
        """Handle a message like a received one.

        Returns:
            Whether it has been taken, even if a handler raised an exception: a handler
            of the application matches it, or is registered for an event that slixmpp
            raised for it; or a filter took it out.
        """
        taken = False
        xmpp: Any = self._xmpp
        before, event = vars(xmpp).get("event"), xmpp.event

        def watched(name: str, *data: Any) -> None:
            nonlocal taken
            taken = taken or self._is_awaited(name)
            event(name, *data)

        xmpp.event = watched
        try:
            stanza = self._tap.filtered(message)
            if stanza is None:
                return True
            # All of them are asked first: if one match raises, no handler runs.
            matching = self._matching(stanza)
            taken = taken or not self._applications.isdisjoint(matching)
            self._run(matching, stanza)
        except Exception:
            log.exception("a handler failed on %r", msg_id)
        finally:
            if before is None:
                del xmpp.event
            else:
                xmpp.event = before
        return taken

    def _matching(self, stanza: StanzaBase) -> list[BaseHandler]:
        """The handlers that match a stanza, in their order."""
        handlers: list[BaseHandler] = vars(self._xmpp)["_XMLStream__handlers"]
        if handlers != self._all:
            self._all = list(handlers)
            able = [each for each in handlers if _can_match(each, self._message)]
            self._able = [(e, _part(e), _asks_no_more(e)) for e in able]
            self._applications = {each for each in handlers if _takes(each)}
        plugins = stanza.loaded_plugins
        if stanza.xml.tag != self._message or not _OTHER_STANZAS.isdisjoint(plugins):
            return [each for each in self._all if each.match(stanza)]
        if stanza.iterables:
            return [each for each, _, _ in self._able if each.match(stanza)]
        parts = {"", *plugins, *stanza.sub_interfaces, *map(_tag, stanza.xml)}
        return [
            each
            for each, part, no_more in self._able
            if part in parts and (no_more or each.match(stanza))
        ]

    def _run(self, matching: list[BaseHandler], stanza: StanzaBase) -> None:
        """Do what slixmpp does with a stanza and the handlers that match it."""
        for handler in matching:
            handler.prerun(stanza)
            try:
                handler.run(stanza)
            except Exception as error:  # noqa: BLE001 - the application's
                stanza.exception(error)
            if handler.check_delete():
                vars(self._xmpp)["_XMLStream__handlers"].remove(handler)
        if not matching:
            stanza.unhandled()

    def _is_awaited(self, event: str) -> bool:
        handlers = vars(self._xmpp)["_XMLStream__event_handlers"]
        for function, _ in handlers.get(event, ()):
            if _is_the_applications(function):
                return True
        return False


def _can_match(handler: BaseHandler, message: str) -> bool:
    """Whether a handler may match a message, whose element has this full name.

    False only if that is certain.
    """
    matcher = handler._matcher
    if type(handler).match is not BaseHandler.match:
        return True  # a class of the application
    if type(matcher) is StanzaPath:
        first = "".join(matcher._criteria[:1])
        return first.partition("@")[0] not in _OTHER_STANZAS
    if type(matcher) is MatchXPath:
        path = _XPATH.match(matcher._criteria)
        return path is None or path[1] == message
    return True


def _part(handler: BaseHandler) -> str:
    """The part without which a message does not match a handler that can match one.

    The part is the full name of a child, or the name of a plugin or of a sub-interface
    of the stanza; '': none. A plugin that is one of many matches without it: see
    `iterables` of slixmpp's stanzas.
    """
    matcher = handler._matcher
    if type(handler).match is not BaseHandler.match:
        return ""
    if type(matcher) is StanzaPath and len(matcher._criteria) > 1:
        return matcher._criteria[1].partition("@")[0].rpartition("}")[2]
    if type(matcher) is MatchXPath:
        path = _XPATH.match(matcher._criteria)
        return (path and path[2]) or ""
    return ""


def _asks_no_more(handler: BaseHandler) -> bool:
    """Whether each message that has this handler's part matches it."""
    matcher = handler._matcher
    if type(handler).match is not BaseHandler.match or type(matcher) is not MatchXPath:
        return False
    path = _XPATH.fullmatch(matcher._criteria)
    return path is not None and path[2] is not None


def _takes(handler: BaseHandler) -> bool:
    """Whether a handler is the application's, or one that some task waits for."""
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
