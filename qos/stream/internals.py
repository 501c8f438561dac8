"""All that this project uses of slixmpp beside its public interface.

slixmpp promises none of it. So the project is pinned to a minor release of slixmpp, and
`tests/stream/test_internals.py` looks whether each name is still there.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any
from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP
from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import StreamFeatures
from slixmpp.util.sasl.mechanisms import SCRAM
from slixmpp.xmlstream.handler.base import BaseHandler
from slixmpp.xmlstream.matcher.base import MatcherBase
from slixmpp.xmlstream.stanzabase import StanzaBase

__all__ = [
    "EVENT_HANDLERS",
    "HANDLERS",
    "WAIT_UNTIL",
    "WRAPPERS",
    "caps_filter",
    "caps_handler",
    "criteria",
    "end_request",
    "event_handlers",
    "filters",
    "forget_contact",
    "function_of",
    "handlers",
    "is_started",
    "is_wanted",
    "matcher_of",
    "negotiate",
    "quicken_scram",
    "replace_connect",
    "replace_dispatch",
    "sending_task",
    "stanza_of",
]

#: The name of the function of `XMLStream.wait_until` that wakes the application.
WAIT_UNTIL = "XMLStream.wait_until.<locals>.result_handler"

#: The names of the wrappers around handlers that are coroutines: of an event, and of a
#: stanza.
WRAPPERS = (
    "XMLStream.event.<locals>.handler_callback_routine",
    "CoroutineCallback.__init__.<locals>.pointer_wrapper",
)


#: The attributes of a stream with its handlers of stanzas, and of events: for whoever looks
#: at them for each stanza, and cannot afford a call.
HANDLERS = "_XMLStream__handlers"
EVENT_HANDLERS = "_XMLStream__event_handlers"


def handlers(xmpp: BaseXMPP) -> list[BaseHandler]:
    """The handlers of stanzas: slixmpp's own list, the same for ever."""
    result: list[BaseHandler] = vars(xmpp)[HANDLERS]
    return result


def stanza_of(xmpp: BaseXMPP, xml: ET.Element) -> StanzaBase:
    """The object that slixmpp makes of an element of the stream."""
    return xmpp._build_stanza(xml)


def forget_contact(xmpp: BaseXMPP, own: str, account: str) -> None:
    """Drop an account from slixmpp's rosters, unless it has a subscription there.

    slixmpp has an entry in the roster of ours, and a roster for the account itself.
    """
    rosters: dict[str, Any] = xmpp.roster._rosters
    entries: dict[str, Any] = rosters[own]._jids if own in rosters else {}
    if account in entries and entries[account]["subscription"] == "none":
        del entries[account]
    if account != own and account in rosters and not rosters[account]._jids:
        del rosters[account]


def caps_handler(plugin: Any) -> Any:
    """The handler by which the plugin of XEP-0115 asks peers for their capabilities."""
    return plugin._process_caps


def is_wanted(xmpp: BaseXMPP, xml: ET.Element) -> bool:
    """Whether a handler of slixmpp's plugins, or of the application, is for this stanza."""
    stanza = stanza_of(xmpp, xml)
    return any(handler.match(stanza) for handler in handlers(xmpp))


def event_handlers(xmpp: BaseXMPP) -> dict[str, list[tuple[Any, bool]]]:
    """The handlers of events, each with its `disposable`: slixmpp's own dict."""
    result: dict[str, list[tuple[Any, bool]]] = vars(xmpp)[EVENT_HANDLERS]
    return result


def filters(xmpp: BaseXMPP, mode: str) -> list[Any]:
    """The filters in this mode, in slixmpp's own list: only to be read.

    Args:
        xmpp: the stream.
        mode: `in`, `out`, `out_sync` or `out_sce`.
    """
    by_mode: dict[str, list[Any]] = vars(xmpp)["_XMLStream__filters"]
    return by_mode[mode]


def matcher_of(handler: BaseHandler) -> MatcherBase:
    """The matcher of a handler of stanzas."""
    return handler._matcher


def criteria(matcher: MatcherBase) -> Any:
    """The criteria of a matcher: a text, or the list of parts of a StanzaPath."""
    return matcher._criteria


def function_of(handler: BaseHandler) -> Any:
    """The function that a handler calls; None: it calls none."""
    pointer: Any = getattr(handler, "_pointer", None)
    if getattr(pointer, "__qualname__", "") == WRAPPERS[1]:
        return inspect.getclosurevars(pointer).nonlocals["pointer"]
    return pointer


def replace_connect(xmpp: BaseXMPP, connect: Callable[[], Awaitable[None]]) -> None:
    """Let `xmpp.connect` call this."""
    xmpp._connect_loop = connect  # type: ignore[method-assign,assignment]


def replace_dispatch(
    xmpp: BaseXMPP, dispatch: Callable[[ET.Element], None]
) -> Callable[[ET.Element], None]:
    """Let each incoming child of the stream come here; returns what it came to before."""
    before: Callable[[ET.Element], None] = xmpp._spawn_event
    xmpp._spawn_event = dispatch  # type: ignore[method-assign,assignment]
    return before


def is_started(xmpp: BaseXMPP) -> bool:
    """Whether slixmpp counts the session as started; true also after a resumption."""
    return bool(xmpp._session_started)


def sending_task(xmpp: BaseXMPP) -> asyncio.Future[Any] | None:
    """The task that filters and sends stanzas; slixmpp never ends it."""
    return xmpp._run_out_filters


def end_request(timer: asyncio.TimerHandle) -> None:
    """Let a request of slixmpp time out now, whatever time its timer has left.

    The timer is one of `xmpp.scheduled_events`. That of another event loop than asyncio's
    is only cancelled.
    """
    call, arguments = getattr(timer, "_callback", None), getattr(timer, "_args", None)
    timer.cancel()
    if call is not None:
        call(*(arguments or ()))


async def negotiate(xmpp: ClientXMPP, features: StreamFeatures) -> None:
    """Negotiate what the server offers (RFC 6120 §4.3)."""
    await xmpp._handle_stream_features(features)


def caps_filter(plugin: Any) -> Any:
    """The filter by which the plugin of XEP-0115 adds capabilities to presence."""
    return plugin._filter_add_caps


def quicken_scram() -> None:
    """Let slixmpp's SCRAM compute its salted password (RFC 5802 §2.2, Hi) in OpenSSL.

    Python alone takes ten times as long, in which nothing else is done: 30 ms for the
    10,000 rounds of Prosody.
    """
    SCRAM.Hi = _salted  # type: ignore[method-assign,assignment]


def _salted(mechanism: Any, text: bytes, salt: bytes, iterations: int) -> bytes:
    name = mechanism.hash(b"").name
    return hashlib.pbkdf2_hmac(name, text, salt, iterations)
