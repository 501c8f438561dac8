"""The deliveries that wait to be told of acceptance and of the end."""

from __future__ import annotations

import asyncio
import weakref
from typing import NamedTuple

from qos.core.message.model import Outgoing
from qos.engine.delivery import Delivery, Keeper, Outcome
from qos.errors import StillOutstanding

__all__ = ["Deliveries"]


class _Acceptance(NamedTuple):
    """A message that is being written for the first time."""

    record: Outgoing
    accepted: asyncio.Future[None]


class Deliveries:
    """The deliveries of an outbox that somebody has in hand, or waits for."""

    def __init__(self, keeper: Keeper, *, durable: bool) -> None:
        """There is none yet.

        Args:
            keeper: the outbox.
            durable: whether its store outlives the process.
        """
        self._keeper = keeper
        self._durable = durable
        self._stopped = False
        self._by_id: weakref.WeakValueDictionary[str, Delivery] = (
            weakref.WeakValueDictionary()
        )
        self._awaited: set[Delivery] = set()
        # Before it is written, nobody else knows of a message in the queue.
        self._accepting: dict[str, _Acceptance] = {}

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
        if self._stopped:
            self._give_up(delivery)
        else:
            self._awaited.add(delivery)

    def settle(self, record: Outgoing, seconds: float) -> None:
        """Tell how a message has ended, so long after it was accepted."""
        delivery = self._by_id.get(record.msg_id)
        if delivery is not None:
            delivery._settle(Outcome.of(record, seconds))
            self._awaited.discard(delivery)

    def stop(self) -> None:
        """No end will be heard of any more: whoever waits for one is told so."""
        self._stopped = True
        for delivery in list(self._by_id.values()):
            self._give_up(delivery)
        self._awaited.clear()

    def _give_up(self, delivery: Delivery) -> None:
        if not delivery.ended:
            delivery._fail(StillOutstanding(delivery.msg_id, durable=self._durable))

    # -- whether it is accepted --------------------------------------------

    def begin(self, record: Outgoing) -> asyncio.Future[None]:
        """A message is being accepted; returns what is done when that is decided."""
        accepted = asyncio.get_running_loop().create_future()
        # A caller that was cancelled asks no more: that is no error of its own.
        accepted.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._accepting[record.msg_id] = _Acceptance(record, accepted)
        return accepted

    def accepting(self, msg_id: str) -> Outgoing | None:
        """The message with this id, while it is being accepted."""
        acceptance = self._accepting.get(msg_id)
        return None if acceptance is None else acceptance.record

    async def until_accepted(self, msg_id: str) -> None:
        """If the message is being accepted, wait until it is; raises if it is not."""
        acceptance = self._accepting.get(msg_id)
        if acceptance is not None:
            await asyncio.shield(acceptance.accepted)

    def decided(self, record: Outgoing, error: BaseException | None) -> None:
        """The message is written, or cannot be: whoever asks for it is told."""
        accepted = self._accepting.pop(record.msg_id).accepted
        if error is None:
            accepted.set_result(None)
            return
        accepted.set_exception(error)
        delivery = self._by_id.pop(record.msg_id, None)
        if delivery is not None:
            delivery._fail(error)
            self._awaited.discard(delivery)
