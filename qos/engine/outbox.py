"""Takes messages from the application and brings each to its end.

Memory holds the messages under way and no others: at most a window for each
account that is sent to. What is queued waits in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from qos.core.backoff import Backoff
from qos.core.message import sender as core
from qos.core.message.effects import Save
from qos.core.message.model import Level, Outgoing
from qos.core.message.sender import Reply, SenderInput
from qos.engine.backlog import Backlog
from qos.engine.clock import Clock, Timers
from qos.engine.deliveries import Deliveries
from qos.engine.delivery import Delivery, Outcome
from qos.engine.in_flight import InFlight, Message, Port
from qos.engine.outstanding import Outstanding
from qos.errors import (
    CannotWithdraw,
    LocalProtocolError,
    OutboxFull,
    StillOutstanding,
    StoreError,
    UnknownMessage,
)
from qos.journal.recorder import recorder_of
from qos.journal.writer import JournalWriter
from qos.stores.base import Contents, ForgetEnded, Store
from qos.xml_text import same_message

__all__ = ["Outbox", "OutboxLimits", "Port"]

#: Queued messages ended by their deadline at a time, before anything else gets a turn.
_EXPIRE_CHUNK = 100

#: And then the others have theirs, also if nothing waits for a disk.
_EXPIRE_PAUSE_S = 0.001

#: How often it is looked for outcomes that are not to be kept any more; and at the
#: latest after so many messages, or a quarter more than are to be kept.
_FORGET_EVERY_S = 600.0
_KEPT_MIN = 256

#: Messages withdrawn at a time by a purge: one commit or two.
_PURGE_CHUNK = 256


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """The limits on messages outstanding, and on those in flight.

    Attributes:
        messages: in the outbox.
        bytes: of payload in the outbox.
        window: messages under way to one account, at most.
        outcomes: of how many messages, of those accepted last, it is kept how they
            have ended; 0: of none.
        outcome_ttl_s: how long that is kept.
    """

    messages: int = 1_000_000
    bytes: int = 1024 * 1024 * 1024
    window: int = 1_000
    outcomes: int = 10_000
    outcome_ttl_s: float = 24 * 3600.0


class Outbox:
    """Everything that an endpoint sends at level acknowledged or assured."""

    def __init__(
        self,
        store: Store,
        contents: Contents,
        port: Port,
        *,
        clock: Clock,
        backoff: Backoff,
        limits: OutboxLimits,
        journal: JournalWriter | None = None,
    ) -> None:
        self._recorder = recorder_of(journal)
        self._store = store
        self._port = port
        self._clock = clock
        self._backoff = backoff
        self._limits = limits
        self._stopped = False
        self._next_seq = contents.next_seq
        self._count = contents.outbox_messages
        self._bytes = contents.outbox_bytes
        self._backlog = Backlog(store, contents.queued)
        self._deliveries = Deliveries(self, durable=store.durable)
        self._in_flight = InFlight(
            store,
            port,
            clock=clock,
            backoff=backoff,
            window=limits.window,
            remember=limits.outcomes > 0,
            left=self._left,
            more=self._pump,
            recorder=self._recorder,
        )
        # Those of the queued messages, by seq, that are just ended by their deadline.
        self._expiring: set[int] = set()
        self._queue_timer: Timers[None] = Timers(clock, self._expire_queued)
        self._forgetting: Timers[None] = Timers(clock, self._forget_ended)
        # With the first that ends goes what former lives have left: it may be that none
        # of them was long enough.
        self._kept = self._kept_max = max(_KEPT_MIN, limits.outcomes // 4)
        for record in contents.outgoing:
            self._in_flight.begin(Message(core.resumed(record, clock.now())))
        self._expect_expiry(0.0)

    # -- the application ---------------------------------------------------

    async def submit(
        self,
        to: str,
        payload: str,
        *,
        level: Level,
        deadline_s: float | None = None,
        ordered: bool = False,
        sender: str = "",
        msg_id: str | None = None,
    ) -> Delivery:
        """Accept a message; it is as safe as the store when this returns.

        A caller that is cancelled meanwhile does not know whether it was. With a
        msg_id of his own he can say it again, until the message has ended: it is
        accepted once.

        Raises:
            OutboxFull: nothing was accepted.
            StoreError: nothing was accepted. Unless it is StoreFull the message may still
                be on disk: this process does not send it, but one that opens the store
                again may, once. Submitted again under the same msg_id, it is had once.
            LocalProtocolError: another message has this id.
        """
        self._check_running()
        if msg_id is not None:
            while (ending := self._ending(msg_id)) is not None:
                with contextlib.suppress(StillOutstanding):  # and not this one
                    await ending.outcome()
                self._check_running()
            outstanding = self._outstanding(msg_id)
            if outstanding is not None:
                return await self._said_again(outstanding, to, payload)
        size = len(payload.encode())
        if self._count >= self._limits.messages:
            raise OutboxFull(unit="messages", limit=self._limits.messages)
        if self._bytes + size > self._limits.bytes:
            raise OutboxFull(unit="bytes", limit=self._limits.bytes)
        now = self._clock.now()
        msg_id = msg_id or self._port.new_msg_id()
        # At level acknowledged there is no msgId on the wire: one id for both, so that
        # the journals of the two ends name the message alike.
        acknowledged = level is Level.ACKNOWLEDGED
        record = Outgoing(
            msg_id=msg_id,
            seq=self._next_seq,
            to=to,
            level=level,
            payload=payload,
            size=size,
            created_at=now,
            expires_at=None if deadline_s is None else now + deadline_s,
            ordered=ordered,
            sender=sender,
            offer_id=msg_id if acknowledged else self._port.new_id(),
            deliver_id=self._port.new_id(),
            due_at=now,
        )
        self._next_seq += 1
        delivery = self._deliveries.new(record)
        await asyncio.shield(self._accept(record))
        return delivery

    def _check_running(self) -> None:
        if self._stopped:
            raise StoreError(self._store.url, "is not open any more")

    async def _said_again(self, record: Outgoing, to: str, payload: str) -> Delivery:
        """See submit: there is a message with this id that has not ended."""
        if record.to != to or not same_message(record.payload, payload):
            raise LocalProtocolError(
                f"{record.msg_id!r} is the id of another message, which has not ended"
            )
        delivery = self._deliveries.of(record)
        await self._deliveries.until_accepted(record.msg_id)
        return delivery

    def delivery(self, msg_id: str) -> Delivery:
        """The delivery of a message that was accepted earlier and has not ended.

        Raises:
            UnknownMessage: there is none with this id.
        """
        delivery = self._deliveries.find(msg_id)
        if delivery is not None:
            return delivery
        record = self._outstanding(msg_id)
        if record is None:
            raise UnknownMessage(msg_id)
        return self._deliveries.new(record)

    def _outstanding(self, msg_id: str) -> Outgoing | None:
        accepting = self._deliveries.accepting(msg_id)
        if accepting is not None:
            return accepting
        message = self._in_flight.get(msg_id)
        record = message.record if message else self._store.find_outgoing(msg_id)
        return None if record is None or record.state.ended else record

    def _ending(self, msg_id: str) -> Delivery | None:
        """The delivery of a message whose end is being written; None: there is none."""
        message = self._in_flight.get(msg_id)
        if message is None or not message.record.state.ended:
            return None
        return self._deliveries.of(message.record)

    async def outcome(self, msg_id: str) -> Outcome:
        """How a message has ended; if it has not, wait until it has.

        Raises:
            UnknownMessage: there is none with this id, or it is not kept any more.
            StillOutstanding: the plugin was closed before.
        """
        try:
            delivery = self._ending(msg_id) or self.delivery(msg_id)
        except UnknownMessage:
            since = self._clock.now() - self._limits.outcome_ttl_s
            kept = [e for e in self._store.ended(msg_id) if e.ended_at > since]
            if not kept:
                raise
            # Of those that had this id the one accepted last.
            ended = kept[-1]
            return Outcome.of(ended, ended.ended_at - ended.created_at)
        return await delivery.outcome()

    async def withdraw(self, msg_id: str) -> None:
        """See Delivery.withdraw."""
        await self._deliveries.until_accepted(msg_id)
        self._check_running()
        message = self._in_flight.get(msg_id)
        if message is None:
            record = self._store.find_outgoing(msg_id)
            if record is None:
                raise UnknownMessage(msg_id)
            message = self._unqueue(record)
        if message.withdrawn is None:
            message.withdrawn = asyncio.get_running_loop().create_future()
            waiting = message.withdrawn
            self._in_flight.feed(message, SenderInput.WITHDRAW)
        else:
            waiting = message.withdrawn
        await asyncio.shield(waiting)

    async def purge(self) -> int:
        """Withdraw every message that can still be; returns how many were.

        What may have been handed over goes on, as it does for withdraw.
        """
        ids = [record.msg_id for record in self._store.outgoing()]
        withdrawn = 0
        for start in range(0, len(ids), _PURGE_CHUNK):
            chunk = ids[start : start + _PURGE_CHUNK]
            results = await asyncio.gather(
                *map(self.withdraw, chunk), return_exceptions=True
            )
            for result in results:
                if result is None:
                    withdrawn += 1
                elif not isinstance(result, CannotWithdraw | UnknownMessage):
                    raise result
        return withdrawn

    @property
    def outstanding(self) -> int:
        """How many messages have not ended."""
        return self._count

    def list_outstanding(self) -> Outstanding:
        """The messages that have not ended; one that is being accepted is only counted."""
        return Outstanding(lambda: self._count, self._outstanding_records)

    def _outstanding_records(self) -> Iterator[Outgoing]:
        for record in self._store.outgoing():
            message = self._in_flight.get(record.msg_id)
            present = message.record if message else record
            if not present.state.ended:
                yield present

    # -- the connection ----------------------------------------------------

    def session_started(self, own: str) -> None:
        """There is a session under this full JID: everything is due again."""
        self._in_flight.session_started(own)
        for flow in self._backlog.flows:
            self._pump(flow)

    def session_lost(self) -> None:
        """Nothing is attempted until there is a session. Deadlines go on."""
        self._in_flight.own = None

    def awaits(self, iq_id: str) -> bool:
        """Whether a message under way has this iq id."""
        return self._in_flight.awaits(iq_id)

    def reply(self, reply: Reply) -> None:
        """Take an iq result or error; one that is not awaited is ignored."""
        self._in_flight.reply(reply)

    def route_found(self, flow: str) -> None:
        """It may now be known whom to address the messages of a flow to."""
        self._in_flight.route_found(flow)

    def peer_came(self, flow: str) -> None:
        """The account has become available: what waits for it is due soon."""
        self._in_flight.peer_came(flow)

    def stop(self) -> None:
        """Do nothing more, for good; what is outstanding stays in the store.

        Whoever waits for an end is told so; what is being accepted still is, or not.
        """
        self._stopped = True
        self._in_flight.stop()
        self._deliveries.stop()
        self._queue_timer.stop()
        self._forgetting.stop()

    # -- from acceptance to the first attempt ------------------------------

    def keep(self, delivery: Delivery) -> None:
        """Somebody waits for its end: it must not go before, and they with it."""
        self._deliveries.keep(delivery)

    def _accept(self, record: Outgoing) -> asyncio.Future[None]:
        """Put a new message under way, or into the queue when it has to wait."""
        self._count += 1
        self._bytes += record.size
        accepted = self._deliveries.begin(record)
        flow = record.flow
        admitted = self._in_flight.flow(flow).admits(record)
        if self._backlog.waiting(flow) or not admitted:
            self._backlog.add(flow)
            self._recorder.accepted(record)
            written = self._store.write((Save(record),))
            if written is None:
                self._queued(record, None)
            else:
                written.add_done_callback(partial(self._queued, record))
            return accepted
        self._backlog.passed(record)
        message = Message(record)
        message.accepted = partial(self._deliveries.decided, record)
        self._in_flight.start(message)
        return accepted

    def _queued(self, record: Outgoing, written: asyncio.Future[None] | None) -> None:
        error = written.exception() if written is not None else None
        if error is not None:
            self._recorder.not_accepted(record)
            self._backlog.remove(record.flow)
            self._uncount(record)
            self._deliveries.decided(record, error)
            return
        self._deliveries.decided(record, None)
        if self._stopped:
            return
        if record.expires_at is not None:
            self._expect_expiry(0.0)
        self._pump(record.flow)

    def _pump(self, flow: str) -> None:
        """Take queued messages into the window while there is room."""
        in_flight = self._in_flight
        state = in_flight.flow(flow)
        now = self._clock.now()
        while in_flight.own is not None and state.room and self._backlog.waiting(flow):
            record = self._backlog.head(flow)
            if record is None or not state.admits(record):
                return
            if core.overdue(record, now):
                return  # it ends with all that are, and then the next has its turn
            self._backlog.take(record)
            message = Message(core.clamped(record, now))
            in_flight.begin(message)
            in_flight.attempt(message)

    def _unqueue(self, record: Outgoing) -> Message:
        """Take a message out of the queue although it is not its turn, to end it."""
        self._backlog.discard(record)
        message = Message(record)
        message.unqueued = True
        self._in_flight.begin(message)
        return message

    def _expire_queued(self, _key: None) -> None:
        """End what is overdue, a chunk at a time; the next when this one has ended."""
        now = self._clock.now()
        # What is being ended is still there: look again when it has gone; and in any
        # case later, should something keep it.
        self._expect_expiry(now + self._backoff.first_s)
        overdue = self._store.expiring(now, limit=_EXPIRE_CHUNK)
        # Those that are under way come to their deadline by themselves.
        self._expiring = {record.seq for record in overdue}
        for record in overdue:
            if self._in_flight.get(record.msg_id) is None:
                self._in_flight.feed(self._unqueue(record), SenderInput.DEADLINE)

    def _expect_expiry(self, earliest: float) -> None:
        expiry = self._store.next_expiry()
        if expiry is not None:
            self._queue_timer.set(None, max(expiry, earliest))

    def _left(self, message: Message) -> None:
        """A message has ended, or was not accepted: the next one may begin."""
        record = message.record
        if message.unqueued and not record.state.ended:
            self._backlog.put_back(record)
            self._pump(record.flow)
            return
        self._uncount(record)
        self._backlog.left(record)
        if record.state.ended:
            self._deliveries.settle(record, self._clock.now() - record.created_at)
        self._expect_forgetting()
        if record.seq in self._expiring:
            self._expiring.remove(record.seq)
            if not self._expiring:
                self._expect_expiry(self._clock.now() + _EXPIRE_PAUSE_S)
        idle = not self._in_flight.flow(record.flow).in_flight
        if idle and not self._backlog.waiting(record.flow):
            self._backlog.forget(record.flow)
        self._pump(record.flow)

    def _expect_forgetting(self) -> None:
        """One more has ended: what is too old, or too much, goes with others."""
        self._kept += 1
        if self._kept > self._kept_max:
            self._forget_ended(None)
            self._kept = 1
        if self._kept == 1:
            self._forgetting.set(None, self._clock.now() + _FORGET_EVERY_S)

    def _forget_ended(self, _key: None) -> None:
        """Keep no more outcomes than wanted, and none for longer."""
        self._kept = 0
        self._forgetting.clear(None)
        if self._stopped:
            return
        limits = self._limits
        before = self._clock.now() - limits.outcome_ttl_s
        below = self._next_seq - limits.outcomes
        written = self._store.write((ForgetEnded(before=before, below=below),))
        if written is not None:
            # It is tried again with the next.
            written.add_done_callback(lambda done: done.exception())

    def _uncount(self, record: Outgoing) -> None:
        self._count -= 1
        self._bytes -= record.size
