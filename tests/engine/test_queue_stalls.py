"""A queue service that is slow takes nothing from its workers: its time is not theirs."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from qos.core.queue.effects import NotifyUnlock
from qos.core.queue.handle import handle
from qos.core.queue.requests import (
    Configure,
    Extend,
    Publish,
    Purge,
    Refusal,
    Request,
    Subscribe,
)
from qos.core.queue.results import ExtendResult, Ok, Result
from qos.engine import queue_engine
from qos.engine.clock import ListeningClock
from qos.engine.queue_engine import Unwritten
from qos.testing.clock import ManualClock
from queue_bench import BEE, NODE, OTHER_BEE, Bench, Sent, entry, opened
from waiting import until

LOCK_S = 10.0

#: A commit of a slow disk, or a purge of a large queue.
STALL_S = 25


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A worker has the item `a`, and another one would take it."""
    async with opened(tmp_path / "queues.sqlite") as bench:
        await work(bench)
        yield bench


async def work(bench: Bench) -> None:
    config = {"queue#lock_timeout": f"{LOCK_S:g}", "queue#max_deliveries": "2"}
    await bench.ask(Configure(NODE, config))
    await bench.ask(Publish(NODE, (entry("a"),)))
    await until(lambda: "a" in bench.tokens)
    options = {"pubsub#queue_requests": "1"}
    await bench.ask(Subscribe(NODE, OTHER_BEE, options), OTHER_BEE)
    bench.out.clear()


def extend(
    bench: Bench, item_id: str = "a", by: str = BEE
) -> asyncio.Future[Result | Refusal]:
    """A worker extends its lock."""
    tokens = ((item_id, bench.tokens[item_id]),)
    return bench.ask(Extend(NODE, LOCK_S, tokens), by)


async def granted(answer: asyncio.Future[Result | Refusal]) -> bool:
    result = await answer
    assert isinstance(result, ExtendResult), result
    return result.seconds == LOCK_S


def nobody_lost_anything(bench: Bench) -> bool:
    lost = [each for each in bench.out if isinstance(each, NotifyUnlock)]
    given = [each for each in bench.out if isinstance(each, Sent)]
    return not lost and all(each.to == BEE for each in given)


async def commits(bench: Bench) -> asyncio.Future[Result | Refusal]:
    """Something else is written, and that takes long."""
    bench.disk.hold()
    config = {"queue#dedupe_window": str(1000 + bench.disk.commits)}
    done = bench.ask(Configure(NODE, config))
    await bench.begins()
    return done


@pytest.mark.parametrize("seconds", [range(STALL_S), (4, 13, 22), (4,)])
async def test_all_extensions_that_wait_for_a_commit_are_granted(
    seconds: Sequence[int], bench: Bench
) -> None:
    """Each second, or once, since the worker waits for the answer. After two stalls the
    item was dead.
    """
    for _ in range(3):
        await granted(extend(bench))
        other = await commits(bench)
        answers = []
        for second in range(STALL_S):
            bench.clock.advance(1.0)
            if second in seconds:
                answers.append(extend(bench))
        bench.disk.release()
        assert not isinstance(await other, Refusal)
        for each in answers:
            await granted(each)
        bench.clock.advance(LOCK_S / 2)
        assert await granted(extend(bench))
    assert nobody_lost_anything(bench)
    assert (await bench.stats())["dead"] == 0


async def test_a_lock_begins_when_its_item_can_be_sent(bench: Bench) -> None:
    """It ended in the turn in which the worker was told of it, and that was a failure."""
    bench.disk.hold()
    bench.ask(Publish(NODE, (entry("b"),)))
    await bench.begins()
    for _ in range(STALL_S):
        bench.clock.advance(1.0)
    bench.disk.release()
    await until(lambda: "b" in bench.tokens)
    assert await granted(extend(bench, "b", OTHER_BEE))
    assert await granted(extend(bench))
    assert not [each for each in bench.out if isinstance(each, NotifyUnlock)]


async def test_a_lock_that_nobody_extends_still_ends(bench: Bench) -> None:
    """Of the stall only the first seconds count; after it the clock goes on."""
    other = await commits(bench)
    bench.clock.advance(STALL_S)
    bench.disk.release()
    await other
    bench.clock.advance(LOCK_S / 2)
    await bench.stats()
    assert nobody_lost_anything(bench)
    bench.clock.advance(LOCK_S)
    await until(lambda: NotifyUnlock(BEE, NODE, ("a",)) in bench.out)


async def test_a_lock_outlasts_a_store_that_cannot_be_read_for_longer(
    bench: Bench,
) -> None:
    """Its worker was told to ask again, and did so."""
    bench.disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    assert isinstance(await bench.ask(Publish(NODE, (entry("b"),))), Unwritten)
    bench.disk.error = None
    bench.store._reader, reader = None, bench.store._reader
    for _ in range(STALL_S):
        bench.clock.advance(1.0)
        assert isinstance(await extend(bench), Unwritten)
    bench.store._reader = reader
    bench.clock.advance(1.0)
    assert await granted(extend(bench))
    assert nobody_lost_anything(bench)


class StoppedClock(ManualClock):
    """A clock that may go on while nothing is called, as in a long step."""

    def step(self, seconds: float) -> None:
        self._now += seconds

    def time(self) -> float:
        """See asyncio.AbstractEventLoop."""
        return self.now()

    def call_later(self, delay: float, call: Any) -> object:
        """See asyncio.AbstractEventLoop."""
        return self.call_at(self.now() + delay, call)


async def test_all_extensions_that_wait_for_a_purge_of_another_owner_are_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was read in that step, whose requests are in the socket."""
    loop = StoppedClock(1000.0)
    clock = ListeningClock(cast(asyncio.AbstractEventLoop, loop), monotonic=loop.now)
    clock.start()

    def handled(core: Any, request: Request, requester: str, now: float) -> Any:
        if isinstance(request, Purge):
            loop.step(STALL_S)
        return handle(core, request, requester, now)

    monkeypatch.setattr(queue_engine, "handle", handled)
    async with opened(tmp_path / "queues.sqlite", clock=clock) as bench:
        await work(bench)
        loop.advance(5.0)
        assert not isinstance(await bench.ask(Purge("elsewhere")), Ok)
        # What came in the socket meanwhile is read before timers are looked at.
        answers = [extend(bench) for _ in range(STALL_S)]
        loop.advance(0.0)
        for each in answers:
            assert await granted(each)
        loop.advance(LOCK_S / 2)
        assert await granted(extend(bench))
        assert nobody_lost_anything(bench)
    clock.stop()
