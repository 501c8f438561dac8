"""Hand-overs to a consumer: repeated when it fails, in order, parked in the end."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from inbox_bench import Bench, request
from qos.core.backoff import Backoff
from qos.core.message.effects import Answer, Save
from qos.core.message.model import Incoming, IncomingState
from qos.core.message.receiver import NOT_NOW
from qos.core.quota import Quotas
from qos.engine import Consumption, Handover, InboxLimits
from qos.engine.consuming import Consuming
from qos.errors import StoreError
from qos.stores import SqliteStore
from qos.stores.base import Transaction
from qos.testing.store_records import incoming
from two_ends import settle
from waiting import LIMIT_S, limit

RETRY_S = 2.0


class Consumer:
    """A consumer that fails a given number of times, and records its messages."""

    def __init__(self, *, handovers_max: int = 3, lane: str | None = "lane") -> None:
        self.handovers_max = handovers_max
        self.lane = lane
        #: For each message, how many failures are left.
        self.failures: dict[str, int] = {}
        self.got: list[tuple[str, int, bool]] = []
        self.done: list[str] = []
        self.until: Callable[[], Awaitable[object]] = partial(asyncio.sleep, 0)

    def __call__(self, record: Incoming) -> Consumption:
        return Consumption(
            name="consumer",
            handle=self._handle,
            handovers_max=self.handovers_max,
            backoff=Backoff(first_s=RETRY_S, max_s=RETRY_S),
            lane=self.lane,
        )

    async def _handle(self, handover: Handover) -> None:
        self.got.append((handover.msg_id, handover.count, handover.redelivered))
        await self.until()
        if self.failures.get(handover.msg_id, 0) > 0:
            self.failures[handover.msg_id] -= 1
            raise ValueError("no")
        self.done.append(handover.msg_id)


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
async def bench(consumer: Consumer) -> AsyncIterator[Bench]:
    made = Bench(InboxLimits(quotas=Quotas(messages=10)))
    made.port.consume = consumer
    yield made
    await made.inbox.aclose()


async def release(bench: Bench, msg_id: str = "m1") -> str:
    """Offer a message and release it; returns its hold."""
    received = await bench.take(request(msg_id=msg_id))
    assert received is not None
    deliver = request("deliver", msg_id=msg_id, hold=received.hold)
    bench.inbox.request(deliver, trusted=True)
    await bench.commit()
    return received.hold


async def later(bench: Bench, seconds: float = RETRY_S) -> None:
    """Let time pass, with everything that this causes."""
    bench.clock.advance(seconds)
    await bench.commit(6)


def states(bench: Bench) -> list[IncomingState]:
    """The states on disk."""
    return [record.state for record in bench.store.incoming()]


async def test_a_message_is_answered_when_its_consumer_is_done_and_that_is_written(
    bench: Bench, consumer: Consumer
) -> None:
    """No handler gets it."""
    gate = asyncio.Event()
    consumer.until = gate.wait
    hold = await release(bench)
    assert consumer.got == [("m1", 1, False)]
    assert bench.port.events[1:] == []
    gate.set()
    await settle()
    assert bench.port.events[1:] == [], "it is not on disk yet"
    await bench.commit()
    assert bench.port.answers[-1] == Answer("result", hold)
    assert states(bench) == [IncomingState.DONE]
    assert bench.port.handed == []
    assert bench.inbox.used() == (0, 0)


async def test_one_that_fails_gets_it_again_after_a_while(
    bench: Bench, consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    """Until the consumer is done, the sender's request and its repeats wait."""
    consumer.failures["m1"] = 2
    hold = await release(bench)
    assert "consumer consumer failed on message 'm1'" in caplog.text
    assert "hand-over 1 of 3" in caplog.text
    bench.inbox.request(request("deliver", hold=hold), trusted=True)
    await later(bench, RETRY_S / 2)
    assert consumer.got == [("m1", 1, False)]
    await later(bench)
    await later(bench)
    assert consumer.got == [("m1", 1, False), ("m1", 2, True), ("m1", 3, True)]
    assert consumer.done == ["m1"]
    assert bench.port.events[1:] == [("result", "deliver")] * 2


@pytest.mark.parametrize("which", ["its task", "its task at once", "a future"])
async def test_one_that_is_cancelled_has_failed(
    bench: Bench, consumer: Consumer, which: str
) -> None:
    """The application cancelled it, on purpose or not: the process does not end."""

    loop = asyncio.get_running_loop()

    async def cancel() -> None:
        if consumer.got[1:]:
            return
        future = loop.create_future()
        task = asyncio.current_task()
        assert task is not None
        (task if which == "its task" else future).cancel()
        await future

    def begin_cancelled(
        _loop: asyncio.AbstractEventLoop,
        run: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **options: Any,
    ) -> asyncio.Task[Any]:
        loop.set_task_factory(None)
        task = loop.create_task(run, **options)
        task.cancel()
        return task

    if which == "its task at once":
        loop.set_task_factory(begin_cancelled)
    else:
        consumer.until = cancel
    await release(bench, "m1")
    await release(bench, "m2")
    await later(bench)
    assert consumer.got[-2:] == [("m1", 2, True), ("m2", 1, False)]
    assert consumer.done == ["m1", "m2"]


async def test_what_is_kept_for_a_consumer_that_takes_long_has_no_payload(
    bench: Bench, consumer: Consumer
) -> None:
    """Otherwise a peer could fill the memory by offering the message again and again."""
    consumer.failures["m1"] = 1
    await release(bench)
    for _ in range(20):
        bench.inbox.request(request(), trusted=True)
        await bench.commit()
    (message,) = bench.inbox._messages.values()
    assert [each.request.kind for each in message.deferred] == ["deliver"]


async def test_after_so_many_failures_it_is_parked_and_its_sender_told_to_try_again(
    bench: Bench, consumer: Consumer, caplog: pytest.LogCaptureFixture
) -> None:
    """It is neither taken nor refused for good: each request gets one answer."""
    consumer.failures["m1"] = 3
    hold = await release(bench)
    for _ in range(5):
        await later(bench)
    assert len(consumer.got) == 3
    assert "hand-over 3 of 3: it is parked" in caplog.text
    assert states(bench) == [IncomingState.PARKED]
    assert [record.msg_id for record in bench.inbox.parked()] == ["m1"]
    assert bench.port.answers[1:] == [NOT_NOW]
    assert await bench.take(request("deliver", hold=hold)) == NOT_NOW
    assert bench.inbox.used()[0] == 1, "it is held still"

    bench.restart()
    await later(bench)
    assert len(consumer.got) == 3
    assert [record.msg_id for record in bench.inbox.parked()] == ["m1"]


async def test_a_parked_message_can_be_released_and_is_done_then(
    bench: Bench, consumer: Consumer
) -> None:
    """It gets as many hand-overs as a new message."""
    consumer.failures["m1"] = 5
    hold = await release(bench)
    for _ in range(3):
        await later(bench)
    (parked,) = bench.inbox.parked()
    bench.inbox.release(parked.key)
    for _ in range(4):
        await later(bench)
    assert [count for _, count, _ in consumer.got] == [1, 2, 3, 1, 2, 3]
    assert consumer.done == ["m1"]
    answer = await bench.take(request("deliver", hold=hold))
    assert answer == Answer("result", hold)


async def parked_before_a_start(bench: Bench, consumer: Consumer) -> None:
    """The process has started again, and holds a message that is parked."""
    consumer.failures["m1"] = 3
    await release(bench)
    for _ in range(3):
        await later(bench)
    await bench.inbox.aclose()
    bench.store = bench.store.kill()
    bench.inbox = bench.start()


async def test_one_that_is_released_before_the_first_session_is_handed_over_once(
    bench: Bench, consumer: Consumer
) -> None:
    """A restart hands over everything that is released; this one has already begun."""
    await parked_before_a_start(bench, consumer)
    gate = asyncio.Event()
    consumer.until = gate.wait
    bench.inbox.release(bench.inbox.parked()[0].key)
    bench.inbox.restart()
    await bench.commit()
    bench.inbox.restart()
    await bench.commit()
    assert len(consumer.got) == 4
    gate.set()
    await bench.commit(6)
    assert consumer.done == ["m1"]


async def test_one_that_a_loop_has_in_hand_then_is_not_begun_again(
    bench: Bench, consumer: Consumer
) -> None:
    """Released before the first session, too; it has no consumer any more."""
    await parked_before_a_start(bench, consumer)
    bench.port.consume = None
    bench.port.until = asyncio.get_running_loop().create_future()
    bench.inbox.release(bench.inbox.parked()[0].key)
    await bench.commit()
    bench.inbox.restart()
    await bench.commit()
    assert len(bench.port.handed) == 1
    bench.port.until.set_result(None)
    await bench.commit()
    assert bench.inbox.used() == (0, 0)


async def test_a_parked_message_can_be_dropped_and_its_sender_learns_that(
    bench: Bench, consumer: Consumer
) -> None:
    """It does not get the message in by offering it again, even after a restart."""
    consumer.failures["m1"] = 3
    hold = await release(bench)
    for _ in range(3):
        await later(bench)
    bench.inbox.drop(bench.inbox.parked()[0].key)
    await bench.commit()
    assert bench.inbox.used() == (0, 0)
    for _ in range(2):
        answer = await bench.take(request("deliver", hold=hold))
        assert answer == Answer("error", hold, "item-not-found", "cancel")
        answer = await bench.take(request())
        assert answer == Answer("error", "", "not-allowed", "cancel")
        bench.restart()
        await bench.commit()


@pytest.mark.parametrize("decision", ["release", "drop"])
async def test_a_decision_that_is_refused_at_once_is_an_error_and_changes_nothing(
    bench: Bench,
    consumer: Consumer,
    monkeypatch: pytest.MonkeyPatch,
    decision: str,
) -> None:
    """As the store refuses it to a consumer whose transaction is open."""
    consumer.failures["m1"] = 3
    await release(bench)
    for _ in range(3):
        await later(bench)
    (parked,) = bench.inbox.parked()
    used = bench.inbox.used()
    refused = asyncio.get_running_loop().create_future()
    refused.set_exception(StoreError("sim:end", "a transaction is open here"))
    decide = getattr(bench.inbox, decision)
    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "write", lambda _changes: refused)
        with pytest.raises(StoreError, match="a transaction is open here"):
            decide(parked.key)
        assert bench.inbox.parked() == [parked]
        await bench.commit()
    assert bench.inbox.parked() == [parked]
    assert bench.inbox.used() == used
    assert states(bench) == [IncomingState.PARKED]
    decide(parked.key)
    await bench.commit(6)
    assert bench.inbox.parked() == []


async def test_those_of_a_lane_wait_for_the_one_that_is_retried(
    bench: Bench, consumer: Consumer
) -> None:
    """The order of their sender holds, whatever happens to one message."""
    consumer.failures["m1"] = 1
    for msg_id in ("m1", "m2", "m3"):
        await release(bench, msg_id)
    assert [msg_id for msg_id, *_ in consumer.got] == ["m1"]
    await later(bench)
    assert consumer.done == ["m1", "m2", "m3"]
    assert [count for _, count, _ in consumer.got] == [1, 2, 1, 1]


async def test_those_behind_one_that_is_parked_go_on(
    bench: Bench, consumer: Consumer
) -> None:
    """One bad message must not stop a device for ever."""
    consumer.failures["m1"] = 3
    for msg_id in ("m1", "m2"):
        await release(bench, msg_id)
    for _ in range(3):
        await later(bench)
    assert consumer.done == ["m2"]


async def test_without_a_lane_nobody_waits(bench: Bench, consumer: Consumer) -> None:
    """For handlers that take long, and messages without an order."""
    consumer.lane = None
    consumer.failures["m1"] = 1
    for msg_id in ("m1", "m2"):
        await release(bench, msg_id)
    assert consumer.done == ["m2"]


async def test_one_that_is_for_another_consumer_by_now_keeps_nobody_waiting(
    bench: Bench, consumer: Consumer
) -> None:
    """The matches of a consumer may change over time.

    Each consumer has a lane of its own.
    """
    other = Consumer(lane="other lane")
    gate = asyncio.Event()
    other.until = gate.wait
    consumer.failures["m1"] = 1
    hold = await release(bench, "m1")
    await release(bench, "m2")
    learnt = {"m1", "m3"}
    bench.port.consume = lambda it: (other if it.msg_id in learnt else consumer)(it)
    await release(bench, "m3")
    await later(bench)
    assert consumer.done == ["m2"], "the lane that it has left goes on"
    assert other.got == [("m3", 1, False)], "in its new lane there is one before it"
    gate.set()
    await later(bench)
    assert other.got[1:] == [("m1", 2, True)]
    answer = await bench.take(request("deliver", hold=hold))
    assert answer == Answer("result", hold)
    assert bench.inbox.used() == (0, 0)


@pytest.mark.parametrize("lane", ["lane", None])
@pytest.mark.parametrize("mark", ["sender-store", ""])
async def test_one_that_is_for_no_consumer_by_now_goes_to_the_handlers(
    bench: Bench, consumer: Consumer, lane: str | None, mark: str
) -> None:
    """It has the redelivered mark, since a consumer has had it.

    Later messages go on.
    """
    consumer.lane = lane
    consumer.failures["m1"] = 1
    received = await bench.take(request(mark=mark))
    assert received is not None
    await bench.take(request("deliver", mark=mark, hold=received.hold))
    bench.port.consume = lambda it: None if it.msg_id == "m1" else consumer(it)
    await later(bench)
    assert [(it.msg_id, it.redelivered) for it in bench.port.handed] == [("m1", True)]
    assert bench.port.answers[-1] == Answer("result", received.hold)
    assert ("report", "") not in bench.port.events
    await release(bench, "m2")
    assert consumer.done == ["m2"]
    assert bench.inbox.used() == (0, 0)


async def test_none_begins_when_the_inbox_has_been_stopped_meanwhile(
    bench: Bench, consumer: Consumer
) -> None:
    """The inbox stopped while the count was being written.

    No hand-over after `aclose`.
    """
    received = await bench.take(request())
    assert received is not None
    bench.inbox.request(request("deliver", hold=received.hold), trusted=True)
    await bench.commit(1)
    assert states(bench) == [IncomingState.RELEASING]
    bench.inbox.stop()
    await bench.commit()
    assert [record.handovers for record in bench.store.incoming()] == [1]
    assert consumer.got == []
    bench.restart()
    await bench.commit()
    assert consumer.got == [("m1", 2, True)]
    assert consumer.done == ["m1"]


async def test_the_order_and_the_count_outlive_the_process(
    bench: Bench, consumer: Consumer
) -> None:
    """An interrupted hand-over counts.

    A message that kills its process is parked too.
    """
    consumer.until = asyncio.Event().wait
    for msg_id in ("m1", "m2"):
        await release(bench, msg_id)
    for _ in range(2):
        await bench.inbox.aclose()
        bench.restart()
        await bench.commit()
    assert consumer.got == [("m1", 1, False), ("m1", 2, True), ("m1", 3, True)]
    consumer.until = partial(asyncio.sleep, 0)
    await bench.inbox.aclose()
    bench.restart()
    await bench.commit(6)
    assert [record.msg_id for record in bench.inbox.parked()] == ["m1"]
    assert consumer.got[3:] == [("m2", 1, True)], "what waited was not counted"
    assert consumer.done == ["m2"]


async def test_a_full_disk_only_delays_it(bench: Bench, consumer: Consumer) -> None:
    """Work that could not be marked as done is undone, and done again."""
    hold = await release(bench)
    bench.store.disk.full = True
    gate = asyncio.Event()
    consumer.until = gate.wait
    received = await bench.take(request(msg_id="m2"))
    assert received == Answer("error", "", "resource-constraint", "wait")
    bench.store.disk.full = False
    await release(bench, "m2")
    assert [msg_id for msg_id, *_ in consumer.got] == ["m1", "m2"]
    bench.store.disk.full = True
    gate.set()
    await bench.commit()
    assert consumer.done == ["m1", "m2"]
    assert len(bench.port.answers) == 4, "but nobody is told"
    for _ in range(3):
        await later(bench, 10.0)
    assert consumer.done == ["m1", "m2"], "its count cannot be written either"
    bench.store.disk.full = False
    for _ in range(2):
        await later(bench, 10.0)
    assert consumer.done == ["m1", "m2", "m2"]
    assert states(bench) == [IncomingState.DONE] * 2
    assert await bench.take(request("deliver", hold=hold)) == Answer("result", hold)


async def as_it_is(statement: Awaitable[object]) -> object:
    return await statement


@pytest.mark.parametrize(
    "within", [as_it_is, asyncio.gather, partial(asyncio.wait_for, timeout=LIMIT_S)]
)
async def test_a_write_that_would_wait_for_its_own_consumer_is_refused(
    tmp_path: Path, within: Callable[[Awaitable[object]], Awaitable[object]]
) -> None:
    """Even if the first statement is made in a task of its own, as gather does."""
    store = SqliteStore(tmp_path / "store.db")
    store.open()
    ended: asyncio.Future[BaseException | None] = (
        asyncio.get_running_loop().create_future()
    )

    def end(transaction: Transaction | None, error: BaseException | None) -> None:
        assert transaction is not None
        transaction.rollback()
        ended.set_result(error)

    async def handle(handover: Handover) -> None:
        early = asyncio.create_task(write_when(begun, store))
        await within(handover.execute("SELECT 1"))
        begun.set()
        with pytest.raises(StoreError, match="send before its first statement"):
            await write(store)
        others.append(early)

    others: list[asyncio.Task[None]] = []
    begun = asyncio.Event()
    record = incoming("k")
    consumption = replace(Consumer()(record), handle=handle)
    consuming = Consuming(store)
    consuming.begin(record, consumption, end)
    async with limit():
        assert await ended is None
        await others[0]
    await store.close()


async def write(store: SqliteStore) -> None:
    written = store.write((Save(incoming("k")),))
    assert written is not None
    await written


async def write_when(begun: asyncio.Event, store: SqliteStore) -> None:
    """A task that the handler started earlier, and does not await, is outside."""
    await begun.wait()
    await write(store)


@pytest.mark.parametrize("sql", ["SELECT 1", "SELECT 1 FROM nothing"])
async def test_a_transaction_is_not_open_for_long_also_if_its_first_statement_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    """Meanwhile nobody else could write."""
    monkeypatch.setattr("qos.engine.consuming._TRANSACTION_S_MAX", 0.05)
    store = SqliteStore(tmp_path / "store.db")
    store.open()
    ended: asyncio.Future[BaseException | None] = (
        asyncio.get_running_loop().create_future()
    )

    def end(transaction: Transaction | None, error: BaseException | None) -> None:
        assert transaction is not None
        transaction.rollback()
        ended.set_result(error)

    async def handle(handover: Handover) -> None:
        with contextlib.suppress(sqlite3.Error):
            await handover.execute(sql)
        await asyncio.Event().wait()

    consumption = replace(Consumer()(incoming("k")), handle=handle)
    Consuming(store).begin(incoming("k"), consumption, end)
    async with limit():
        assert isinstance(await ended, TimeoutError)
    await store.close()
