"""A link that sends messages to a node of a broker, and tells their outcomes."""

from __future__ import annotations

import asyncio

from proton import Sender, Session

from qos.amqp.broker import CONTAINER, Broker, BrokerLink, BrokerLost
from qos.amqp.deliveries import Delivery, transfer
from qos.amqp.outcomes import told_by
from qos.core.amqp.delivery_states import PeerOutcome
from qos.core.queue.item import ItemOutcome
from qos.ids import new_id

__all__ = ["Target"]

#: Settled without an outcome: messaging §3.5.3.
_RELEASED = PeerOutcome(ItemOutcome.RELEASED)


class Target(BrokerLink):
    """Sends messages to a node."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._link: Sender | None = None
        self._waiting: list[tuple[bytes, asyncio.Future[PeerOutcome]]] = []
        self._sent: dict[str, asyncio.Future[PeerOutcome]] = {}
        self.lost.add_done_callback(self._fail)

    @property
    def bytes_max(self) -> int:
        """The most bytes of a message that the broker takes; 0: it has not said."""
        return 0 if self._link is None else self._link.remote_max_message_size or 0

    async def send(self, message: bytes) -> PeerOutcome:
        """Send a message when there is credit; returns when it has an outcome.

        Raises:
            BrokerLost: the link is lost. The broker may have the message.
        """
        if self.lost.done():
            raise self.lost.result()
        outcome: asyncio.Future[PeerOutcome] = self._loop.create_future()
        self._waiting.append((message, outcome))
        self._flow()
        self._write_soon()
        return await outcome

    def _attach(self, session: Session) -> None:
        self._link = session.sender(f"{CONTAINER}-{new_id()}")
        self._set_up(self._link, self._link.target)

    def _flow(self) -> None:
        link = self._link
        if link is None or not self._attached.done():
            return
        count = 0
        for message, outcome in self._waiting:
            if not outcome.cancelled():
                if link.credit <= 0:
                    break
                tag = new_id()
                transfer(link, tag, message)
                self._sent[tag] = outcome
            count += 1
        del self._waiting[:count]

    def _delivery(self, delivery: Delivery) -> None:
        outcome = told_by(delivery)
        if outcome is None and not delivery.settled:
            return
        future = self._sent.pop(delivery.tag, None)
        if future is not None and not future.done():
            future.set_result(outcome or _RELEASED)
        delivery.settle()

    def _fail(self, lost: asyncio.Future[BrokerLost]) -> None:
        waiting = [outcome for _, outcome in self._waiting]
        for outcome in (*self._sent.values(), *waiting):
            if not outcome.done():
                outcome.set_exception(lost.result())
        self._waiting.clear()
        self._sent.clear()
