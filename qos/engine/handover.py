"""Hands released messages to the application: to its handlers, or to a consumer.

The core decides what the result means for the message; the inbox takes that step.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Protocol

from qos.core.fifo_lanes import FifoLanes
from qos.core.message.effects import Consume, Deliver, Report
from qos.core.message.model import Incoming, Level, Rejection
from qos.core.message.receiver import not_now
from qos.core.message.receiver_table import At, ReceiverInput
from qos.core.strings import one_line
from qos.engine.clock import Clock, Timers
from qos.engine.consuming import Consuming, Consumption
from qos.engine.inbox_message import Arrival, HeldMessage, InboxPort
from qos.errors import RemoteProtocolError
from qos.journal.recorder import Recorder
from qos.stores.base import Store, Transaction

__all__ = ["Handovers"]

log = logging.getLogger(__name__)

#: The delay until a hand-over is repeated whose result could not be written, in
#: seconds. Only hand-overs to a consumer, and those that ended in a rejection, are
#: repeated.
_WRITE_AGAIN_S = 10.0

#: The delay until a message that no handler has taken after a restart is handed over
#: again, in seconds. Its sender may know that it has arrived, and will not send it
#: again.
_NOT_TAKEN_AGAIN_S = 10.0


class Takes(Protocol):
    """The inbox, which takes the steps."""

    def __call__(
        self,
        message: HeldMessage,
        input_: ReceiverInput,
        at: At,
        arrival: Arrival | None = None,
    ) -> None:
        """Take this step of a message, and then those that waited for it."""


class Handovers:
    """The hand-overs of an inbox."""

    def __init__(
        self,
        store: Store,
        port: InboxPort,
        clock: Clock,
        recorder: Recorder,
        *,
        take: Takes,
    ) -> None:
        self._port = port
        self._clock = clock
        self._recorder = recorder
        self._take = take
        self._consuming = Consuming(store)
        #: Messages on their way to a consumer, by key. Below: the order of the turns,
        #: and the times at which failed messages get their next turn.
        self._consumable: dict[str, HeldMessage] = {}
        self._lanes: FifoLanes[str] = FifoLanes()
        #: Messages that no handler has taken after a restart, by key.
        self._untaken: dict[str, HeldMessage] = {}
        self._retries: Timers[str] = Timers(clock, self._retry)
        self._stopped = self._closed = False

    def stop(self) -> None:
        """Begin nothing more. Running hand-overs may still end, until `aclose`."""
        self._stopped = True
        self._retries.stop()

    def is_consuming(self) -> bool:
        """Whether the caller is the handler of a consumer."""
        return self._consuming.is_running()

    async def aclose(self) -> None:
        """Stop, and end running consumers, as if the process had died."""
        self.stop()
        self._closed = True
        await self._consuming.aclose()

    def begin(
        self,
        message: HeldMessage,
        effect: Deliver | Consume,
        arrival: Arrival | None,
    ) -> None:
        """Perform the effect; `arrival` is the request that released the message."""
        record = effect.record
        if isinstance(effect, Consume):
            # If we have stopped while the count was being written, this is as after a
            # kill.
            if self._stopped:
                self._refuse_deferred(message)
            else:
                self._consume(message, record)
            return
        if self._stopped:
            if arrival is not None:
                self._not_taken(message, arrival)
            return
        # A message at level acknowledged may come twice: a consumer would not help it.
        if record.level is Level.ASSURED:
            message.consumption = self._port.consumption(record)
        if message.consumption is not None:
            self._line_up(message, message.consumption, arrival)
            return
        self._hand_over(message, record, arrival)

    def defer(self, message: HeldMessage, arrival: Arrival) -> None:
        """Keep a request until the hand-over is done, or refuse it.

        After a failure, the hand-over is not done before a restart. A hand-over to a
        consumer may take days. There, no `assured` is kept: a sender that still waits
        for an answer has offered the message before, and asks by `deliver`.
        """
        untaken = message.key in self._untaken
        waits = self.is_waiting(message)
        refused = self._stopped or arrival.request.kind == "assured"
        if message.failed or (waits and refused):
            self._port.answer(arrival.request, not_now(message.record))
            return
        message.deferred.append(message.as_it_waits(arrival))
        if untaken:
            self._retries.set(message.key, self._clock.now())

    def is_waiting(self, message: HeldMessage) -> bool:
        """Whether a released message waits for its turn, or for a taker."""
        return message.consumption is not None or message.key in self._untaken

    def retry_at(self, message: HeldMessage, when: float) -> None:
        """Hand the message over again at this time."""
        if message.consumption is None:
            self._untaken[message.key] = message
        self._retries.set(message.key, when)

    def leave(self, message: HeldMessage) -> None:
        """Stop handing a message over.

        It is done, parked, or not released after all.
        """
        consumption, message.consumption = message.consumption, None
        if consumption is None:
            return
        del self._consumable[message.key]
        if consumption.lane is not None:
            next_key = self._lanes.leave(consumption.lane)
            if next_key is not None:
                self._turn(self._consumable[next_key])

    def not_written(self, message: HeldMessage, arrival: Arrival | None) -> bool:
        """Whether the step that could not be written was part of the way to a consumer.

        Then the message is not done, handed over or parked: all of the way is repeated.
        """
        if message.consumption is None:
            return False
        self.hand_over_later(message, arrival)
        return True

    def hand_over_later(self, message: HeldMessage, arrival: Arrival | None) -> None:
        """Hand a message over again, because the result could not be written."""
        if arrival is not None:
            message.deferred.append(arrival)
        self.retry_at(message, self._clock.now() + _WRITE_AGAIN_S)

    # -- handlers ----------------------------------------------------------

    def _hand_over(
        self, message: HeldMessage, record: Incoming, arrival: Arrival | None
    ) -> None:
        acceptance = self._port.hand_over(record)
        if isinstance(acceptance, asyncio.Future):
            self._recorder.handed_over(record)
            self._take(message, ReceiverInput.IN_HAND, At(self._clock.now()), arrival)
            if record.level is Level.ACKNOWLEDGED and not record.mark:
                arrival = None  # it has been answered
            acceptance.add_done_callback(partial(self._taken_at_last, message, arrival))
        elif acceptance:
            self._recorder.handed_over(record)
            self._taken(message, arrival, acceptance)
        else:
            self._not_taken(message, arrival)

    def _taken(
        self,
        message: HeldMessage,
        arrival: Arrival | None,
        acceptance: asyncio.Future[None] | bool,
    ) -> None:
        """Confirm a message; `acceptance` is the proof that the application has it."""
        proven = (
            acceptance.done() if isinstance(acceptance, asyncio.Future) else acceptance
        )
        assert proven, "no taker, no confirmation"
        self._take(message, ReceiverInput.HANDED_OVER, At(self._clock.now()), arrival)

    def _not_taken(self, message: HeldMessage, arrival: Arrival | None) -> None:
        now = self._clock.now()
        at = At(now, retry_at=now + _NOT_TAKEN_AGAIN_S)
        self._take(message, ReceiverInput.NOT_TAKEN, at, arrival)

    def _taken_at_last(
        self,
        message: HeldMessage,
        arrival: Arrival | None,
        acceptance: asyncio.Future[None],
    ) -> None:
        failed = None if acceptance.cancelled() else acceptance.exception()
        if self._closed:
            return
        if isinstance(failed, RemoteProtocolError):
            self._rejected(message, arrival, failed)
            return
        if not acceptance.cancelled() and failed is None:
            self._taken(message, arrival, acceptance)
            return
        error = "cancelled" if failed is None else str(failed) or type(failed).__name__
        log.error("a message could not be taken: %s", error)
        message.failed = True
        if arrival is not None:
            message.deferred.append(arrival)
        self._refuse_deferred(message)

    def _refuse_deferred(self, message: HeldMessage) -> None:
        refused, message.deferred = message.deferred, []
        for arrival in refused:
            self._port.answer(arrival.request, not_now(message.record))

    def _rejected(
        self,
        message: HeldMessage,
        arrival: Arrival | None,
        error: RemoteProtocolError,
    ) -> None:
        record = message.record
        assert record is not None
        text = one_line(str(error))
        self._port.report(
            record.source,
            Report(
                error.condition,
                f"message {record.msg_id!r} rejected with {error.condition}: {text}",
            ),
        )
        rejection = Rejection(error.condition, error.type, text)
        at = At(self._clock.now(), rejection=rejection)
        self._take(message, ReceiverInput.REJECTED, at, arrival)

    # -- consumers ---------------------------------------------------------

    def _line_up(
        self,
        message: HeldMessage,
        consumption: Consumption,
        arrival: Arrival | None,
    ) -> None:
        message.busy = False
        if arrival is not None:
            message.deferred.append(arrival)  # answered when the message is done
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
        message = self._consumable.get(key) or self._untaken.pop(key, None)
        if message is None or message.record is None:
            return
        before = message.consumption
        if before is not None:
            # A stanza that no handler has had in hand.
            again = self._port.consumption(message.record)
            if again is not None and again.lane == before.lane:
                message.consumption = again
                self._turn(message)
                return
            # Now it is for another consumer, with a lane of its own, or for none.
            self.leave(message)
        arrival = message.deferred.pop(0) if message.deferred else None
        self._take(message, ReceiverInput.RESTART, At(self._clock.now()), arrival)

    def _consume(self, message: HeldMessage, record: Incoming) -> None:
        consumption = message.consumption
        assert consumption is not None
        self._recorder.handed_over(record)
        on_end = partial(self._consumed, message, consumption)
        self._consuming.begin(record, consumption, on_end)

    def _consumed(
        self,
        message: HeldMessage,
        consumption: Consumption,
        transaction: Transaction | None,
        error: BaseException | None,
    ) -> None:
        """Take the end of the consumer's handler."""
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
        if self._stopped:
            self._refuse_deferred(message)
