"""A link that sends messages to a node of a broker, and tells their outcomes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from proton import Sender, Session

from qos.amqp.broker import CONTAINER, Broker, BrokerLink, BrokerLost
from qos.amqp.deliveries import Delivery, transfer
from qos.ids import new_id

__all__ = ["Outcome", "Target"]

_OUTCOMES = frozenset(
    {Delivery.ACCEPTED, Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED}
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a message at the broker.

    Attributes:
        state: Delivery.ACCEPTED, REJECTED, RELEASED or MODIFIED.
        reason: of REJECTED, or ''.
        failed: of MODIFIED: the delivery counts.
        undeliverable: of MODIFIED: do not send it here again.
    """

    state: int
    reason: str = ""
    failed: bool = False
    undeliverable: bool = False


class Target(BrokerLink):
    """Sends messages to a node."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._link: Sender | None = None
        self._waiting: list[tuple[bytes, asyncio.Future[Outcome]]] = []
        self._sent: dict[str, asyncio.Future[Outcome]] = {}
        self.lost.add_done_callback(self._fail)

    @property
    def bytes_max(self) -> int:
        """The most bytes of a message that the broker takes; 0: it has not said."""
        return 0 if self._link is None else self._link.remote_max_message_size or 0

    async def send(self, message: bytes) -> Outcome:
        """Send a message when there is credit; returns when it has an outcome.

        Raises:
            BrokerLost: the link is lost. The broker may have the message.
        """
        if self.lost.done():
            raise self.lost.result()
        outcome: asyncio.Future[Outcome] = self._loop.create_future()
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
        state = delivery.remote_state
        if state not in _OUTCOMES and not delivery.settled:
            return
        outcome = self._sent.pop(delivery.tag, None)
        remote = delivery.remote
        if outcome is not None and not outcome.done():
            condition = remote.condition
            parts = () if condition is None else (condition.name, condition.description)
            outcome.set_result(
                Outcome(
                    # Settled without an outcome: messaging §3.5.3.
                    state if state in _OUTCOMES else Delivery.RELEASED,
                    ": ".join(filter(None, parts)),
                    failed=bool(remote.failed),
                    undeliverable=bool(remote.undeliverable),
                )
            )
        delivery.settle()

    def _fail(self, lost: asyncio.Future[BrokerLost]) -> None:
        waiting = [outcome for _, outcome in self._waiting]
        for outcome in (*self._sent.values(), *waiting):
            if not outcome.done():
                outcome.set_exception(lost.result())
        self._waiting.clear()
        self._sent.clear()
