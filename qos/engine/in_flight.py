"""The messages in flight: performs each step of each message, in order.

An input that comes while the effects of a message are being performed waits until they
are done. Thus a Save is on disk before anything after it begins.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection
from functools import partial

from qos.core.backoff import Backoff
from qos.core.message import sender
from qos.core.message.effects import Effect, End, Forget, Save, Transmit
from qos.core.message.flow import Pace
from qos.core.message.model import Outgoing, OutgoingState, Route
from qos.core.message.sender_table import (
    At,
    Reply,
    SenderInput,
    classify,
    on_peer,
    on_session,
    too_large,
)
from qos.core.record import replace
from qos.engine.clock import Clock, Timers
from qos.engine.outbox_message import AccountFlow, Message, News, Port, Stanzas
from qos.engine.uplink import Uplink
from qos.errors import CannotWithdraw, StillOutstanding
from qos.journal.recorder import Recorder
from qos.stores.base import Store

__all__ = ["InFlight"]

log = logging.getLogger(__name__)

#: The number of accounts without messages in flight whose window is remembered. Each
#: takes about a kB. Without it, the next messages would have to find out the window of
#: the peer anew.
_IDLE_FLOWS_MAX = 1024

#: The request of a message has less than so many bytes more than its payload: two JIDs
#: (RFC 7622 §3) and what is ours.
_AROUND_BYTES = 8 * 1024

_WRITES = (Save, Forget, End)


class InFlight:
    """The messages in flight, at most a window of them for each account (flow)."""

    def __init__(
        self,
        store: Store,
        port: Port,
        *,
        clock: Clock,
        backoff: Backoff,
        window: int,
        remember: bool,
        on_leave: Callable[[Message], None],
        more: Callable[[AccountFlow], None],
        recorder: Recorder,
        stanzas: Stanzas,
    ) -> None:
        """Begin without messages in flight.

        Args:
            store: where each step is written.
            port: the connection.
            clock: the time.
            backoff: the delays between attempts.
            window: the most messages in flight to one account.
            remember: whether to keep how messages have ended.
            on_leave: called when a message is not in flight any more: it has ended, or its
                first write failed, or it was taken out of the queue and its end was not
                written.
            more: called with a flow when more messages may be offered to its account:
                it holds an ordered one, or it has granted a credit.
            recorder: gets each step first.
            stanzas: those of the stream, by their size.
        """
        self._recorder = recorder
        self._store = store
        self._port = port
        self._clock = clock
        self._backoff = backoff
        self._window = window
        self._remember = remember
        self._on_leave = on_leave
        self._more = more
        #: Our full JID while there is a session.
        self.own: str | None = None
        self._stopped = False
        self._flows: dict[str, AccountFlow] = {}
        # The accounts without messages in flight, the one idle for longest first.
        self._idle: dict[str, None] = {}
        self._messages: dict[str, Message] = {}
        self._by_iq: dict[str, Message] = {}
        #: The ids of the iqs for whose answers messages wait.
        self.awaited = self._by_iq.keys()
        self._timers: Timers[str] = Timers(clock, self._due)
        self._stanzas = stanzas
        self._sizes = stanzas.sizes
        self._uplink = Uplink(
            clock,
            backoff.first_s,
            port.transmit,
            port.ping,
            stanzas,
            self._has_other_work,
        )
        self.answered_ping = self._uplink.answered_ping

    def get(self, msg_id: str) -> Message | None:
        """The message with this id, if it is in flight."""
        return self._messages.get(msg_id)

    def __len__(self) -> int:
        return len(self._messages)

    def flow(self, name: str) -> AccountFlow:
        """The flow of an account."""
        flow = self._flows.get(name)
        if flow is None:
            pace = Pace(self._backoff.first_s, self._backoff.max_s)
            flow = self._flows[name] = AccountFlow(name, self._window, pace)
            self._rest(name)
        return flow

    def _rest(self, name: str) -> None:
        """Remember an account that has no messages in flight any more, for a while."""
        self._idle[name] = None
        if len(self._idle) > _IDLE_FLOWS_MAX:
            oldest = next(iter(self._idle))
            del self._idle[oldest], self._flows[oldest]

    def begin(self, message: Message) -> None:
        """Count a message as in flight; the caller takes its next step."""
        record, flow = message.record, message.flow
        if not flow.messages:
            del self._idle[flow.name]
        flow.begin(record)
        flow.messages[record.msg_id] = self._messages[record.msg_id] = message
        self._index(message)

    def resume(self, record: Outgoing) -> None:
        """Count a message of an earlier process; it is attempted when it is due."""
        message = Message(record, self.flow(record.flow))
        self.begin(message)
        self._wait(message, record)

    def _index(self, message: Message, before: Outgoing | None = None) -> None:
        if before is not None:
            self._by_iq.pop(before.offer_id, None)
            self._by_iq.pop(before.deliver_id, None)
        self._by_iq[message.record.offer_id] = message
        self._by_iq[message.record.deliver_id] = message

    def start(self, message: Message) -> None:
        """Begin with a message that is not on disk yet: write it, or offer it."""
        self.begin(message)
        self._recorder.accepted(message.record)
        route = self._port.route(message.record) if self.own is not None else None
        if route is not None:
            self._step(message, SenderInput.ATTEMPT, route=route)
        else:
            message.no_route = True
            effects = (Save(message.record),)
            self._perform(message, message.record, effects, self._clock.now())
        if message.inputs:
            self._drain(message)

    def stop(self) -> None:
        """Do nothing more, for good."""
        self.own = None
        self._stopped = True
        self._timers.stop()
        for msg_id, message in self._messages.items():
            error = StillOutstanding(msg_id, durable=self._store.durable)
            self._not_withdrawn(message, error)

    # -- the connection ----------------------------------------------------

    def session_started(self, own: str) -> None:
        """Take the start of a session under this full JID.

        All messages are due again.
        """
        self.own = own
        for message in self._messages.values():
            if self._uplink.waits(message):
                message.record = sender.unsent(message.record)
            self._uplink.forget(message)
        self._uplink.started()
        for flow in list(self._flows.values()):
            for ahead, message in enumerate(list(flow.messages.values())):
                if message.no_route:
                    self.attempt(message)
                else:
                    self.feed(message, partial(on_session, own=own, ahead=ahead))

    def session_resumed(self, own: str, lost: Collection[str]) -> None:
        """Take the resumption of the session (XEP-0198 §5).

        The server gets everything that was written, so only what was not is due.

        Args:
            own: our full JID.
            lost: the ids of the iqs that were given to the port and not written.
        """
        self.own = own
        for iq_id in lost:
            if (message := self._by_iq.get(iq_id)) is not None:
                message.record = sender.unsent(message.record)
                self._uplink.not_written(message)
        self._uplink.resumed()
        for message in list(self._messages.values()):
            if message.no_route:
                self.attempt(message)
            elif message.copy is None:
                self.feed(message, SenderInput.WAKE)
            elif not message.busy:
                later = self._uplink.not_before(message) or self._clock.now()
                self._wait(message, replace(message.record, due_at=later))

    def not_taken(self, iq_id: str) -> None:
        """Note that our server did not take the iq with this id, and ended the stream."""
        message = self._by_iq.get(iq_id)
        if message is not None:
            message.record = sender.unsent(message.record)

    def reply(self, reply: Reply) -> None:
        """Take an iq result or error; one that is not awaited is ignored."""
        message = self._by_iq.get(reply.iq_id)
        if message is not None and not self._stopped:
            self.feed(message, reply)

    def _messages_to(self, account: str) -> list[Message]:
        flow = self._flows.get(account)
        return [] if flow is None else list(flow.messages.values())

    def sends_to(self, account: str) -> bool:
        """Whether messages to an account are in flight."""
        flow = self._flows.get(account)
        return flow is not None and bool(flow.messages)

    def route_found(self, account: str) -> None:
        """Take the news that an account may now have a resource to address."""
        for message in self._messages_to(account):
            if message.no_route:
                self.attempt(message)

    def heard(self, account: str, took_s: float) -> None:
        """Take the round trip of a request that was none of the messages."""
        self._uplink.heard(self.flow(account), took_s, 0)

    def peer_arrived(self, account: str) -> None:
        """Take the news that an account is available: its messages are due soon."""
        for message in self._messages_to(account):
            message.record = sender.peer_available(message.record)
            if not message.no_route:
                self.feed(message, on_peer)
        self.route_found(account)

    # -- steps -------------------------------------------------------------

    def _due(self, msg_id: str) -> None:
        message = self._messages[msg_id]
        if message.busy:
            return  # the present step sets the timer anew
        if self._overdue(message):
            if self._uplink.waits(message):
                message.record = sender.unsent(message.record)
        elif self.own is not None:
            later = self._uplink.not_before(message)
            if later is not None:
                due_at = max(later, message.record.due_at)
                self._wait(message, replace(message.record, due_at=due_at))
                return
            if self._clock.now() < sender.wake_at(message.record):
                self._timers.set(msg_id, sender.wake_at(message.record))
                return
        self.attempt(message)

    def attempt(self, message: Message) -> None:
        """Make an attempt if there is a session.

        After its deadline, the message ends.
        """
        message.no_route = False
        if self.own is None and not self._overdue(message):
            # The next session makes it due again, but its deadline may come first.
            self._wait(message, replace(message.record, due_at=math.inf))
        else:
            self.feed(message, SenderInput.ATTEMPT)

    def _overdue(self, message: Message) -> bool:
        return sender.overdue(message.record, self._clock.now())

    def _wait(self, message: Message, record: Outgoing) -> None:
        message.record = record
        self._timers.set(record.msg_id, sender.wake_at(record))

    def feed(self, message: Message, input_: SenderInput | Reply | News) -> None:
        """Take the input now, or when the present step is done."""
        if message.busy or message.inputs:
            message.inputs.append(input_)
        else:
            self._take(message, input_)
        if message.inputs:
            self._drain(message)

    def _drain(self, message: Message) -> None:
        while message.inputs and not message.busy:
            self._take(message, message.inputs.popleft())

    def _take(self, message: Message, input_: SenderInput | Reply | News) -> None:
        if isinstance(input_, Reply):
            meaning = classify(message.record, input_, own=self.own or "")
            if meaning is not None:
                self._step(message, meaning, reply=input_)
        elif input_ is SenderInput.ATTEMPT and self._overdue(message):
            self._step(message, SenderInput.DEADLINE)
        elif input_ is SenderInput.ATTEMPT:
            route = self._port.route(message.record)
            message.no_route = route is None
            if route is None:
                self._step(message, SenderInput.NO_ROUTE)
            elif self._sizes.limit is not None and (
                refusal := self._refusal(message.record, route, self._sizes.limit)
            ):
                self._step(message, SenderInput.REFUSED, reply=refusal)
            else:
                self._step(message, input_, route=route)
        elif isinstance(input_, SenderInput):
            self._step(message, input_)
        elif (meaning := input_(message.record)) is not None:
            self._uplink.may_be_repeated(message)
            self._step(message, meaning)

    def _refusal(self, record: Outgoing, route: Route, limit: int) -> Reply | None:
        """The refusal of a message that is too large for our server, or None."""
        if record.size + _AROUND_BYTES <= limit:
            return None
        if record.state not in {OutgoingState.QUEUED, OutgoingState.OFFERED}:
            return None
        size = self._stanzas.measure(Transmit("offer", record, route))
        if size <= limit:
            return None
        return too_large(record, size=size, limit=limit, own=self.own or "")

    def _has_other_work(self) -> bool:
        """Whether a message that is not held back has still to be sent or answered."""
        return any(
            not message.record.state.ended
            and message.record.state is not OutgoingState.RECEIVED
            and not self._uplink.holds(message)
            for message in self._messages.values()
        )

    def _step(
        self,
        message: Message,
        input_: SenderInput,
        *,
        route: Route | None = None,
        reply: Reply | None = None,
    ) -> None:
        before = message.record
        port = self._port
        at = At(
            self._clock.now(),
            port.jitter(),
            self._backoff,
            port.new_id,
            route,
            reply,
            self.own or "",
            self._remember,
        )
        if reply is not None:
            self._uplink.answered(message, at.now)
        try:
            message.record, effects = sender.step(before, input_, at)
        except CannotWithdraw as error:
            self._not_withdrawn(message, error)
            return
        self._recorder.sent(message.record, input_, effects)
        if message.record.offer_id != before.offer_id:
            self._index(message, before)
        flow = message.flow
        if before.ordered and message.record.state is not before.state:
            flow.update(message.record)
        if input_ is SenderInput.CONFIRMED:
            flow.delivered()
        elif input_ is SenderInput.CONSTRAINED:
            flow.constrained()
        more = before.ordered and input_ is SenderInput.RECEIVED
        if reply is not None and reply.credit is not None:
            more = flow.credited(reply.credit) or more
        self._perform(message, before, effects, at.now)
        if more:
            self._more(flow)

    def _perform(
        self,
        message: Message,
        before: Outgoing,
        effects: tuple[Effect, ...],
        now: float,
    ) -> None:
        """Perform the effects, each when the one before is done."""
        message.busy = True
        for index, effect in enumerate(effects):
            if isinstance(effect, _WRITES):
                write = self._store.write((effect,))
                if write is not None:
                    rest, now = effects[index + 1 :], self._clock.now()
                    write.add_done_callback(
                        partial(self._written, message, before, rest, now)
                    )
                    return
                if message.accepted is not None:
                    self._accepted(message)
            elif isinstance(effect, Transmit):
                if message.inputs:
                    message.drop_news()
                if not self._uplink.transmit(message, effect, now):
                    message.record = sender.unsent(message.record)
            else:
                self._end(message)
                return
        message.busy = False
        self._performed(message)

    def _written(
        self,
        message: Message,
        before: Outgoing,
        rest: tuple[Effect, ...],
        begun_at: float,
        write: asyncio.Future[None],
    ) -> None:
        error = write.exception()
        if error is None:
            self._accepted(message)
        if self._stopped and message.accepted is None:
            return  # the store is closing; the next start continues from here
        if error is None:
            now = self._clock.now()
            if rest and isinstance(rest[0], Transmit):
                # The delay is the peer's time for its answer; the write takes none of it.
                message.record = sender.postponed(message.record, now - begun_at)
            self._perform(message, before, rest, now)
        else:
            message.busy = False
            self._not_written(message, before, error)
        self._drain(message)

    def _not_written(
        self, message: Message, before: Outgoing, error: BaseException
    ) -> None:
        """Go back to the state on disk. Nobody was told of the step."""
        failed, message.record = message.record, before
        self._index(message, failed)
        if message.accepted is not None:
            self._recorder.not_accepted(before)
            self._drop(message)
            message.accepted(error)
            return
        log.error("%s cannot go on for now: %s", before.msg_id, error)
        self._not_withdrawn(message, error)
        if message.unqueued:
            self._drop(message)
            return
        again_at = self._clock.now() + self._backoff.first_s
        message.record = replace(before, due_at=again_at)
        message.flow.update(before)
        self._timers.set(before.msg_id, again_at)

    def _not_withdrawn(self, message: Message, error: BaseException) -> None:
        if message.withdrawn is not None:
            message.withdrawn.set_exception(error)
            message.withdrawn = None
            if SenderInput.WITHDRAW in message.inputs:
                message.inputs.remove(SenderInput.WITHDRAW)

    def _accepted(self, message: Message) -> None:
        if message.accepted is not None:
            message.accepted(None)
            message.accepted = None

    def _performed(self, message: Message) -> None:
        record = message.record
        turn = record.state is OutgoingState.RECEIVED and self.own is not None
        if turn and message.flow.may_release(record):
            self._step(message, SenderInput.RELEASE)
        else:
            wake_at, copy = sender.wake_at(record), message.copy
            if copy is not None and copy.look_at < wake_at:
                wake_at = copy.look_at
            self._timers.set(record.msg_id, wake_at)

    def _end(self, message: Message) -> None:
        record = message.record
        if message.withdrawn is not None:
            if record.state is OutgoingState.NOT_DELIVERED:
                message.withdrawn.set_result(None)
            else:
                state = record.state.value
                error = CannotWithdraw(record.msg_id, state=state)
                self._not_withdrawn(message, error)
        self._drop(message)

    def _drop(self, message: Message) -> None:
        """Remove a message that is not in flight any more; others may move up."""
        record, flow = message.record, message.flow
        message.inputs.clear()
        if message.copy is not None:
            self._uplink.forget(message)
        self._by_iq.pop(record.offer_id, None)
        self._by_iq.pop(record.deliver_id, None)
        self._timers.clear(record.msg_id)
        del self._messages[record.msg_id], flow.messages[record.msg_id]
        flow.end(record)
        if record.ordered:
            for follower in list(flow.messages.values()):
                if (
                    follower.record.state is OutgoingState.RECEIVED
                    and not follower.busy
                ):
                    self._performed(follower)
        if not flow.messages:
            self._rest(flow.name)
        self._on_leave(message)
        if self._sizes.careful and self.own is not None:
            self._uplink.go_on(self._clock.now())
