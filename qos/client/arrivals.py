"""The messages of a client that its application may have: those of whom it trusts."""

from __future__ import annotations

import logging
from collections.abc import Callable

from slixmpp import ClientXMPP
from slixmpp.stanza import Message
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.core.rate import RateLimit
from qos.core.strings import bare
from xep_qos import XEP_QOS, IncomingInfo

__all__ = ["Arrivals"]

log = logging.getLogger(__name__)

#: Seconds between two lines of the log about plain messages that one account returned.
_LOG_S = 60.0


class Arrivals:
    """Takes all messages of a client that have passed its trust gate (`TrustGate`).

    A plain one of type error is not among them: it is one of our own that came back, and
    must not be acted on. Nor is one of a chat room, whose occupants are never trusted.
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
            take: called with each message, and how it was delivered; None: as a plain
                one. These come in their order.
        """
        self._qos = qos
        self._loop = client.loop
        self._returned = RateLimit(_LOG_S)
        self._take = take
        # Not the event `message`: slixmpp raises it only for messages with a body.
        matcher = MatchXPath("{jabber:client}message")
        client.register_handler(Callback(name, matcher, self._came))

    def _came(self, message: StanzaBase) -> None:
        assert isinstance(message, Message)
        info = self._qos.incoming(message)
        if info is None and message["type"] == "error":
            account = bare(str(message["from"]))
            if self._returned.admit(account, self._loop.time()) is not None:
                log.info("%s returned a plain message of ours", message["from"])
        elif info is not None or message["type"] != "groupchat":
            self._take(message, info)
