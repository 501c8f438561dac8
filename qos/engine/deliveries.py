"""The deliveries that wait for the acceptance or for the end of their message."""

from __future__ import annotations

import asyncio
import weakref

from qos.core.message.model import Outgoing
from qos.engine.delivery import Delivery, Keeper, Outcome
from qos.errors import StillOutstanding

__all__ = ["Deliveries"]


class Deliveries:
    """The deliveries of an outbox that the application holds or waits for."""

    def __init__(self, keeper: Keeper, *, durable: bool) -> None:
        """Begin without deliveries.

        Args:
            keeper: the outbox.
            durable: whether its store outlives the process.
        """
        self._keeper = keeper
        self._durable = durable
        self._stopped = False
        # Of the messages that were accepted here, until they end or are queued: they
        # are few, and weak references take as long as all else that is done here.
        self._kept: dict[str, Delivery] = {}
        # Of the others, as long as the application has them: there may be very many.
        self._weak: weakref.WeakValueDictionary[str, Delivery] = (
            weakref.WeakValueDictionary()
        )
        self._awaited: set[Delivery] = set()
        # Before a message is written, only this module knows that it is queued.
        self._accepting: dict[str, Outgoing] = {}
        # By their ids: the callers that wait for this.
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    def find(self, msg_id: str) -> Delivery | None:
        """The delivery that the application holds of a message that has not ended."""
        delivery = self._kept.get(msg_id) or self._weak.get(msg_id)
        return None if delivery is None or delivery.ended else delivery

    def of(self, record: Outgoing) -> Delivery:
        """The delivery of a message that has not ended."""
        return self.find(record.msg_id) or self.new(record)

    def new(self, record: Outgoing) -> Delivery:
        """The delivery of a message of earlier, which may have the id of an ended one."""
        delivery = self._weak[record.msg_id] = self._made(record)
        return delivery

    def _made(self, record: Outgoing) -> Delivery:
        return Delivery(
            self._keeper, msg_id=record.msg_id, to=record.to, level=record.level
        )

    def queued(self, record: Outgoing) -> None:
        """Note that a message waits in the queue, perhaps for long, with many others."""
        delivery = self._kept.pop(record.msg_id, None)
        if delivery is not None:
            self._weak[record.msg_id] = delivery

    def keep(self, delivery: Delivery) -> None:
        """Keep the delivery alive while somebody waits for its end."""
        if self._stopped:
            self._give_up(delivery)
        else:
            self._awaited.add(delivery)

    def settle(self, record: Outgoing, seconds: float) -> None:
        """Settle the delivery of an ended message, so long after its acceptance."""
        delivery = self._kept.pop(record.msg_id, None) or self._weak.get(record.msg_id)
        if delivery is not None:
            delivery._settle(Outcome.of(record, seconds))
            self._awaited.discard(delivery)

    def stop(self) -> None:
        """Tell everyone who waits that no end will be known here any more."""
        self._stopped = True
        for delivery in [*self._kept.values(), *self._weak.values()]:
            self._give_up(delivery)
        self._awaited.clear()

    def _give_up(self, delivery: Delivery) -> None:
        if not delivery.ended:
            delivery._fail(StillOutstanding(delivery.msg_id, durable=self._durable))

    # -- whether it is accepted --------------------------------------------

    def begin(self, record: Outgoing) -> Delivery:
        """Note that a new message is being accepted, until this is decided.

        Returns its delivery. The message may have the id of an ended one.
        """
        self._accepting[record.msg_id] = record
        delivery = self._kept[record.msg_id] = self._made(record)
        return delivery

    def accepting(self, msg_id: str) -> Outgoing | None:
        """The message with this id, while it is being accepted."""
        return self._accepting.get(msg_id)

    async def until_accepted(self, msg_id: str) -> None:
        """If the message is being accepted, wait for the end of this.

        Raises if it fails.
        """
        if msg_id in self._accepting:
            # One future for each caller: cancelling one must not affect the others.
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(msg_id, []).append(waiting)
            await waiting

    def decided(self, record: Outgoing, error: BaseException | None) -> None:
        """Tell those who wait whether the message was written or the write failed."""
        del self._accepting[record.msg_id]
        for waiting in self._waiting.pop(record.msg_id, ()):
            if waiting.done():
                continue  # its caller was cancelled
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)
        if error is None:
            return
        delivery = self._kept.pop(record.msg_id)
        delivery._fail(error)
        self._awaited.discard(delivery)
