"""Hands released messages to the application: to its handlers, or to a consumer.

What the outcome means for the message is decided by the core; the inbox takes the step.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Protocol

from qos.core.effects import Consume, Deliver
from qos.core.lanes import Lanes
from qos.core.model import Incoming, Level
from qos.core.receiver import At, ReceiverInput
from qos.engine.clock import Clock, Timers
from qos.engine.consuming import Consuming, Consumption
from qos.engine.held import Arrival, HeldMessage, InboxPort
from qos.journal import messages as journaled
from qos.journal.writer import JournalWriter
from qos.stores.base import Store, Transaction

__all__ = ["HandingOver"]

log = logging.getLogger(__name__)

#: How long what could not be written of a hand-over to a consumer waits to be repeated.
_WRITE_AGAIN_S = 10.0


class Takes(Protocol):
    """What takes the steps: the inbox."""

    def __call__(
        self,
        message: HeldMessage,
        input_: ReceiverInput,
        at: At,
        arrival: Arrival | None = None,
    ) -> None:
        """Take this step of a message, and then what has waited for it."""


class HandingOver:
    """The hand-overs of an inbox."""

    def __init__(
        self,
        store: Store,
        port: InboxPort,
        clock: Clock,
        journal: JournalWriter | None,
        *,
        take: Takes,
    ) -> None:
        self._port = port
        self._clock = clock
        self._journal = journal
        self._take = take
        self._consuming = Consuming(store)
        #: Messages on their way to a consumer, by key; whose turn it is, and when those
        #: that have failed get theirs again.
        self._consumable: dict[str, HeldMessage] = {}
        self._lanes: Lanes[str] = Lanes()
        self._retries: Timers[str] = Timers(clock, self._retry)
        self._stopped = False

    def stop(self) -> None:
        """Begin nothing more; only a consumer that is at work may still end."""
        self._stopped = True
        self._retries.stop()

    def is_consuming(self) -> bool:
        """Whether it is a consumer that asks."""
        return self._consuming.is_running()

    async def aclose(self) -> None:
        """Stop, and end the consumers that are at work, as if the process had died."""
        self.stop()
        await self._consuming.aclose()

    def begin(
        self,
        message: HeldMessage,
        effect: Deliver | Consume,
        arrival: Arrival | None,
    ) -> None:
        """Perform the effect; `arrival` is the request that released the message."""
        if self._stopped:
            # While the effect before it was being written. The next start goes on from
            # there; that a hand-over was counted is as after a kill.
            return
        record = effect.record
        if isinstance(effect, Consume):
            self._consume(message, record)
            return
        if message.key in self._consumable:
            # It was released by an operator before the first session began.
            message.busy = False
            return
        # Level acknowledged has been answered: its sender counts on nothing more.
        if record.level is Level.ASSURED:
            message.consumption = self._port.consumption(record)
        if message.consumption is not None:
            self._line_up(message, message.consumption, arrival)
            return
        self._note(record)
        until = self._port.hand_over(record)
        if until is None:
            self._taken(message, arrival)
        else:
            until.add_done_callback(partial(self._taken_at_last, message, arrival))

    def defer(self, message: HeldMessage, arrival: Arrival) -> None:
        """Keep a request until the hand-over is done.

        A consumer may take days. Who asks for its answer then has offered the message
        and got it released, so no further offer, which has a payload, is kept that long.
        """
        if message.consumption is None or arrival.request.kind == "deliver":
            message.deferred.append(arrival)

    def retry_at(self, message: HeldMessage, when: float) -> None:
        """Hand it to its consumer again then."""
        self._retries.set(message.key, when)

    def leave(self, message: HeldMessage) -> None:
        """It is not handed over any more: done, parked, or not released after all."""
        consumption, message.consumption = message.consumption, None
        if consumption is None:
            return
        del self._consumable[message.key]
        if consumption.lane is not None:
            next_key = self._lanes.leave(consumption.lane)
            if next_key is not None:
                self._turn(self._consumable[next_key])

    def not_written(self, message: HeldMessage, arrival: Arrival | None) -> bool:
        """A step could not be written; whether it was one of the way to a consumer.

        Then neither is it done, nor handed over, nor parked, and all of it is repeated.
        """
        if message.consumption is None:
            return False
        if arrival is not None:
            message.deferred.append(arrival)
        self.retry_at(message, self._clock.now() + _WRITE_AGAIN_S)
        return True

    def _note(self, record: Incoming) -> None:
        if self._journal is not None:
            self._journal.note(journaled.handed_over(record))

    # -- handlers ----------------------------------------------------------

    def _taken_at_last(
        self, message: HeldMessage, arrival: Arrival | None, done: asyncio.Future[None]
    ) -> None:
        if self._stopped or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            log.error("a message could not be taken: %s", error)
            return
        self._taken(message, arrival)

    def _taken(self, message: HeldMessage, arrival: Arrival | None) -> None:
        if arrival is not None and arrival.request.kind == "acknowledged":
            arrival = None  # it has been answered before
        at = At(self._clock.now())
        self._take(message, ReceiverInput.HANDED_OVER, at, arrival)

    # -- consumers ---------------------------------------------------------

    def _line_up(
        self,
        message: HeldMessage,
        consumption: Consumption,
        arrival: Arrival | None,
    ) -> None:
        message.busy = False
        if arrival is not None:
            message.deferred.append(arrival)  # answered when it is done
        self._consumable[message.key] = message
        lane = consumption.lane
        if lane is None or self._lanes.enter(lane, message.key):
            self._turn(message)

    def _turn(self, message: HeldMessage) -> None:
        if self._stopped or message.consumption is None:
            return
        at = At(self._clock.now(), handovers_max=message.consumption.handovers_max)
        self._take(message, ReceiverInput.CONSUME, at)

    def _retry(self, key: str) -> None:
        message = self._consumable.get(key)
        if message is None or message.record is None:
            return
        before = message.consumption
        assert before is not None
        # A stanza that no handler has had in hand.
        again = self._port.consumption(message.record)
        if again is not None and again.lane == before.lane:
            message.consumption = again
            self._turn(message)
            return
        # By now it is for another consumer, which has a lane of its own, or for none.
        self.leave(message)
        arrival = message.deferred.pop(0) if message.deferred else None
        self._take(message, ReceiverInput.RESTART, At(self._clock.now()), arrival)

    def _consume(self, message: HeldMessage, record: Incoming) -> None:
        consumption = message.consumption
        assert consumption is not None
        self._note(record)
        ended = partial(self._consumed, message, consumption)
        self._consuming.begin(record, consumption, ended)

    def _consumed(
        self,
        message: HeldMessage,
        consumption: Consumption,
        transaction: Transaction | None,
        error: BaseException | None,
    ) -> None:
        """The consumer's handler has ended."""
        now = self._clock.now()
        if error is None:
            message.transaction = transaction
            arrival = message.deferred.pop(0) if message.deferred else None
            self._take(message, ReceiverInput.CONSUMED, At(now), arrival)
            return
        if transaction is not None:
            transaction.rollback()
        assert message.record is not None
        count, most = message.record.handovers, consumption.handovers_max
        log.error(
            "consumer %s failed on message %r of %s, hand-over %d of %d%s",
            *(consumption.name, message.record.msg_id, message.record.source),
            *(count, most, "" if count < most else ": it is parked"),
            exc_info=error,
        )
        delay_s = consumption.backoff.delay_s(count, self._port.jitter())
        at = At(now, handovers_max=most, retry_at=now + delay_s)
        self._take(message, ReceiverInput.FAILED, at)
