"""A broker, and the real bridge from it to the queue; only its links are not real.

The broker keeps a message until it is accepted, and delivers it again on each new link,
as AMQP 1.0 brokers do. Now and then an outcome is lost with its link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from slixmpp import JID

from qos.amqp.broker import Broker, BrokerLost
from qos.amqp.deliveries import Delivery
from qos.amqp.source import Incoming, Source
from qos.bridge.from_broker import FromBroker
from qos.core.amqp import values
from qos.core.amqp.sections import Section, section
from qos.core.backoff import Backoff
from qos.core.queue.properties import content_digest
from qos.core.queue.requests import Publish, PublishedItem
from qos.stream.login import AccountSession
from simulation.items import ItemFacts
from simulation.machines import Machine
from simulation.queue_client import QueueClient
from simulation.queue_machine import NODE, SERVICE
from xep_0254.items import NewItem
from xep_0254.queueing import XEP_0254

__all__ = ["SimulatedBridge", "SimulatedBroker"]

_ANSWER_S = 2.0
_ATTACH_S = 0.05

_BACKOFF = Backoff(first_s=0.2, max_s=1.0)

#: The share of outcomes that are lost with their link.
_LOST = 0.2

#: What the bridge makes of a message-id that is a string.
_PREFIX = "string:"


class SimulatedBroker:
    """A node of a broker; it outlives the processes of the bridge."""

    def __init__(self, accepted: Callable[[ItemFacts], None]) -> None:
        self._accepted = accepted
        self._messages: list[ItemFacts] = []
        self._link: _Link | None = None

    def publish(self, facts: ItemFacts) -> None:
        """Somebody publishes a message for this item."""
        self._messages.append(facts)

    def attach(self, link: _Link) -> None:
        """The bridge has a new link, and no other one."""
        self._link = link
        self.deliver()

    def deliver(self) -> None:
        """Deliver the messages that the bridge does not have; in its process."""
        if self._link is not None:
            for facts in self._messages:
                self._link.deliver(facts)

    def accept(self, facts: ItemFacts) -> None:
        """A message is accepted: the broker forgets it."""
        self._messages.remove(facts)
        self._accepted(facts)


class _Link:
    """The part of `qos.amqp.source.Source` that a bridge uses."""

    def __init__(self, machine: Machine, broker: SimulatedBroker) -> None:
        loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[BrokerLost] = loop.create_future()
        self.messages: asyncio.Queue[Incoming] = asyncio.Queue()
        self._machine = machine
        self._broker = broker
        self._delivered: list[ItemFacts] = []

    async def open(self) -> None:
        await asyncio.sleep(_ATTACH_S)
        self._broker.attach(self)

    async def close(self, _timeout_s: float) -> None:
        self._lose()

    def deliver(self, facts: ItemFacts) -> None:
        if not self.lost.done() and facts not in self._delivered:
            self._delivered.append(facts)
            delivery = cast(Delivery, facts)
            self.messages.put_nowait(Incoming(delivery, _message(facts)))

    def settle(self, incoming: Incoming, condition: object = None) -> None:
        assert condition is None, condition
        if self.lost.done():
            return
        self._machine.effect()
        if self._machine.random.random() < _LOST:
            self._lose()
        else:
            self._broker.accept(cast(ItemFacts, incoming.delivery))

    def _lose(self) -> None:
        if not self.lost.done():
            self.lost.set_result(BrokerLost("the link is lost"))


def _message(facts: ItemFacts) -> bytes:
    """The message of an item; its message-id is the id of the item."""
    planned = facts.planned
    pairs = [values.string("color"), values.string(planned.color)]
    item_id = values.string(planned.item_id)
    return (
        section(Section.PROPERTIES, values.pack_list([item_id]))
        + section(
            Section.APPLICATION_PROPERTIES,
            values.pack_map(pairs if planned.color else []),
        )
        + section(Section.VALUE, values.string("work"))
    )


class _Publishing(XEP_0254):
    """Publishes to the simulated service."""

    def __init__(self, queue_client: QueueClient) -> None:
        super().__init__(None, {"timeout_s": _ANSWER_S})
        self._queue_client = queue_client

    async def stats(self, *_: Any, **__: Any) -> dict[str, int | float | None]:
        """See XEP_0254; the bridge only asks whether there is a queue."""
        return {}

    async def publish(  # type: ignore[override]  # as the bridge calls it
        self,
        service: str | JID,
        node: str,
        items: Sequence[NewItem],
        *,
        attempts: int,
    ) -> None:
        """See XEP_0254; the world knows an item by its id without the type."""
        entries = []
        for item in items:
            payload = str(item.payload)
            entries.append(
                PublishedItem(
                    item_id=str(item.item_id).removeprefix(_PREFIX),
                    payload=payload,
                    digest=content_digest(payload.encode(), item.properties),
                    size=len(payload),
                    properties=item.properties,
                )
            )
        request = Publish(NODE, tuple(entries))
        await self._queue_client.ask(request, "publish", _ANSWER_S)


@dataclass(slots=True)
class _Client:
    plugin: tuple[str, ...] = (XEP_0254.name,)


@dataclass(slots=True)
class _Session:
    """The part of an AccountSession that a bridge uses."""

    client: _Client
    online: asyncio.Event


class SimulatedBridge(FromBroker):
    """The bridge of one process."""

    def __init__(
        self, machine: Machine, queue_client: QueueClient, broker: SimulatedBroker
    ) -> None:
        self._publishing = _Publishing(queue_client)
        session = _Session(_Client(), queue_client.in_session)
        super().__init__(
            cast(AccountSession, session),
            Broker(host="broker", port=0, address=NODE),
            SERVICE,
            NODE,
            backoff=_BACKOFF,
        )
        self._machine = machine
        self._node_of_broker = broker

    @property
    def _queueing(self) -> XEP_0254:
        return self._publishing

    def _link(self) -> Source:
        return cast(Source, _Link(self._machine, self._node_of_broker))
