"""Takes messages from the application and brings each to its end.

Only messages in flight are in memory: at most a window of them for each account. Queued
messages wait in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial

from qos.core.backoff import Backoff
from qos.core.message import sender as core
from qos.core.message.effects import Save
from qos.core.message.model import Ended, Level, Outgoing
from qos.core.message.sender_table import SenderInput
from qos.core.quota import CREDIT_MAX
from qos.engine.account_room import AccountRoom
from qos.engine.clock import Clock, Timers
from qos.engine.delivery import Deliveries, Delivery, Outcome
from qos.engine.in_flight import InFlight
from qos.engine.outbox_message import AccountFlow, Message, Port, Stanzas
from qos.engine.outstanding import Outstanding
from qos.engine.stored_messages import Backlog, KeptOutcomes
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
from qos.stores.base import Contents, Store
from qos.xml_text import same_message

__all__ = ["Outbox", "OutboxLimits", "Port"]

#: The number of queued messages that their deadline ends at a time, before others have
#: a turn.
_EXPIRE_CHUNK = 100

#: The pause after such a chunk, in seconds: others have a turn even if no write waits
#: for the disk.
_EXPIRE_PAUSE_S = 0.001

#: The number of messages that a purge withdraws at a time: one or two commits.
_PURGE_CHUNK = 256


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """The limits for outstanding messages, and for those in flight.

    Attributes:
        messages: the most messages in the outbox.
        bytes: the most bytes of payload in the outbox.
        window: the most messages in flight to one account. By default as many as a
            receiver of ours grants at most.
        outcomes: the number of messages, of those accepted last, whose outcomes are
            kept; 0: none.
        outcome_ttl_s: how long outcomes are kept.
    """

    messages: int = 1_000_000
    bytes: int = 1024 * 1024 * 1024
    window: int = CREDIT_MAX
    outcomes: int = 10_000
    outcome_ttl_s: float = 24 * 3600.0


class Outbox:
    """The messages that an endpoint sends at level acknowledged or assured.

    Attributes:
        in_flight: the messages in flight: takes what a peer answers, and what is heard
            of it.
    """

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
        stanzas: Stanzas | None = None,
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
        self._room = AccountRoom(contents, messages=limits.messages, size=limits.bytes)
        self._backlog = Backlog(store, contents.queued)
        self._deliveries = Deliveries(self, durable=store.durable)
        self.keep = self._deliveries.keep
        self.in_flight = InFlight(
            store,
            port,
            clock=clock,
            backoff=backoff,
            window=limits.window,
            remember=limits.outcomes > 0,
            on_leave=self._left,
            more=self._pump,
            recorder=self._recorder,
            stanzas=stanzas or Stanzas(),
        )
        # The queued messages, by seq, that are being ended by their deadline.
        self._expiring: set[int] = set()
        self._queue_timer: Timers[None] = Timers(clock, self._expire_queued)
        self._outcomes = KeptOutcomes(
            store,
            clock,
            messages=limits.outcomes,
            ttl_s=limits.outcome_ttl_s,
            next_seq=lambda: self._next_seq,
        )
        self._resume(contents)

    def _resume(self, contents: Contents) -> None:
        """Go on with the messages of earlier processes."""
        now = self._clock.now()
        for record in contents.outgoing:
            self.in_flight.resume(core.resumed(record, now))
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
        account: str = "",
        digest: str = "",
    ) -> Delivery:
        """Accept a message; it is as safe as the store when this returns.

        A cancelled caller does not know whether the message was accepted. If it gave a
        msg_id, it can submit the message again until it has ended: it is accepted once.

        Raises:
            OutboxFull: nothing was accepted.
            StoreError: nothing was accepted. Unless it is StoreFull, the message may
                still be on disk. This process does not send it, but a process that
                opens the store again may, once. So submit it again under the same msg_id:
                it is written anew, sent when that is on disk, and still one message.
            LocalProtocolError: another message has this id.
        """
        self._check_running()
        if msg_id is not None:
            delivery = await self._submitted_before(msg_id, to, payload)
            if delivery is not None:
                return delivery
        size = len(payload.encode())
        if self._count >= self._limits.messages:
            raise OutboxFull(unit="messages", limit=self._limits.messages)
        if self._bytes + size > self._limits.bytes:
            raise OutboxFull(unit="bytes", limit=self._limits.bytes)
        if account:
            self._room.check(account, size)
        now = self._clock.now()
        msg_id = msg_id or self._port.new_msg_id()
        # At level acknowledged there is no msgId on the wire. One id serves for both,
        # so that the journals of both ends have the same id for the message.
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
            account=account,
            digest=digest,
            offer_id=msg_id if acknowledged else self._port.new_id(),
            deliver_id=self._port.new_id(),
            due_at=now,
        )
        self._next_seq += 1
        delivery = self._deliveries.begin(record)
        self._accept(record)
        await self._deliveries.until_accepted(msg_id)
        return delivery

    def _check_running(self) -> None:
        if self._stopped:
            raise StoreError(self._store.url, "is not open any more")

    async def _submitted_before(
        self, msg_id: str, to: str, payload: str
    ) -> Delivery | None:
        """The delivery of a message that is outstanding under this id; see submit.

        None: there is none. If one is ending, its end is awaited first.
        """
        while (ending := self._ending(msg_id)) is not None:
            with contextlib.suppress(StillOutstanding):  # and not this message
                await ending.outcome()
            self._check_running()
        record = self._outstanding(msg_id)
        if record is None:
            return None
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
            UnknownMessage: there is no such message.
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
        message = self.in_flight.get(msg_id)
        record = message.record if message else self._store.find_outgoing(msg_id)
        return None if record is None or record.state.ended else record

    def _ending(self, msg_id: str) -> Delivery | None:
        """The delivery of a message whose end is being written, or None."""
        message = self.in_flight.get(msg_id)
        if message is None or not message.record.state.ended:
            return None
        return self._deliveries.of(message.record)

    async def outcome(self, msg_id: str) -> Outcome:
        """The outcome of a message; waits for it if the message has not ended.

        Raises:
            UnknownMessage: there is no such message, or its outcome is not kept any
                more.
            StillOutstanding: the plugin was closed before the end.
        """
        try:
            delivery = self._ending(msg_id) or self.delivery(msg_id)
        except UnknownMessage:
            end = self._outcomes.last(msg_id)
            if end is None:
                raise
            return Outcome.of(end, end.ended_at - end.created_at)
        return await delivery.outcome()

    def find(self, msg_id: str) -> Outgoing | Ended | None:
        """A message that was accepted with a digest, or its end, as far as it is kept."""
        if self._deliveries.accepting(msg_id) is not None:
            return None  # it may still fail
        record = self._outstanding(msg_id)
        if record is not None:
            return record if record.digest else None
        message = self.in_flight.get(msg_id)
        if message is not None and message.record.digest:
            return message.record  # its end is being written
        return self._outcomes.find(msg_id)

    async def withdraw(self, msg_id: str) -> None:
        """See Delivery.withdraw."""
        await self._deliveries.until_accepted(msg_id)
        self._check_running()
        message = self.in_flight.get(msg_id)
        if message is None:
            record = self._store.find_outgoing(msg_id)
            if record is None:
                raise UnknownMessage(msg_id)
            message = self._unqueue(record)
        if message.withdrawn is None:
            message.withdrawn = asyncio.get_running_loop().create_future()
            waiting = message.withdrawn
            self.in_flight.feed(message, SenderInput.WITHDRAW)
        else:
            waiting = message.withdrawn
        await asyncio.shield(waiting)

    async def purge(self) -> int:
        """Withdraw every message for which it is still possible; returns their number.

        Messages that may have been handed over continue, as for withdraw.
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
        """The number of messages that have not ended."""
        return self._count

    def list_outstanding(self) -> Outstanding:
        """The messages that have not ended.

        One that is being accepted is only counted.
        """
        return Outstanding(lambda: self._count, self._outstanding_records)

    def _outstanding_records(self) -> Iterator[Outgoing]:
        for record in self._store.outgoing():
            message = self.in_flight.get(record.msg_id)
            present = message.record if message else record
            if not present.state.ended:
                yield present

    # -- the connection ----------------------------------------------------

    def session_started(self, own: str) -> None:
        """Take the start of a session under this full JID.

        All messages are due again.
        """
        self.in_flight.session_started(own)
        self._pump_all()

    def session_resumed(self, own: str, lost: Collection[str]) -> None:
        """Take the resumption of the session; see InFlight.session_resumed."""
        self.in_flight.session_resumed(own, lost)
        self._pump_all()

    def _pump_all(self) -> None:
        for flow in self._backlog.flows:
            self._pump(self.in_flight.flow(flow))

    def session_lost(self) -> None:
        """Attempt nothing until there is a session. Deadlines still count."""
        self.in_flight.own = None

    def stop(self) -> None:
        """Do nothing more, for good; outstanding messages stay in the store.

        Those who wait for an end get StillOutstanding. The acceptance of a message that
        is being written still succeeds or fails.
        """
        self._stopped = True
        self.in_flight.stop()
        self._deliveries.stop()
        self._queue_timer.stop()
        self._outcomes.stop()

    # -- from acceptance to the first attempt ------------------------------

    def _accept(self, record: Outgoing) -> None:
        """Put a new message in flight, or into the queue if it has to wait."""
        self._count += 1
        self._bytes += record.size
        if record.account:
            self._room.add(record)
        flow = self.in_flight.flow(record.flow)
        if self._backlog.waiting(flow.name) or not flow.admits(record):
            self._backlog.add(flow.name)
            self._recorder.accepted(record)
            write = self._store.write((Save(record),))
            if write is None:
                self._queued(record, None)
            else:
                write.add_done_callback(partial(self._queued, record))
            return
        self._backlog.passed(flow.name, record.seq)
        message = Message(record, flow)
        message.accepted = partial(self._deliveries.decided, record)
        self.in_flight.start(message)

    def _queued(self, record: Outgoing, write: asyncio.Future[None] | None) -> None:
        error = write.exception() if write is not None else None
        if error is not None:
            self._recorder.not_accepted(record)
            self._backlog.remove(record.flow)
            self._uncount(record)
            self._deliveries.decided(record, error)
            return
        self._deliveries.decided(record, None)
        self._deliveries.queued(record)
        if self._stopped:
            return
        if record.expires_at is not None:
            self._expect_expiry(0.0)
        self._pump(self.in_flight.flow(record.flow))

    def _pump(self, flow: AccountFlow) -> None:
        """Take queued messages into the window while there is room."""
        in_flight, waiting = self.in_flight, self._backlog.waiting
        now = self._clock.now()
        while in_flight.own is not None and flow.room and waiting(flow.name):
            record = self._backlog.head(flow.name)
            if record is None or not flow.admits(record):
                return
            if core.overdue(record, now):
                return  # it ends with all expiring ones; then the next has its turn
            self._backlog.take(record)
            message = Message(core.clamped(record, now), flow)
            in_flight.begin(message)
            in_flight.attempt(message)

    def _unqueue(self, record: Outgoing) -> Message:
        """Take a message out of the queue before its turn, to end it."""
        self._backlog.discard(record)
        message = Message(record, self.in_flight.flow(record.flow))
        message.unqueued = True
        self.in_flight.begin(message)
        return message

    def _expire_queued(self, _key: None) -> None:
        """End overdue messages, a chunk at a time.

        The next chunk after this one has ended.
        """
        now = self._clock.now()
        # The messages being ended are still in the store: look again when they are
        # gone, and in any case later, in case something keeps them.
        self._expect_expiry(now + self._backoff.first_s)
        overdue = self._store.expiring(now, limit=_EXPIRE_CHUNK)
        # Messages in flight reach their deadline by themselves.
        self._expiring = {record.seq for record in overdue}
        for record in overdue:
            if self.in_flight.get(record.msg_id) is None:
                self.in_flight.feed(self._unqueue(record), SenderInput.DEADLINE)

    def _expect_expiry(self, earliest: float) -> None:
        expiry = self._store.next_expiry()
        if expiry is not None:
            self._queue_timer.set(None, max(expiry, earliest))

    def _left(self, message: Message) -> None:
        """Begin the next message after one has ended or was not accepted."""
        record, flow = message.record, message.flow
        if message.unqueued and not record.state.ended:
            self._backlog.put_back(record)
            self._pump(flow)
            return
        self._uncount(record)
        if record.state.ended:
            self._backlog.ended(record)
            self._deliveries.settle(record, self._clock.now() - record.created_at)
        self._outcomes.add()
        if record.seq in self._expiring:
            self._expiring.remove(record.seq)
            if not self._expiring:
                self._expect_expiry(self._clock.now() + _EXPIRE_PAUSE_S)
        if self._backlog.waiting(flow.name):
            self._pump(flow)
        elif not flow.messages:
            self._backlog.forget(flow.name)

    def _uncount(self, record: Outgoing) -> None:
        self._count -= 1
        self._bytes -= record.size
        if record.account:
            self._room.add(record, -1)
