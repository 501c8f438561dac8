"""Errors inside a queue service: it goes on, or ends; it is never there without queues."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from qos.core.queue.requests import Create, Items, Publish, Refusal
from qos.core.queue.results import ItemsResult, PublishResult, Result
from qos.engine import queue_engine
from qos.engine.queue_engine import Unwritten
from qos.errors import StoreDamaged, StoreError
from qos.stores.queue_store import SqliteQueueStore
from queue_bench import BEE, NODE, OWNER, Bench, Sent, entry, opened
from waiting import until


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with opened(tmp_path / "queues.sqlite") as bench:
        yield bench


@pytest.fixture
async def errors() -> list[BaseException]:
    """The errors that are reported to the event loop."""
    found: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: found.append(about["exception"]))
    return found


def fail(*_args: object, **_options: object) -> Any:
    raise MemoryError


async def goes_on(bench: Bench) -> bool:
    """Whether it serves again after a second, with all that is on disk."""
    bench.clock.advance(1.0)
    published = await bench.ask(Publish(NODE, (entry("next"),)))
    return isinstance(published, PublishResult)


async def ids(bench: Bench) -> list[str]:
    result = await bench.ask(Items(node=NODE))
    assert isinstance(result, ItemsResult)
    return [each.item_id for each in result.items]


async def test_a_request_that_meets_an_error_may_be_repeated(
    bench: Bench, errors: list[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had changed half of what it had to. Nothing of that is left, nor of what was
    decided with it.
    """
    core = bench.engine._core
    assert core is not None

    def half(service: Any, *_args: object) -> Any:
        service.nodes.clear()
        raise MemoryError

    before = bench.ask(Publish(NODE, (entry("before"),)))
    with monkeypatch.context() as patch:
        patch.setattr(queue_engine, "handle", half)
        refusal = await bench.ask(Publish(NODE, (entry("a"),)))
    for each in (refusal, await before, await bench.ask(Create("other"))):
        assert isinstance(each, Unwritten)
        assert (each.condition, each.type) == ("internal-server-error", "wait")
    assert [type(each) for each in errors] == [MemoryError]
    assert await goes_on(bench)
    assert await ids(bench) == ["next"]


@pytest.mark.parametrize(
    "input_", ["heard", "departed", "absent", "bounced", "probes", "dispatch"]
)
async def test_whatever_meets_an_error_the_service_goes_on(
    input_: str,
    bench: Bench,
    errors: list[BaseException],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was there for ever, and half of what it had in memory was not on disk."""
    await bench.ask(Publish(NODE, (entry("a"),)))
    await until(lambda: Sent(BEE, [("a", "<x xmlns='urn:x'/>")]) in bench.out)
    (event_id,) = bench.engine._outputs._sent
    engine, core = bench.engine, bench.engine._core
    with monkeypatch.context() as patch:
        patch.setattr(core, input_, fail)
        match input_:
            case "heard":
                engine.heard(BEE)
            case "departed":
                engine.departed(BEE)
            case "absent":
                engine.absent(BEE)
            case "bounced":
                engine.bounced(BEE, event_id)
            case "probes":
                engine.online()
            case _:
                asked = await bench.ask(Publish(NODE, (entry("b"),)))
                assert isinstance(asked, Unwritten)
        await until(lambda: errors)
    assert isinstance(await bench.ask(Items(node=NODE)), Unwritten)
    bench.out.clear()
    assert await goes_on(bench)
    assert f"probe {BEE}" in bench.out
    # The worker is sent again what it holds.
    engine.heard(BEE)
    await until(lambda: Sent(BEE, [("a", "<x xmlns='urn:x'/>")]) in bench.out)
    assert not engine.given_up.is_set()


async def test_a_commit_under_way_is_told_though_the_service_has_met_an_error(
    bench: Bench, errors: list[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the store is read when that is over, not before."""
    bench.disk.hold()
    first = bench.ask(Publish(NODE, (entry("a"),)))
    await bench.begins()
    looked = bench.look(NODE)
    with monkeypatch.context() as patch:
        patch.setattr(queue_engine, "handle", fail)
        second = await bench.ask(Publish(NODE, (entry("b"),)))
    assert isinstance(second, Unwritten)
    assert isinstance(await looked, Unwritten)
    for _ in range(5):
        bench.clock.advance(1.0)
        assert isinstance(await bench.ask(Items(node=NODE)), Unwritten)
    assert not first.done()
    bench.disk.release()
    assert isinstance(await first, PublishResult)
    assert await goes_on(bench)
    assert await ids(bench) == ["a", "next"]


async def test_a_commit_under_way_may_fail_as_well(
    bench: Bench, errors: list[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.disk.hold()
    bench.disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
    first = bench.ask(Publish(NODE, (entry("a"),)))
    await bench.begins()
    with monkeypatch.context() as patch:
        patch.setattr(queue_engine, "handle", fail)
        assert isinstance(await bench.ask(Publish(NODE, (entry("b"),))), Unwritten)
    bench.disk.release()
    assert isinstance(await first, Unwritten)
    bench.disk.error = None
    assert await goes_on(bench)
    assert await ids(bench) == ["next"]


async def test_an_answer_that_cannot_be_sent_keeps_no_other_back(
    bench: Bench, errors: list[BaseException]
) -> None:
    """Nor the events after it."""

    def broken(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
        raise MemoryError

    bench.engine.request(Publish(NODE, (entry("a"),)), OWNER, broken)
    assert isinstance(await bench.ask(Publish(NODE, (entry("b"),))), PublishResult)
    await until(lambda: {"a", "b"} <= bench.tokens.keys())
    assert [type(each) for each in errors] == [MemoryError]


async def test_items_that_cannot_be_sent_keep_no_others_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Items that wait for the turn of their receiver: it never got any again."""
    monkeypatch.setattr("qos.engine.queue_outputs._AT_ONCE_BYTES", 0)
    with monkeypatch.context() as patch:
        patch.setattr(bench, "notify_items", fail)
        await bench.ask(Publish(NODE, (entry("a"),)))
        await until(lambda: not bench.engine._outputs._waiting)
    await bench.ask(Publish(NODE, (entry("b"),)))
    await until(lambda: Sent(BEE, [("b", "<x xmlns='urn:x'/>")]) in bench.out)


async def test_a_service_that_can_decide_nothing_is_given_up(
    bench: Bench, errors: list[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that its process ends, and a supervisor starts another."""
    monkeypatch.setattr("qos.core.queue.service.Queues.dispatch", fail)
    bench.engine.heard(BEE)
    turns = 0

    async def given_up() -> bool:
        nonlocal turns
        turns += 1
        bench.clock.advance(1.0)
        return bench.engine.given_up.is_set()

    await until(given_up)
    assert turns >= bench.engine.recover_for_s


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EROFS, errno.ENOSPC])
async def test_a_store_that_cannot_be_written_for_a_minute_is_given_up_unless_it_is_full(
    number: int, bench: Bench
) -> None:
    """A full disk has room again when an operator has made some."""
    bench.disk.error = OSError(number, os.strerror(number))
    for second in range(70):
        assert second <= 60 or bench.engine.given_up.is_set() == (
            number != errno.ENOSPC
        )
        assert isinstance(await bench.ask(Publish(NODE, (entry("a"),))), Unwritten)
        bench.clock.advance(1.0)
    bench.disk.error = None


async def test_a_few_commits_that_failed_long_ago_are_no_reason_to_give_up(
    bench: Bench,
) -> None:
    for _ in range(9):
        bench.disk.error = OSError(errno.EIO, os.strerror(errno.EIO))
        assert isinstance(await bench.ask(Publish(NODE, (entry("a"),))), Unwritten)
        bench.disk.error = None
        bench.clock.advance(600.0)
    assert not bench.engine.given_up.is_set()


async def test_a_service_is_given_up_when_its_store_is_found_damaged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It serves while a large store is checked; what it would read then may be wrong."""
    checking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(SqliteQueueStore, "check", lambda _store: checking)
    await bench.restart()
    bench.engine.online()
    assert await ids(bench) == []
    assert not bench.engine.given_up.is_set()
    checking.set_exception(StoreDamaged("sqlite:queues", "is malformed"))
    await bench.engine.given_up.wait()
    assert bench.engine.why_given_up == "sqlite:queues: is malformed"


async def test_a_check_that_cannot_be_made_ends_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is known to be wrong."""
    checking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(SqliteQueueStore, "check", lambda _store: checking)
    await bench.restart()
    bench.engine.online()
    checking.set_exception(StoreError("sqlite:queues", "out of memory"))
    assert await goes_on(bench)
    assert not bench.engine.given_up.is_set()
    assert "sqlite:queues: out of memory" in caplog.text
