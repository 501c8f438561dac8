"""Requests on a slow link: sent once, in time, and never more than a window of bytes."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest

from qos.core.backoff import Backoff
from qos.core.message.effects import Transmit
from qos.core.message.model import Level, Outgoing, OutgoingState, Route
from qos.core.message.sender_table import Reply
from qos.engine import Delivery, Outbox, OutboxLimits
from qos.stores import MemoryStore
from qos.testing.clock import ManualClock
from two_ends import settle

OWN = "controller@example.org/1"
LAMP, DOOR = "lamp@example.org/1", "door@example.org/1"
KB = 1_000

#: A request has about so many bytes more than its payload. An answer has as many.
SMALL = 300
STEP_S = 0.05


@dataclass(slots=True)
class Way:
    """Carries bytes one after the other, each after a delay.

    Attributes:
        clock: the time.
        rate: bytes per second.
        delay_s: from one end to the other.
        carried: how many bytes so far.
    """

    clock: ManualClock
    rate: float = 1e9
    delay_s: float = 0.0
    carried: int = 0
    _free_at: float = 0.0

    def carry(self, size: int, then: Callable[[], object]) -> None:
        self.carried += size
        self._free_at = max(self._free_at, self.clock.now()) + size / self.rate
        self.clock.call_at(self._free_at + self.delay_s, then)


class Link:
    """The way of a sender to its server, of that to the peers, and back. Nothing is lost.

    Attributes:
        up: to the server.
        down: from the server to each peer.
        back: from each peer to the sender.
        absent: the peers that answer nothing.
        reads: False: the server reads nothing at all.
        sent: how often each request was sent, by the id of its iq.
    """

    def __init__(self) -> None:
        self.clock = ManualClock(1000.0)
        self.absent: set[str] = set()
        self.reads = True
        self.sent: Counter[str] = Counter()
        self.up, self.down, self.back = (Way(self.clock) for _ in range(3))
        self._ids = itertools.count()
        store = MemoryStore()
        self.outbox = Outbox(
            store,
            store.open(),
            self,
            clock=self.clock,
            backoff=Backoff(first_s=2.0, max_s=300.0),
            limits=OutboxLimits(),
        )

    # -- the port ----------------------------------------------------------

    def route(self, record: Outgoing) -> Route | None:
        return Route(record.to, marked=True)

    def transmit(self, transmit: Transmit) -> bool:
        record, offer = transmit.record, transmit.step == "offer"
        iq_id = record.offer_id if offer else record.deliver_id
        self.sent[iq_id] += 1
        size = SMALL + (record.size if offer else 0)
        self.up.carry(size, lambda: self._read(transmit, iq_id, size))
        return True

    def _read(self, transmit: Transmit, iq_id: str, size: int) -> None:
        if self.reads and transmit.record.to not in self.absent:
            self.down.carry(size, lambda: self._came(transmit, iq_id))

    def _came(self, transmit: Transmit, iq_id: str) -> None:
        record = transmit.record
        held = transmit.step == "offer" and record.level is Level.ASSURED
        reply = Reply(
            iq_id,
            record.to,
            received=record.msg_id if held else None,
            hold="hold" if held else record.hold,
        )
        self.back.carry(SMALL, lambda: self.outbox.in_flight.reply(reply))

    def ping(self) -> bool:
        answered = self.outbox.in_flight.answered_ping

        def read() -> None:
            if self.reads:
                self.back.carry(100, answered)

        self.up.carry(100, read)
        return True

    def new_id(self) -> str:
        return f"id{next(self._ids)}"

    new_msg_id = new_id

    def jitter(self) -> float:
        return 0.0

    # -- the test ----------------------------------------------------------

    async def submit(
        self,
        size: int,
        level: Level = Level.ASSURED,
        *,
        to: str = LAMP,
        deadline_s: float | None = None,
    ) -> Delivery:
        return await self.outbox.submit(
            to, "x" * size, level=level, deadline_s=deadline_s
        )

    async def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.clock.advance(STEP_S)
            await settle()

    async def until_done(self, limit_s: float) -> float:
        """Run until nothing is outstanding; returns the seconds."""
        begun = self.clock.now()
        while self.outbox.outstanding:
            await self.run(STEP_S)
            assert self.clock.now() - begun < limit_s, self.outbox.outstanding
        return self.clock.now() - begun


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    made = Link()
    made.outbox.session_started(OWN)
    await made.run(1.0)
    yield made
    made.outbox.stop()


@pytest.mark.parametrize(
    ("count", "size", "rate"),
    [(30, 50 * KB, 100 * KB), (8, 150 * KB, 10 * KB), (3, 100 * KB, 3 * KB)],
)
@pytest.mark.parametrize("level", [Level.ACKNOWLEDGED, Level.ASSURED])
@pytest.mark.parametrize("where", ["up", "down"])
async def test_large_messages_go_over_a_slow_link_once(
    link: Link, count: int, size: int, rate: int, level: Level, where: str
) -> None:
    """Whether our own link is the slow one, or that of the peer."""
    way = link.up if where == "up" else link.down
    way.rate = rate
    link.outbox.in_flight.heard("lamp@example.org", 0.1)
    for _ in range(count):
        await link.submit(size, level)
    ideal_s = count * size / rate
    assert await link.until_done(2 * ideal_s) <= 1.15 * ideal_s + 1.0
    assert way.carried <= 1.1 * count * size
    assert set(link.sent.values()) == {1}


@pytest.mark.parametrize("where", ["up", "back"])
async def test_a_round_trip_of_five_seconds_brings_no_repeat(where: str) -> None:
    """A peer was asked for its features before: so its round trip is known."""
    link = Link()
    way = link.up if where == "up" else link.back
    way.delay_s = 5.0
    link.outbox.session_started(OWN)
    link.outbox.in_flight.heard("lamp@example.org", 5.0)
    for level in (Level.ASSURED, Level.ACKNOWLEDGED):
        for _ in range(10):
            await link.submit(200, level)
    await link.until_done(60.0)
    assert set(link.sent.values()) == {1}
    assert len(link.sent) == 30
    link.outbox.stop()


async def test_a_peer_that_answers_nothing_is_asked_again_as_before(link: Link) -> None:
    """The server answers the pings at once: the first delay stays the first delay."""
    link.absent.add(LAMP)
    await link.submit(200)
    await link.run(1.9)
    assert link.sent.total() == 1
    await link.run(0.2)
    assert link.sent.total() == 2
    await link.run(60.0)
    assert link.sent.total() > 5


async def test_nothing_is_repeated_that_the_server_has_not_read(link: Link) -> None:
    """Though it may take minutes; and a server that answers no pings has five."""
    link.reads = False
    await link.submit(200)
    await link.run(290.0)
    assert link.sent.total() == 1
    await link.run(20.0)
    assert link.sent.total() == 2


async def test_a_small_message_does_not_wait_behind_a_large_backlog(link: Link) -> None:
    """Accounts take turns, and no more than a window is on its way."""
    link.up.rate = 20 * KB
    link.outbox.in_flight.flow("lamp@example.org").credited(1000)
    for _ in range(50):
        await link.submit(20 * KB)
    delivery = await link.submit(200, to=DOOR)
    begun = link.clock.now()
    while not delivery.ended:
        await link.run(STEP_S)
    assert link.clock.now() - begun < 10.0
    assert link.outbox.outstanding > 40


async def test_the_window_opens_on_a_fast_link_far_away() -> None:
    """64 kB at first, then twice as much with each round trip."""
    link = Link()
    link.up.delay_s = 0.6
    link.outbox.session_started(OWN)
    link.outbox.in_flight.flow("lamp@example.org").credited(1000)
    await link.run(2.0)
    for _ in range(500):
        await link.submit(2 * KB, Level.ACKNOWLEDGED)
    assert await link.until_done(60.0) < 6.0
    link.outbox.stop()


async def test_a_resumed_session_repeats_nothing_by_itself(link: Link) -> None:
    """The stream writes again what the server has not acknowledged (XEP-0198 §5)."""
    link.up.rate = 2 * KB
    await link.submit(20 * KB)
    await link.submit(200, to=DOOR)
    await link.run(0.5)
    link.outbox.session_lost()
    await link.run(5.0)
    link.outbox.session_resumed(OWN, ())
    await link.until_done(15.0)
    assert set(link.sent.values()) == {1}


async def test_what_the_stream_had_not_written_is_sent_after_a_resumption(
    link: Link,
) -> None:
    """At once: it is certain that it did not leave."""
    link.reads = False
    delivery = await link.submit(200, Level.ACKNOWLEDGED)
    await link.run(0.1)
    link.outbox.session_lost()
    link.reads = True
    link.outbox.session_resumed(OWN, [delivery.msg_id, "of no message"])
    await link.until_done(1.0)
    assert link.sent.total() == 2


async def test_what_waits_for_room_goes_on_after_a_resumption(link: Link) -> None:
    """It was never given to the stream."""
    link.up.rate = 50 * KB
    for _ in range(10):
        await link.submit(60 * KB)
    link.outbox.session_lost()
    assert link.sent.total() == 1
    await link.run(5.0)
    link.outbox.session_resumed(OWN, ())
    await link.until_done(60.0)
    assert set(link.sent.values()) == {1}


async def test_a_new_session_sends_everything_again(link: Link) -> None:
    """What waited for room as well; the window begins anew."""
    link.reads = False
    for _ in range(3):
        await link.submit(60 * KB)
    await link.run(1.0)
    assert link.sent.total() == 1
    link.outbox.session_lost()
    link.reads = True
    link.outbox.session_started(OWN)
    await link.until_done(60.0)
    assert sorted(link.sent.values()) == [1] * 5 + [2]


async def test_what_never_left_ends_without_doubt(link: Link) -> None:
    """At its deadline it still waited for room."""
    link.reads = False
    first = await link.submit(60 * KB, Level.ACKNOWLEDGED, deadline_s=5.0)
    second = await link.submit(60 * KB, Level.ACKNOWLEDGED, deadline_s=5.0)
    await link.run(6.0)
    outcomes = await asyncio.gather(first.outcome(), second.outcome())
    assert [each.status for each in outcomes] == [
        OutgoingState.IN_DOUBT,
        OutgoingState.NOT_DELIVERED,
    ]


async def test_a_peer_that_comes_gets_its_messages_soon(link: Link) -> None:
    """The sender does not wait for answers to earlier copies: the peer was away."""
    link.absent.add(LAMP)
    await link.submit(200)
    await link.run(100.0)
    link.absent.clear()
    link.outbox.in_flight.peer_arrived("lamp@example.org")
    await link.until_done(3.0)
