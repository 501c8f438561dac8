"""The negotiation of a stream's features ends with its connection (RFC 6120 §4.3).

slixmpp negotiates in a coroutine that waits for each answer of the server, for up to
30 s. If the connection is lost meanwhile, the coroutine goes on waiting. It then takes
an answer on the next connection for its own, or its time is over. In both cases it goes
on in the middle of the new session: it binds a second resource, and declares that the
session has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP
from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import StreamFeatures
from slixmpp.xmlstream.handler import CoroutineCallback
from slixmpp.xmlstream.matcher import MatchXPath
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.stream import internals

__all__ = ["negotiate_once"]

#: The name of slixmpp's handler.
_NAME = "Stream Features"


def negotiate_once(xmpp: BaseXMPP, offered: Callable[[ET.Element], None]) -> None:
    """Cancel what this stream negotiates when its connection is lost.

    A component negotiates nothing.

    Args:
        xmpp: the stream.
        offered: called with the features, each time before they are negotiated.
    """
    if not isinstance(xmpp, ClientXMPP):
        return
    in_progress: set[asyncio.Task[Any]] = set()

    async def negotiate(features: StanzaBase) -> None:
        assert isinstance(features, StreamFeatures)
        offered(features.xml)
        task = asyncio.current_task()
        assert task is not None
        in_progress.add(task)
        try:
            await internals.negotiate(xmpp, features)
        finally:
            in_progress.discard(task)

    def disconnected(_event: object) -> None:
        for task in in_progress:
            task.cancel()

    xmpp.remove_handler(_NAME)
    matcher = MatchXPath(f"{{{xmpp.stream_ns}}}features")
    xmpp.register_handler(CoroutineCallback(_NAME, matcher, negotiate))
    xmpp.add_event_handler("disconnected", disconnected)
