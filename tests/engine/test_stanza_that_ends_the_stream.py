"""A stanza over the limit of the server ends the stream; and then it ends alone."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from qos.core.backoff import Backoff
from qos.core.message.effects import Transmit
from qos.core.message.model import Level, Outgoing, OutgoingState, Route
from qos.core.message.sender_table import Reply
from qos.core.stanza_sizes import StanzaSizes
from qos.engine import Delivery, Outbox, OutboxLimits
from qos.engine.outbox_message import Stanzas
from qos.stores import MemoryStore
from qos.stores.base import Contents, stored
from qos.testing.clock import ManualClock
from two_ends import settle

OWN = "controller@example.org/1"
LAMP, DOOR = "lamp@example.org/1", "door@example.org/1"
KB = 1_000
SMALL, LARGE = 200, 30 * KB
STEP_S = 0.05
DELAY_S = 0.2
AWAY_S = 2.0

#: A request has so many bytes more than its payload.
AROUND = 250


def size_of(transmit: Transmit) -> int:
    return AROUND + (transmit.record.size if transmit.step == "offer" else 0)


class Server:
    """A server that ends the stream at a stanza over its limit, and peers behind it.

    Attributes:
        limit: the most bytes of a stanza.
        absent: the peers that answer nothing.
        ends: the sizes of the stanzas that have ended a stream.
        sessions: the sizes of the offers of each session, as they were written.
        others: how many other offers had no answer, whenever a stanza was written that
            is over the limit.
    """

    def __init__(self) -> None:
        self.clock = ManualClock(1000.0)
        self.limit = 20 * KB
        self.absent: set[str] = set()
        self.ends: list[int] = []
        self.sessions: list[list[int]] = [[]]
        self.others: list[int] = []
        self._unanswered: set[str] = set()
        self._ids = itertools.count()
        self.store = MemoryStore()
        self.sizes = StanzaSizes()
        self.outbox = self._new_outbox(self.store.open())

    def _new_outbox(self, contents: Contents) -> Outbox:
        return Outbox(
            self.store,
            contents,
            self,
            clock=self.clock,
            backoff=Backoff(first_s=2.0, max_s=300.0),
            limits=OutboxLimits(),
            stanzas=Stanzas(self.sizes, size_of),
        )

    def end(self, size: int) -> None:
        """End the stream; the sender comes back after a while."""
        self.ends.append(size)
        iq_id = self.sizes.ended(self.clock.now())
        if iq_id is not None:
            self.outbox.in_flight.not_taken(iq_id)
        self.outbox.session_lost()
        self.sessions.append([])
        self.clock.call_at(self.clock.now() + AWAY_S, self.begin)

    def begin(self) -> None:
        self._unanswered.clear()
        self.sizes.started(self.clock.now())
        self.outbox.session_started(OWN)

    # -- the port ----------------------------------------------------------

    def route(self, record: Outgoing) -> Route | None:
        return Route(record.to, marked=True)

    def transmit(self, transmit: Transmit) -> bool:
        record, offer = transmit.record, transmit.step == "offer"
        iq_id = record.offer_id if offer else record.deliver_id
        size = size_of(transmit)
        if size > self.sizes.largest:
            self.sizes.written(iq_id, size, self.clock.now())
        if offer:
            self.sessions[-1].append(size)
            if size > self.limit:
                self.others.append(len(self._unanswered))
        self._unanswered.add(iq_id)
        session = len(self.sessions)
        self.later(lambda: self._read(transmit, iq_id, size, session))
        return True

    def later(self, call: object) -> None:
        assert callable(call)
        self.clock.call_at(self.clock.now() + DELAY_S, call)

    def _read(self, transmit: Transmit, iq_id: str, size: int, session: int) -> None:
        if session != len(self.sessions):
            return
        if size > self.limit:
            self.end(size)
        elif transmit.record.to not in self.absent:
            self.later(lambda: self._answer(transmit, iq_id, session))

    def _answer(self, transmit: Transmit, iq_id: str, session: int) -> None:
        if session != len(self.sessions):
            return
        self._unanswered.discard(iq_id)
        record = transmit.record
        held = transmit.step == "offer" and record.level is Level.ASSURED
        self.sizes.answered(iq_id)
        self.outbox.in_flight.reply(
            Reply(
                iq_id,
                record.to,
                received=record.msg_id if held else None,
                hold="hold" if held else record.hold,
            )
        )

    def ping(self) -> bool:
        session = len(self.sessions)

        def answered() -> None:
            if session == len(self.sessions):
                self.outbox.in_flight.answered_ping()

        self.clock.call_at(self.clock.now() + 2 * DELAY_S, answered)
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
        ordered: bool = False,
        deadline_s: float | None = None,
    ) -> Delivery:
        return await self.outbox.submit(
            to, "x" * size, level=level, ordered=ordered, deadline_s=deadline_s
        )

    async def submit_all(
        self, *sizes: int, level: Level = Level.ASSURED
    ) -> list[Delivery]:
        return [await self.submit(size, level) for size in sizes]

    async def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.clock.advance(STEP_S)
            await settle()

    async def until_done(self, limit_s: float) -> None:
        begun = self.clock.now()
        while self.outbox.outstanding:
            await self.run(STEP_S)
            assert self.clock.now() - begun < limit_s, self.sessions

    def restart(self) -> None:
        """Kill the sender, and start it again with what its store has."""
        self.outbox.stop()
        kept = self.sizes.to_text()
        self.sizes = StanzaSizes()
        self.sizes.restore(kept, self.clock.now())
        records = [stored(record) for record in self.store.outgoing()]
        self.outbox = self._new_outbox(
            Contents(
                outgoing=records,
                outbox_messages=len(records),
                outbox_bytes=sum(record.size for record in records),
                next_seq=records[-1].seq + 1,
            )
        )
        self.sessions.append([])


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    made.begin()
    await made.run(1.0)
    yield made
    made.outbox.stop()


async def statuses(deliveries: list[Delivery]) -> list[OutgoingState]:
    outcomes = await asyncio.gather(*(each.outcome() for each in deliveries))
    return [each.status for each in outcomes]


DELIVERED, NOT_DELIVERED = OutgoingState.DELIVERED, OutgoingState.NOT_DELIVERED
LEVELS = [Level.ACKNOWLEDGED, Level.ASSURED]


@pytest.mark.parametrize("level", LEVELS)
async def test_one_message_over_the_limit_stops_no_other(
    server: Server, level: Level
) -> None:
    """Twenty others wait with it; today's users saw 21 connections and no message."""
    small = await server.submit_all(*[SMALL] * 10, level=level)
    (large,) = await server.submit_all(LARGE, level=level)
    small += await server.submit_all(*[SMALL] * 10, level=level)
    await server.until_done(60.0)
    assert await statuses(small) == [DELIVERED] * 20
    outcome = await large.outcome()
    assert outcome.status is NOT_DELIVERED
    assert outcome.condition == "policy-violation"
    assert outcome.by == "example.org"
    assert len(server.ends) == 2


async def test_a_suspect_is_never_tried_first_again(server: Server) -> None:
    """In the next session it goes when all others have been answered, and alone."""
    await server.submit(LARGE)
    await server.submit_all(*[SMALL] * 4)
    await server.submit(SMALL, to=DOOR)
    await server.until_done(60.0)
    assert server.sessions[1][-1] == LARGE + AROUND
    assert server.others[1:] == [0]


async def test_what_comes_while_a_suspect_is_on_its_way_waits(server: Server) -> None:
    """Otherwise it would be lost with the stream, and at level acknowledged in doubt."""
    await server.submit(LARGE)
    await server.run(1.0)
    assert len(server.ends) == 1
    while len(server.others) < 2:
        await server.run(STEP_S)
    late = await server.submit(SMALL, Level.ACKNOWLEDGED)
    assert server.sessions[1] == [LARGE + AROUND]
    await server.until_done(60.0)
    assert await statuses([late]) == [DELIVERED]
    assert server.sessions[2] == [SMALL + AROUND]


async def test_several_over_the_limit_cost_no_stream_each(server: Server) -> None:
    """The smallest of them goes first: what ends it ends all that are larger."""
    sizes = [LARGE + KB * number for number in (3, 1, 4, 2, 0)]
    large = await server.submit_all(*sizes)
    small = await server.submit_all(*[SMALL] * 10)
    await server.until_done(120.0)
    assert await statuses(large) == [NOT_DELIVERED] * 5
    assert await statuses(small) == [DELIVERED] * 10
    assert len(server.ends) <= 3


async def test_what_is_not_over_the_limit_is_delivered_however_large(
    server: Server,
) -> None:
    """Suspects are only tried later, and then trusted again."""
    middle = await server.submit_all(12 * KB, 15 * KB, 19 * KB)
    large = await server.submit(LARGE)
    await server.until_done(120.0)
    assert await statuses(middle) == [DELIVERED] * 3
    assert await statuses([large]) == [NOT_DELIVERED]
    assert len(server.ends) == 2


async def test_the_next_message_over_the_limit_is_not_tried(server: Server) -> None:
    await server.submit(LARGE)
    await server.until_done(60.0)
    assert server.sizes.limit == LARGE + AROUND - 1
    again = await server.submit(LARGE + 1)
    await server.run(1.0)
    server.outbox.session_lost()
    server.begin()
    await server.until_done(60.0)
    assert await statuses([again]) == [NOT_DELIVERED]


async def test_a_limit_that_is_announced_later_ends_what_waits(server: Server) -> None:
    """It was accepted while nothing was known; now nothing has to be tried."""
    server.outbox.session_lost()
    acknowledged = await server.submit(LARGE, Level.ACKNOWLEDGED)
    assured = await server.submit(LARGE)
    small = await server.submit(SMALL)
    server.sizes.announced(server.limit)
    server.begin()
    await server.until_done(60.0)
    assert await statuses([acknowledged, assured]) == [NOT_DELIVERED] * 2
    assert (await assured.outcome()).attempts == 0
    assert await statuses([small]) == [DELIVERED]
    assert server.ends == []


async def test_a_process_that_is_killed_between_two_ends_does_not_begin_anew(
    server: Server,
) -> None:
    """Else a program that is started again at each end would loop for ever."""
    await server.submit(LARGE)
    await server.submit_all(*[SMALL] * 4)
    await server.run(1.0)
    assert len(server.ends) == 1
    server.restart()
    deliveries = [
        server.outbox.delivery(each.msg_id) for each in server.store.outgoing()
    ]
    server.begin()
    await server.until_done(60.0)
    ends = [(await each.outcome()).status for each in deliveries]
    assert sorted(ends, key=str) == [DELIVERED] * 4 + [NOT_DELIVERED]
    assert server.sessions[-2][-1] == LARGE + AROUND
    assert len(server.ends) == 2


async def test_others_without_an_end_do_not_keep_a_suspect_for_ever(
    server: Server,
) -> None:
    """A peer that is away answers nothing; another gets a message each second."""
    server.absent.add(DOOR)
    await server.submit(SMALL, to=DOOR)
    large = await server.submit(LARGE)
    for _ in range(60):
        await server.submit(SMALL)
        await server.run(1.0)
    assert large.ended
    assert len(server.ends) == 2


async def test_a_suspect_may_be_withdrawn_while_it_waits(server: Server) -> None:
    server.absent.add(DOOR)
    waiting = await server.submit(SMALL, to=DOOR)
    large, larger = await server.submit_all(LARGE, LARGE + KB)
    await server.run(AWAY_S + 1.0)
    await large.withdraw()
    await waiting.withdraw()
    await server.until_done(60.0)
    assert await statuses([large, larger]) == [NOT_DELIVERED] * 2
    assert len(server.ends) == 2


async def test_a_larger_limit_is_found_out(server: Server) -> None:
    """An operator has changed it between the two ends."""
    large = await server.submit(LARGE)
    await server.run(1.0)
    assert len(server.ends) == 1
    server.limit = 100 * KB
    await server.until_done(60.0)
    assert await statuses([large]) == [DELIVERED]
    assert server.sizes.limit is None
    assert not server.sizes.careful


async def test_order_is_kept_around_a_message_that_is_over_the_limit(
    server: Server,
) -> None:
    """The later ones are held by the peer meanwhile, and released when it has ended."""
    deliveries = [
        await server.submit(size, ordered=True) for size in (SMALL, LARGE, SMALL, SMALL)
    ]
    await server.until_done(120.0)
    assert await statuses(deliveries) == [
        DELIVERED,
        NOT_DELIVERED,
        DELIVERED,
        DELIVERED,
    ]
    assert len(server.ends) == 2


async def test_a_resumed_session_still_sends_its_suspects_last(server: Server) -> None:
    """A cut of the link says nothing about any of them."""
    server.absent.add(DOOR)
    await server.submit(SMALL, to=DOOR)
    large = await server.submit(LARGE)
    await server.run(AWAY_S + 1.0)
    server.outbox.session_lost()
    server.outbox.session_resumed(OWN, ())
    server.absent.clear()
    await server.until_done(60.0)
    assert await statuses([large]) == [NOT_DELIVERED]
    assert server.others[1:] == [0]


async def test_a_suspect_that_was_never_written_leaves_no_doubt(server: Server) -> None:
    """A session ends while it waits; so at level acknowledged it was not handed over."""
    server.absent.add(DOOR)
    await server.submit(SMALL, to=DOOR)
    large = await server.submit(LARGE, Level.ACKNOWLEDGED, deadline_s=8.0)
    await server.run(AWAY_S + 1.0)
    assert len(server.sessions[1]) == 1
    server.outbox.session_lost()
    server.begin()
    await server.run(8.0)
    assert await statuses([large]) == [NOT_DELIVERED]
    assert len(server.ends) == 1
