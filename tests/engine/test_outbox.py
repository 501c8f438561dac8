"""The outbox alone: what it keeps in memory, when it sends, and what it reports."""

import asyncio
import contextlib
import gc
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from qos.core.backoff import Backoff
from qos.core.message.effects import Transmit
from qos.core.message.flow import WINDOW_FIRST
from qos.core.message.model import Ended, Level, Outgoing, OutgoingState, Route
from qos.core.message.sender_table import Reply
from qos.engine import Delivery, Outbox, OutboxLimits, in_flight
from qos.errors import (
    CannotWithdraw,
    LocalProtocolError,
    OutboxFull,
    StillOutstanding,
    StoreError,
    StoreFull,
    UnknownMessage,
)
from qos.stores import MemoryStore, Store, store_from_url
from qos.testing.clock import ManualClock
from simulation.disks import COMMIT_S
from two_ends import settle, slow_store

OWN = "controller@example.org/1"
LAMP = "lamp@example.org/1"
PAYLOAD = "<message xmlns='jabber:client'><body>on</body></message>"


class Port:
    """Records what is sent if `connected`; finds a route for any JID if `reachable`."""

    def __init__(self) -> None:
        self.sent: list[Transmit] = []
        self.reachable = self.connected = True
        #: Called at once for each ping.
        self.answer_ping: Callable[[], None] | None = None
        self._ids = itertools.count()

    def route(self, record: Outgoing) -> Route | None:
        return Route(record.to, marked=True) if self.reachable else None

    def transmit(self, transmit: Transmit) -> bool:
        if self.connected:
            self.sent.append(transmit)
        return self.connected

    def ping(self) -> bool:
        if self.connected and self.answer_ping is not None:
            self.answer_ping()
        return self.connected

    def new_id(self) -> str:
        return f"id{next(self._ids)}"

    new_msg_id = new_id

    def jitter(self) -> float:
        return 0.5


#: Room for one commit.
_STEP_S = 0.01


class Bench:
    """An outbox on a slow store, with its clock and its port."""

    def __init__(self, limits: OutboxLimits) -> None:
        self.clock = ManualClock(1000.0)
        self.store = slow_store(self.clock, "store")
        self.port = Port()
        self.offered: set[str] = set()
        self.limits = limits
        self.outbox = self.start()

    def start(self, store: Store | None = None) -> Outbox:
        store = store or self.store
        outbox = Outbox(
            store,
            store.open(),
            self.port,
            clock=self.clock,
            backoff=Backoff(first_s=2.0, max_s=16.0),
            limits=self.limits,
        )
        self.port.answer_ping = outbox.in_flight.answered_ping
        return outbox

    async def run(self, seconds: float = 0.1) -> None:
        for _ in range(round(seconds / _STEP_S)):
            self.clock.advance(_STEP_S)
            await settle()

    async def submit(
        self,
        level: Level = Level.ASSURED,
        deadline_s: float | None = None,
        *,
        payload: str = PAYLOAD,
        ordered: bool = False,
        msg_id: str | None = None,
        to: str = LAMP,
        account: str = "",
        digest: str = "",
    ) -> Delivery:
        task = asyncio.ensure_future(
            self.outbox.submit(
                to,
                payload,
                level=level,
                deadline_s=deadline_s,
                ordered=ordered,
                msg_id=msg_id,
                account=account,
                digest=digest,
            )
        )
        while not task.done():
            await settle()
            self.clock.advance(COMMIT_S)
        return await task

    def answer(self, transmit: Transmit) -> None:
        """The lamp's answer to this step."""
        self.offered.add(transmit.record.msg_id)
        record = transmit.record
        reply = Reply(record.deliver_id, record.to, hold=record.hold)
        if record.level is Level.ACKNOWLEDGED:
            reply = Reply(record.offer_id, record.to)
        elif transmit.step == "offer":
            reply = Reply(
                record.offer_id, record.to, received=record.msg_id, hold="hold"
            )
        self.outbox.in_flight.reply(reply)

    async def answer_all(self) -> None:
        while self.port.sent:
            for transmit in self.port.sent[:]:
                self.port.sent.remove(transmit)
                self.answer(transmit)
            await self.run()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench(OutboxLimits())
    yield made
    made.outbox.stop()


async def test_on_a_perfect_link_each_step_is_sent_once(bench: Bench) -> None:
    """A timer that fires while the write is under way must not repeat the step."""
    bench.outbox.session_started(OWN)
    delivery = await bench.submit()
    await bench.run()
    assert [sent.step for sent in bench.port.sent] == ["offer"]
    bench.answer(bench.port.sent[0])
    await bench.run()
    assert [sent.step for sent in bench.port.sent] == ["offer", "deliver"]
    bench.answer(bench.port.sent[1])
    await bench.run()
    outcome = await delivery.outcome()
    assert (outcome.status, outcome.attempts) == (OutgoingState.DELIVERED, 2)


async def test_a_message_of_before_the_first_session_leaves_at_once(
    bench: Bench,
) -> None:
    """Whoever starts, sends one message and ends waits for nothing else."""
    delivery = await bench.submit()
    await bench.run(1.0)
    bench.outbox.session_started(OWN)
    await bench.run(2 * _STEP_S)
    assert [sent.step for sent in bench.port.sent] == ["offer"]
    assert delivery.msg_id == bench.port.sent[0].record.msg_id


@pytest.mark.parametrize("level", [Level.ACKNOWLEDGED, Level.ASSURED])
@pytest.mark.parametrize("news", ["peer", "session"])
async def test_an_attempt_that_waits_for_a_write_is_made_once(
    bench: Bench, level: Level, news: str
) -> None:
    """News that come meanwhile are about the state before the attempt."""
    task = asyncio.ensure_future(bench.outbox.submit(LAMP, PAYLOAD, level=level))
    await settle()
    bench.outbox.session_started(OWN)
    if news == "peer":
        bench.outbox.in_flight.peer_arrived("lamp@example.org")
    else:
        bench.outbox.session_lost()
        bench.outbox.session_started(OWN)
    assert bench.port.sent == []
    await bench.run(1.9)
    assert [sent.step for sent in bench.port.sent] == ["offer"]
    await task


@pytest.mark.parametrize("level", [Level.ACKNOWLEDGED, Level.ASSURED])
async def test_a_slow_write_does_not_shorten_the_time_for_the_answer(
    bench: Bench, level: Level
) -> None:
    """Of the first delay, two seconds."""
    bench.outbox.session_started(OWN)
    bench.store.disk.slow = lambda _: 1.5
    task = asyncio.ensure_future(bench.outbox.submit(LAMP, PAYLOAD, level=level))
    await settle()
    await bench.run(1.7)
    assert len(bench.port.sent) == 1
    await bench.run(1.7)
    assert len(bench.port.sent) == 1
    await bench.run(0.3)
    assert len(bench.port.sent) == 2
    await task


async def test_at_a_new_session_the_first_window_goes_at_once(bench: Bench) -> None:
    """The others are spread over the first delay; the port's jitter is half of it."""
    bench.outbox.session_started(OWN)
    window = 2 * WINDOW_FIRST
    flow = bench.outbox.in_flight.flow("lamp@example.org")
    while flow.window < window:
        flow.delivered()
    for _ in range(window):
        await bench.submit()
    await bench.run()
    assert len(bench.port.sent) == window
    bench.port.sent.clear()
    bench.outbox.session_lost()
    bench.outbox.session_started(OWN)
    await bench.run(2 * _STEP_S)
    assert len(bench.port.sent) == WINDOW_FIRST
    await bench.run(1.0)
    assert len(bench.port.sent) == window


async def test_a_peer_that_grants_a_credit_gets_as_many_messages_at_once(
    bench: Bench,
) -> None:
    """The messages that wait for the window leave when its answer has come."""
    bench.outbox.session_started(OWN)
    for _ in range(40):
        await bench.submit()
    await bench.run()
    offers = bench.port.sent[:]
    assert len(offers) == WINDOW_FIRST
    bench.port.sent.clear()
    record = offers[0].record
    bench.outbox.in_flight.reply(
        Reply(record.offer_id, LAMP, received=record.msg_id, hold="hold", credit=30)
    )
    await bench.run()
    steps = [sent.step for sent in bench.port.sent]
    assert steps.count("offer") == 30 - WINDOW_FIRST
    assert steps.count("deliver") == 1


async def test_nothing_is_sent_before_it_is_on_disk(bench: Bench) -> None:
    """Written before sent, at each step."""
    bench.outbox.session_started(OWN)
    task = asyncio.ensure_future(
        bench.outbox.submit(LAMP, PAYLOAD, level=Level.ASSURED)
    )
    await settle()
    assert not bench.port.sent
    assert not task.done()
    bench.clock.advance(COMMIT_S)
    await settle()
    assert task.done()
    assert len(bench.port.sent) == 1
    bench.answer(bench.port.sent[0])
    await settle()
    assert len(bench.port.sent) == 1
    bench.clock.advance(COMMIT_S)
    await settle()
    assert len(bench.port.sent) == 2
    stored = next(iter(bench.store.outgoing()))
    assert (stored.state, stored.delivers) == (OutgoingState.RELEASING, 1)


async def test_a_message_that_is_said_again_under_its_id_is_accepted_once(
    bench: Bench,
) -> None:
    """In flight, queued, and after a restart: an application may repeat its work."""
    bench.outbox.session_started(OWN)
    ids = [f"m{number}" for number in range(WINDOW_FIRST + 2)]
    for msg_id in ids:
        await bench.submit(msg_id=msg_id)
    again = [await bench.submit(msg_id=msg_id) for msg_id in (ids[0], ids[-1])]
    assert bench.outbox.outstanding == len(ids)
    with pytest.raises(LocalProtocolError, match="'m0' is the id of another message"):
        await bench.submit(payload=PAYLOAD.replace("on", "off"), msg_id="m0")
    await bench.answer_all()
    for delivery in again:
        assert (await delivery.outcome()).status is OutgoingState.DELIVERED
    assert bench.outbox.outstanding == 0
    await bench.submit(msg_id="kept")
    bench.outbox.stop()
    bench.outbox = bench.start()
    await bench.submit(msg_id="kept")
    assert bench.outbox.outstanding == 1


async def test_a_message_made_anew_is_the_same_whatever_the_id_of_its_stanza(
    bench: Bench,
) -> None:
    """slixmpp makes a random id for each; older stores have it in the payload."""

    def stanza(stanza_id: str) -> str:
        return PAYLOAD.replace("<message", f"<message id='{stanza_id}'")

    first = await bench.submit(payload=stanza("s1"), msg_id="m1")
    assert await bench.submit(payload=stanza("s2"), msg_id="m1") is first
    bench.outbox.stop()
    bench.outbox = bench.start()
    again = await bench.submit(payload=stanza("s3"), msg_id="m1")
    assert again.msg_id == "m1"
    assert bench.outbox.outstanding == 1
    other = stanza("s1").replace("on", "off")
    with pytest.raises(LocalProtocolError, match="'m1' is the id of another message"):
        await bench.submit(payload=other, msg_id="m1")
    with pytest.raises(LocalProtocolError, match="'m1' is the id of another message"):
        await bench.submit(payload=stanza("s1"), msg_id="m1", to="door@example.org/1")


async def test_outstanding_messages_are_listed_in_the_state_that_they_are_in(
    bench: Bench,
) -> None:
    """Messages in flight are further than on disk; ended ones are left out."""
    bench.outbox.session_started(OWN)
    for number in range(WINDOW_FIRST + 1):
        await bench.submit(deadline_s=60.0 + number, msg_id=f"m{number}")
    listed = bench.outbox.list_outstanding()
    assert len(listed) == WINDOW_FIRST + 1
    assert [each.msg_id for each in listed] == [f"m{n}" for n in range(len(listed))]
    states = [each.state for each in listed]
    assert states == [OutgoingState.OFFERED] * WINDOW_FIRST + [OutgoingState.QUEUED]
    first, *_, last = listed
    assert (first.to, first.level) == (LAMP, Level.ASSURED)
    assert (first.attempts, last.attempts) == (1, 0)
    assert first.accepted_at <= last.accepted_at < bench.clock.now()
    assert last.deadline_at == last.accepted_at + 60.0 + WINDOW_FIRST
    bench.answer(bench.port.sent[0])
    await bench.run()
    assert next(iter(listed)).state is OutgoingState.RELEASING
    await bench.answer_all()
    assert list(listed) == []
    assert repr(listed) == "<0 outstanding messages>"


async def test_a_message_whose_end_is_being_written_is_not_listed(bench: Bench) -> None:
    """It is still on disk in its former state, and will be gone in a moment."""
    delivery = await bench.submit()
    withdrawn = asyncio.ensure_future(delivery.withdraw())
    await settle()
    assert len(list(bench.store.outgoing())) == 1
    assert list(bench.outbox.list_outstanding()) == []
    await bench.run()
    await withdrawn


@pytest.fixture
def few_objects() -> Iterator[None]:
    """Let the garbage collector go through what the test makes, and nothing else."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def records_in_memory() -> int:
    gc.collect()
    return sum(isinstance(each, Outgoing) for each in gc.get_objects())


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize(
    ("kind", "most"), [("memory", 2), ("sqlite", 257), ("files", 2)]
)
async def test_outstanding_messages_are_read_as_they_are_listed(
    kind: str, most: int, tmp_path: Path
) -> None:
    """100,000 messages must not be in memory at once, nor twice."""
    store = store_from_url(f"{kind}:" + ("" if kind == "memory" else f"{tmp_path}/s"))
    bench = Bench(OutboxLimits())
    outbox = bench.start(store)
    said = (
        outbox.submit(LAMP, PAYLOAD, level=Level.ASSURED, msg_id=f"m{number}")
        for number in range(600)
    )
    await asyncio.gather(*said)
    before = records_in_memory()
    more = []
    for number, each in enumerate(outbox.list_outstanding()):
        assert each.msg_id == f"m{number}"
        if number % 100 == 0:
            more.append(records_in_memory() - before)
    assert number == 599
    assert max(more) <= most
    outbox.stop()
    await store.close()


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("waiting", [0, WINDOW_FIRST])
@pytest.mark.parametrize("level", [Level.ASSURED, Level.ACKNOWLEDGED])
async def test_a_message_that_is_said_again_while_it_is_written_is_accepted_once(
    bench: Bench, level: Level, waiting: int, online: bool
) -> None:
    """In flight and queued.

    A caller that was cancelled does not know whether it was accepted.
    """
    if online:
        bench.outbox.session_started(OWN)
    for _ in range(waiting):
        await bench.submit(level)

    def say(payload: str = PAYLOAD) -> asyncio.Task[Delivery]:
        said = bench.outbox.submit(LAMP, payload, level=level, msg_id="m1")
        return asyncio.ensure_future(said)

    cancelled = say()
    await asyncio.sleep(0)
    cancelled.cancel()
    again, once_more, another = say(), say(), say(PAYLOAD.replace("on", "off"))
    await settle()
    assert not again.done(), "it is not on disk yet"
    with pytest.raises(LocalProtocolError, match="'m1' is the id of another message"):
        await another
    await bench.run()
    assert (await again) is (await once_more) is bench.outbox.delivery("m1")
    assert bench.outbox.outstanding == waiting + 1
    kept = [record.msg_id for record in bench.store.outgoing()]
    assert len(kept) == waiting + 1
    bench.outbox.session_started(OWN)
    for _ in range(20):
        await bench.answer_all()
        await bench.run(1)
    assert (await again.result().outcome()).status is OutgoingState.DELIVERED
    assert bench.outbox.outstanding == 0


@pytest.mark.parametrize("waiting", [0, WINDOW_FIRST])
async def test_whoever_asks_for_a_message_that_cannot_be_accepted_is_told(
    bench: Bench, waiting: int
) -> None:
    """Every caller is told, not only the first one."""
    for _ in range(waiting):
        await bench.submit()
    bench.store.disk.full = True

    def say() -> asyncio.Task[Delivery]:
        said = bench.outbox.submit(LAMP, PAYLOAD, level=Level.ASSURED, msg_id="m1")
        return asyncio.ensure_future(said)

    first = say()
    await asyncio.sleep(0)
    delivery = bench.outbox.delivery("m1")
    asking = [
        first,
        say(),
        asyncio.ensure_future(delivery.outcome()),
        asyncio.ensure_future(bench.outbox.outcome("m1")),
        asyncio.ensure_future(delivery.withdraw()),
    ]
    await bench.run()
    for each in asking:
        assert each.done()
        assert isinstance(each.exception(), StoreFull)
    with pytest.raises(StoreFull):
        await delivery.outcome()
    with pytest.raises(UnknownMessage):
        bench.outbox.delivery("m1")
    assert bench.outbox.outstanding == waiting
    bench.store.disk.full = False
    assert (await bench.submit(msg_id="m1")) is bench.outbox.delivery("m1")
    assert bench.outbox.outstanding == waiting + 1


async def test_what_is_withdrawn_while_it_is_being_accepted_is_withdrawn(
    bench: Bench,
) -> None:
    """In the queue as well, where it is unknown until it is written."""
    deliveries = []
    for _ in range(WINDOW_FIRST + 1):
        submitting = asyncio.ensure_future(
            bench.outbox.submit(LAMP, PAYLOAD, level=Level.ASSURED, msg_id="m1")
        )
        await asyncio.sleep(0)
        withdrawing = asyncio.ensure_future(bench.outbox.withdraw("m1"))
        await bench.run()
        await withdrawing
        deliveries.append(await submitting)
        await bench.submit()
    outcomes = [await delivery.outcome() for delivery in deliveries]
    assert {each.status for each in outcomes} == {OutgoingState.NOT_DELIVERED}


@pytest.mark.parametrize("waiting", [0, WINDOW_FIRST])
@pytest.mark.parametrize("cancelled", ["submit", "submit again", "withdraw"])
async def test_nobody_who_is_cancelled_keeps_a_message_from_being_accepted(
    bench: Bench, waiting: int, cancelled: str
) -> None:
    """The write goes on; the other callers get its result."""
    for _ in range(waiting):
        await bench.submit()

    def say() -> asyncio.Task[Delivery]:
        said = bench.outbox.submit(LAMP, PAYLOAD, level=Level.ASSURED, msg_id="m1")
        return asyncio.ensure_future(said)

    first = say()
    await asyncio.sleep(0)
    again = say()
    who: asyncio.Task[Delivery] | asyncio.Task[None] = (
        first if cancelled == "submit" else again
    )
    if cancelled == "withdraw":
        who = asyncio.ensure_future(bench.outbox.withdraw("m1"))
    await settle()
    who.cancel()
    await bench.run()
    assert who.cancelled()
    for other in {first, again} - {who}:
        assert await other is bench.outbox.delivery("m1")
    assert bench.outbox.outstanding == waiting + 1


async def test_a_withdrawal_goes_on_when_one_who_waits_for_it_is_cancelled(
    bench: Bench,
) -> None:
    """Another caller may wait for the same withdrawal, and gets its result."""
    bench.outbox.session_started(OWN)
    delivery = await bench.submit()
    cancelled, other = (asyncio.ensure_future(delivery.withdraw()) for _ in range(2))
    await settle()
    assert not cancelled.done(), "it is not on disk yet"
    cancelled.cancel()
    await bench.run()
    await other
    assert cancelled.cancelled()
    assert (await delivery.outcome()).status is OutgoingState.NOT_DELIVERED


async def test_what_does_not_fit_the_window_waits_on_disk(bench: Bench) -> None:
    """Memory holds only the window, however long the outbox is."""
    bench.outbox.session_started(OWN)
    for _ in range(100):
        await bench.submit()
    await bench.run()
    assert len(bench.port.sent) == WINDOW_FIRST
    assert bench.outbox.outstanding == 100
    assert len(bench.outbox.in_flight) == WINDOW_FIRST
    await bench.answer_all()
    assert bench.outbox.outstanding == 0
    assert not list(bench.store.outgoing())


async def test_memory_holds_no_account_for_ever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some accounts are used once.

    The window of an account is worth remembering for a while.
    """
    monkeypatch.setattr(in_flight, "_IDLE_FLOWS_MAX", 3)
    bench.outbox.session_started(OWN)
    for number in range(10):
        for _ in range(WINDOW_FIRST + 2):
            await bench.submit(to=f"user{number}@example.org/1")
        await bench.run()
        await bench.answer_all()
    held = bench.outbox.in_flight
    assert list(held._idle) == [f"user{number}@example.org" for number in (7, 8, 9)]
    assert list(held._flows) == list(held._idle)
    assert held.flow("user9@example.org").window > WINDOW_FIRST
    assert not bench.outbox._backlog._taken
    assert not bench.outbox._backlog._chunks
    for number in range(5, 10):
        await bench.submit(to=f"user{number}@example.org/1")
    await bench.run()
    assert len(held._flows) == 5
    assert not held._idle


async def test_offline_messages_are_kept_and_sent_when_there_is_a_session(
    bench: Bench,
) -> None:
    """Without a session nothing is attempted; with one, nothing waits for long."""
    deliveries = [await bench.submit() for _ in range(20)]
    await bench.run(10)
    assert not bench.port.sent
    bench.outbox.session_started(OWN)
    await bench.run(3)
    await bench.answer_all()
    outcomes = [await delivery.outcome() for delivery in deliveries]
    assert {outcome.status for outcome in outcomes} == {OutgoingState.DELIVERED}


async def test_a_restart_goes_on_with_what_is_on_disk(bench: Bench) -> None:
    """With the same iq id and msgId; the application can ask by the id."""
    bench.outbox.session_started(OWN)
    first = await bench.submit()
    await bench.run()
    offered = bench.port.sent[0].record
    bench.outbox.stop()
    bench.port.sent.clear()
    bench.outbox = bench.start()
    again = bench.outbox.delivery(first.msg_id)
    bench.outbox.session_started(OWN)
    await bench.run(3)
    assert bench.port.sent[0].record.offer_id == offered.offer_id
    await bench.answer_all()
    assert (await again.outcome()).status is OutgoingState.DELIVERED


async def test_an_outcome_can_be_asked_for_later_and_after_a_restart(
    bench: Bench,
) -> None:
    """Otherwise an application that was killed would never know the outcome."""
    bench.outbox.session_started(OWN)
    delivery = await bench.submit()
    asked = asyncio.ensure_future(bench.outbox.outcome(delivery.msg_id))
    await bench.run()
    assert not asked.done()
    await bench.answer_all()
    outcome = await delivery.outcome()
    assert outcome.status is OutgoingState.DELIVERED
    assert await asked == outcome
    assert bench.outbox.outstanding == 0
    bench.outbox.stop()
    bench.outbox = bench.start()
    assert bench.outbox.outstanding == 0
    later = await bench.outbox.outcome(delivery.msg_id)
    # All but its last commit, and one step of this clock.
    assert later.seconds == pytest.approx(outcome.seconds, abs=0.06)
    assert replace(later, seconds=0.0) == replace(outcome, seconds=0.0)
    with pytest.raises(UnknownMessage):
        await bench.outbox.outcome("nobody's")


async def test_whoever_waits_for_an_outcome_is_told_though_nobody_holds_them(
    bench: Bench,
) -> None:
    """asyncio holds no reference to a waiting task, so the outbox must."""
    bench.outbox.session_started(OWN)
    heard: list[OutgoingState] = []

    async def wait(msg_id: str) -> None:
        heard.append((await bench.outbox.outcome(msg_id)).status)

    msg_id = (await bench.submit()).msg_id
    asyncio.get_running_loop().create_task(wait(msg_id))
    await settle()
    gc.collect()
    await bench.run()
    await bench.answer_all()
    assert heard == [OutgoingState.DELIVERED]


async def test_whoever_gives_up_waiting_leaves_nothing_behind(bench: Bench) -> None:
    """Some callers ask every second, with a time-out, as long as a peer is absent."""
    delivery = await bench.submit()
    gc.collect()
    before = _futures()
    for _ in range(20):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await delivery.outcome()
    gc.collect()
    assert _futures() < before + 20


def _futures() -> int:
    return sum(isinstance(each, asyncio.Future) for each in gc.get_objects())


async def test_of_two_messages_with_one_id_the_outcome_is_that_of_the_last(
    bench: Bench,
) -> None:
    """A message that was not delivered may be submitted again under its id."""
    bench.outbox.session_started(OWN)
    delivery = await bench.submit(deadline_s=5, msg_id="m1")
    await bench.run(10)
    assert (await delivery.outcome()).status is OutgoingState.NOT_DELIVERED
    bench.port.sent.clear()
    await bench.submit(msg_id="m1")
    await bench.run()
    await bench.answer_all()
    assert (await bench.outbox.outcome("m1")).status is OutgoingState.DELIVERED


async def test_an_outcome_that_is_being_written_is_waited_for(bench: Bench) -> None:
    """After a restart all overdue messages end at once.

    Then their outcomes are asked for.
    """
    await bench.submit(deadline_s=1.0, msg_id="m1")
    # Wait until the deadline, but not until its end is on disk.
    bench.clock.advance(1.0 - COMMIT_S / 2)
    await settle()
    asked = asyncio.ensure_future(bench.outbox.outcome("m1"))
    await settle()
    assert not asked.done()
    await bench.run()
    assert (await asked).status is OutgoingState.NOT_DELIVERED


async def test_an_id_may_be_used_again_while_its_end_is_being_written(
    bench: Bench,
) -> None:
    """Two messages with one id are never in flight at once."""
    first = await bench.submit(deadline_s=1.0, msg_id="m1")
    # Wait until the deadline, but not until its end is on disk.
    bench.clock.advance(1.0 - COMMIT_S / 2)
    await settle()
    submitting = asyncio.ensure_future(
        bench.outbox.submit(LAMP, PAYLOAD, level=Level.ASSURED, msg_id="m1")
    )
    await settle()
    assert not first.ended
    await bench.run()
    assert (await first.outcome()).status is OutgoingState.NOT_DELIVERED
    second = await submitting
    bench.outbox.session_started(OWN)
    await bench.run(2.0)
    await bench.answer_all()
    assert (await second.outcome()).status is OutgoingState.DELIVERED
    assert bench.outbox.outstanding == 0


async def test_outcomes_are_kept_for_their_time() -> None:
    """Otherwise a store would grow for ever."""
    bench = Bench(OutboxLimits(outcome_ttl_s=100.0))
    bench.outbox.session_started(OWN)
    delivery = await bench.submit(deadline_s=5)
    await bench.run(10)
    await bench.outbox.outcome(delivery.msg_id)
    bench.clock.advance(110)
    with pytest.raises(UnknownMessage):
        await bench.outbox.outcome(delivery.msg_id)
    assert list(bench.store.ended())
    for _ in range(12):
        bench.clock.advance(60)
        await settle()
    assert not list(bench.store.ended())
    bench.outbox.stop()


@pytest.mark.parametrize(
    ("limits", "seconds", "left"),
    [
        (OutboxLimits(outcome_ttl_s=100.0), 110.0, 1),
        (OutboxLimits(outcomes=3), 0.0, 3),
    ],
)
async def test_a_sender_that_never_lives_for_long_forgets_too(
    limits: OutboxLimits, seconds: float, left: int
) -> None:
    """The store of a sender that is killed each minute, or is a command, grew for ever."""
    bench = Bench(limits)
    for _ in range(10):
        delivery = await bench.submit(deadline_s=0)
        await bench.run()
        assert (await delivery.outcome()).status is OutgoingState.NOT_DELIVERED
        assert 0 < len(list(bench.store.ended())) <= max(left, limits.outcomes)
        bench.outbox.stop()
        await bench.store.close()
        bench.clock.advance(seconds)
        bench.outbox = bench.start()
    await bench.submit(deadline_s=0)
    await bench.run()
    assert len(list(bench.store.ended())) == left
    bench.outbox.stop()


@pytest.mark.parametrize(
    ("outcomes", "messages"),
    [(0, 300), (3, 300), pytest.param(400, 900, marks=pytest.mark.long)],
)
async def test_outcomes_are_kept_of_so_many(outcomes: int, messages: int) -> None:
    """A busy sender has too many outcomes long before their time is over."""
    bench = Bench(OutboxLimits(outcomes=outcomes))
    bench.outbox.session_started(OWN)
    most = 0
    for _ in range(messages):
        delivery = await bench.submit(deadline_s=0)
        await bench.run(0.05)
        assert (await delivery.outcome()).status is OutgoingState.NOT_DELIVERED
        most = max(most, len(list(bench.store.ended())))
    last = [ended.seq for ended in bench.store.ended()][-outcomes:]
    if outcomes:
        assert last == list(range(messages + 1 - outcomes, messages + 1))
    assert most <= outcomes + 257 if outcomes else most == 0
    bench.outbox.stop()


async def test_a_queued_message_ends_at_its_deadline(bench: Bench) -> None:
    """It never had its turn, and is not in memory."""
    bench.outbox.session_started(OWN)
    for _ in range(WINDOW_FIRST):
        await bench.submit()
    delivery = await bench.submit(deadline_s=5)
    await bench.run(10)
    assert (await delivery.outcome()).status is OutgoingState.NOT_DELIVERED
    assert bench.outbox.outstanding == WINDOW_FIRST


async def test_a_queued_message_whose_end_cannot_be_written_ends_when_it_can(
    bench: Bench,
) -> None:
    """Until then it is queued, as on disk."""
    bench.outbox.session_started(OWN)
    for _ in range(WINDOW_FIRST):
        await bench.submit()
    delivery = await bench.submit(deadline_s=5)
    bench.store.disk.full = True
    await bench.run(10)
    assert not delivery.ended
    assert len(bench.outbox.in_flight) == WINDOW_FIRST
    bench.store.disk.full = False
    await bench.run(5)
    assert (await delivery.outcome()).status is OutgoingState.NOT_DELIVERED
    assert bench.outbox.outstanding == WINDOW_FIRST
    assert delivery.msg_id not in bench.offered


@pytest.mark.parametrize("level", [Level.ASSURED, Level.ACKNOWLEDGED])
async def test_what_is_overdue_when_there_is_a_session_is_never_sent(
    bench: Bench, level: Level
) -> None:
    """It would be delivered too late, be in doubt, or fill the peer's quota."""
    late = [await bench.submit(level, deadline_s=3) for _ in range(300)]
    ids = [delivery.msg_id for delivery in late]
    in_time = await bench.submit(level)
    bench.outbox.stop()
    bench.clock.advance(10)
    bench.outbox = bench.start()
    bench.outbox.session_started(OWN)
    await bench.run(1)
    assert [sent.record.msg_id for sent in bench.port.sent] == [in_time.msg_id]
    for msg_id in ids:
        outcome = await bench.outbox.outcome(msg_id)
        assert (outcome.status, outcome.attempts) == (OutgoingState.NOT_DELIVERED, 0)


async def test_many_deadlines_at_a_time_are_told_at_that_time(bench: Bench) -> None:
    """One chunk at a time, the next as soon as the last is on disk."""
    submitting = [
        asyncio.ensure_future(
            bench.outbox.submit(LAMP, PAYLOAD, level=Level.ASSURED, deadline_s=10)
        )
        for _ in range(1000)
    ]
    await bench.run(1)
    deliveries = [task.result() for task in submitting]
    await bench.run(8.9)
    assert not any(delivery.ended for delivery in deliveries)
    await bench.run(1.5)
    assert all(delivery.ended for delivery in deliveries)


async def test_a_deadline_that_follows_others_at_once_is_told_in_time(
    bench: Bench,
) -> None:
    """It does not wait for the retry of the others."""
    deliveries = [await bench.submit(deadline_s=5 + each / 4) for each in range(8)]
    await bench.run(8)
    for each, delivery in enumerate(deliveries):
        seconds = (await delivery.outcome()).seconds
        assert seconds == pytest.approx(5 + each / 4, abs=0.1)


async def test_deadlines_leave_others_their_turn_without_a_disk(bench: Bench) -> None:
    """A store in memory is done at once, however many there are."""
    bench.outbox = bench.start(MemoryStore())
    for _ in range(1000):
        await bench.outbox.submit(LAMP, PAYLOAD, level=Level.ASSURED, deadline_s=5)
    bench.outbox.session_started(OWN)
    bench.clock.advance(5)
    assert 0 < bench.outbox.outstanding <= 900
    await bench.run(1)
    assert bench.outbox.outstanding == 0


@pytest.mark.parametrize("level", [Level.ASSURED, Level.ACKNOWLEDGED])
async def test_a_deadline_tells_what_is_known(bench: Bench, level: Level) -> None:
    """Without an answer: not delivered at level assured, in doubt at acknowledged."""
    bench.outbox.session_started(OWN)
    delivery = await bench.submit(level, deadline_s=5)
    await bench.run(10)
    status = (await delivery.outcome()).status
    expected = {
        Level.ASSURED: OutgoingState.NOT_DELIVERED,
        Level.ACKNOWLEDGED: OutgoingState.IN_DOUBT,
    }
    assert status is expected[level]


@pytest.mark.parametrize("before", [False, True])
async def test_an_attempt_that_was_never_sent_is_no_doubt(
    bench: Bench, before: bool
) -> None:
    """The connection was lost during the write; an earlier attempt may have arrived."""
    bench.outbox.session_started(OWN)
    bench.port.connected = before
    delivery = await bench.submit(Level.ACKNOWLEDGED, deadline_s=10)
    await bench.run(0.1)
    bench.port.connected = False
    await bench.run(5)
    assert len(bench.port.sent) == before
    bench.outbox.session_lost()
    await bench.run(6)
    expected = OutgoingState.IN_DOUBT if before else OutgoingState.NOT_DELIVERED
    assert (await delivery.outcome()).status is expected


async def test_after_a_restart_what_was_written_may_have_been_sent(
    bench: Bench,
) -> None:
    """Only the process that has died knew that it was not sent."""
    bench.outbox.session_started(OWN)
    bench.port.connected = False
    msg_id = (await bench.submit(Level.ACKNOWLEDGED, deadline_s=5)).msg_id
    await bench.run(0.1)
    bench.outbox.stop()
    bench.outbox = bench.start()
    await bench.run(6)
    assert (await bench.outbox.outcome(msg_id)).status is OutgoingState.IN_DOUBT


async def test_withdrawing(bench: Bench) -> None:
    """A queued or offered message can be withdrawn; a released one goes on."""
    bench.outbox.session_started(OWN)
    deliveries = [await bench.submit() for _ in range(WINDOW_FIRST + 2)]
    await bench.run()
    queued, offered, releasing = deliveries[-1], deliveries[0], deliveries[1]
    bench.answer(bench.port.sent[1])
    await bench.run()
    for delivery in (queued, offered):
        withdrawing = asyncio.ensure_future(delivery.withdraw())
        await bench.run()
        await withdrawing
        assert (await delivery.outcome()).status is OutgoingState.NOT_DELIVERED
        with pytest.raises(UnknownMessage):
            await delivery.withdraw()
    with pytest.raises(CannotWithdraw):
        await releasing.withdraw()
    # The queued message has taken the place of the offered one.
    assert len(bench.outbox.in_flight) == WINDOW_FIRST
    with pytest.raises(UnknownMessage):
        await bench.outbox.withdraw("nobody")


@pytest.mark.parametrize("place", [0, 1])
async def test_what_is_taken_back_while_it_is_queued_is_never_offered(
    place: int,
) -> None:
    """It is queued on disk until its end is written: free room must pass it over.

    As the first queued message, and as a later one that is read together with the
    first.
    """
    bench = Bench(OutboxLimits(window=2))
    bench.outbox.session_started(OWN)
    ended = [await bench.submit() for _ in range(2)]
    waiting = [await bench.submit() for _ in range(3)]
    taken_back = waiting.pop(place)
    for transmit in bench.port.sent[:]:
        bench.answer(transmit)
    await bench.run()
    for transmit in bench.port.sent[2:]:
        bench.answer(transmit)
    await settle()
    bench.clock.advance(COMMIT_S * 0.6)
    withdrawing = asyncio.ensure_future(taken_back.withdraw())
    await settle()
    # There is room again, and its end is not written yet.
    bench.clock.advance(COMMIT_S * 0.6)
    await settle()
    assert all(delivery.ended for delivery in ended)
    assert not taken_back.ended
    await bench.run()
    await withdrawing
    await bench.answer_all()
    assert [(await each.outcome()).status for each in waiting] == [
        OutgoingState.DELIVERED,
        OutgoingState.DELIVERED,
    ]
    assert (await taken_back.outcome()).attempts == 0
    assert taken_back.msg_id not in bench.offered
    assert bench.outbox.outstanding == 0
    bench.outbox.stop()


@pytest.mark.parametrize("taken_back", [[5], [1], [0], [0, 1, 3], [4, 2]])
@pytest.mark.parametrize("level", [Level.ASSURED, Level.ACKNOWLEDGED])
async def test_what_cannot_be_taken_back_keeps_its_place_in_the_queue(
    level: Level, taken_back: list[int]
) -> None:
    """On a full disk the message goes on, in its turn, and is offered only once."""
    bench = Bench(OutboxLimits(window=1))
    bench.outbox.session_started(OWN)
    await bench.submit(level, ordered=True)
    waiting = [await bench.submit(level, ordered=True) for _ in range(6)]
    bench.store.disk.full = True
    withdrawing = [asyncio.ensure_future(waiting[i].withdraw()) for i in taken_back]
    await bench.run()
    for each in withdrawing:
        with pytest.raises(StoreFull):
            await each
    bench.store.disk.full = False
    order: list[str] = []
    for _ in range(60):
        for transmit in bench.port.sent[:]:
            bench.port.sent.remove(transmit)
            if transmit.record.msg_id not in order:
                order.append(transmit.record.msg_id)
            bench.answer(transmit)
        await bench.run(0.5)
    assert order[-6:] == [each.msg_id for each in waiting]
    assert bench.outbox.outstanding == 0
    assert not list(bench.store.outgoing())
    bench.outbox.stop()


async def test_no_ordered_message_passes_one_whose_end_is_not_on_disk_yet(
    bench: Bench,
) -> None:
    """The end may have to be written again, and nobody was told of it."""
    bench.outbox.session_started(OWN)
    await bench.submit(ordered=True)
    second = await bench.submit(ordered=True, deadline_s=5.0)
    third = await bench.submit(ordered=True)
    await bench.run(4.9)
    offer = bench.port.sent[-1]
    bench.port.sent.clear()
    failing = bench.store.disk.commits + 1
    full = StoreFull("sim:end", "no space left on device")
    bench.store.disk.fails = lambda commit: full if commit == failing else None
    bench.clock.advance(0.1)
    await settle()
    ends = asyncio.ensure_future(second.outcome())
    # Now the peer holds all before the third, but that end.
    bench.answer(offer)
    steps = []
    for _ in range(40):
        await bench.run()
        for transmit in bench.port.sent[:]:
            bench.port.sent.remove(transmit)
            steps.append((transmit.record.msg_id, transmit.step, ends.done()))
            bench.answer(transmit)
    assert bench.store.disk.commits > failing
    assert (third.msg_id, "deliver", True) in steps
    assert (third.msg_id, "deliver", False) not in steps


async def test_what_is_put_back_is_not_offered_beside_those_that_passed_it() -> None:
    """They are queued on disk until their offer is written, but have had their turn."""
    bench = Bench(OutboxLimits(window=3))
    bench.outbox.session_started(OWN)
    for _ in range(3):
        await bench.submit()
    waiting = [await bench.submit() for _ in range(5)]
    failing = bench.store.disk.commits + 1
    full = StoreFull("sim:end", "no space left on device")
    bench.store.disk.fails = lambda commit: full if commit == failing else None
    taken_back = asyncio.ensure_future(waiting[0].withdraw())
    await settle()
    # There is room for all queued messages: they pass it while its end is being
    # written.
    bench.outbox.in_flight.flow("lamp@example.org")._window = 20.0
    bench.outbox.session_started(OWN)
    assert len(bench.outbox.in_flight) == 8
    await bench.run()
    with pytest.raises(StoreFull):
        await taken_back
    offered = [each.record.msg_id for each in bench.port.sent]
    assert sorted(set(offered)) == sorted(
        record.msg_id for record in bench.store.outgoing()
    )
    await bench.run(3)
    await bench.answer_all()
    assert bench.outbox.outstanding == 0
    assert [(await each.outcome()).status for each in waiting] == [
        OutgoingState.DELIVERED
    ] * 5
    bench.outbox.stop()


async def test_a_purge_takes_back_all_that_can_be(bench: Bench) -> None:
    """Queued and offered messages; a released one goes on to its end."""
    bench.outbox.session_started(OWN)
    deliveries = [await bench.submit() for _ in range(30)]
    await bench.run()
    bench.answer(bench.port.sent[0])
    await bench.run()
    purging = asyncio.ensure_future(bench.outbox.purge())
    await bench.run(2)
    assert await purging == 29
    assert bench.outbox.outstanding == 1
    statuses = [(await one.outcome()).status for one in deliveries[1:]]
    assert set(statuses) == {OutgoingState.NOT_DELIVERED}
    assert [record.state for record in bench.store.outgoing()] == [
        OutgoingState.RELEASING
    ]


@pytest.mark.parametrize(
    ("limits", "unit"),
    [
        (OutboxLimits(messages=2), "messages"),
        (OutboxLimits(bytes=2 * len(PAYLOAD)), "bytes"),
    ],
)
async def test_a_full_outbox_says_so(limits: OutboxLimits, unit: str) -> None:
    """A clear error that names the limit; accepted messages are not affected."""
    bench = Bench(limits)
    for _ in range(2):
        await bench.submit()
    with pytest.raises(OutboxFull, match=unit):
        await bench.submit()
    assert bench.outbox.outstanding == 2
    bench.outbox.stop()


@pytest.mark.parametrize(
    ("limits", "unit"),
    [
        (OutboxLimits(messages=16), "messages"),
        (OutboxLimits(bytes=16 * len(PAYLOAD)), "bytes"),
    ],
)
async def test_a_user_of_a_gateway_cannot_fill_the_outbox(
    limits: OutboxLimits, unit: str
) -> None:
    """Also across a restart; what has ended makes room."""
    bench = Bench(limits)
    shop = partial(bench.submit, account="shop@x", digest="d")
    first = await shop()
    await shop()
    for _ in range(2):
        with pytest.raises(OutboxFull, match=f"part of shop@x .* {unit}") as full:
            await shop()
        assert full.value.account == "shop@x"
        await bench.submit()
        await bench.submit(account=f"till{_}@x", digest="d")
        bench.outbox.stop()
        bench.outbox = bench.start()
    withdrawal = asyncio.ensure_future(bench.outbox.withdraw(first.msg_id))
    await bench.run()
    await withdrawal
    await shop()
    with pytest.raises(OutboxFull, match="shop@x"):
        await shop()
    bench.outbox.stop()


async def test_a_message_with_a_digest_is_found_until_its_outcome_is_forgotten(
    bench: Bench,
) -> None:
    """Not before it is on disk: until then it may fail."""
    bench.outbox.session_started(OWN)
    task = asyncio.ensure_future(bench.submit(msg_id="m", account="a@b", digest="d"))
    await settle()
    assert bench.outbox.find("m") is None
    await task
    found = bench.outbox.find("m")
    assert isinstance(found, Outgoing)
    assert (found.digest, found.account) == ("d", "a@b")
    await bench.submit(msg_id="other")
    assert bench.outbox.find("other") is None
    await bench.run(1)
    await bench.answer_all()
    await bench.run(1)
    ended = bench.outbox.find("m")
    assert isinstance(ended, Ended)
    assert (ended.digest, ended.state) == ("d", OutgoingState.DELIVERED)
    bench.clock.advance(bench.limits.outcome_ttl_s + 1)
    assert bench.outbox.find("m") is None


async def test_a_full_disk_accepts_nothing_and_counts_nothing(bench: Bench) -> None:
    """Neither in the window nor in the queue."""
    bench.outbox.session_started(OWN)
    bench.store.disk.full = True
    with pytest.raises(StoreFull):
        await bench.submit()
    assert bench.outbox.outstanding == 0
    bench.store.disk.full = False
    for _ in range(WINDOW_FIRST):
        await bench.submit()
    bench.store.disk.full = True
    with pytest.raises(StoreFull):
        await bench.submit()
    assert bench.outbox.outstanding == WINDOW_FIRST


async def test_a_withdrawal_that_cannot_be_written_is_an_error(bench: Bench) -> None:
    """The message goes on: otherwise it would be sent after a restart."""
    bench.outbox.session_started(OWN)
    delivery = await bench.submit()
    await bench.run()
    bench.store.disk.full = True
    withdrawing = asyncio.ensure_future(delivery.withdraw())
    await bench.run()
    with pytest.raises(StoreFull):
        await withdrawing
    bench.store.disk.full = False
    bench.port.sent.clear()
    await bench.run(5)
    await bench.answer_all()
    assert (await delivery.outcome()).status is OutgoingState.DELIVERED


async def test_a_withdrawal_that_has_failed_with_the_step_before_it_is_not_made(
    bench: Bench,
) -> None:
    """A caller that was told that the message goes on must be able to rely on that."""
    delivery = await bench.submit()
    failing = bench.store.disk.commits + 1
    full = StoreFull("sim:end", "no space left on device")
    bench.store.disk.fails = lambda commit: full if commit == failing else None
    bench.outbox.session_started(OWN)
    while bench.store.disk.commits < failing:
        bench.clock.advance(COMMIT_S / 3)
        await asyncio.sleep(0)
    withdrawing = asyncio.ensure_future(delivery.withdraw())
    await bench.run()
    with pytest.raises(StoreFull):
        await withdrawing
    await bench.run(5)
    await bench.answer_all()
    assert (await delivery.outcome()).status is OutgoingState.DELIVERED


async def test_a_peer_without_a_route_is_tried_when_there_is_one(bench: Bench) -> None:
    """Nothing is sent without a receiver.

    The message is sent as soon as there is one.
    """
    bench.port.reachable = False
    bench.outbox.session_started(OWN)
    await bench.submit()
    await bench.run(10)
    assert not bench.port.sent
    bench.port.reachable = True
    bench.outbox.in_flight.route_found("lamp@example.org")
    await bench.run()
    assert len(bench.port.sent) == 1


async def test_a_stopped_outbox_is_silent(bench: Bench) -> None:
    """Its store is closing: a late reply, write or timer must not reach it."""
    bench.outbox.session_started(OWN)
    await bench.submit()
    await bench.run()
    offered = bench.port.sent[0]
    task = asyncio.ensure_future(
        bench.outbox.submit(LAMP, PAYLOAD, level=Level.ASSURED)
    )
    await settle()
    bench.outbox.stop()
    await bench.run()
    assert task.done()  # it was accepted all the same
    bench.port.sent.clear()
    bench.answer(offered)
    await bench.run(30)
    assert not bench.port.sent
    assert bench.clock.deadline() is None


@pytest.mark.parametrize("connected", [True, False])
async def test_whoever_waits_when_the_outbox_is_stopped_is_told(
    bench: Bench, connected: bool
) -> None:
    """They would wait for ever; their messages go on at the next start."""
    if connected:
        bench.outbox.session_started(OWN)
    offered = await bench.submit(msg_id="offered", deadline_s=60)
    waiting = [
        asyncio.ensure_future(offered.outcome()),
        asyncio.ensure_future(bench.outbox.outcome("offered")),
        asyncio.ensure_future(bench.outbox.withdraw("offered")),
    ]
    accepting = asyncio.ensure_future(
        bench.outbox.submit(LAMP, PAYLOAD, level=Level.ASSURED, msg_id="late")
    )
    await settle()
    bench.outbox.stop()
    await bench.run()
    for each in waiting:
        with pytest.raises(StillOutstanding, match="'offered' had ended: it is in the"):
            await each
    late = await accepting
    for asking in (late.outcome(), offered.outcome(), bench.outbox.outcome("late")):
        with pytest.raises(StillOutstanding):
            await asking
    for doing in (bench.submit(), bench.submit(msg_id="late"), late.withdraw()):
        with pytest.raises(StoreError, match="not open"):
            await doing
    bench.outbox = bench.start()
    # It had been withdrawn, but no answer could say so.
    assert (await bench.outbox.outcome("offered")).status is OutgoingState.NOT_DELIVERED
    bench.outbox.session_started(OWN)
    again = bench.outbox.delivery("late")
    await bench.run(3)
    await bench.answer_all()
    assert (await again.outcome()).status is OutgoingState.DELIVERED


async def test_a_message_is_not_accepted_that_waits_for_its_id_when_all_is_stopped(
    bench: Bench,
) -> None:
    """The first message is still outstanding.

    Its state must not be taken for an end.
    """
    await bench.submit(deadline_s=1.0, msg_id="m1")
    # Wait until the deadline, but not until its end is on disk.
    bench.clock.advance(1.0 - COMMIT_S / 2)
    await settle()
    submitting = asyncio.ensure_future(
        bench.outbox.submit(LAMP, PAYLOAD, level=Level.ASSURED, msg_id="m1")
    )
    await settle()
    bench.outbox.stop()
    await bench.run()
    with pytest.raises(StoreError, match="not open"):
        await submitting
    assert not list(bench.store.outgoing())
