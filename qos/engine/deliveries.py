"""The deliveries that somebody has in hand, or waits for."""

from __future__ import annotations

import weakref

from qos.core.model import Outgoing
from qos.engine.delivery import Delivery, Keeper, Outcome

__all__ = ["Deliveries"]


class Deliveries:
    """Who is to be told of the messages of an outbox."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._by_id: weakref.WeakValueDictionary[str, Delivery] = (
            weakref.WeakValueDictionary()
        )
        self._awaited: set[Delivery] = set()

    def find(self, msg_id: str) -> Delivery | None:
        """The delivery that somebody has of a message that has not ended."""
        delivery = self._by_id.get(msg_id)
        return None if delivery is None or delivery.ended else delivery

    def of(self, record: Outgoing) -> Delivery:
        """The delivery of a message that has not ended."""
        return self.find(record.msg_id) or self.new(record)

    def new(self, record: Outgoing) -> Delivery:
        """That of a new message, which may have the id of one that has ended."""
        delivery = Delivery(
            self._keeper, msg_id=record.msg_id, to=record.to, level=record.level
        )
        self._by_id[record.msg_id] = delivery
        return delivery

    def keep(self, delivery: Delivery) -> None:
        """Somebody waits for its end: it must not go before, and they with it."""
        self._awaited.add(delivery)

    def settle(self, record: Outgoing, seconds: float) -> None:
        """Tell how a message has ended, so long after it was accepted."""
        delivery = self._by_id.get(record.msg_id)
        if delivery is not None:
            delivery.settle(Outcome.of(record, seconds))
            self._awaited.discard(delivery)

    def fail(self, msg_id: str, error: BaseException) -> None:
        """Tell that a message was not accepted."""
        delivery = self._by_id.pop(msg_id, None)
        if delivery is not None:
            delivery.fail(error)
            self._awaited.discard(delivery)
