"""Keeps plain messages of strangers from every handler of a client.

For a message with QoS the plugin decides. A plain message passes if `trust` names its
sender, or by `accepts="anyone"`; and if it is of a chat room that the program has entered.
Of one that came back only the error passes. So a handler of slixmpp is as safe as a loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from xml.etree import ElementTree as ET

from slixmpp import JID, ClientXMPP
from slixmpp.stanza import Message
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.stream.tap import Part, Tap
from xep_qos import XEP_QOS
from xep_qos.takers import handle

__all__ = ["UNDECIDED_BYTES_MAX", "UNDECIDED_MAX", "TrustGate"]

log = logging.getLogger(__name__)

#: The most plain messages that wait until the roster is known, or the application has
#: decided on their sender, and their bytes.
UNDECIDED_MAX = 100
UNDECIDED_BYTES_MAX = 1024 * 1024

_ERROR = "{jabber:client}error"


class TrustGate:
    """Stands behind our own parts on the stream, and before all handlers."""

    def __init__(self, client: ClientXMPP, qos: XEP_QOS) -> None:
        """Look at each message from now on.

        Parts of ours that join later see a message first: what a queue service sends is
        for them, whether it is trusted or not.
        """
        self._client = client
        self._qos = qos
        self._undecided: deque[tuple[Message, int]] = deque()
        self._undecided_bytes = 0
        self._deciding: asyncio.Task[None] | None = None
        self._dropping = False
        part = Part(
            take_iq=lambda iq: False,
            take_message=self._keeps,
            session_started=_nothing,
            session_lost=_nothing,
        )
        self._part = Tap.of(client).join(part)

    def end(self) -> None:
        """Decide on nothing more."""
        if self._deciding is not None:
            self._deciding.cancel()
        Tap.of(self._client).leave(self._part)

    def _keeps(self, message: StanzaBase) -> bool:
        """Whether no handler may have this message, or not yet."""
        assert isinstance(message, Message)
        if self._qos.incoming(message) is not None or self._is_of_room(message):
            return False
        if message["type"] == "error":
            # One of ours that came back, or so its sender says. Its handlers learn that
            # there was an error, and nothing that they could act on.
            for child in [*message.xml]:
                if child.tag != _ERROR:
                    message.xml.remove(child)
            return False
        if self._undecided or (admitted := self._qos.admits(message)) is None:
            self._wait(message)
            return True
        return not admitted

    def _is_of_room(self, message: Message) -> bool:
        """Whether it is of a chat room that the program has entered (XEP-0045)."""
        if message["type"] != "groupchat" or "xep_0045" not in self._client.plugin:
            return False
        room = JID(message["from"].bare)
        return room in self._client.plugin["xep_0045"].get_joined_rooms()

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
                handle(self._client, message)
        self._dropping = False


def _nothing(*, resumed: bool = False) -> None:
    """A session begins or ends."""
