"""Gives messages to slixmpp's handlers, and learns whether the application takes them.

slixmpp does not report it. slixmpp has handlers of its own that match messages but only
raise events, and an application may have a handler for some of these events, or for
none. And slixmpp asks every handler about every stanza, also those for an iq or for a
presence, which takes longer than all else that a hand-over takes. Here only those are
asked that can match a message.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
from collections.abc import Callable, Coroutine
from operator import attrgetter
from typing import Any

from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import Message
from slixmpp.xmlstream.handler.base import BaseHandler
from slixmpp.xmlstream.matcher import MatchXPath, StanzaPath
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.stream import internals
from qos.stream.tap import Tap

__all__ = ["Takers", "handle"]

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

#: A StanzaPath that begins with one of these matches a message only if the message has
#: a plugin of this name.
_OTHER_STANZAS = frozenset({"iq", "presence"})

#: An XPath that begins with the full name of an element, and goes on with that of a
#: child of it, or not by a name alone.
_ELEMENT = r"\{[^{}*]*\}[^][{}/*.]+"
_XPATH = re.compile(f"({_ELEMENT})(?:/({_ELEMENT})(?=/|$))?")


_tag = attrgetter("tag")


def handle(
    xmpp: BaseXMPP, stanza: StanzaBase, matching: list[BaseHandler] | None = None
) -> None:
    """Do what slixmpp does with a stanza that has passed the filters.

    Args:
        xmpp: the stream.
        stanza: the stanza.
        matching: the handlers that match it; None: they are asked.
    """
    if matching is None:
        handlers = internals.handlers(xmpp)
        matching = [handler for handler in handlers if handler.match(stanza)]
    for handler in matching:
        handler.prerun(stanza)
        try:
            handler.run(stanza)
        except Exception as error:  # noqa: BLE001 - the application's
            stanza.exception(error)
        if handler.check_delete():
            internals.handlers(xmpp).remove(handler)
    if not matching:
        stanza.unhandled()


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

    def hand_over(self, message: Message, msg_id: str) -> asyncio.Future[None] | bool:
        """Handle a message like a received one.

        Returns:
            Whether it has been taken: a handler of the application matches it, or is
            registered for an event that slixmpp raised for it; or a filter took it out.
            If some of these handlers are coroutines, it is taken when all of them have
            ended. The future fails if a handler does.
        """
        is_taken = False
        xmpp: Any = self._xmpp
        before, event = vars(xmpp).get("event"), xmpp.event
        loop = xmpp.loop
        factory = loop.get_task_factory()
        tasks: list[asyncio.Future[Any]] = []
        failures: list[Exception] = []

        def watched(name: str, *data: Any) -> None:
            nonlocal is_taken
            is_taken = is_taken or self._is_awaited(name)
            event(name, *data)

        xmpp.event = watched
        loop.set_task_factory(functools.partial(_new_task, factory, tasks))
        try:
            stanza = self._tap.filtered(message)
            if stanza is None:
                return True
            # All of them are asked first: if one match raises, no handler runs.
            matching = self._matching(stanza)
            is_taken = is_taken or not self._applications.isdisjoint(matching)
            tell = stanza.exception
            vars(stanza)["exception"] = functools.partial(_failed, failures, tell)
            handle(self._xmpp, stanza, matching)
            if not tasks:
                del vars(stanza)["exception"]  # else it would refer to itself
        except Exception as error:
            failures.append(error)
            log.exception("a handler failed on %r", msg_id)
        finally:
            loop.set_task_factory(factory)
            if before is None:
                del xmpp.event
            else:
                xmpp.event = before
        if is_taken and (tasks or failures):
            return asyncio.ensure_future(_all_ended(tasks, failures), loop=loop)
        return is_taken

    def _matching(self, stanza: StanzaBase) -> list[BaseHandler]:
        """The handlers that match a stanza, in their order."""
        handlers: list[BaseHandler] = vars(self._xmpp)[internals.HANDLERS]
        if handlers != self._all:
            self._all = list(handlers)
            able = [
                handler for handler in handlers if _can_match(handler, self._message)
            ]
            self._able = [(e, _part(e), _asks_no_more(e)) for e in able]
            self._applications = {handler for handler in handlers if _takes(handler)}
        plugins = stanza.loaded_plugins
        if stanza.xml.tag != self._message or not _OTHER_STANZAS.isdisjoint(plugins):
            return [handler for handler in self._all if handler.match(stanza)]
        if stanza.iterables:
            return [handler for handler, _, _ in self._able if handler.match(stanza)]
        parts = {"", *plugins, *stanza.sub_interfaces, *map(_tag, stanza.xml)}
        return [
            handler
            for handler, part, no_more in self._able
            if part in parts and (no_more or handler.match(stanza))
        ]

    def _is_awaited(self, event: str) -> bool:
        for function, _ in vars(self._xmpp)[internals.EVENT_HANDLERS].get(event, ()):
            if _is_the_applications(function):
                return True
        return False


# slixmpp makes a task for each handler that is a coroutine, keeps none of them, and turns
# their exceptions into calls of `exception` of the stanza. These functions are called for
# such handlers alone: nothing more is done for a message that no coroutine handles.


def _new_task(
    factory: Any,
    tasks: list[asyncio.Future[Any]],
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any],
    **options: Any,
) -> asyncio.Future[Any]:
    """Make a task, by the factory of before if there is one; note those of handlers."""
    make = factory or _default_task
    task: asyncio.Future[Any] = make(loop, coroutine, **options)
    if getattr(coroutine, "__qualname__", "") in internals.WRAPPERS:
        tasks.append(task)
    return task


def _default_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Future[Any]:
    return asyncio.Task(coroutine, loop=loop, **options)


def _failed(
    failures: list[Exception], tell: Callable[[Exception], object], error: Exception
) -> None:
    """Note that a handler has failed, and do what slixmpp does."""
    failures.append(error)
    tell(error)


async def _all_ended(
    tasks: list[asyncio.Future[Any]], failures: list[Exception]
) -> None:
    """Return when all have ended; raise what the first one raised that failed."""
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    if failures:
        raise failures[0]
    if any(isinstance(end, BaseException) for end in ends):
        raise asyncio.CancelledError("a handler was cancelled")


def _can_match(handler: BaseHandler, message: str) -> bool:
    """Whether a handler may match a message, whose element has this full name.

    False only if that is certain.
    """
    matcher = internals.matcher_of(handler)
    if type(handler).match is not BaseHandler.match:
        return True  # a class of the application
    if type(matcher) is StanzaPath:
        first = "".join(internals.criteria(matcher)[:1])
        return first.partition("@")[0] not in _OTHER_STANZAS
    if type(matcher) is MatchXPath:
        path = _XPATH.match(internals.criteria(matcher))
        return path is None or path[1] == message
    return True


def _part(handler: BaseHandler) -> str:
    """The part without which a message does not match a handler that can match one.

    The part is the full name of a child, or the name of a plugin or of a sub-interface
    of the stanza; '': none. A plugin that is one of many matches without it: see
    `iterables` of slixmpp's stanzas.
    """
    matcher = internals.matcher_of(handler)
    if type(handler).match is not BaseHandler.match:
        return ""
    if type(matcher) is StanzaPath and len(internals.criteria(matcher)) > 1:
        return str(internals.criteria(matcher)[1]).partition("@")[0].rpartition("}")[2]
    if type(matcher) is MatchXPath:
        path = _XPATH.match(internals.criteria(matcher))
        return (path and path[2]) or ""
    return ""


def _asks_no_more(handler: BaseHandler) -> bool:
    """Whether each message that has this handler's part matches it."""
    matcher = internals.matcher_of(handler)
    if type(handler).match is not BaseHandler.match or type(matcher) is not MatchXPath:
        return False
    path = _XPATH.fullmatch(internals.criteria(matcher))
    return path is not None and path[2] is not None


def _takes(handler: BaseHandler) -> bool:
    """Whether a handler is the application's, or one that some task waits for."""
    function = internals.function_of(handler)
    if function is None:
        return True  # slixmpp's Waiter or Collector, or a class of the application
    return _is_the_applications(function)


def _is_the_applications(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", "")
    module = str(getattr(function, "__module__", ""))
    return (
        name == internals.WAIT_UNTIL
        or module.startswith(_FOR_THE_APPLICATION)
        or not module.startswith(_NOT_THE_APPLICATION)
    )
