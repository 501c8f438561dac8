"""The messages of a client that its application may have: those of whom it trusts."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP
from slixmpp.stanza import Message
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.core.rate import RateLimit
from qos.core.strings import bare
from xep_qos import XEP_QOS, IncomingInfo

__all__ = ["UNDECIDED_BYTES_MAX", "UNDECIDED_MAX", "Arrivals"]

log = logging.getLogger(__name__)

#: The most plain messages that wait until the roster is known, or the application has
#: decided on their sender, and their bytes.
UNDECIDED_MAX = 100
UNDECIDED_BYTES_MAX = 1024 * 1024

#: Seconds between two lines of the log about plain messages that one account returned.
_LOG_S = 60.0


class Arrivals:
    """Takes all messages of a client, and passes on those that are accepted.

    For a message with QoS the plugin has decided. A plain message is accepted if `trust`
    names its sender, or by `accepts="anyone"`; one of type error never is: it is one of
    our own that came back, and must not be acted on.
    """

    def __init__(
        self,
        client: ClientXMPP,
        qos: XEP_QOS,
        name: str,
        take: Callable[[Message, IncomingInfo | None], None],
    ) -> None:
        """Register for all messages, before the client connects: none may be missed.

        Args:
            client: the slixmpp client.
            qos: its plugin.
            name: of the handler.
            take: called with each accepted message, and how it was delivered; None: as
                a plain one. These come in their order.
        """
        self._client = client
        self._qos = qos
        self._take = take
        self._undecided: deque[tuple[Message, int]] = deque()
        self._undecided_bytes = 0
        self._deciding: asyncio.Task[None] | None = None
        self._dropping = False
        self._returned = RateLimit(_LOG_S)
        # Not the event `message`: slixmpp raises it only for messages with a body.
        matcher = MatchXPath("{jabber:client}message")
        client.register_handler(Callback(name, matcher, self._came))

    def end(self) -> None:
        """Decide on nothing more."""
        if self._deciding is not None:
            self._deciding.cancel()

    def _came(self, message: StanzaBase) -> None:
        assert isinstance(message, Message)
        info = self._qos.incoming(message)
        if info is not None:
            self._take(message, info)
        elif message["type"] == "error":
            account = bare(str(message["from"]))
            if self._returned.admit(account, self._client.loop.time()) is not None:
                log.info("%s returned a plain message of ours", message["from"])
        elif self._undecided or (admitted := self._qos.admits(message)) is None:
            self._wait(message)
        elif admitted:
            self._take(message, None)

    def _wait(self, message: Message) -> None:
        size = len(ET.tostring(message.xml))
        is_full = len(self._undecided) >= UNDECIDED_MAX
        if is_full or self._undecided_bytes + size > UNDECIDED_BYTES_MAX:
            if not self._dropping:
                self._dropping = True
                text = (
                    "%d plain messages wait for a decision on trust: more are dropped"
                )
                log.warning(text, len(self._undecided))
            return
        self._undecided.append((message, size))
        self._undecided_bytes += size
        if self._deciding is None or self._deciding.done():
            self._deciding = self._client.loop.create_task(self._decide())

    async def _decide(self) -> None:
        while self._undecided:
            message, size = self._undecided[0]
            admitted = await self._qos.admitted(message)
            self._undecided.popleft()
            self._undecided_bytes -= size
            if admitted:
                self._take(message, None)
        self._dropping = False
