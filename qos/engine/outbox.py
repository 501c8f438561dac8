"""Takes messages from the application and brings each to its end.

Memory holds the messages under way and no others: at most a window for each
account that is sent to. What is queued waits in the store.
"""

from __future__ import annotations

import asyncio
import logging
import math
import weakref
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from qos.core import sender
from qos.core.backoff import Backoff
from qos.core.effects import Effect, Forget, Save, Transmit
from qos.core.flow import Flow
from qos.core.model import Level, Outgoing, OutgoingState, Route
from qos.core.sender import Reply, SenderInput
from qos.engine.backlog import Backlog
from qos.engine.clock import Clock, Timers
from qos.engine.delivery import Delivery, Outcome
from qos.errors import CannotWithdraw, OutboxFull, UnknownMessage
from qos.stores.base import Contents, Store

__all__ = ["Outbox", "OutboxLimits", "Port"]

log = logging.getLogger(__name__)

#: Messages ended by their deadline before anything else gets a turn.
_EXPIRE_CHUNK = 100


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """How much may be outstanding, and how much of it under way.

    Attributes:
        messages: in the outbox.
        bytes: of payload in the outbox.
        window: messages under way to one account, at most.
    """

    messages: int = 1_000_000
    bytes: int = 1024 * 1024 * 1024
    window: int = 256


class Port(Protocol):
    """What the outbox asks of the connection."""

    def route(self, record: Outgoing) -> Route | None:
        """Whom to address an attempt to, by what is known now.

        None: nobody yet. The port calls Outbox.route_found when that changes.
        """

    def transmit(self, transmit: Transmit) -> None:
        """Send the iq. The port drops it when there is no session."""

    def new_id(self) -> str:
        """128 random bits as text, never given before."""

    def jitter(self) -> float:
        """A random number in [0, 1)."""


class _Message:
    """A message under way, and what has still to be done about it."""

    __slots__ = ("accepted", "busy", "inputs", "no_route", "record", "withdrawn")

    def __init__(self, record: Outgoing) -> None:
        self.record = record
        #: Effects are being performed: what happens meanwhile waits in inputs.
        self.busy = False
        self.inputs: deque[SenderInput | Reply] = deque()
        #: There was nobody to address the last attempt to.
        self.no_route = False
        self.accepted: asyncio.Future[None] | None = None
        self.withdrawn: asyncio.Future[None] | None = None


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
    ) -> None:
        self._store = store
        self._port = port
        self._clock = clock
        self._backoff = backoff
        self._limits = limits
        self._own: str | None = None
        self._stopped = False
        self._next_seq = contents.next_seq
        self._count = contents.outbox_messages
        self._bytes = contents.outbox_bytes
        self._backlog = Backlog(store, contents.queued)
        self._flows: dict[str, Flow] = {}
        self._messages: dict[str, _Message] = {}
        self._by_iq: dict[str, _Message] = {}
        self._by_flow: dict[str, dict[str, _Message]] = {}
        self._deliveries: weakref.WeakValueDictionary[str, Delivery] = (
            weakref.WeakValueDictionary()
        )
        self._timers: Timers[str] = Timers(clock, self._due)
        self._queue_timer: Timers[None] = Timers(clock, self._expire_queued)
        for record in contents.outgoing:
            self._begin(_Message(sender.resumed(record)))
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
    ) -> Delivery:
        """Accept a message; it is as safe as the store when this returns.

        A caller that is cancelled meanwhile does not know whether it was.

        Raises:
            OutboxFull: nothing was accepted.
            StoreError: nothing was accepted.
        """
        size = len(payload.encode())
        if self._count >= self._limits.messages:
            raise OutboxFull(unit="messages", limit=self._limits.messages)
        if self._bytes + size > self._limits.bytes:
            raise OutboxFull(unit="bytes", limit=self._limits.bytes)
        now = self._clock.now()
        record = Outgoing(
            msg_id=self._port.new_id(),
            seq=self._next_seq,
            to=to,
            level=level,
            payload=payload,
            size=size,
            created_at=now,
            expires_at=None if deadline_s is None else now + deadline_s,
            ordered=ordered,
            sender=sender,
            offer_id=self._port.new_id(),
            deliver_id=self._port.new_id(),
            due_at=now,
        )
        self._next_seq += 1
        delivery = self._deliver_later(record)
        await asyncio.shield(self._accept(record))
        return delivery

    def delivery(self, msg_id: str) -> Delivery:
        """The delivery of a message that was accepted earlier and has not ended.

        Raises:
            UnknownMessage: there is none with this id.
        """
        delivery = self._deliveries.get(msg_id)
        if delivery is not None and not delivery.ended:
            return delivery
        message = self._messages.get(msg_id)
        record = message.record if message else self._store.find_outgoing(msg_id)
        if record is None or record.state.ended:
            raise UnknownMessage(msg_id)
        return self._deliver_later(record)

    async def withdraw(self, msg_id: str) -> None:
        """See Delivery.withdraw."""
        message = self._messages.get(msg_id)
        if message is None:
            record = self._store.find_outgoing(msg_id)
            if record is None:
                raise UnknownMessage(msg_id)
            message = self._unqueue(record)
        if message.withdrawn is None:
            message.withdrawn = asyncio.get_running_loop().create_future()
            waiting = message.withdrawn
            self._feed(message, SenderInput.WITHDRAW)
        else:
            waiting = message.withdrawn
        await asyncio.shield(waiting)

    @property
    def outstanding(self) -> int:
        """How many messages have not ended."""
        return self._count

    # -- the connection ----------------------------------------------------

    def session_started(self, own: str) -> None:
        """There is a session under this full JID: everything is due again."""
        self._own = own
        for message in list(self._messages.values()):
            if message.no_route:
                self._attempt(message)
            else:
                self._feed(message, sender.on_session(message.record, own=own))
        for flow in self._backlog.flows:
            self._pump(flow)

    def session_lost(self) -> None:
        """Nothing is attempted until there is a session. Deadlines go on."""
        self._own = None

    def awaits(self, iq_id: str) -> bool:
        """Whether a message under way has this iq id."""
        return iq_id in self._by_iq

    def reply(self, reply: Reply) -> None:
        """Take an iq result or error; one that is not awaited is ignored."""
        message = self._by_iq.get(reply.iq_id)
        if message is not None and not self._stopped:
            self._feed(message, reply)

    def route_found(self, flow: str) -> None:
        """It may now be known whom to address the messages of a flow to."""
        for message in list(self._by_flow.get(flow, {}).values()):
            if message.no_route:
                self._attempt(message)

    def peer_came(self, flow: str) -> None:
        """The account has become available: what waits for it is due soon."""
        for message in list(self._by_flow.get(flow, {}).values()):
            meaning = sender.on_peer(message.record)
            if meaning is not None and not message.no_route:
                self._feed(message, meaning)
        self.route_found(flow)

    def stop(self) -> None:
        """Do nothing more, for good; what is outstanding stays in the store."""
        self._own = None
        self._stopped = True
        self._timers.stop()
        self._queue_timer.stop()

    # -- from acceptance to the first attempt ------------------------------

    def _deliver_later(self, record: Outgoing) -> Delivery:
        delivery = Delivery(
            self, msg_id=record.msg_id, to=record.to, level=record.level
        )
        self._deliveries[record.msg_id] = delivery
        return delivery

    def _accept(self, record: Outgoing) -> asyncio.Future[None]:
        """Put a new message under way, or into the queue when it has to wait."""
        self._count += 1
        self._bytes += record.size
        accepted = asyncio.get_running_loop().create_future()
        flow = record.flow
        if self._backlog.waiting(flow) or not self._flow(flow).admits(record):
            self._backlog.add(flow)
            written = self._store.write((Save(record),))
            if written is None:
                self._queued(record, accepted, None)
            else:
                written.add_done_callback(partial(self._queued, record, accepted))
            return accepted
        self._backlog.passed(record)
        message = _Message(record)
        message.accepted = accepted
        self._begin(message)
        route = self._port.route(record) if self._own is not None else None
        if route is not None:
            self._step(message, SenderInput.ATTEMPT, route=route)
        else:
            message.no_route = True
            self._perform(message, record, (Save(record),), 0)
        self._drain(message)
        return accepted

    def _queued(
        self,
        record: Outgoing,
        accepted: asyncio.Future[None],
        written: asyncio.Future[None] | None,
    ) -> None:
        error = written.exception() if written is not None else None
        if error is not None:
            self._backlog.remove(record.flow)
            self._uncount(record)
            accepted.set_exception(error)
            return
        accepted.set_result(None)
        if record.expires_at is not None:
            self._expect_expiry(0.0)
        self._pump(record.flow)

    def _pump(self, flow: str) -> None:
        """Take queued messages into the window while there is room."""
        state = self._flow(flow)
        while self._own is not None and state.room and self._backlog.waiting(flow):
            record = self._backlog.head(flow)
            if record is None or not state.admits(record):
                return
            self._backlog.take(record)
            message = _Message(record)
            self._begin(message)
            self._attempt(message)

    def _unqueue(self, record: Outgoing) -> _Message:
        """Take a message out of the queue although it is not its turn, to end it."""
        self._backlog.discard(record)
        message = _Message(record)
        self._begin(message)
        return message

    def _expire_queued(self, _key: None) -> None:
        now = self._clock.now()
        for record in self._store.expiring(now, limit=_EXPIRE_CHUNK):
            if record.msg_id not in self._messages:
                self._feed(self._unqueue(record), SenderInput.DEADLINE)
        # What is being ended is still there: look again, but not at once.
        self._expect_expiry(now + self._backoff.first_s)

    def _expect_expiry(self, earliest: float) -> None:
        expiry = self._store.next_expiry()
        if expiry is not None:
            self._queue_timer.set(None, max(expiry, earliest))

    def _flow(self, name: str) -> Flow:
        flow = self._flows.get(name)
        if flow is None:
            flow = self._flows[name] = Flow(self._limits.window)
        return flow

    def _begin(self, message: _Message) -> None:
        record = message.record
        self._flow(record.flow).begin(record)
        self._messages[record.msg_id] = message
        self._by_flow.setdefault(record.flow, {})[record.msg_id] = message
        self._index(message)
        self._timers.set(record.msg_id, sender.wake_at(record))

    def _index(self, message: _Message, before: Outgoing | None = None) -> None:
        if before is not None:
            self._by_iq.pop(before.offer_id, None)
            self._by_iq.pop(before.deliver_id, None)
        self._by_iq[message.record.offer_id] = message
        self._by_iq[message.record.deliver_id] = message

    # -- steps -------------------------------------------------------------

    def _due(self, msg_id: str) -> None:
        message = self._messages[msg_id]
        if message.busy:
            return  # what is being done sets the timer anew
        expires_at = message.record.expires_at
        if expires_at is not None and expires_at <= self._clock.now():
            self._feed(message, SenderInput.DEADLINE)
        else:
            self._attempt(message)

    def _attempt(self, message: _Message) -> None:
        if self._own is None:
            # The next session makes it due again; its deadline may come first.
            self._wait(message, replace(message.record, due_at=math.inf))
        else:
            self._feed(message, SenderInput.ATTEMPT)

    def _wait(self, message: _Message, record: Outgoing) -> None:
        message.record = record
        self._timers.set(record.msg_id, sender.wake_at(record))

    def _feed(self, message: _Message, input_: SenderInput | Reply) -> None:
        """Take the input now, or when what is being done is done."""
        message.inputs.append(input_)
        self._drain(message)

    def _drain(self, message: _Message) -> None:
        while message.inputs and not message.busy:
            self._take(message, message.inputs.popleft())

    def _take(self, message: _Message, input_: SenderInput | Reply) -> None:
        if isinstance(input_, Reply):
            meaning = sender.classify(message.record, input_, own=self._own or "")
            if meaning is not None:
                self._step(message, meaning, reply=input_)
        elif input_ is SenderInput.ATTEMPT:
            route = self._port.route(message.record)
            message.no_route = route is None
            if route is None:
                self._step(message, SenderInput.NO_ROUTE)
            else:
                self._step(message, input_, route=route)
        else:
            self._step(message, input_)

    def _step(
        self,
        message: _Message,
        input_: SenderInput,
        *,
        route: Route | None = None,
        reply: Reply | None = None,
    ) -> None:
        before = message.record
        at = sender.Step(
            now=self._clock.now(),
            jitter=self._port.jitter(),
            backoff=self._backoff,
            new_id=self._port.new_id,
            route=route,
            reply=reply,
            own=self._own or "",
        )
        try:
            message.record, effects = sender.step(before, input_, at)
        except CannotWithdraw as error:
            self._not_withdrawn(message, error)
            return
        if message.record.offer_id != before.offer_id:
            self._index(message, before)
        if input_ is SenderInput.CONFIRMED:
            self._flow(before.flow).delivered()
        elif input_ is SenderInput.CONSTRAINED:
            self._flow(before.flow).constrained()
        self._perform(message, before, effects, 0)

    def _perform(
        self,
        message: _Message,
        before: Outgoing,
        effects: tuple[Effect, ...],
        start: int,
    ) -> None:
        """Perform the effects from one on, each when the one before is done."""
        message.busy = True
        for index in range(start, len(effects)):
            effect = effects[index]
            if isinstance(effect, Save | Forget):
                written = self._store.write((effect,))
                if written is not None:
                    written.add_done_callback(
                        partial(self._written, message, before, effects, index)
                    )
                    return
                self._accepted(message)
            elif isinstance(effect, Transmit):
                self._port.transmit(effect)
            else:
                self._end(message)
                return
        message.busy = False
        self._performed(message)

    def _written(
        self,
        message: _Message,
        before: Outgoing,
        effects: tuple[Effect, ...],
        index: int,
        done: asyncio.Future[None],
    ) -> None:
        error = done.exception()
        if error is None:
            self._accepted(message)
        if self._stopped and message.accepted is None:
            return  # the store is closing; the next start goes on from here
        if error is None:
            self._perform(message, before, effects, index + 1)
        else:
            message.busy = False
            self._not_written(message, before, error)
        self._drain(message)

    def _not_written(
        self, message: _Message, before: Outgoing, error: BaseException
    ) -> None:
        """Back to what is on disk. Nobody was told anything."""
        failed, message.record = message.record, before
        self._index(message, failed)
        if message.accepted is not None:
            self._drop(message)
            self._uncount(before)
            message.accepted.set_exception(error)
            return
        log.error("%s cannot go on for now: %s", before.msg_id, error)
        self._not_withdrawn(message, error)
        again_at = self._clock.now() + self._backoff.first_s
        message.record = replace(before, due_at=again_at)
        self._timers.set(before.msg_id, again_at)

    def _not_withdrawn(self, message: _Message, error: BaseException) -> None:
        if message.withdrawn is not None:
            message.withdrawn.set_exception(error)
            message.withdrawn = None

    def _accepted(self, message: _Message) -> None:
        if message.accepted is not None:
            message.accepted.set_result(None)
            message.accepted = None

    def _performed(self, message: _Message) -> None:
        record = message.record
        turn = record.state is OutgoingState.RECEIVED and self._own is not None
        if turn and self._flow(record.flow).may_release(record):
            self._step(message, SenderInput.RELEASE)
        else:
            self._timers.set(record.msg_id, sender.wake_at(record))

    def _end(self, message: _Message) -> None:
        record = message.record
        self._uncount(record)
        if message.withdrawn is not None:
            if record.state is OutgoingState.NOT_DELIVERED:
                message.withdrawn.set_result(None)
            else:
                state = record.state.value
                error = CannotWithdraw(record.msg_id, state=state)
                self._not_withdrawn(message, error)
        delivery = self._deliveries.get(record.msg_id)
        if delivery is not None:
            seconds = self._clock.now() - record.created_at
            delivery.settle(Outcome.of(record, seconds))
        self._drop(message)

    def _uncount(self, record: Outgoing) -> None:
        self._count -= 1
        self._bytes -= record.size

    def _drop(self, message: _Message) -> None:
        """The message is not under way any more: others may move up."""
        record = message.record
        message.inputs.clear()
        self._by_iq.pop(record.offer_id, None)
        self._by_iq.pop(record.deliver_id, None)
        self._timers.clear(record.msg_id)
        del self._messages[record.msg_id]
        others = self._by_flow[record.flow]
        del others[record.msg_id]
        self._flow(record.flow).end(record)
        if record.ordered:
            for other in list(others.values()):
                if other.record.state is OutgoingState.RECEIVED and not other.busy:
                    self._performed(other)
        if not others:
            del self._by_flow[record.flow]
        self._pump(record.flow)
