"""The ways to the subscribers of one queue service: XMPP, and gateways beside it.

Each full JID belongs to one port. A gateway names the full JIDs that are its own, and
they are looked up there: an XMPP client may choose any resource. Only for a JID that
nobody names does its form count: see `GatewayPort.inherits`.

A gateway is a port for consumers by other protocols than XMPP. A consumer is a subscriber with a full JID of its own, of 128 random bits. The gateway
knows by it whom a notification is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, ParamSpec, Protocol, TypeVar

from qos.core.queue.consumer_jids import is_consumer_jid
from qos.core.queue.effects import Change, Notification
from qos.core.queue.item import Item
from qos.core.queue.requests import Refusal, Request
from qos.core.queue.results import Result
from qos.core.strings import domain_of
from qos.engine.queue_engine import Answer, QueueEngine
from qos.engine.queue_outputs import Payloads, QueuePort
from qos.ids import new_id

__all__ = [
    "Consumer",
    "ConsumersPort",
    "GatewayPort",
    "QueuePorts",
    "ask",
    "save",
]

P = ParamSpec("P")


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
        return [jid for gateway in self._gateways for jid in gateway.attached()]

    def restarted(self) -> None:
        """See QueuePort."""
        for port in (self._xmpp, *self._gateways):
            port.restarted()

    def silent_s(self) -> float:
        """See QueuePort."""
        return self._xmpp.silent_s()

    def ask_link(self) -> None:
        """See QueuePort."""
        self._xmpp.ask_link()

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
        for port in (self._xmpp, *self._gateways):
            port.deleted(node)

    def counts(self, node: str) -> Mapping[str, int]:
        """See QueuePort."""
        stats: dict[str, int] = {}
        for port in (self._xmpp, *self._gateways):
            stats |= port.counts(node)
        return stats

    def probe(self, jid: str) -> None:
        """See QueuePort."""
        self._of(jid).probe(jid)

    def new_id(self) -> str:
        """See QueuePort."""
        return self._xmpp.new_id()


class Consumer(Protocol):
    """A subscriber of a gateway."""

    def guarded(self, call: Callable[P, object]) -> Callable[P, None]:
        """A callback that ends this consumer if it raises, and nothing else."""

    def items(self, items: Payloads) -> None:
        """Take items that were locked for this consumer."""

    def dropped(self, item: Item) -> None:
        """See QueuePort."""

    def notify(self, notification: Notification) -> None:
        """See QueuePort."""


C = TypeVar("C", bound=Consumer)


class ConsumersPort(GatewayPort, Generic[C]):
    """Gives each notification to the consumer of its JID.

    Attributes:
        engine: of the queues.
        consumers: by full JID.
    """

    def __init__(self, engine: QueueEngine, *, own_domain: str = "") -> None:
        """Begin without consumers.

        Args:
            engine: of the queues.
            own_domain: a domain whose accounts are users of gateways only, since XMPP
                clients have no accounts there: that of a component; or ''.
        """
        self.engine = engine
        self.consumers: dict[str, C] = {}
        self._own_domain = own_domain

    def attached(self) -> Collection[str]:
        """See QueuePort."""
        return self.consumers.keys()

    def claims(self, jid: str) -> bool:
        """See GatewayPort."""
        return jid in self.consumers

    def inherits(self, jid: str) -> bool:
        """See GatewayPort."""
        if self._own_domain and domain_of(jid) == self._own_domain:
            return True
        # A former consumer of some gateway: no XMPP server has such a resource.
        return is_consumer_jid(jid)

    def dropped(self, to: str, item: Item) -> None:
        """See QueuePort."""
        consumer = self.consumers.get(to)
        if consumer is not None:
            consumer.guarded(consumer.dropped)(item)

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """See QueuePort."""
        consumer = self.consumers.get(to)
        if consumer is not None:
            consumer.guarded(consumer.items)(items)
        return []

    def notify(self, notification: Notification) -> None:
        """See QueuePort."""
        consumer = self.consumers.get(notification.to)
        if consumer is not None:
            consumer.guarded(consumer.notify)(notification)

    def probe(self, jid: str) -> None:
        """See QueuePort."""
        if jid not in self.consumers:
            # A consumer of an earlier process, which took its connection with it.
            asyncio.get_running_loop().call_soon(self.engine.departed, jid)

    def new_id(self) -> str:
        """See QueuePort."""
        return new_id()


async def ask(
    engine: QueueEngine, request: Request, requester: str
) -> tuple[Result, Mapping[int, str]]:
    """The answer to a request, when its result is on disk; and the payloads in it.

    Whoever stops waiting does not undo the request.

    Raises:
        Refusal: it is refused.
    """
    return await _answered(lambda answer: engine.request(request, requester, answer))


async def save(engine: QueueEngine, change: Change) -> None:
    """Write what a gateway keeps beside the queues; see QueueEngine.save.

    Raises:
        Refusal: it could not be written.
    """
    await _answered(lambda answer: engine.save([change], answer))


async def _answered(
    ask_for: Callable[[Answer], None],
) -> tuple[Result, Mapping[int, str]]:
    answered: asyncio.Future[tuple[Result, Mapping[int, str]]]
    answered = asyncio.get_running_loop().create_future()

    def answer(result: Result | Refusal, payloads: Mapping[int, str]) -> None:
        if answered.done():
            return
        if isinstance(result, Refusal):
            answered.set_exception(result)
        else:
            answered.set_result((result, payloads))

    ask_for(answer)
    return await answered
