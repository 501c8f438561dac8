"""A link that receives the messages of a node of a broker, and settles them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from proton import Condition, Event, Receiver, Session

from qos.amqp import bounds
from qos.amqp.broker import CONTAINER, Broker, BrokerLink
from qos.amqp.deliveries import Delivery
from qos.amqp.pump import Pump
from qos.ids import new_id

__all__ = ["OVERSHOOT_MAX", "Incoming", "Source"]

#: How many times its credit a broker may have unsettled at us before it loses the link.
#: RabbitMQ before 4.0 sends more than the credit when that is renewed while it sends.
OVERSHOOT_MAX = 2


@dataclass(frozen=True, slots=True)
class Incoming:
    """A message that the broker has delivered.

    Attributes:
        delivery: proton's.
        content: its bytes; None: there were more than we take.
    """

    delivery: Delivery
    content: bytes | None


class Source(BrokerLink):
    """Receives the messages of a node, and settles them.

    Attributes:
        messages: those that have come, in their order.
    """

    def __init__(self, broker: Broker, *, credit: int) -> None:
        """Prepare.

        Args:
            broker: the node.
            credit: the most messages that are to be unsettled.
        """
        super().__init__(broker)
        self.messages: asyncio.Queue[Incoming] = asyncio.Queue()
        self._credit = credit
        self._unsettled = 0
        self._content = bytearray()
        self._too_large = False
        self._link: Receiver | None = None
        self._question: Session | None = None
        self._answered: asyncio.Future[None] = self._loop.create_future()

    async def ask(self) -> None:
        """Return when the broker has answered a question, or when the link is lost.

        The link has credit, so a broker that answers, and has sent nothing, has nothing.
        The question is a session that is begun and ended. To drain the link (Transport
        §2.6.7) would ask for the same, but RabbitMQ 3.10 ends the session then, by a
        mistake of its own.
        """
        answered = self._answered = self._loop.create_future()

        def begin(pump: Pump) -> None:
            self._question = pump.connection.session()
            self._question.open()

        def end(_pump: Pump) -> None:
            assert self._question is not None
            self._question.close()

        self._guard(begin)
        try:
            await asyncio.wait(
                (answered, self.lost), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if not self.lost.done():
                self._guard(end)

    def _event(self, event: Event) -> None:
        if self._question is None or event.context != self._question:
            super()._event(event)
        elif event.type == Event.SESSION_REMOTE_OPEN and not self._answered.done():
            self._answered.set_result(None)

    def settle(self, incoming: Incoming, condition: Condition | None = None) -> None:
        """Accept a message, or reject it for this reason. Harmless on a lost link."""

        def settle(_pump: Pump) -> None:
            assert self._link is not None
            delivery = incoming.delivery
            if condition is None:
                delivery.update(Delivery.ACCEPTED)
            else:
                delivery.local.condition = condition
                delivery.update(Delivery.REJECTED)
            delivery.settle()
            self._unsettled -= 1
            self._renew()

        if not self.lost.done():
            self._guard(settle)

    def _attach(self, session: Session) -> None:
        # The same name each time would resume a link whose state we do not have.
        self._link = session.receiver(f"{CONTAINER}-{new_id()}")
        self._set_up(self._link, self._link.source)
        self._renew()

    def _renew(self) -> None:
        """Grant the credit that is free, when that is half of it.

        What the broker has left by then is never below zero: proton would write that as
        a credit of 4 thousand million.
        """
        assert self._link is not None
        free = self._credit - self._unsettled
        missing = free - self._link.credit
        if free > self._link.queued and missing >= (self._credit + 1) // 2:
            self._link.flow(missing)

    def _delivery(self, delivery: Delivery) -> None:
        assert self._link is not None
        if self.lost.done():
            return
        if delivery.aborted:
            self._content.clear()
            self._link.advance()
            delivery.settle()
            self._renew()
            return
        if not delivery.readable:
            return
        if self._unsettled >= OVERSHOOT_MAX * self._credit:
            self._content.clear()
            self._lose(
                f"the broker has sent {self._unsettled} messages that are not settled, "
                f"and goes on; its credit was {self._credit}"
            )
            return
        self._content += delivery.read()
        if len(self._content) > bounds.MESSAGE_BYTES_MAX:
            self._too_large = True
            self._content.clear()
        if delivery.partial:
            return
        content = None if self._too_large else bytes(self._content)
        self._content.clear()
        self._too_large = False
        self._link.advance()
        self._unsettled += 1
        self.messages.put_nowait(Incoming(delivery, content))
