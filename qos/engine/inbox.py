"""Holds messages until their senders release them, and hands them to the application.

The held messages are in memory, limited by the quotas; so are the tombstones of ended
messages, which are limited in number.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

from qos.core.message import receiver
from qos.core.message.effects import (
    Answer,
    Consume,
    Defer,
    Deliver,
    Effect,
    Forget,
    Refund,
    Report,
    Reserve,
    Retry,
    Save,
)
from qos.core.message.model import Incoming, IncomingState
from qos.core.message.receiver_table import At, ReceiverInput, Request
from qos.core.message.tombstones import Tombstones
from qos.core.quota import Ledger, Quotas
from qos.core.record import replace
from qos.core.strings import bare
from qos.engine.clock import Clock, Timers
from qos.engine.handover import Handovers
from qos.engine.inbox_message import Arrival, HeldMessage, InboxPort, Unasked
from qos.journal.recorder import recorder_of
from qos.journal.writer import JournalWriter
from qos.stores.base import Contents, Store

__all__ = ["Inbox", "InboxLimits", "InboxPort"]

log = logging.getLogger(__name__)

#: The most requests that wait while their message is being written or handed over.
#: These are repeats of a peer that does not wait for its answer. The peer gets an error
#: for further ones at once, and may repeat them.
_WAITING_MAX = 16

#: The answer to a request for which there is no room.
_NO_ROOM = Answer("error", "", "resource-constraint", "wait")

#: The answer after the end of receiving: the sender tries again.
_STOPPED = Answer("error", "", "service-unavailable", "cancel")

_WRITES = (Save, Forget)
_HAND_OVERS = (Deliver, Consume)

#: How long a message is still held whose expiry could not be written, in seconds.
_EXPIRE_AGAIN_S = 60.0

#: By the kind of a request.
_INPUTS = {
    each.value: each
    for each in (
        ReceiverInput.ACKNOWLEDGED,
        ReceiverInput.ASSURED,
        ReceiverInput.DELIVER,
    )
}

#: For these, the journal records their meaning for the message as it was.
_TAKEN = frozenset(
    {
        ReceiverInput.HANDED_OVER,
        ReceiverInput.REJECTED,
        ReceiverInput.CONSUMED,
        ReceiverInput.NOT_TAKEN,
    }
)

#: The ends of a message that its sender asks for.
_ENDS = _TAKEN - {ReceiverInput.NOT_TAKEN}


@dataclass(frozen=True, slots=True)
class InboxLimits:
    """The limits for held messages, and on times.

    Attributes:
        quotas: how much may be held.
        hold_ttl_s: how long a message is held for its sender to release it.
        tombstones: the most ended messages that are remembered.
        tombstone_ttl_s: how long they are remembered.
        write_acknowledged: whether to write messages at level acknowledged before they
            are answered. If not, a crash may lose acknowledged messages.
    """

    quotas: Quotas = field(default_factory=Quotas)
    hold_ttl_s: float = 7 * 24 * 3600.0
    tombstones: int = 100_000
    tombstone_ttl_s: float = 14 * 24 * 3600.0
    write_acknowledged: bool = True


class Inbox:
    """All messages that an endpoint receives at level acknowledged or assured."""

    def __init__(
        self,
        store: Store,
        contents: Contents,
        port: InboxPort,
        *,
        clock: Clock,
        limits: InboxLimits,
        own_domains: Collection[str] = (),
        journal: JournalWriter | None = None,
    ) -> None:
        self._recorder = recorder_of(journal)
        self._store = store
        self._port = port
        self._clock = clock
        self._limits = limits
        self._ledger = Ledger(limits.quotas, own_domains)
        self._tombstones = Tombstones(
            count_max=limits.tombstones, ttl_s=limits.tombstone_ttl_s
        )
        self._messages: dict[str, HeldMessage] = {}
        self._stopped = self._closed = False
        #: Messages handed over again, until their senders ask for them.
        self.unasked = Unasked()
        self._expiry: Timers[str] = Timers(clock, self._expire)
        self._forgetting: Timers[None] = Timers(clock, self._forget_old)
        self._handover = Handovers(store, port, clock, self._recorder, take=self._go_on)
        #: Found at the start: tombstones beyond the limit, and what was released.
        self._excess: list[Incoming] = []
        self._released: list[HeldMessage] = []
        for record in contents.incoming:
            if record.state.ended:
                self._excess += self._tombstones.add(record)
                continue
            message = HeldMessage(record.key, bare(record.source), record)
            self._messages[record.key] = message
            self._ledger.reserve(message.account, record.size)
            self._expect_expiry(record)
            if record.state is IncomingState.RELEASING:
                self._released.append(message)
        self._expect_forgetting()

    def restart(self) -> None:
        """Hand over again all messages that may not have been before the start.

        Nothing is written before this call, since no event loop may be running then,
        but for what an operator decides: a parked message that he has released since
        the start is on its way already.
        """
        excess, self._excess = self._excess, []
        for memory in excess:
            self._forget(memory)
        released, self._released = self._released, []
        for message in released:
            self._feed(message, ReceiverInput.RESTART)

    def request(self, request: Request, *, trusted: bool, why: str = "") -> None:
        """Take a well-formed request; the port answers it once, in time."""
        # To release a held message needs no new token.
        token = "" if request.kind == "deliver" else self._new_token()
        key = receiver.key_of(request, token)
        message = self._messages.get(key)
        if message is None:
            account = bare(request.source)
            message = HeldMessage(key, account, self._tombstones.get(key))
        if len(message.inputs) + len(message.deferred) < _WAITING_MAX:
            self._feed(message, Arrival(request, trusted, why), token)
        else:
            self._refuse(request, _NO_ROOM)

    def turn_away(self, request: Request) -> None:
        """Refuse a request that cannot be decided now: its sender tries again."""
        self._refuse(request, _NO_ROOM)

    def _refuse(self, request: Request, answer: Answer) -> None:
        """Answer a request that does not reach its message."""
        self._recorder.refused(request, answer.condition)
        self._port.answer(request, answer)

    async def begin(self, key: str, redeliveries_max: int) -> bool:
        """Count that a loop begins to work on a message that it has in hand.

        Args:
            key: of the message.
            redeliveries_max: how often it may come again; the next time parks it.

        Returns:
            Whether the loop may work on it; False: it is parked.
        """
        message = self._messages.get(key)
        if message is None:
            return True
        message.written = None
        at = At(self._clock.now(), handovers_max=redeliveries_max)
        self._go_on(message, ReceiverInput.BEGIN, at)
        # As of now: an operator may release it while that is being written.
        record = message.record
        is_parked = record is not None and record.state is IncomingState.PARKED
        if message.written is not None:
            # An error is logged: the count on disk is behind then.
            await asyncio.wait([message.written])
        return not is_parked

    def parked(self) -> list[Incoming]:
        """The messages on which consumers or loops have failed too often."""
        records = [message.record for message in self._messages.values()]
        return [
            record
            for record in records
            if record and record.state is IncomingState.PARKED
        ]

    def release(self, key: str) -> None:
        """Hand a parked message over again.

        Raises:
            StoreError: a consumer calls this while its transaction is open; nothing
                changes.
        """
        self._decide(self._messages[key], ReceiverInput.RELEASE)

    def drop(self, key: str) -> None:
        """Give up a parked message.

        Raises:
            StoreError: as for release.
        """
        self._decide(self._messages[key], ReceiverInput.DROP)

    def stop(self) -> None:
        """Begin nothing more, for good; held messages stay in the store.

        Running writes, and messages that a handler has in hand, come to their end.
        Requests for these, and for messages that have ended, are answered, also those
        that come later: else their senders would not know that they have arrived before
        somebody receives again. Requests that wait for anything else are refused.
        """
        self._stopped = True
        self._expiry.stop()
        self._forgetting.stop()
        self._handover.stop()
        for message in list(self._messages.values()):
            if not message.busy and self._handover.is_waiting(message):
                self._turn_away(message.deferred)

    def leave(self) -> None:
        """Stop, and refuse all that waits, since no answer can be sent any more."""
        self.stop()
        for message in list(self._messages.values()):
            waiting = [
                input_ for input_ in message.inputs if isinstance(input_, Arrival)
            ]
            message.inputs.clear()
            self._turn_away(waiting)
            # A consumer may end before its store is closed.
            if not message.busy or message.consumption is None:
                self._turn_away(message.deferred)

    def _turn_away(self, arrivals: list[Arrival]) -> None:
        for arrival in arrivals:
            self._refuse(arrival.request, _STOPPED)
        arrivals.clear()

    def is_consuming(self) -> bool:
        """Whether a consumer's handler calls this: it cannot wait for `aclose`."""
        return self._handover.is_consuming()

    async def aclose(self) -> None:
        """Stop, and end the running handlers of consumers."""
        self.leave()
        await self._handover.aclose()
        self._closed = True

    def used(self, account: str | None = None) -> tuple[int, int]:
        """Messages and bytes counted for an account, or for all (None)."""
        return self._ledger.used(account)

    def _new_token(self) -> str:
        """A token that identifies one held message of this store, and no other."""
        return f"{self._store.store_id}.{self._port.new_id()}"

    # -- steps -------------------------------------------------------------

    def _feed(
        self, message: HeldMessage, input_: ReceiverInput | Arrival, token: str = ""
    ) -> None:
        """Take the input now, or when the present step is done."""
        if message.busy:
            if isinstance(input_, Arrival):
                input_ = message.as_it_waits(input_)
            message.inputs.append(input_)
        else:
            self._take(message, input_, token)
            if message.inputs:
                self._drain(message)

    def _decide(self, message: HeldMessage, decision: ReceiverInput) -> None:
        """Take an operator's decision.

        The operator gets no answer, except an error at once.
        """
        message.written = None
        self._feed(message, decision)
        if message.written is not None and message.written.done():
            message.written.result()

    def _drain(self, message: HeldMessage) -> None:
        while message.inputs and not message.busy:
            self._take(message, message.inputs.popleft(), self._new_token())

    def _take(
        self, message: HeldMessage, input_: ReceiverInput | Arrival, token: str
    ) -> None:
        if not isinstance(input_, Arrival):
            self._step(message, input_, At(self._clock.now()), None)
            return
        request = input_.request
        kind = _INPUTS[request.kind]
        is_written = self._limits.write_acknowledged and self._store.durable
        exceeded = None
        if kind is not ReceiverInput.DELIVER:  # which adds no message
            exceeded = self._ledger.refusal(message.account, request.size)
        at = At(
            self._clock.now(),
            token,
            input_.trusted,
            input_.why,
            exceeded,
            is_written,
        )
        if self._stopped and receiver.begins(message.record, kind, at, request):
            self._refuse(request, _STOPPED)
            return
        self._step(message, kind, at, input_)

    def _go_on(
        self,
        message: HeldMessage,
        input_: ReceiverInput,
        at: At,
        arrival: Arrival | None = None,
    ) -> None:
        """Continue after the end of a hand-over; see qos.engine.handover."""
        self._step(message, input_, at, arrival)
        if message.inputs:
            self._drain(message)

    def _step(
        self,
        message: HeldMessage,
        input_: ReceiverInput,
        at: At,
        arrival: Arrival | None,
    ) -> None:
        before = message.record
        request = arrival.request if arrival else None
        message.record, effects = receiver.step(before, input_, at, request)
        record = before if input_ in _TAKEN else message.record
        if arrival is None and input_ in _ENDS and message.record is not None:
            self.unasked.add(message.key)
        self._recorder.received(record, input_, effects, request)
        self._perform(message, before, effects, 0, arrival)

    def _perform(
        self,
        message: HeldMessage,
        before: Incoming | None,
        effects: tuple[Effect, ...],
        start: int,
        arrival: Arrival | None,
    ) -> None:
        """Perform the effects from `start` on, each when the one before is done."""
        message.busy = True
        self._messages[message.key] = message
        for index in range(start, len(effects)):
            effect = effects[index]
            if isinstance(effect, _WRITES):
                write = (message.transaction or self._store).write((effect,))
                message.transaction = None
                message.written = write
                if write is not None:
                    then = partial(
                        self._written, message, before, effects, index, arrival
                    )
                    if write.done():
                        then(write)  # it was refused; the caller learns it now
                    else:
                        write.add_done_callback(then)
                    return
            elif isinstance(effect, _HAND_OVERS):
                self._handover.begin(message, effect, arrival)
                return
            else:
                self._at_once(message, effect, arrival)
        message.busy = False
        self._settled(message, before)

    def _at_once(
        self, message: HeldMessage, effect: Effect, arrival: Arrival | None
    ) -> None:
        if isinstance(effect, Reserve):
            self._ledger.reserve(message.account, effect.record.size)
        elif isinstance(effect, Refund):
            self._ledger.refund(message.account, effect.record.size)
        elif isinstance(effect, Retry):
            self._handover.retry_at(message, effect.at)
        elif isinstance(effect, Answer):
            repeats = message.repeats() if effect.repeats else ()
            if arrival is not None:
                self._answer(message, effect, arrival.request)
            for repeat in repeats:
                self._port.answer(repeat.request, effect)
            if self.unasked.keys and (arrival is not None or repeats):
                self.unasked.discard(message.key)
        elif arrival is not None:
            if isinstance(effect, Report):
                self._port.report(arrival.request.source, effect)
            elif isinstance(effect, Defer):
                self._handover.defer(message, arrival)

    def _answer(self, message: HeldMessage, answer: Answer, request: Request) -> None:
        if answer.kind == "received":
            credit = self._ledger.credit(message.account, request.size)
            answer = replace(answer, credit=credit)
        self._port.answer(request, answer)

    def _written(
        self,
        message: HeldMessage,
        before: Incoming | None,
        effects: tuple[Effect, ...],
        index: int,
        arrival: Arrival | None,
        write: asyncio.Future[None],
    ) -> None:
        error = write.exception()
        if self._closed and message.consumption is None:
            return  # the store is closing; the next start continues from here
        if error is None:
            self._perform(message, before, effects, index + 1, arrival)
        else:
            self._not_written(message, before, effects, index, arrival, error)
        self._drain(message)

    def _not_written(
        self,
        message: HeldMessage,
        before: Incoming | None,
        effects: tuple[Effect, ...],
        index: int,
        arrival: Arrival | None,
        error: BaseException,
    ) -> None:
        """Go back to the state on disk; the peer gets an error, and may ask again.

        But a hand-over stays done: the disk is behind, and after a restart the message
        would be handed over again, with the mark. A rejection that is not on disk is
        not sent: the next hand-over may end in another way.
        """
        log.error("a message could not be written: %s", error)
        handed_over = before is not None and before.state is IncomingState.RELEASING
        record = message.record
        rejected = record is not None and record.state is IncomingState.REJECTED
        if rejected:
            self._handover.hand_over_later(message, arrival)
        if rejected or self._handover.not_written(message, arrival):
            if before is not None:
                self._recorder.released(before)
            message.record = before
        elif not handed_over:
            self._recorder.not_kept(before, message.record)
            if arrival is not None:
                self._recorder.refused(arrival.request, "resource-constraint")
            message.record = before
            for effect in effects:
                if isinstance(effect, Reserve):
                    self._at_once(message, Refund(effect.record), arrival)
                elif isinstance(effect, Refund):
                    self._at_once(message, Reserve(effect.record), arrival)
                    again_at = self._clock.now() + _EXPIRE_AGAIN_S
                    self._expiry.set(message.key, again_at)
            self._at_once(message, _NO_ROOM, arrival)
        elif any(isinstance(effect, Answer) for effect in effects[index:]):
            # No handler has taken it, and yet it may be handed over after a restart.
            self._at_once(message, receiver.UNSURE, arrival)
        message.busy = False
        self._settled(message, before)

    def _settled(self, message: HeldMessage, before: Incoming | None) -> None:
        """Keep the message where it belongs, since its record and the disk agree."""
        record = message.record
        state = record.state if record else IncomingState.ABSENT
        if message.deferred and state is not IncomingState.RELEASING:
            message.inputs.extendleft(reversed(message.deferred))
            message.deferred.clear()
        if before is not None and record is not before:
            self._tombstones.discard(before)
        if state is not IncomingState.RELEASING:
            self._handover.leave(message)
        if record is None or state.ended:
            self._expiry.clear(message.key)
            if not message.inputs:
                del self._messages[message.key]
            if record is not None and record is not before:
                self._remember(record)
        elif record is not before:
            self._expect_expiry(record)

    # -- time --------------------------------------------------------------

    def _expect_expiry(self, record: Incoming) -> None:
        if record.state is IncomingState.HELD:
            expires_at = record.received_at + self._limits.hold_ttl_s
            self._expiry.set(record.key, expires_at)

    def _expire(self, key: str) -> None:
        message = self._messages.get(key)
        if message is not None:
            self._feed(message, ReceiverInput.EXPIRE)

    def _remember(self, record: Incoming) -> None:
        for evicted in self._tombstones.add(record):
            self._forget(evicted)
        self._expect_forgetting()

    def _forget_old(self, _key: None) -> None:
        for record in self._tombstones.outlived(self._clock.now()):
            self._forget(record)
        self._expect_forgetting()

    def _expect_forgetting(self) -> None:
        next_at = self._tombstones.next_at()
        if next_at is not None:
            self._forgetting.set(None, next_at)

    def _forget(self, record: Incoming) -> None:
        self.unasked.discard(record.key)
        message = self._messages.get(record.key)
        if message is None:
            message = HeldMessage(record.key, bare(record.source), record)
            self._feed(message, ReceiverInput.FORGET)
