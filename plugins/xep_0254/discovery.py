"""Discovers the nodes of a queue service (XEP-0060 §5), for who may use them.

slixmpp's plugin xep_0030 knows the service itself, and answers for a node that is not
there, or that the requester may not use.
"""

from __future__ import annotations

from functools import partial
from xml.etree import ElementTree as ET

from qos.core.queue.requests import Refusal
from qos.engine.queue_engine import QueueEngine, Stats
from xep_0254 import disco
from xep_0254.commands import Commands
from xep_0254.event_sender import EventSender
from xep_0254.namespaces import DISCO_INFO, DISCO_ITEMS
from xep_0254.service_stanza import render_refusal

__all__ = ["Discovery"]

_INFO = f"{{{DISCO_INFO}}}query"
_ITEMS = f"{{{DISCO_ITEMS}}}query"

#: slixmpp never answers such a one.
_NO_GET = Refusal(
    "service discovery asks by an iq of type get",
    condition="bad-request",
    type="modify",
)


class Discovery:
    """Answers the requests of service discovery at one service."""

    def __init__(
        self, engine: QueueEngine, events: EventSender, commands: Commands
    ) -> None:
        """Answer by the sender of the events, and let commands answer for themselves."""
        self._engine = engine
        self._events = events
        self._commands = commands

    def take(self, xml: ET.Element, requester: str) -> bool:
        """Answer an iq of type get or set, with one child; False: it is none of these."""
        query = xml[0]
        if query.tag not in (_INFO, _ITEMS):
            return False
        if xml.get("type") == "set":
            self._refuse(xml, _NO_GET)
            return True
        if self._commands.discover(xml, requester):
            return True
        node = query.get("node", "")
        if node:
            tell = self._info if query.tag == _INFO else self._items
            return self._engine.stats(node, requester, partial(tell, xml, node))
        if query.tag == _ITEMS:
            self._engine.nodes(requester, partial(self._nodes, xml))
            return True
        return False

    def _info(self, xml: ET.Element, node: str, stats: Stats | Refusal) -> None:
        if isinstance(stats, Refusal):
            self._refuse(xml, stats)
            return
        sender = self._events.sender
        text = disco.render_node_info(
            xml, node, stats=stats, topic=self._engine.is_topic(node), sender=sender
        )
        self._events.send(text)

    def _items(self, xml: ET.Element, node: str, stats: Stats | Refusal) -> None:
        """No item is named: what is in a queue is for one worker each (XEP-0060 §5.5)."""
        if isinstance(stats, Refusal):
            self._refuse(xml, stats)
            return
        self._events.send(disco.render_no_items(xml, node, sender=self._events.sender))

    def _nodes(self, xml: ET.Element, nodes: list[str] | Refusal) -> None:
        if isinstance(nodes, Refusal):
            self._refuse(xml, nodes)
            return
        service, sender = str(self._events.own), self._events.sender
        self._events.send(
            disco.render_items(xml, nodes, service=service, sender=sender)
        )

    def _refuse(self, xml: ET.Element, refusal: Refusal) -> None:
        self._events.send(render_refusal(xml, refusal, sender=self._events.sender))
