"""Wrong clocks at a start: nothing is forgotten, and nothing is held for too long.

Only the clock of each process is wrong. The stores are real ones, and time is turned.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

import test_outbox
from inbox_bench import Port, request
from qos.core.backoff import Backoff
from qos.core.message.effects import Answer
from qos.core.message.model import IncomingState, Level, OutgoingState
from qos.core.message.receiver_table import Request
from qos.core.queue.item import ItemOutcome, ItemState
from qos.core.queue.requests import Configure, Publish, Settlement, Unlock
from qos.core.queue.results import Ok, PublishResult
from qos.engine import Delivery, Inbox, InboxLimits, Outbox, OutboxLimits
from qos.stores import FilesStore, SqliteStore, Store
from qos.testing.clock import ManualClock
from queue_bench import BEE, NODE, Bench, entry, opened
from waiting import limit, until

#: A device that has started without a clock; 2026.
BOOT, NOW = 12.0, 1_790_000_000.0
HOUR_S, DAY_S, YEAR_S = 3600.0, 86_400.0, 365 * 86_400.0

#: The clocks of two processes, of which one is wrong.
wrong = pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param(BOOT, NOW, id="1970, then right"),
        pytest.param(NOW, BOOT, id="right, then 1970"),
        pytest.param(NOW, NOW + 50 * YEAR_S, id="right, then far ahead"),
        pytest.param(NOW + 5 * HOUR_S, NOW, id="ahead, then right"),
    ],
)


@pytest.fixture(params=[SqliteStore, FilesStore])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    return lambda: request.param(tmp_path / "store")


# -- messages --------------------------------------------------------------


@dataclass
class Receiver:
    """A process that receives."""

    inbox: Inbox
    clock: ManualClock
    port: Port
    store: Store

    async def ask(self, asked: Request) -> Answer:
        before = len(self.port.answers)
        self.inbox.request(asked, trusted=True)
        await until(lambda: len(self.port.answers) > before)
        return self.port.answers[-1]

    def states(self) -> list[IncomingState]:
        return [each.state for each in self.store.incoming()]


@asynccontextmanager
async def receiver(
    new_store: Callable[[], Store], now: float
) -> AsyncIterator[Receiver]:
    """A process that receives. At its end the store has all that it has decided."""
    clock, port, store = ManualClock(now), Port(), new_store()
    contents = store.open(clock.now())
    inbox = Inbox(store, contents, port, clock=clock, limits=InboxLimits())
    inbox.restart()
    # What is over by now, ends now.
    clock.advance(0.0)
    yield Receiver(inbox, clock, port, store)
    await inbox.aclose()
    await store.close()


@wrong
async def test_what_was_held_under_a_wrong_clock_is_still_held(
    new_store: Callable[[], Store], first: float, then: float
) -> None:
    """Its sender was told that it is held, and never sends it again: it was lost."""
    async with receiver(new_store, first) as one:
        hold = (await one.ask(request())).hold
    async with receiver(new_store, then) as other:
        assert await other.ask(request("deliver", hold=hold)) == Answer("result", hold)
        assert [each.msg_id for each in other.port.handed] == ["m1"]


@wrong
async def test_what_was_done_under_a_wrong_clock_is_not_done_again(
    new_store: Callable[[], Store], first: float, then: float
) -> None:
    """Neither its offer nor its release is new."""
    async with receiver(new_store, first) as one:
        hold = (await one.ask(request())).hold
        assert (await one.ask(request("deliver", hold=hold))).kind == "result"
        assert len(one.port.handed) == 1
        await until(lambda: one.states() == [IncomingState.DONE])
    async with receiver(new_store, then) as other:
        assert (await other.ask(request())).hold == hold
        assert await other.ask(request("deliver", hold=hold)) == Answer("result", hold)
        assert not other.port.handed


async def test_time_between_two_right_clocks_counts(
    new_store: Callable[[], Store],
) -> None:
    """Else a device that is off each night would keep everything for ever."""
    async with receiver(new_store, NOW) as one:
        await one.ask(request())
    async with receiver(new_store, NOW + 8 * DAY_S) as other:
        await until(lambda: other.states() == [IncomingState.EXPIRED])


async def test_time_that_a_process_sees_counts_under_a_wrong_clock_too(
    new_store: Callable[[], Store],
) -> None:
    """It ends, though no clock was ever right: 5 days of one process, 2 of another."""
    async with receiver(new_store, NOW) as one:
        await one.ask(request(msg_id="old"))
        one.clock.advance(5 * DAY_S)
        await one.ask(request(msg_id="new"))
    async with receiver(new_store, BOOT) as other:
        other.clock.advance(2 * DAY_S - 1.0)
        assert set(other.states()) == {IncomingState.HELD}
        other.clock.advance(1.0)
        await until(
            lambda: sorted(each.value for each in other.states()) == ["expired", "held"]
        )


@asynccontextmanager
async def sender(
    new_store: Callable[[], Store], now: float
) -> AsyncIterator[tuple[Outbox, ManualClock, Store]]:
    """A process that sends, without a session."""
    clock, store = ManualClock(now), new_store()
    outbox = Outbox(
        store,
        store.open(clock.now()),
        test_outbox.Port(),
        clock=clock,
        backoff=Backoff(first_s=2.0, max_s=16.0),
        limits=OutboxLimits(),
    )
    clock.advance(0.0)
    yield outbox, clock, store
    outbox.stop()
    await store.close()


async def _submit(outbox: Outbox, deadline_s: float | None = None) -> Delivery:
    payload = test_outbox.PAYLOAD
    return await outbox.submit(
        test_outbox.LAMP, payload, level=Level.ASSURED, deadline_s=deadline_s
    )


@wrong
async def test_a_deadline_is_a_length_of_time_whatever_the_clocks_say(
    new_store: Callable[[], Store], first: float, then: float
) -> None:
    """A minute of which 20 s have been seen to pass leaves 40 s."""
    async with sender(new_store, first) as (outbox, clock, _):
        early = await _submit(outbox, deadline_s=60.0)
        clock.advance(20.0)
        await _submit(outbox)
    async with sender(new_store, then) as (outbox, clock, store):
        clock.advance(39.0)
        assert store.find_outgoing(early.msg_id) is not None
        clock.advance(1.0)
        async with limit():
            outcome = await outbox.outcome(early.msg_id)
        assert outcome.status is OutgoingState.NOT_DELIVERED
        await until(lambda: [each.msg_id for each in store.ended()] == [early.msg_id])


@wrong
async def test_an_outcome_of_a_wrong_clock_is_still_known(
    new_store: Callable[[], Store], first: float, then: float
) -> None:
    """A program that asks after a restart is not told that there was no such message."""
    async with sender(new_store, first) as (outbox, clock, store):
        delivery = await _submit(outbox, deadline_s=1.0)
        clock.advance(1.0)
        async with limit():
            await delivery.outcome()
        await until(lambda: bool(list(store.ended())))
    async with sender(new_store, then) as (outbox, _, _):
        outcome = await outbox.outcome(delivery.msg_id)
        assert outcome.status is OutgoingState.NOT_DELIVERED


# -- queues ----------------------------------------------------------------


async def _begins(bench: Bench, now: float) -> None:
    """Go on with another process, whose clock says this."""
    bench.clock = bench._clock = ManualClock(now)
    await bench.restart()
    bench.out.clear()
    bench.engine.online()
    # It forgets what is over, and that is on disk before it answers.
    bench.clock.advance(0.0)
    await bench.stats()


@asynccontextmanager
async def _bench(path: Path, now: float) -> AsyncIterator[Bench]:
    """A queue with a worker, whose locks last for 5 s, and so does a backoff."""
    async with opened(path) as bench:
        settings = {"queue#lock_timeout": "5", "queue#backoff": "5"}
        assert isinstance(await bench.ask(Configure(NODE, settings)), Ok)
        await _begins(bench, now)
        yield bench


def _items(bench: Bench) -> list[tuple[ItemState, float]]:
    """Each item as it is on disk, and when it changes by itself, from now on."""
    now = bench.clock.now()
    return [
        (each.state, max(each.available_at, each.deadline) - now)
        for each in bench.store.contents().items
    ]


@wrong
async def test_a_lock_outlives_no_correction_of_the_clock(
    tmp_path: Path, first: float, then: float
) -> None:
    """5 s are left to it, not 5 hours, and not none."""
    async with _bench(tmp_path / "queues.db", first) as bench:
        bench.engine.heard(BEE)
        assert isinstance(await bench.ask(Publish(NODE, (entry("a"),))), PublishResult)
        await until(lambda: bool(bench.tokens))
        await _begins(bench, then)
        assert _items(bench) == [(ItemState.ACQUIRED, 5.0)]
        bench.clock.advance(4.0)
        assert [state for state, _ in _items(bench)] == [ItemState.ACQUIRED]
        bench.clock.advance(1.0)
        await until(lambda: _items(bench)[0][0] is ItemState.AVAILABLE)


@wrong
async def test_a_released_item_waits_for_its_backoff_only(
    tmp_path: Path, first: float, then: float
) -> None:
    """It stayed delayed until the right clock had reached the wrong one."""
    async with _bench(tmp_path / "queues.db", first) as bench:
        bench.engine.heard(BEE)
        await bench.ask(Publish(NODE, (entry("a"),)))
        await until(lambda: bool(bench.tokens))
        release = Settlement(
            item_id="a", token=bench.tokens["a"], outcome=ItemOutcome.RELEASED
        )
        assert isinstance(await bench.ask(Unlock(NODE, (release,)), BEE), Ok)
        await _begins(bench, then)
        ((state, left_s),) = _items(bench)
        assert state is ItemState.AVAILABLE
        assert 0.0 < left_s <= 5.0


@wrong
async def test_what_was_published_under_a_wrong_clock_is_not_published_again(
    tmp_path: Path, first: float, then: float
) -> None:
    """Its publisher repeats it, since it has not heard the answer."""
    async with _bench(tmp_path / "queues.db", first) as bench:
        bench.engine.heard(BEE)
        await bench.ask(Publish(NODE, (entry("a"),)))
        await until(lambda: bool(bench.tokens))
        assert isinstance(await bench.ask(bench.accept("a"), BEE), Ok)
        await _begins(bench, then)
        # What is to be forgotten, is forgotten before this is answered.
        again = await bench.ask(Publish(NODE, (entry("a"),)))
        assert isinstance(again, PublishResult)
        assert again.repeated == ("a",)
        assert _items(bench) == []
