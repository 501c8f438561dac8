"""Items that are published by an assured message, and not by an iq (XEP-0060 §7.1)."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.core.queue.requests import Publish, Refusal
from qos.core.queue.results import Result
from qos.engine.queue_engine import QueueEngine, Unwritten
from qos.xml_text import attribute
from xep_0254.event_sender import EventSender
from xep_0254.requests import parse_publish_message
from xep_0254.rights import check_rights
from xep_0254.service_stanza import render_error
from xep_qos import XEP_QOS, IncomingInfo

__all__ = ["ID_CHARS_MAX", "PublishedMessages"]

#: The longest id of a stanza, or JID, that is repeated in an answer.
ID_CHARS_MAX = 1024

#: The delay before a message that could not be written is tried again, in seconds.
_AGAIN_S = 1.0


class PublishedMessages:
    """Publishes the items of messages, each of which ends with the commit."""

    def __init__(
        self, xmpp: BaseXMPP, engine: QueueEngine, events: EventSender
    ) -> None:
        self._xmpp = xmpp
        self._engine = engine
        self._events = events

    def take(
        self, message: StanzaBase, sender: str, qos: XEP_QOS, info: IncomingInfo
    ) -> bool:
        """Take a message, if it is for the service.

        An account may have handlers of the application for other messages; a component
        has none.

        Args:
            message: the message.
            sender: its full JID.
            qos: the plugin that has received it.
            info: of the message.
        """
        xml = message.xml
        # An item published without an id gets one here. It is the same when the message
        # is handed over again. No other message has it, not even one with the same
        # msgId, if its sender counts from 1 (see
        # qos.core.message.model.Incoming.identity).
        name = hashlib.sha256(info.identity.encode()).hexdigest()
        ids = (f"{name[:32]}{place or ''}" for place in itertools.count())
        outcome: asyncio.Future[None] = self._xmpp.loop.create_future()
        try:
            publish = parse_publish_message(
                xml,
                new_id=ids.__next__,
                check=lambda pubsub: check_rights(pubsub, self._engine.rights, sender),
            )
            if publish is None and not self._xmpp.is_component:
                return False
            if publish is None:
                text = "the message has no items to publish (XEP-0060 §7.1) in it"
                raise Refusal(text, condition="bad-request", type="modify")
            qos.take_until(message, outcome)
            self._publish(xml, sender, publish, outcome)
        except Refusal as refusal:
            qos.take_until(message, outcome)
            self._refused(xml, sender, refusal, outcome)
        return True

    def _publish(
        self,
        xml: ET.Element,
        sender: str,
        publish: Publish,
        outcome: asyncio.Future[None],
    ) -> None:
        """Publish the items of a message; the only answer is the end of the message."""

        def answer(result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
            if isinstance(result, Unwritten):
                again = (xml, sender, publish, outcome)
                self._xmpp.loop.call_later(_AGAIN_S, self._publish, *again)
                return
            if isinstance(result, Refusal):
                self._refused(xml, sender, result, outcome)
            elif not outcome.done():
                outcome.set_result(None)

        self._engine.request(publish, sender, answer)

    def _refused(
        self,
        xml: ET.Element,
        sender: str,
        refusal: Refusal,
        outcome: asyncio.Future[None],
    ) -> None:
        """Reject the message: this is its outcome if the publisher is one of ours.

        For any other publisher the message counts as taken, and the error message is
        all that it gets.
        """
        self._send_refusal(xml, sender, refusal)
        if not outcome.done():
            outcome.set_exception(refusal)

    def _send_refusal(self, xml: ET.Element, to: str, refusal: Refusal) -> None:
        """Answer a message by a message of type error (RFC 6120 §8.3)."""
        head = f"<message type='error' id={attribute(xml.get('id', '')[:ID_CHARS_MAX])}"
        sender = (
            f" from={attribute(self._events.sender)}" if self._events.sender else ""
        )
        error = render_error(refusal, by=str(self._events.own or ""))
        self._events.send(f"{head} to={attribute(to)}{sender}>{error}</message>")
