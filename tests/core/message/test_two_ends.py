"""Both machines together, over a bad network, with crashes, against a model.

The engine here is the smallest that performs effects in order; it can be stopped
after any of them, and then only what was saved remains. `QOS_EXAMPLES=20000
pytest tests/core/message/test_two_ends.py` searches further, at random.

Two faults are left out, because no protocol of this shape survives them: a
network that doubles a `deliver` while stores get lost (then an item-not-found
says nothing about the other copy), and one that doubles an acknowledged iq or
its error (then an error says nothing about the other copy).
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from qos.core.backoff import Backoff
from qos.core.message import receiver, sender
from qos.core.message.effects import (
    Answer,
    Defer,
    Deliver,
    Effect,
    Forget,
    Refund,
    Report,
    Reserve,
    Retry,
    Save,
    Settle,
    Transmit,
)
from qos.core.message.flow import Flow
from qos.core.message.model import (
    MARKS_NAMESPACE,
    NAMESPACES,
    Incoming,
    IncomingState,
    Level,
    Outgoing,
    OutgoingState,
)
from qos.core.message.receiver import key_of
from qos.core.message.receiver_table import At, ReceiverInput, Request
from qos.core.message.route import Resource, choose, to_jid
from qos.core.message.sender_table import At as SenderAt
from qos.core.message.sender_table import Reply, SenderInput, classify, on_session
from qos.core.message.tombstones import Tombstones
from qos.core.quota import Ledger, Quotas
from qos.core.strings import bare
from qos.errors import CannotWithdraw

ACCOUNT = "lamp@x"
FIRST = "lamp@x/1"
JIDS = (FIRST, "lamp@x/2", "lamp@x/3")
OWN = ("door@x/a", "door@x/b")
STRANGERS = ("cat@y/1", "cat@y/2")

QUOTAS = Quotas(messages=2, bytes=12, total_messages=3, total_bytes=15)
WINDOW_MAX = 4
HOLD_TTL_S = 60.0
TOMBSTONES_MAX = 4
#: With this jitter and backoff an attempt is due after 1 to 4 seconds.
JITTER = 0.5
BACKOFF = Backoff(first_s=1.0, max_s=8.0)


class Crash(Exception):
    """The process ends after this effect."""


@dataclass(eq=False)
class Process:
    """One end: it is up or down, and can die."""

    up: bool = True
    #: The number of effects until the process dies; None: it does not die.
    fuse: int | None = None

    def burn(self) -> None:
        """Count an effect that was performed."""
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                raise Crash

    def die(self) -> None:
        """Lose what is in memory."""
        self.up, self.fuse = False, None

    @contextmanager
    def mortal(self) -> Iterator[None]:
        """Code inside this context may end the process."""
        try:
            yield
        except Crash:
            self.die()


@dataclass
class Truth:
    """The real history of one message."""

    seq: int
    level: Level
    ordered: bool
    handed: int = 0
    #: How many of these had no redelivered mark.
    fresh: int = 0
    #: A receiver said `received`, and then lost the message.
    lost: bool = False
    outcome: OutgoingState | None = None


@dataclass(frozen=True)
class Said:
    """A reply in flight."""

    to: str
    reply: Reply


class Receiver(Protocol):
    """The methods that the network needs of a device."""

    up: bool
    priority: int

    @property
    def features(self) -> frozenset[str]: ...

    def receive(self, request: Request) -> None: ...

    def idle(self) -> None: ...


class World:
    """The network, the clock, the ids, and the truth."""

    def __init__(self) -> None:
        self.now = 0.0
        self.flight: list[Request | Said] = []
        self.truth: dict[str, Truth] = {}
        self.bound: dict[str, Receiver] = {}
        self.ids = (f"id-{number}" for number in itertools.count())
        self.sender = Sender(self)

    def message_of(self, stanza: Request | Said) -> str | None:
        """The message that one of our stanzas is about."""
        iq_id = stanza.iq_id if isinstance(stanza, Request) else stanza.reply.iq_id
        return self.sender.asked.get(iq_id)

    def handed_over(self, record: Incoming) -> None:
        """The application has acted."""
        truth = self.truth.get(record.payload)
        if truth is None:
            assert record.source in STRANGERS
            return
        assert truth.outcome is not OutgoingState.NOT_DELIVERED
        if truth.level is Level.ASSURED and not record.redelivered:
            truth.fresh += 1
            assert truth.fresh == 1, "handed over twice without the mark"
        if truth.ordered and not truth.handed:
            for earlier in self.truth.values():
                if earlier.ordered and earlier.seq < truth.seq:
                    assert earlier.handed or earlier.outcome, "out of order"
        truth.handed += 1

    def ended(self, record: Outgoing) -> None:
        """The sender forgets a message; the outcome that it reports must be true."""
        truth = self.truth[record.msg_id]
        assert truth.outcome is None
        truth.outcome = record.state
        if record.state is OutgoingState.DELIVERED:
            assert truth.handed, "delivered, but nobody has it"
        if record.state is OutgoingState.NOT_DELIVERED:
            assert not truth.handed, "not delivered, but somebody has it"

    def arrive(self, stanza: Request | Said, *, silent: bool = False) -> None:
        """Deliver a stanza, if its receiver is up."""
        self.flight.remove(stanza)
        if isinstance(stanza, Said):
            self.sender.hear(stanza)
            return
        device = self.bound.get(stanza.to)
        if device is not None and device.up:
            self.sender.see(stanza.to)
            device.receive(stanza)
        elif not silent:
            self.say(stanza, Reply(stanza.iq_id, stanza.to, "service-unavailable"))

    def say(self, request: Request, reply: Reply) -> None:
        """Send a reply."""
        if request.source in OWN:
            self.flight.append(Said(request.source, reply))

    def settle_down(self) -> None:
        """Deliver everything in flight over a perfect network, without crashes."""
        for _ in range(500):
            if self.flight:
                self.arrive(self.flight[0])
            for device in list(self.bound.values()):
                device.idle()
            if not self.flight:
                self.sender.pump()
            if not self.flight:
                return
        raise AssertionError("the two ends talk for ever")


class Sender(Process):
    """The sending end."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.disk: dict[str, Outgoing] = {}
        self.records: dict[str, Outgoing] = {}
        self.flow = Flow(WINDOW_MAX)
        self.own: str | None = OWN[0]
        #: Every iq id ever used, and the message it was for.
        self.asked: dict[str, str] = {}
        self.bytes_of: dict[str, Request] = {}

    def submit(
        self, to: str, level: Level, size: int, *, ordered: bool, ttl_s: float | None
    ) -> None:
        """Accept a message."""
        now, seq = self.world.now, len(self.world.truth)
        record = Outgoing(
            msg_id=f"m{seq}",
            seq=seq,
            to=to,
            level=level,
            payload=f"m{seq}",
            size=size,
            created_at=now,
            expires_at=None if ttl_s is None else now + ttl_s,
            ordered=ordered,
            offer_id=next(self.world.ids),
            deliver_id=next(self.world.ids),
        )
        self.world.truth[record.msg_id] = Truth(seq, level, ordered)
        self.disk[record.msg_id] = self.records[record.msg_id] = record

    def act(self, record: Outgoing, input_: SenderInput, **more: object) -> None:
        """Take one step, effect by effect."""
        at = SenderAt(
            now=self.world.now,
            jitter=JITTER,
            backoff=BACKOFF,
            new_id=lambda: next(self.world.ids),
            own=self.own or "",
        )
        at = at._replace(**more)  # type: ignore[arg-type]  # by name
        record, effects = sender.step(record, input_, at)
        self.records[record.msg_id] = record
        if record.state is not OutgoingState.QUEUED:
            self.flow.update(record)
        for effect in effects:
            self.perform(effect)
            self.burn()
        if record.state.ended:
            del self.records[record.msg_id]
            self.flow.end(record)
        if input_ is SenderInput.CONFIRMED:
            self.flow.delivered()
        if input_ is SenderInput.CONSTRAINED:
            self.flow.constrained()

    def perform(self, effect: Effect) -> None:
        """Perform the effects of a step."""
        assert isinstance(effect, Save | Forget | Transmit | Settle)
        record = effect.record
        assert isinstance(record, Outgoing)
        if isinstance(effect, Save):
            self.disk[record.msg_id] = replace(
                record,
                addressed=frozenset(),
                asked_in=NAMESPACES[0],
                unanswered=False,
                absent=False,
                doubted=False,
                tries=0,
                due_at=0.0,
                condition=None,
                condition_by=None,
            )
        elif isinstance(effect, Forget):
            del self.disk[record.msg_id]
            self.world.ended(record)
        elif isinstance(effect, Transmit):
            self.transmit(effect)

    def transmit(self, effect: Transmit) -> None:
        """Put the iq on the wire."""
        record, route = effect.record, effect.route
        assert self.own is not None
        offer = effect.step == "offer"
        kind = record.level.value if offer else "deliver"
        request = Request(
            kind=kind,  # type: ignore[arg-type]  # one of the two levels
            iq_id=record.offer_id if offer else record.deliver_id,
            source=self.own,
            to=route.jid,
            namespace=route.namespace,
            msg_id="" if kind == "acknowledged" else record.msg_id,
            payload=record.payload if offer else "",
            size=record.size if offer else 0,
            mark="store-of-door",
            hold="" if offer else record.hold or "",
        )
        self.asked[request.iq_id] = record.msg_id
        # docs/design/protocol.md §2.4: the same bytes (only the addresses change).
        content = replace(request, source="", to="")
        assert self.bytes_of.setdefault(request.iq_id, content) == content
        self.world.flight.append(request)

    def pump(self) -> None:
        """Do everything that is due."""
        if not self.up:
            return
        with self.mortal():
            head = True
            for record in sorted(self.records.values(), key=lambda one: one.seq):
                if record.expires_at is not None and record.expires_at <= self.now:
                    self.act(record, SenderInput.DEADLINE)
                elif self.own is None:
                    continue
                elif record.state is OutgoingState.RECEIVED:
                    if self.flow.may_release(record):
                        self.act(record, SenderInput.RELEASE)
                elif record.state is not OutgoingState.QUEUED:
                    if record.due_at <= self.now:
                        self.attempt(record)
                elif head:
                    # No message may overtake: an ordered one waits for all before it.
                    due = record.due_at <= self.now and self.flow.admits(record)
                    head = due and self.attempt(record)

    @property
    def now(self) -> float:
        """The time."""
        return self.world.now

    def attempt(self, record: Outgoing) -> bool:
        """Make an attempt, if there is a route."""
        resources = [
            Resource(jid, device.priority, device.features)
            for jid, device in self.world.bound.items()
            if device.up
        ]
        if "/" in record.to:
            known = {one.jid: one.features for one in resources}
            features = known.get(record.to, frozenset())
            absent = record.to not in known
            route = to_jid(record, features, NAMESPACES, absent=absent)
        else:
            found = choose(record, resources, NAMESPACES)
            if found is None:
                self.act(record, SenderInput.NO_ROUTE)
                return False
            route = found
        if record.state is OutgoingState.QUEUED:
            self.flow.begin(record)
        self.act(record, SenderInput.ATTEMPT, route=route)
        return True

    def hear(self, said: Said) -> None:
        """Handle a reply."""
        record = self.records.get(self.asked[said.reply.iq_id])
        if not self.up or self.own != said.to or record is None:
            return
        input_ = classify(record, said.reply, own=self.own)
        if input_ is not None:
            with self.mortal():
                self.act(record, input_, reply=said.reply)

    def see(self, jid: str) -> None:
        """Handle presence, which comes before anything that the server returns."""
        for record in self.records.values():
            if record.flow == bare(jid):
                self.records[record.msg_id] = sender.peer_available(record)

    def withdraw(self, msg_id: str) -> None:
        """Withdraw a message, if that is possible."""
        record = self.records[msg_id]
        with self.mortal():
            try:
                self.act(record, SenderInput.WITHDRAW)
            except CannotWithdraw:
                assert record.delivers or record.level is Level.ACKNOWLEDGED

    def die(self) -> None:
        """Lose what is in memory."""
        super().die()
        self.own = None
        self.records = {}

    def start(self) -> None:
        """Begin from the disk."""
        self.up = True
        self.flow = Flow(WINDOW_MAX)
        for record in sorted(self.disk.values(), key=lambda one: one.seq):
            self.records[record.msg_id] = sender.resumed(record, self.now)
            if record.state is not OutgoingState.QUEUED:
                self.flow.begin(record)

    def connect(self, own: str) -> None:
        """Begin a session."""
        self.own = own
        with self.mortal():
            for ahead, record in enumerate(list(self.records.values())):
                self.act(record, on_session(record, own=own, ahead=ahead))


class Device(Process):
    """A receiving end of ours."""

    features = frozenset({NAMESPACES[0], MARKS_NAMESPACE})

    def __init__(self, world: World, priority: int = 0) -> None:
        super().__init__()
        self.world = world
        self.priority = priority
        self.trusts = True
        #: The application has a handler.
        self.takes = True
        self.disk: dict[str, Incoming] = {}
        self.start()

    def start(self) -> None:
        """Begin from the disk."""
        self.up = True
        self.ledger = Ledger(QUOTAS)
        self.tombstones = Tombstones(count_max=TOMBSTONES_MAX, ttl_s=1e9)
        self.records = dict(self.disk)
        self.waiting: dict[str, list[Request]] = {}
        self.handing: dict[str, Request | None] = {}
        self.untaken: set[str] = set()
        with self.mortal():
            for key, record in sorted(
                self.records.items(), key=lambda item: item[1].changed_at
            ):
                if record.state in {IncomingState.DONE, IncomingState.EXPIRED}:
                    for old in self.tombstones.add(record):
                        self.act(old.key, ReceiverInput.FORGET)
                    continue
                self.ledger.reserve(bare(record.source), record.size)
                if record.state is IncomingState.RELEASING:
                    self.act(key, ReceiverInput.RESTART)

    def wipe(self) -> None:
        """Come back with an empty store."""
        for record in self.disk.values():
            if record.payload in self.world.truth:
                self.world.truth[record.payload].lost = True
        self.disk = {}
        self.start()

    def receive(self, request: Request) -> None:
        """Take a request."""
        with self.mortal():
            self.handle(request)

    def handle(self, request: Request) -> None:
        """Answer a request, now or later."""
        token = next(self.world.ids)
        self.act(
            key_of(request, token),
            ReceiverInput(request.kind),
            request,
            token=token,
            trusted=self.trusts,
            exceeded=self.ledger.refusal(bare(request.source), request.size),
        )

    def act(
        self,
        key: str,
        input_: ReceiverInput,
        request: Request | None = None,
        **more: object,
    ) -> None:
        """Take one step, effect by effect."""
        before = self.records.get(key)
        at = At(self.world.now)._replace(**more)  # type: ignore[arg-type]  # by name
        after, effects = receiver.step(before, input_, at, request)
        if after is not before:
            if before is not None:
                self.tombstones.discard(before)
            self.records.pop(key, None)
            if after is not None:
                self.records[key] = after
        for effect in effects:
            self.perform(effect, key, request)
            self.burn()
        if after is before:
            return
        if after and after.state in {IncomingState.DONE, IncomingState.EXPIRED}:
            for old in self.tombstones.add(after):
                self.act(old.key, ReceiverInput.FORGET)
        if not after or after.state is not IncomingState.RELEASING:
            for waiting in self.waiting.pop(key, []):
                self.handle(waiting)

    def perform(self, effect: Effect, key: str, request: Request | None) -> None:
        """Perform the effects of a step."""
        match effect:
            case Reserve(record):
                self.ledger.reserve(bare(record.source), record.size)
            case Refund(record):
                self.ledger.refund(bare(record.source), record.size)
            case Save(Incoming() as record):
                self.disk[key] = replace(record, redelivered=False)
            case Forget():
                self.disk.pop(key, None)
            case Deliver() if not self.takes:
                self.act(key, ReceiverInput.NOT_TAKEN, request)
            case Deliver(record):
                self.world.handed_over(record)
                answered = record.level is Level.ACKNOWLEDGED and not record.mark
                self.handing[key] = None if answered else request
                self.act(key, ReceiverInput.IN_HAND, request)
            case Retry():
                self.untaken.add(key)
            case Defer():
                assert request is not None
                self.waiting.setdefault(key, []).append(request)
            case Answer():
                if request is not None:
                    self.answer(request, effect)
                for repeat in self.waiting.pop(key, []) if effect.repeats else []:
                    self.answer(repeat, effect)
            case _:
                assert isinstance(effect, Report)

    def answer(self, request: Request, answer: Answer) -> None:
        """Answer a request."""
        reply = Reply(
            request.iq_id,
            request.to,
            answer.condition or None,
            answer.error_type,
            request.msg_id if answer.kind == "received" else None,
            answer.hold or None,
            request.namespace,
        )
        self.world.say(request, reply)

    def hand_over(self, key: str) -> None:
        """The application has returned."""
        with self.mortal():
            self.act(key, ReceiverInput.HANDED_OVER, self.handing.pop(key))

    def idle(self) -> None:
        """Do everything that is due."""
        self.takes = True
        for key in list(self.untaken):
            self.untaken.discard(key)
            with self.mortal():
                self.act(key, ReceiverInput.RESTART)
        for key in list(self.handing):
            self.hand_over(key)
        for key, record in list(self.records.items()):
            held = record.state is IncomingState.HELD
            if held and record.changed_at + HOLD_TTL_S <= self.world.now:
                self.expire(key)

    def expire(self, key: str) -> None:
        """A message has been held for too long."""
        with self.mortal():
            self.act(key, ReceiverInput.EXPIRE)

    def expire_if(self, pick: int) -> None:
        """Expire one of the held messages."""
        held = [one for one in self.held if one.state is IncomingState.HELD]
        if held:
            self.expire(held[pick % len(held)].key)

    def evict(self, pick: int) -> None:
        """Forget one of the ended messages."""
        ended = {IncomingState.DONE, IncomingState.EXPIRED}
        keys = [one.key for one in self.records.values() if one.state in ended]
        if keys:
            with self.mortal():
                self.act(keys[pick % len(keys)], ReceiverInput.FORGET)

    @property
    def held(self) -> list[Incoming]:
        """The messages that count towards the quotas."""
        counted = {IncomingState.HELD, IncomingState.RELEASING}
        return [one for one in self.records.values() if one.state in counted]

    def check(self) -> None:
        """Check that the ledger agrees with the held messages and the quotas."""
        if not self.up:
            return
        sizes: Counter[str] = Counter()
        for record in self.held:
            sizes[bare(record.source)] += record.size
        counts = Counter(bare(record.source) for record in self.held)
        assert self.ledger.used() == (counts.total(), sizes.total())
        assert self.ledger.accounts == len(counts)
        for account, count in counts.items():
            assert self.ledger.used(account) == (count, sizes[account])
            assert count <= QUOTAS.messages
            assert sizes[account] <= QUOTAS.bytes
        assert counts.total() <= QUOTAS.total_messages
        assert sizes.total() <= QUOTAS.total_bytes


class PlainDevice:
    """A receiver that is not ours: the proto-XEP and nothing else, in memory."""

    features = frozenset({NAMESPACES[0]})
    priority = 0

    def __init__(self, world: World) -> None:
        self.world = world
        self.up = True
        self.held: dict[tuple[str, str], Incoming] = {}
        self.tidies = False

    def receive(self, request: Request) -> None:
        """Answer as the proto-XEP says."""
        reply = Reply(request.iq_id, request.to)
        key = (request.source, request.msg_id)
        if request.kind == "acknowledged":
            self.world.handed_over(self._incoming(request))
        elif request.kind == "deliver":
            record = self.held.pop(key, None)
            if record is not None:
                self.world.handed_over(record)
        elif key not in self.held and len(self.held) >= QUOTAS.messages:
            reply = Reply(request.iq_id, request.to, "resource-constraint", "wait")
        else:
            self.held.setdefault(key, self._incoming(request))
            reply = replace(reply, received=request.msg_id, namespace="jabber:client")
        self.world.say(request, reply)

    def _incoming(self, request: Request) -> Incoming:
        return Incoming(
            key="",
            msg_id=request.msg_id,
            source=request.source,
            to=request.to,
            level=Level.ASSURED,
            payload=request.payload,
            size=request.size,
            received_at=self.world.now,
            changed_at=self.world.now,
        )

    def idle(self) -> None:
        """Drop what nobody will ask for again: the text has no expiry.

        Only in the end: else it would be a fault that this page names:
        docs/promises.md#to-a-receiver-that-is-not-ours.
        """
        own, wanted = self.world.sender.own, self.world.sender.disk
        if self.tidies:
            self.held = {
                key: record
                for key, record in self.held.items()
                if key[0] == own and key[1] in wanted
            }


SIZES = st.integers(1, 6)
LEVELS = st.sampled_from((Level.ASSURED, Level.ASSURED, Level.ACKNOWLEDGED))
DEADLINES = st.sampled_from((None, None, 3.0, 20.0))
PICK = st.integers(0, 63)
SENDER_FAULTS = st.sampled_from(("reconnect", "reconnect", "die", "disconnect"))
DEVICE_FAULTS = st.sampled_from(
    (
        "dies",
        "dies",
        "moves",
        "is wiped",
        "is wiped",
        "memories are evicted",
        "memories are evicted",
        "holds expire",
        "goes away",
        "trust",
        "has no handler",
    )
)


class EitherPeer(RuleBasedStateMachine):
    """The rules for any kind of peer."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.sender = self.world.sender

    # The rule that is always enabled.
    @rule(seconds=st.sampled_from((0.0, 1.0, 4.0, 30.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.sender.pump()

    @precondition(lambda self: self.sender.up and len(self.world.truth) < 6)
    @rule(
        to=st.sampled_from((FIRST, ACCOUNT)),
        level=LEVELS,
        size=SIZES,
        ordered=st.booleans(),
        ttl_s=DEADLINES,
    )
    def message(
        self, to: str, level: Level, size: int, ordered: bool, ttl_s: float | None
    ) -> None:
        self.submit(to, level, size, ordered, ttl_s)

    def submit(
        self, to: str, level: Level, size: int, ordered: bool, ttl_s: float | None
    ) -> None:
        self.sender.submit(to, level, size, ordered=ordered, ttl_s=ttl_s)
        self.sender.pump()

    @precondition(lambda self: self.sender.records)
    @rule(pick=PICK)
    def withdraw(self, pick: int) -> None:
        ids = sorted(self.sender.records)
        self.sender.withdraw(ids[pick % len(ids)])

    @precondition(lambda self: self.world.flight)
    @rule(pick=PICK)
    def lose(self, pick: int) -> None:
        self.world.flight.pop(pick % len(self.world.flight))

    @precondition(lambda self: self.world.flight)
    @rule()
    def lose_all_answers(self) -> None:
        flight = self.world.flight
        flight[:] = [one for one in flight if isinstance(one, Request)]

    @rule(fault=SENDER_FAULTS, more=PICK)
    def sender_has_trouble(self, fault: str, more: int) -> None:
        own = OWN[more % len(OWN)]
        if not self.sender.up:
            self.sender.start()
            self.sender.connect(own)
        elif fault == "reconnect":
            self.sender.connect(own)
        elif fault == "die":
            self.sender.fuse = 1 + more % 4
        else:
            self.sender.own = None
        self.sender.pump()

    @precondition(lambda self: self.world.flight)
    @rule(stanzas=st.integers(1, 6))
    def good_weather(self, stanzas: int) -> None:
        for _ in range(stanzas):
            if self.world.flight:
                self.world.arrive(self.world.flight[0])
            for device in list(self.world.bound.values()):
                device.idle()
        self.sender.pump()

    @rule()
    def all_is_well(self) -> None:
        self.world.settle_down()

    def finish(self) -> None:
        """With a perfect network and enough time every message ends."""
        world = self.world
        self.sender.fuse = None
        if not self.sender.up:
            self.sender.start()
        self.sender.connect(OWN[0])
        for _ in range(200):
            world.settle_down()
            if not self.sender.disk:
                break
            world.now += 3.0
        assert not self.sender.disk, "a message never ends"
        for truth in world.truth.values():
            assert truth.outcome
            if truth.outcome is OutgoingState.DELIVERED:
                assert truth.handed or truth.lost, "delivered, but nobody had it"
        assert self.sender.flow.in_flight == 0


class OurPeer(EitherPeer):
    """A receiver of ours: the marks must hold against everything."""

    @initialize(stores_go=st.booleans())
    def begin(self, stores_go: bool) -> None:
        self.stores_go = stores_go
        self.devices = [Device(self.world, priority) for priority in (1, 2)]
        self.world.bound[FIRST] = self.devices[0]
        self.submit(FIRST, Level.ASSURED, size=1, ordered=True, ttl_s=None)

    # Twice as likely as each fault, so that messages get far enough to fail.
    @precondition(lambda self: self.world.flight)
    @rule()
    def next_arrives(self) -> None:
        self.world.arrive(self.world.flight[0])

    def _device(self, pick: int) -> Device:
        return self.devices[pick % len(self.devices)]

    @precondition(lambda self: self.world.flight)
    @rule(pick=PICK, silent=st.booleans())
    def arrive(self, pick: int, silent: bool) -> None:
        flight = self.world.flight
        self.world.arrive(flight[pick % len(flight)], silent=silent)

    @precondition(lambda self: self.world.flight)
    @rule(pick=PICK)
    def duplicate(self, pick: int) -> None:
        stanza = self.world.flight[pick % len(self.world.flight)]
        message = self.world.message_of(stanza)
        assert message is not None
        deliver = isinstance(stanza, Request) and stanza.kind == "deliver"
        assured = self.world.truth[message].level is Level.ASSURED
        if assured and not (deliver and self.stores_go):
            self.world.flight.append(stanza)

    @precondition(lambda self: self.world.flight)
    @rule(
        pick=PICK,
        condition=st.sampled_from(
            ("recipient-unavailable", "remote-server-timeout", "service-unavailable")
        ),
    )
    def server_gives_up(self, pick: int, condition: str) -> None:
        """The peer's answer is lost with its connection; its server says so."""
        flight = self.world.flight
        index = pick % len(flight)
        said = flight[index]
        if isinstance(said, Said):
            reply = Reply(said.reply.iq_id, said.reply.source, condition)
            flight[index] = replace(said, reply=reply)

    @rule(pick=PICK, which=PICK)
    def application_returns(self, pick: int, which: int) -> None:
        device = self._device(which)
        keys = sorted(device.handing)
        if device.up and keys:
            device.hand_over(keys[pick % len(keys)])

    @rule(which=PICK, fault=DEVICE_FAULTS, more=PICK)
    def device_has_trouble(self, which: int, fault: str, more: int) -> None:
        device = self._device(which)
        jid = JIDS[more % len(JIDS)]
        if not device.up:
            device.start()
        elif fault == "dies":
            device.fuse = 1 + more % 4
        elif fault == "moves":
            # To a free resource, or to one that it takes from the other device.
            if jid not in self.world.bound or self.stores_go:
                self._move(device, jid)
        elif fault == "goes away":
            self._unbind(device)
        elif fault == "is wiped" and self.stores_go:
            device.wipe()
        elif fault == "trust":
            device.trusts = not device.trusts
        elif fault == "has no handler":
            device.takes = not device.takes
        elif fault == "holds expire":
            device.expire_if(more)
        elif fault == "memories are evicted" and self.stores_go:
            device.evict(more)

    def _unbind(self, device: Device) -> None:
        for jid, one in list(self.world.bound.items()):
            if one is device:
                del self.world.bound[jid]

    def _move(self, device: Device, jid: str) -> None:
        self._unbind(device)
        self.world.bound[jid] = device

    @rule(
        which=PICK,
        kind=st.sampled_from(("assured", "deliver", "acknowledged")),
        source=st.sampled_from(STRANGERS),
        msg_id=st.sampled_from("12"),
        size=SIZES,
    )
    def stranger_asks(
        self, which: int, kind: str, source: str, msg_id: str, size: int
    ) -> None:
        """A foreign sender that counts from 1 and fills the quotas."""
        device = self._device(which)
        request = Request(
            kind=kind,  # type: ignore[arg-type]  # one of the three
            iq_id="1",
            source=source,
            to=FIRST,
            namespace=NAMESPACES[0],
            msg_id=msg_id,
            payload="cat",
            size=size,
        )
        if device.up:
            device.receive(request)

    @invariant()
    def ledgers_are_right(self) -> None:
        for device in getattr(self, "devices", ()):
            device.check()

    def teardown(self) -> None:
        for device in self.devices:
            device.fuse = None
            if not device.up:
                device.start()
            device.trusts = device.takes = True
        # No device and no wanted JID stays away for ever. If a hold is lost for good, a
        # device must be there to say so.
        for device in self.devices:
            if device not in self.world.bound.values():
                self._move(device, next(j for j in JIDS if j not in self.world.bound))
        holds = {
            one.hold
            for device in self.devices
            for one in device.records.values()
            if one.state is not IncomingState.EXPIRED
        }
        records = self.sender.disk.values()
        lost = {one.peer for one in records if one.peer and one.hold not in holds}
        for jid in {FIRST, *lost} - set(self.world.bound):
            self.devices.append(Device(self.world))
            self.world.bound[jid] = self.devices[-1]
        self.finish()
        # Twice: an `assured` that waited for a hand-over is held when that is done.
        for _ in range(2):
            self.world.now += HOLD_TTL_S
            self.world.settle_down()
            for device in self.devices:
                device.idle()
        for device in self.devices:
            assert device.ledger.used() == (0, 0)
            assert device.ledger.accounts == 0


class PlainPeer(EitherPeer):
    """A receiver that is not ours, without the faults of its own.

    It does not die, forget or change places, and no stanza overtakes another: see
    docs/promises.md#to-a-receiver-that-is-not-ours.
    """

    @initialize()
    def begin(self) -> None:
        self.device = PlainDevice(self.world)
        self.world.bound[FIRST] = self.device

    @precondition(lambda self: self.world.flight)
    @rule(answer=st.booleans(), silent=st.booleans())
    def arrive(self, answer: bool, silent: bool) -> None:
        kind = Said if answer else Request
        first = next((one for one in self.world.flight if isinstance(one, kind)), None)
        if first is not None:
            self.world.arrive(first, silent=silent)

    @rule(up=st.booleans())
    def peer_is_away_or_back(self, up: bool) -> None:
        self.device.up = up

    def teardown(self) -> None:
        self.device.up = True
        self.device.tidies = True
        self.finish()


EXAMPLES = int(os.environ.get("QOS_EXAMPLES", "0"))
PROFILE = settings(
    max_examples=EXAMPLES or 120,
    stateful_step_count=50,
    derandomize=not EXAMPLES,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)

# A loaded machine may need longer than a test normally gets; a search has no time
# limit.
timeout = pytest.mark.timeout(0 if EXAMPLES else 300)
TestOurPeer = timeout(OurPeer.TestCase)
TestOurPeer.settings = PROFILE
TestPlainPeer = timeout(PlainPeer.TestCase)
TestPlainPeer.settings = PROFILE


# --- found by the machines above ----------------------------------------------


def _time_for_everything(world: World) -> None:
    for _ in range(100):
        world.settle_down()
        world.now += 10.0


def test_an_ordered_message_gets_room_before_those_that_wait_for_it() -> None:
    """Otherwise neither moves again: its followers fill the peer's room."""
    world = World()
    world.bound[FIRST] = PlainDevice(world)
    for _ in range(3):
        world.sender.submit(FIRST, Level.ASSURED, 1, ordered=True, ttl_s=None)
    world.sender.pump()
    world.flight.pop(0)
    _time_for_everything(world)
    assert [truth.handed for truth in world.truth.values()] == [1, 1, 1]


def test_a_hold_that_has_expired_under_another_resource_leaves_doubt() -> None:
    """The device knows that it never handed it over, and has no way to say so.

    Item-not-found from another resource means "not mine", so the message waits
    for its deadline (docs/promises.md).
    """
    world = World()
    device = Device(world)
    world.bound["lamp@x/2"] = device
    world.sender.submit(ACCOUNT, Level.ASSURED, 1, ordered=False, ttl_s=500.0)
    world.sender.pump()
    for _ in range(2):  # the offer, its answer
        world.arrive(world.flight[0])
    world.sender.pump()
    world.flight.clear()  # the first deliver
    world.bound = {"lamp@x/3": device}
    device.expire_if(0)
    _time_for_everything(world)
    assert world.truth["m0"].outcome is OutgoingState.IN_DOUBT
