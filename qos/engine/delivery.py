"""A delivery: the application's handle on a message that it has sent; and all of an outbox."""

from __future__ import annotations

import asyncio
import weakref
from dataclasses import dataclass
from typing import Protocol

from qos.core.message.model import Ended, Level, Outgoing, OutgoingState
from qos.errors import (
    InDoubt,
    NotDelivered,
    StillOutstanding,
    UnknownMessage,
    why_not_delivered,
)

__all__ = ["Deliveries", "Delivery", "Keeper", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a message.

    Attributes:
        status: a `qos.OutgoingState`: DELIVERED, NOT_DELIVERED or IN_DOUBT. At level
            unacknowledged it is SENT, since nothing more is known there.
        msg_id: its id; None at level unacknowledged.
        to: the JID it was sent to, normalized.
        level: its level.
        attempts: the number of iqs sent for it, including repeats.
        seconds: the time from its acceptance to its end.
        condition: the latest stanza error, or None.
        by: the JID that sent this error, or None.
        text: the human-readable text of this error, one line, or None.
    """

    status: OutgoingState
    msg_id: str | None
    to: str
    level: Level
    attempts: int
    seconds: float
    condition: str | None = None
    by: str | None = None
    text: str | None = None

    @property
    def reason(self) -> str:
        """Why the message was not delivered or is in doubt, and what to do about it."""
        return why_not_delivered(
            to=self.to,
            attempts=self.attempts,
            condition=self.condition,
            by=self.by,
            text=self.text,
        )

    @classmethod
    def of(cls, record: Outgoing | Ended, seconds: float) -> Outcome:
        """The outcome of a message that has ended."""
        return cls(
            status=record.state,
            msg_id=record.msg_id,
            to=record.to,
            level=record.level,
            attempts=record.attempts,
            # A clock may have been set back meanwhile.
            seconds=max(0.0, seconds),
            condition=record.condition,
            by=record.condition_by,
            text=record.condition_text,
        )

    def raise_for_status(self) -> None:
        """Raise NotDelivered or InDoubt if this is the outcome."""
        error = {
            OutgoingState.NOT_DELIVERED: NotDelivered,
            OutgoingState.IN_DOUBT: InDoubt,
        }.get(self.status)
        if error is not None:
            raise error(
                self.msg_id or "",
                to=self.to,
                level=self.level.value,
                attempts=self.attempts,
                condition=self.condition,
                by=self.by,
                text=self.text,
            )


class Delivery:
    """An accepted message: wait for its outcome, or take it back.

    Attributes:
        msg_id: its id; '' at level unacknowledged.
        to: the JID it goes to, normalized.
        level: its level.
    """

    def __init__(
        self, outbox: Keeper | None, *, msg_id: str, to: str, level: Level
    ) -> None:
        """Made by the plugin: see `XEP_QOS.submit` and `XEP_QOS.delivery`."""
        self.msg_id = msg_id
        self.to = to
        self.level = level
        self._outbox = outbox
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None
        # In the order of the calls, so that a seed replays.
        self._waiting: dict[asyncio.Future[Outcome], None] = {}

    def __repr__(self) -> str:
        state = "outstanding"
        if self._outcome is not None:
            state = self._outcome.status.value
        return f"<Delivery {self.msg_id!r} to {self.to}, {self.level.value}: {state}>"

    async def outcome(self) -> Outcome:
        """Wait for the end of the message. Several tasks may wait, also repeatedly.

        Raises:
            StillOutstanding: the plugin was closed before the end.
            StoreError: the message was still being accepted, and this failed.
        """
        if self._outcome is not None:
            return self._outcome
        if self._error is not None:
            raise self._error
        # One future for each caller: cancelling one must not affect the others.
        waiting: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = None
        if self._outbox is not None:
            self._outbox.keep(self)
        try:
            return await waiting
        finally:
            self._waiting.pop(waiting, None)

    @property
    def ended(self) -> bool:
        """Whether the outcome is known."""
        return self._outcome is not None

    async def withdraw(self) -> None:
        """Take the message back: then it is certainly *not delivered*.

        Raises:
            CannotWithdraw: it may have been handed over, and continues.
            UnknownMessage: it has ended.
            StillOutstanding: the plugin was closed before this was written.
            StoreError: this could not be written; the message continues if it had been
                accepted.
        """
        if self._outbox is None or self._outcome is not None:
            raise UnknownMessage(self.msg_id)
        await self._outbox.withdraw(self.msg_id)

    def _settle(self, outcome: Outcome) -> None:
        """Set how the message ended; for the outbox."""
        self._outcome = outcome
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(outcome)
        self._waiting.clear()

    def _fail(self, error: BaseException) -> None:
        """Set the error of a message whose end will not be known here.

        For the outbox.
        """
        self._error = error
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(error)
        self._waiting.clear()

    @classmethod
    def _sent(cls, to: str) -> Delivery:
        """A message at level unacknowledged, ended since it is sent; for the plugin."""
        delivery = cls(None, msg_id="", to=to, level=Level.UNACKNOWLEDGED)
        delivery._settle(
            Outcome(
                status=OutgoingState.SENT,
                msg_id=None,
                to=to,
                level=Level.UNACKNOWLEDGED,
                attempts=0,
                seconds=0.0,
            )
        )
        return delivery


class Keeper(Protocol):
    """The outbox, as a delivery uses it."""

    async def withdraw(self, msg_id: str) -> None:
        """See Delivery.withdraw."""

    def keep(self, delivery: Delivery) -> None:
        """Keep the delivery alive until it is settled."""


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
