"""Sends the events and probes of a queue service to its subscribers.

An event is sent once, or at level acknowledged until there is an answer. This module
knows XML and the wire. The engine decides on the receiver of an event
(`qos.engine.queue_engine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP

from qos.core.backoff import Backoff
from qos.core.message.model import NAMESPACES
from qos.core.queue.effects import (
    Notification,
    NotifyNode,
    NotifyRetract,
    NotifySubscription,
    NotifyUnlock,
)
from qos.engine.queue_engine import QueueEngine
from qos.engine.queue_outputs import Payloads, QueuePort
from qos.engine.retry import Retry
from qos.ids import new_id
from qos.stream.wire import Wire
from qos.xml_text import CLIENT, attribute, render_iq
from xep_0254 import events
from xep_0254.namespaces import STANZAS

__all__ = ["EventSender"]

#: The errors with which a client that is there answers a ping (RFC 6120 §8.3.3). A
#: server answers with others for a client that is not there.
_IS_THERE = frozenset({"feature-not-implemented", "bad-request", "not-allowed"})

_PING = "urn:xmpp:ping"

#: The delays before an acknowledged event is sent again.
_REPEAT = Backoff(first_s=2.0, max_s=30.0)


class EventSender(QueuePort):
    """Sends the engine's events to subscribers, and takes their answers.

    Attributes:
        engine: the engine, which requests the events; set when it exists.
        own: our full JID while there is a session.
    """

    engine: QueueEngine

    def __init__(self, xmpp: BaseXMPP, wire: Wire) -> None:
        """Begin without sent events."""
        self.own: str | None = None
        self._xmpp = xmpp
        self._wire = wire
        self._probes: dict[str, str] = {}
        # Acknowledged events without an answer: their receivers, by their ids.
        self._unanswered: dict[str, str] = {}

    def session_lost(self) -> None:
        """Expect no answers any more."""
        self.own = None
        self._probes.clear()
        self._unanswered.clear()

    @property
    def sender(self) -> str:
        """The from of a stanza: a component has to give it.

        The server knows a client.
        """
        return str(self.own or "") if self._xmpp.is_component else ""

    def send(self, text: str) -> None:
        """Send a stanza, if there is a session."""
        if self.own is not None:
            self._wire.send(text)

    def takes_answer(self, xml: ET.Element, sender: str) -> bool:
        """Whether an iq result or error answers an event or a probe of ours.

        Args:
            xml: the iq.
            sender: the full JID of its sender.
        """
        return self._event_answered(xml, sender) or self._probe_answered(xml, sender)

    # -- the port of the engine --------------------------------------------

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """See qos.engine.queue_outputs.QueuePort."""
        sent = []
        for some in events.split_items(items):
            event_id = self.new_id()
            now = self.engine.now()
            text = events.render_items(
                to, some, event_id=event_id, now=now, sender=self.sender
            )
            if acknowledged:
                self._send_acknowledged(text, to, event_id)
            else:
                self.send(text)
            sent.append((event_id, some))
        return sent

    def notify(self, notification: Notification) -> None:
        """See qos.engine.queue_outputs.QueuePort."""
        to, sender, event_id = notification.to, self.sender, self.new_id()
        match notification:
            case NotifyRetract() | NotifyUnlock():
                render = (
                    events.render_retract
                    if isinstance(notification, NotifyRetract)
                    else events.render_unlock
                )
                node = notification.node
                for some in events.split_ids(notification.item_ids):
                    text = render(to, node, some, event_id=event_id, sender=sender)
                    self.send(text)
            case NotifyNode(node=node, what=what):
                self.send(
                    events.render_node(to, node, what, event_id=event_id, sender=sender)
                )
            case NotifySubscription(node=node, jid=jid, subid=subid):
                self.send(
                    events.render_subscription(
                        to, node, jid, subid, event_id=event_id, sender=sender
                    )
                )

    def probe(self, jid: str) -> None:
        """See qos.engine.queue_outputs.QueuePort."""
        iq_id = self.new_id()
        self._probes[iq_id] = jid
        ping = f"<ping xmlns='{_PING}'/>"
        self.send(render_iq("get", iq_id, ping, to=jid, sender=self.sender))

    def new_id(self) -> str:
        """See qos.engine.queue_outputs.QueuePort."""
        return new_id()

    # -- acknowledged events -----------------------------------------------

    def _send_acknowledged(self, text: str, to: str, event_id: str) -> None:
        """Send an event at level acknowledged, and repeat it until there is an answer.

        The outbox of xep_qos is not used: it would repeat the event when its locks have
        ended, and after a restart, when the engine itself sends the items that are
        still locked.
        """
        content = text.partition(">")[2]
        acknowledged = (
            f"<acknowledged xmlns='{NAMESPACES[0]}'>"
            f"<message xmlns='{CLIENT}' id={attribute(event_id)}>{content}"
            "</acknowledged>"
        )
        iq = render_iq("set", event_id, acknowledged, to=to, sender=self.sender)
        self._unanswered[event_id] = to
        self.send(iq)
        # No jitter: the delay is the time that the subscriber has for the answer.
        retry = Retry(_REPEAT, jitter=lambda: 1.0)
        self._repeat_later(iq, event_id, retry)

    def _repeat_later(self, iq: str, event_id: str, retry: Retry) -> None:
        self._xmpp.loop.call_later(retry.failed(), self._repeat, iq, event_id, retry)

    def _repeat(self, iq: str, event_id: str, retry: Retry) -> None:
        if event_id not in self._unanswered:
            return
        if not self.engine.is_live(event_id):
            del self._unanswered[event_id]
            return
        self.send(iq)
        self._repeat_later(iq, event_id, retry)

    def _event_answered(self, xml: ET.Element, sender: str) -> bool:
        event_id = xml.get("id", "")
        if self._unanswered.get(event_id) != sender:
            return False
        del self._unanswered[event_id]
        if xml.get("type") == "error":
            self.engine.bounced(sender, event_id)
        else:
            self.engine.heard(sender)
        return True

    # -- probes ------------------------------------------------------------

    def _probe_answered(self, xml: ET.Element, sender: str) -> bool:
        iq_id = xml.get("id", "")
        if self._probes.get(iq_id) != sender:
            return False
        del self._probes[iq_id]
        conditions = {
            child.tag.rpartition("}")[2]
            for error in xml
            for child in error
            if child.tag.startswith(f"{{{STANZAS}}}")
        }
        if xml.get("type") == "result" or conditions & _IS_THERE:
            self.engine.heard(sender)
        else:
            self.engine.absent(sender)
        return True
