"""A machine that sends and receives messages: the real engines, and two applications.

The applications are as simple as possible: one sends the planned messages, and asks for
their outcomes; the other takes messages, in its own time. Their observations go into
the ledger; `invariants` judges them.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Callable

from qos.core.backoff import Backoff
from qos.core.message.effects import Answer, Report, Transmit
from qos.core.message.model import (
    MARKS_NAMESPACE,
    NAMESPACES,
    Incoming,
    IncomingState,
    Level,
    Outgoing,
    Route,
)
from qos.core.message.receiver import UNSURE
from qos.core.message.receiver_table import Request
from qos.core.message.route import Resource, choose, to_jid
from qos.core.message.sender_table import Reply
from qos.core.message.trust import Trusted
from qos.core.quota import Quotas
from qos.core.record import replace
from qos.core.strings import bare
from qos.engine import Consumption, Inbox, InboxLimits, Outbox, OutboxLimits
from qos.errors import (
    RemoteProtocolError,
)
from simulation import invariants, operating
from simulation.consuming import Consumer
from simulation.disks import MessageDisk, SimulatedStore
from simulation.ledger import HandOver, Ledger, MessageFacts
from simulation.loop import SimulatedLoop
from simulation.machines import Machine
from simulation.network import LATENCY_S, Network
from simulation.plan import (
    RECEIVERS,
    REDELIVERIES_MAX,
    TEXT_SENDERS,
    Settings,
)
from simulation.sending import Plain, Producer
from simulation.stanza_limit import SIZES, StanzaLimit
from simulation.trusting import Trusting

__all__ = ["Endpoint", "reply_to", "request_of"]

_TEXT = frozenset(NAMESPACES)
_OURS = _TEXT | {MARKS_NAMESPACE}

_ERROR_TYPES = {"service-unavailable": "cancel", "recipient-unavailable": "wait"}

#: The rejection of an application.
_REJECTION = RemoteProtocolError("unwanted", condition="conflict", type="cancel")

_BACKOFF = Backoff(first_s=1.0, max_s=8.0)


#: The answer of an endpoint that only sends.
_AWAY = Answer("error", "", "service-unavailable", "cancel")


def _features(machine: Machine, features: frozenset[str]) -> frozenset[str]:
    """The features that a machine advertises."""
    receives = isinstance(machine, Endpoint) and machine.receives
    return features if receives else frozenset()


def request_of(transmit: Transmit, *, source: str, mark: str) -> Request:
    """The request that a receiver reads from a sender's step; see `xep_qos.stanza`.

    Args:
        transmit: the step.
        source: the sender's full JID.
        mark: its store's id; '': it knows only the proto-XEP.
    """
    record = transmit.record
    assured = record.level is Level.ASSURED
    deliver = transmit.step == "deliver"
    return Request(
        kind="deliver" if deliver else "assured" if assured else "acknowledged",
        iq_id=record.deliver_id if deliver else record.offer_id,
        source=source,
        to=transmit.route.jid,
        namespace=transmit.route.namespace,
        msg_id=record.msg_id if assured else "",
        payload="" if deliver else record.payload,
        size=0 if deliver else record.size,
        mark=mark,
        hold=record.hold or "" if deliver and mark else "",
    )


def reply_to(request: Request, answer: Answer) -> Reply:
    """The reply that a sender reads from a receiver's answer."""
    return Reply(
        iq_id=request.iq_id,
        source=request.to,
        error=answer.condition or None,
        error_type=answer.error_type,
        rejected=answer.kind == "rejected",
        redelivered=answer.redelivered,
        received=request.msg_id if answer.kind == "received" else None,
        hold=answer.hold or None,
    )


def _rejects(number: int, *, redelivered: bool) -> bool:
    """Whether the application rejects a message, always or only the second time."""
    return number % 5 == 3 or (number % 5 == 1 and redelivered)


class Endpoint(Machine):
    """An endpoint that sends and receives.

    Attributes:
        marked: it is ours; otherwise it knows only the proto-XEP.
        receives: it accepts messages; otherwise it refuses each request, as with the
            option of the plugin.
        disk: with its store.
        outbox: of the present process.
        inbox: likewise.
        producer: its application that sends.
        begun: the keys of the messages that a former process had begun to hand over.
    """

    def __init__(
        self,
        loop: SimulatedLoop,
        network: Network,
        name: str,
        jid: str,
        seed: int,
        *,
        settings: Settings,
        ledger: Ledger,
    ) -> None:
        super().__init__(loop, network, name, jid, seed)
        self.marked = name not in TEXT_SENDERS
        self._ids = itertools.count(1)
        self._settings = settings
        self._ledger = ledger
        self._clock = self.clock()
        self.disk = self._new_disk()
        self.outbox: Outbox | None = None
        self.inbox: Inbox | None = None
        self._trusting: Trusting | None = None
        self.begun: frozenset[str] = frozenset()
        # By key, how often a message has come to a loop again.
        self._came_again: Counter[str] = Counter()
        # What its peers have offered at level acknowledged, by the id of the iq; and the
        # numbers of the messages that the present process works on.
        self._offers: dict[str, str] = {}
        self._in_hand: set[int] = set()
        self._restarted = False
        self._booted_at = 0.0
        #: When each request was sent last, by its iq id; since the last news.
        self._asked_at: dict[str, float] = {}
        self.receives = not (settings.sends_only and name == RECEIVERS[1])
        self._limit = StanzaLimit(self, ledger, settings.stanza_bytes_max)
        self.producer = Producer(self, ledger)
        self._consumer: Consumer | None = None
        if settings.consumes and name in RECEIVERS:
            self._consumer = Consumer(self, ledger)

    def _new_disk(self) -> MessageDisk:
        ledger, store_id = self._ledger, f"store-{self.new_id()}"
        told = (ledger.expired.add, ledger.written, self._kept)
        return MessageDisk(self.name, store_id, *told)

    def _kept(self, record: Incoming) -> None:
        """Something of a message that came is on disk."""
        self._ledger.kept(record, self._clock.now() - record.received_at)

    def wipe(self, seconds: float) -> bool:
        """Kill the process, and come back with another disk."""
        if not self.kill(seconds):
            return False
        before, self.disk = self.disk, self._new_disk()
        self.disk.fails, self.disk.slow = before.fails, before.slow
        self._ledger.wiped = True
        return True

    # -- its life ----------------------------------------------------------

    def boot(self) -> None:
        """See Machine."""
        clock = self._clock = self.clock()
        self._booted_at = self.loop.time()
        store = SimulatedStore(self.disk, clock, self.effect)
        contents = store.open(clock.now())
        settings = self._settings
        self._limit.boot(store, contents.remembered.get(SIZES, ""))
        self.outbox = Outbox(
            store,
            contents,
            self,
            clock=clock,
            backoff=_BACKOFF,
            limits=OutboxLimits(window=settings.window),
            stanzas=self._limit.stanzas,
        )
        self.inbox = Inbox(
            store,
            contents,
            self,
            clock=clock,
            limits=InboxLimits(
                quotas=Quotas(messages=settings.quota),
                hold_ttl_s=settings.hold_ttl_s,
            ),
        )
        self._trusting = Trusting(
            self.jid,
            settings,
            decided=self._decided,
            no_room=self.inbox.turn_away,
        )
        self._restarted = False
        self._asked_at.clear()
        self._in_hand.clear()
        self.begun = frozenset(
            each.key
            for each in contents.incoming
            if each.state is IncomingState.RELEASING
        )
        self.producer.boot(self.outbox)

    def connected(self) -> None:
        """See Machine."""
        assert self.outbox is not None
        assert self.inbox is not None
        assert self._trusting is not None
        if not self._restarted:
            self._restarted = True
            self.inbox.restart()
        self._trusting.connected(self.loop.call_later)
        self._asked_at.clear()
        self._limit.connected()
        self.outbox.session_started(self.jid)

    def disconnected(self) -> None:
        """See Machine."""
        assert self.outbox is not None
        assert self._trusting is not None
        self._trusting.guard.session_lost()
        self.outbox.session_lost()

    def peer_arrived(self, jid: str) -> None:
        """See Machine."""
        assert self.outbox is not None
        self._asked_at.clear()
        self.outbox.in_flight.peer_arrived(bare(jid))

    def receive(self, source: str, body: object) -> None:
        """See Machine."""
        assert self.outbox is not None
        assert self.inbox is not None
        if isinstance(body, Plain):
            self._plain(source, body)
        elif isinstance(body, Request) and not self.receives:
            self.answer(body, _AWAY)
        elif isinstance(body, Request):
            if body.kind == "deliver":
                self._ledger.released(body.msg_id, body.hold)
            elif body.kind == "acknowledged":
                self._offers[body.iq_id] = body.payload
            self._request(body)
        elif isinstance(body, Reply):
            self._limit.answered(body.iq_id)
            self.outbox.in_flight.reply(
                body if self.marked else replace(body, hold=None)
            )

    def _request(self, request: Request) -> None:
        """Take a request, when it is known whether its sender is trusted."""
        assert self._trusting is not None
        guard = self._trusting.guard
        decision = guard.decision(request.kind, request.source, request.to)
        if decision is None:
            guard.consider(request)
        else:
            self._decided(request, decision)

    def _decided(self, request: Request, decision: Trusted) -> None:
        assert self.inbox is not None
        self.inbox.request(request, trusted=decision.trusted, why=decision.reason)

    def _plain(self, source: str, message: Plain) -> None:
        """Take a plain message of somebody who is trusted, as `qos.connect` does."""
        assert self._trusting is not None
        assert self.process is not None
        decision = self._trusting.guard.plain(source, self.jid)
        if decision is None:
            self.process.task(self._plain_later(source, message))
        else:
            self._plain_decided(message, decision)

    async def _plain_later(self, source: str, message: Plain) -> None:
        assert self._trusting is not None
        guard = self._trusting.guard
        self._plain_decided(message, await guard.plain_later(source, self.jid))

    def _plain_decided(self, message: Plain, decision: Trusted) -> None:
        facts = self._ledger.sent(message.payload)
        if facts is None:
            return
        if not decision.trusted:
            self._ledger.check(
                invariants.plain_of_the_trusted_is_taken, facts, self._ledger
            )
            return
        assert self.process is not None
        self._ledger.handed(
            facts,
            HandOver(self.name, self.process.number, redelivered=False, begun=False),
        )

    def bounced(self, to: str, body: object, condition: str) -> None:
        """See Machine."""
        if isinstance(body, Request):
            assert self.outbox is not None
            error_type = _ERROR_TYPES[condition]
            self.outbox.in_flight.reply(
                Reply(body.iq_id, to, error=condition, error_type=error_type)
            )

    # -- what the outbox asks for ------------------------------------------

    @property
    def remembers(self) -> bool:
        """See Machine."""
        records = self.disk.kept
        return any(map(any, (records.outgoing(), records.incoming(), records.ended())))

    def route(self, record: Outgoing) -> Route | None:
        """See Port."""
        features = _OURS if self.marked else _TEXT
        if "/" in record.to:
            absent = record.to not in self.network.there
            return to_jid(record, features, NAMESPACES, absent=absent)
        there = self.network.resources(record.to)
        resources = [Resource(each.jid, 0, _features(each, features)) for each in there]
        return choose(record, resources, NAMESPACES)

    def transmit(self, transmit: Transmit) -> bool:
        """See Port."""
        mark = self.disk.store_id if self.marked else ""
        request = request_of(transmit, source=self.jid, mark=mark)
        now = self.loop.time()
        passed_s = now - self._asked_at.get(request.iq_id, -math.inf)
        self._asked_at[request.iq_id] = now
        if self.name not in self._ledger.jumped:
            number = transmit.record.payload.partition("<body>")[2].partition("<")[0]
            early_s = _BACKOFF.first_s - passed_s
            self._ledger.check(invariants.not_again_at_once, number, early_s)
        if self._limit.takes(transmit, request.iq_id):
            self.send(transmit.route.jid, request)
        return True

    def ping(self) -> bool:
        """See Port."""
        process, cuts = self.process, self.cuts
        assert process is not None
        assert self.outbox is not None
        answered = self.outbox.in_flight.answered_ping

        def come_back() -> None:
            if self.process is process and self.online and self.cuts == cuts:
                process.start(answered)

        if self.online:
            self.loop.outside(2 * LATENCY_S, come_back)
        return self.online

    def jitter(self) -> float:
        """See Port."""
        return self.random.random()

    def new_id(self) -> str:
        """See Port and InboxPort."""
        return f"{self.name}-{next(self._ids)}"

    def new_msg_id(self) -> str:
        """See Port."""
        return self.new_id()

    # -- what the inbox asks for -------------------------------------------

    def answer(self, request: Request, answer: Answer) -> None:
        """See InboxPort."""
        if answer.kind == "received":
            message = (bare(request.source), request.mark, request.msg_id)
            self._ledger.held(answer.hold, message)
        elif answer.kind == "error" and request.kind == "acknowledged":
            # A repeat that has waited has no payload any more.
            self._ledger.of(self._offers[request.iq_id]).turned_away |= answer != UNSURE
        self.send(request.source, reply_to(request, answer))

    def hands_over(self, record: Incoming) -> HandOver:
        """Record a hand-over in the ledger."""
        again = ", redelivered" if record.redelivered else ""
        self.network.note(
            self.name, f"hands over {self._ledger.of(record.payload)}{again}"
        )
        assert self.process is not None
        return HandOver(
            machine=self.name,
            process=self.process.number,
            redelivered=record.redelivered,
            begun=record.key in self.begun,
            hold=record.hold if record.mark else "",
        )

    def hand_over(self, record: Incoming) -> asyncio.Future[None] | bool:
        """See InboxPort."""
        self.effect()
        facts = self._ledger.sent(record.payload)
        if facts is None:
            return True
        late_s = self._settings.handler_after_s
        if late_s is not None and self.loop.time() < self._booted_at + late_s:
            self.network.note(self.name, f"has no handler yet for {facts}")
            return False
        self._ledger.handed(facts, self.hands_over(record))
        if record.level is Level.ACKNOWLEDGED and record.mark:
            in_hand = facts.planned.number in self._in_hand
            self._ledger.check(invariants.not_while_it_is_in_hand, facts, in_hand)
            self._ledger.check(invariants.not_after_it_came_again, facts, self._ledger)
        rejects = _rejects(facts.planned.number, redelivered=record.redelivered)
        if not facts.planned.taking_s and not rejects:
            if record.redelivered:
                facts.taken_again.add(self.name)
            self._ledger.took(facts)
            return True
        done: asyncio.Future[None] = self.loop.create_future()

        def taken() -> None:
            self._in_hand.discard(facts.planned.number)
            if record.redelivered:
                facts.taken_again.add(self.name)
            if not rejects:
                self._ledger.took(facts)
                done.set_result(None)
                return
            told = bool(record.mark) and record.level is Level.ASSURED
            self._ledger.rejected(facts, told=told)
            done.set_exception(_REJECTION)
            done.exception()  # asyncio would complain if the process is killed now

        self._in_hand.add(facts.planned.number)
        if facts.planned.taking_s:
            self.loop.create_task(self._work(facts, record, taken))
        else:
            taken()
        return done

    async def _work(
        self, facts: MessageFacts, record: Incoming, taken: Callable[[], None]
    ) -> None:
        """Work on a message in a loop, unless it is parked."""
        assert self.inbox is not None
        failures = self.disk.failures
        if not await self.inbox.begin(record.key, REDELIVERIES_MAX):
            self.network.note(self.name, f"has {facts} parked")
            facts.parked = True
            self._in_hand.discard(facts.planned.number)
            return
        # A count that could not be written is lost with the process.
        if record.redelivered and failures == self.disk.failures:
            self._came_again[record.key] += 1
            if not self._ledger.wiped:
                times = self._came_again[record.key]
                self._ledger.check(invariants.parked_by_a_loop, facts, times)
        await asyncio.sleep(facts.planned.taking_s)
        taken()

    def consumption(self, record: Incoming) -> Consumption | None:
        """See InboxPort."""
        if self._consumer is None or self._ledger.sent(record.payload) is None:
            return None
        return self._consumer.consumption(record)

    def drop_by_force(self) -> bool:
        """The operator's action while no process runs; see `operating`."""
        return operating.drop_by_force(
            self.disk,
            self.clock().now(),
            lambda record: self._ledger.dropped(record, self.name),
        )

    def release_parked(self) -> None:
        """The operator's action when the consumer has been repaired."""
        if self.process is not None:
            self.process.start(self._release_parked)

    def _release_parked(self) -> None:
        assert self.inbox is not None
        for record in self.inbox.parked():
            facts = self._ledger.of(record.payload)
            facts.fails = facts.handovers = self._came_again[record.key] = 0
            self.inbox.release(record.key)

    def report(self, source: str, report: Report) -> None:
        """See InboxPort."""
        self.network.note(self.name, f"reports {source}: {report}")

    # -- what is left ------------------------------------------------------

    def used(self) -> int:
        """The largest number of messages that it holds of one account.

        It is counted here, since the endpoint's own count may be wrong.
        """
        if self.inbox is None:
            return 0
        records = [each.record for each in self.inbox._messages.values()]
        held = Counter(
            bare(each.source)
            for each in records
            if each is not None and not each.state.ended
        )
        return max(held.values(), default=0)

    def room(self) -> int:
        """The number of messages of one account that it may hold.

        A message that was handed over and could not be marked as done is counted after
        a restart, until it has been handed over again.
        """
        return self._settings.quota + len(self.begun)

    def left(self) -> list[str]:
        """The messages that have not ended, in words."""
        found = []
        if self.inbox is not None and self.inbox.used() != (0, 0):
            found.append(f"{self.name} counts {self.inbox.used()[0]} messages as held")
        if self.outbox is not None and (self.outbox.outstanding or self.outbox._bytes):
            found.append(
                f"{self.name} counts {self.outbox.outstanding} messages, "
                f"{self.outbox._bytes} bytes as outstanding"
            )
        return found
