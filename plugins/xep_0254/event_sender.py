"""Sends the events and probes of a queue service to its subscribers.

An event is sent once, or at level acknowledged until there is an answer. This module
knows XML and the wire. The engine decides on the receiver of an event
(`qos.engine.queue_engine`).
"""

from __future__ import annotations

import logging
import math
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
from qos.core.rate import RateLimit
from qos.engine.queue_engine import QueueEngine
from qos.engine.queue_outputs import Payloads, QueuePort
from qos.engine.retry import Retry
from qos.ids import new_id
from qos.stream.stream_limits import StreamLimits
from qos.stream.turns import Turns
from qos.stream.wire import Wire
from qos.xml_text import CLIENT, attribute, render_iq
from xep_0254 import events
from xep_0254.events import EVENT_BYTES_MAX
from xep_0254.namespaces import STANZAS

__all__ = ["EventSender"]

log = logging.getLogger(__name__)

#: The errors with which a client that is there answers a ping (RFC 6120 §8.3.3). A
#: server answers with others for a client that is not there.
_IS_THERE = frozenset({"feature-not-implemented", "bad-request", "not-allowed"})

_PING = "urn:xmpp:ping"

#: The delays before an acknowledged event is sent again.
_REPEAT = Backoff(first_s=2.0, max_s=30.0)

#: Seconds between two lines of the log about items of one node that are too large.
_LOG_S = 3600.0


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
        self._limits = StreamLimits.of(xmpp)
        self._probes: dict[str, str] = {}
        # Acknowledged events without an answer: their receivers, by their ids.
        self._unanswered: dict[str, str] = {}
        # The bytes of the smallest event that was not sent because of its size; or 0.
        self._too_large = 0
        self._logged = RateLimit(_LOG_S)

    def session_started(self) -> None:
        """Let workers get what was too large, if the server certainly takes it now.

        Not when what was learned of the server is merely old: each try with several sizes
        can end the stream some times.
        """
        if self._too_large and self._limits.sizes.are_taken(self._too_large):
            self._too_large = 0
            self.engine.fit_again()

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

    def silent_s(self) -> float:
        """See qos.engine.queue_outputs.QueuePort."""
        came_at = Turns.of(self._xmpp).came_at
        # A stream that is not read through the turns brings nothing there.
        if came_at == -math.inf:
            return 0.0
        return max(0.0, self._xmpp.loop.time() - came_at)

    def ask_link(self) -> None:
        """See qos.engine.queue_outputs.QueuePort."""
        server = self._xmpp.boundjid.host
        if server not in self._probes.values():
            self.probe(server)

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """See qos.engine.queue_outputs.QueuePort."""
        items_by_event: list[tuple[str, Payloads]] = []
        for batch in events.split_items(items, bytes_max=self._event_bytes_max):
            items_by_event += self._send_items(to, batch, acknowledged=acknowledged)
        return items_by_event

    def _send_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> list[tuple[str, Payloads]]:
        """Send items in one event; alone if they are too large together."""
        event_id = self.new_id()
        now = self.engine.now()
        text = events.render_items(
            to, items, event_id=event_id, now=now, sender=self.sender
        )
        if acknowledged:
            text = self._acknowledged(text, to, event_id)
        if why := self._why_not(text):
            if len(items) > 1:
                alone = [
                    self._send_items(to, (item,), acknowledged=acknowledged)
                    for item in items
                ]
                return [sent for each in alone for sent in each]
            self._not_sent(to, items, len(text.encode()), why)
            return []
        if acknowledged:
            self._send_acknowledged(text, to, event_id)
        else:
            self.send(text)
        return [(event_id, items)]

    def _not_sent(self, to: str, items: Payloads, size: int, why: str) -> None:
        """Let an item wait for a consumer of a gateway, and say so once in a while."""
        self._too_large = min(size, self._too_large or size)
        item = items[0][0]
        if self._logged.admit(item.node, self.engine.now()) is not None:
            log.warning(
                "items of %r such as %r can go to no XMPP worker, only to consumers by "
                "AMQP or HTTP: %s",
                *(item.node, item.item_id, why),
            )
        self.engine.unsendable(to, items, why)

    @property
    def _event_bytes_max(self) -> int:
        """The bytes of items in one event, as far as the limit of our server is known."""
        return min(self._limits.sizes.batch_max or EVENT_BYTES_MAX, EVENT_BYTES_MAX)

    def _why_not(self, text: str) -> str:
        """Why our server would end the stream at this event; '': it would not."""
        if self._limits.sizes.limit is None:
            return ""
        size = len(text.encode())
        limit = self._limits.over(size)
        if limit is None:
            return ""
        return (
            f"the event has {size} bytes, and the server of this service takes {limit}"
        )

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
                for ids in events.split_ids(
                    notification.item_ids, bytes_max=self._event_bytes_max
                ):
                    text = render(to, node, ids, event_id=event_id, sender=sender)
                    self.send(text)
            case NotifyNode(node=node, action=action):
                self.send(
                    events.render_node(
                        to, node, action, event_id=event_id, sender=sender
                    )
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

    def _acknowledged(self, text: str, to: str, event_id: str) -> str:
        """The iq that has an event at level acknowledged."""
        content = text.partition(">")[2]
        acknowledged = (
            f"<acknowledged xmlns='{NAMESPACES[0]}'>"
            f"<message xmlns='{CLIENT}' id={attribute(event_id)}>{content}"
            "</acknowledged>"
        )
        return render_iq("set", event_id, acknowledged, to=to, sender=self.sender)

    def _send_acknowledged(self, iq: str, to: str, event_id: str) -> None:
        """Send an event at level acknowledged, and repeat it until there is an answer.

        The outbox of xep_qos is not used: it would repeat the event when its locks have
        ended, and after a restart, when the engine itself sends the items that are
        still locked.
        """
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
