"""The ways to the subscribers of one queue service: XMPP, and gateways beside it.

Each full JID belongs to one port. A gateway names the full JIDs that are its own, and
they are looked up there: an XMPP client may choose any resource. Only for a JID that
nobody names does its form count: see `GatewayPort.inherits`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from qos.core.queue.effects import Notification
from qos.core.queue.item import Item
from qos.engine.queue_outputs import Payloads, QueuePort

__all__ = ["GatewayPort", "QueuePorts"]


class GatewayPort(QueuePort, Protocol):
    """A way to subscribers that are not XMPP clients."""

    def claims(self, jid: str) -> bool:
        """Whether this full JID is a subscriber of this gateway, and of nobody else."""

    def inherits(self, jid: str) -> bool:
        """Whether this full JID can only be one of a gateway, perhaps a former one.

        It matters for a JID that no gateway claims.
        """
        return False


class QueuePorts(QueuePort):
    """Gives each notification to the port of its receiver."""

    def __init__(self, xmpp: QueuePort) -> None:
        """Begin with XMPP, which serves everybody whom no gateway claims."""
        self._xmpp = xmpp
        self._gateways: list[GatewayPort] = []

    def add(self, gateway: GatewayPort) -> None:
        """Add a gateway."""
        self._gateways.append(gateway)

    def remove(self, gateway: GatewayPort) -> None:
        """Remove a gateway."""
        self._gateways.remove(gateway)

    def _of(self, jid: str) -> QueuePort:
        for gateway in self._gateways:
            if gateway.claims(jid):
                return gateway
        for gateway in self._gateways:
            if gateway.inherits(jid):
                return gateway
        return self._xmpp

    # -- see QueuePort -----------------------------------------------------

    def attached(self) -> Collection[str]:
        """See QueuePort."""
        return [jid for each in self._gateways for jid in each.attached()]

    def restarted(self) -> None:
        """See QueuePort."""
        for each in (self._xmpp, *self._gateways):
            each.restarted()

    def has_room(self, to: str) -> bool:
        """See QueuePort."""
        return self._of(to).has_room(to)

    def dropped(self, to: str, item: Item) -> None:
        """See QueuePort."""
        self._of(to).dropped(to, item)

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """See QueuePort."""
        return self._of(to).notify_items(to, items, acknowledged=acknowledged)

    def notify(self, notification: Notification) -> None:
        """See QueuePort."""
        self._of(notification.to).notify(notification)

    def deleted(self, node: str) -> None:
        """See QueuePort."""
        for each in (self._xmpp, *self._gateways):
            each.deleted(node)

    def counts(self, node: str) -> Mapping[str, int]:
        """See QueuePort."""
        found: dict[str, int] = {}
        for each in (self._xmpp, *self._gateways):
            found |= each.counts(node)
        return found

    def probe(self, jid: str) -> None:
        """See QueuePort."""
        self._of(jid).probe(jid)

    def new_id(self) -> str:
        """See QueuePort."""
        return self._xmpp.new_id()
