"""A queue that is deeper than its memory, on a real store: what is decided is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qos.core.queue import backlog, item_index
from qos.core.queue.requests import (
    Configure,
    Create,
    Items,
    Publish,
    Purge,
    Refusal,
    Requeue,
    Retract,
    Settlement,
    Subscribe,
)
from qos.core.queue.results import (
    CreateResult,
    ItemsResult,
    Ok,
    PublishResult,
    RequeueResult,
)
from qos.core.record import replace
from qos.engine.queue_engine import Unwritten
from qos.errors import StoreError
from queue_bench import BEE, NODE, Bench, Sent, entry, opened
from waiting import until

NAMES = [f"i{number}" for number in range(20)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few items are a deep queue here: it keeps 2 to 4 of them in memory, and reads 3."""
    monkeypatch.setattr(item_index, "HEAD", 2)
    monkeypatch.setattr(backlog, "READ", 3)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Its worker holds i0 and i1; the others are there."""
    async with opened(tmp_path / "queues.sqlite") as bench:
        await bench.ask(Publish(NODE, tuple(map(entry, NAMES))))
        await bench.until(2)
        yield bench


def unreadable(*_args: object, **_options: object) -> Any:
    raise StoreError("sqlite:queues", "a page of it cannot be read")


async def ids(bench: Bench, **wish: Any) -> list[str]:
    result = await bench.ask(Items(node=NODE, **wish))
    assert isinstance(result, ItemsResult)
    return [each.item_id for each in result.items]


async def test_what_is_being_written_is_read_with_what_is_there(bench: Bench) -> None:
    """The core decides on all that it has decided, and the store is behind."""
    assert bench.engine._core is not None
    assert bench.engine._core.nodes[NODE].live.backlog.count == 18
    bench.disk.hold()
    bench.ask(Publish(NODE, (entry("new"),)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    bench.ask(Publish(NODE, tuple(entry(f"n{number}") for number in range(5))))
    later = ["new", *(f"n{number}" for number in range(5))]
    repeated = bench.ask(Publish(NODE, (entry("new"), entry("i19"), entry("n4"))))
    page, last = (
        asyncio.ensure_future(ids(bench, **wish))
        for wish in ({}, {"max_items": 8, "last": True})
    )
    await asyncio.sleep(0)
    bench.disk.release()
    answer = await repeated
    assert isinstance(answer, PublishResult)
    assert answer.repeated == ("new", "i19", "n4")
    assert await page == [*NAMES, *later]
    assert await last == ["i18", "i19", *later]
    given = NAMES[:2]
    for number in range(24):
        bench.out.clear()
        await bench.ask(bench.accept(given[number]), BEE)
        await until(lambda: any(isinstance(each, Sent) for each in bench.out))
        (sent,) = (each for each in bench.out if isinstance(each, Sent))
        given.append(sent.items[0][0])
    assert given == [*NAMES, *later]


async def test_what_is_decided_in_a_step_is_read_in_it(bench: Bench) -> None:
    """A worker has room for all that is on disk, and for what comes with it."""
    bench.out.clear()
    options = {"pubsub#queue_requests": "100"}
    bench.ask(Subscribe(NODE, BEE, options), BEE)
    await bench.ask(Publish(NODE, (entry("new"), entry("newer"))))
    await until(lambda: "newer" in bench.tokens)
    assert bench.engine._core is not None
    assert bench.engine._core.nodes[NODE].live.backlog.count == 0
    assert [*bench.tokens] == [*NAMES, "new", "newer"]


async def test_what_is_withdrawn_is_not_read(bench: Bench) -> None:
    """Its row is there until the commit with the withdrawal and the next lock."""
    bench.out.clear()
    withdrawn = bench.ask(Retract(NODE, (Settlement(item_id="i2"),)))
    await bench.ask(bench.accept("i0"), BEE)
    assert await withdrawn == Ok()
    await until(lambda: any(isinstance(each, Sent) for each in bench.out))
    assert [each.items[0][0] for each in bench.out if isinstance(each, Sent)] == ["i3"]
    assert await ids(bench) == ["i1", *NAMES[3:]]


async def test_the_ids_of_a_purge_are_known_before_it_is_written(bench: Bench) -> None:
    """Those of items that no memory has, too."""
    bench.disk.hold()
    late = bench.ask(Publish(NODE, (entry("late"),)))
    purged = bench.ask(Purge(NODE))
    again = bench.ask(Publish(NODE, tuple(map(entry, ("i0", "i19", "late", "new")))))
    other = bench.ask(Publish(NODE, (entry("i18", "<y xmlns='urn:y'/>"),)))
    bench.disk.release()
    assert isinstance(await late, PublishResult)
    assert await purged == Ok()
    repeated, refused = await again, await other
    assert isinstance(repeated, PublishResult)
    assert repeated.repeated == ("i0", "i19", "late")
    assert isinstance(refused, Refusal)
    assert refused.condition == "conflict"
    assert await ids(bench) == ["new"]


async def test_what_is_being_written_expires_in_time(bench: Bench) -> None:
    """And what is being withdrawn does not."""
    brief = [replace(entry(name), ttl=5.0) for name in "ab"]
    at_once = [replace(entry(name), ttl=0.0) for name in "cd"]
    await bench.ask(Publish(NODE, tuple(brief)))
    bench.clock.advance(5.0)
    # All of this is decided in one turn, and then what has expired is looked for.
    late = bench.ask(Publish(NODE, tuple(at_once)))
    withdrawals = tuple(Settlement(item_id=item_id) for item_id in "bd")
    withdrawn = bench.ask(Retract(NODE, withdrawals))
    assert isinstance(await late, PublishResult)
    assert await withdrawn == Ok()
    assert await ids(bench) == NAMES
    stats = await bench.stats()
    assert stats["dead"] == 2


async def test_delays_of_what_is_being_written_end_in_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though their items are on disk only, and some of them are withdrawn meanwhile."""
    monkeypatch.setattr(backlog, "READ", 9)
    for name in NAMES:
        await until(lambda name=name: name in bench.tokens)
        await bench.ask(bench.accept(name), BEE)
    delayed = [replace(entry(f"d{n}"), delay=0.5) for n in range(3)]
    await bench.ask(Publish(NODE, tuple(delayed)))
    assert bench.engine._core is not None
    on_disk = bench.engine._core.nodes[NODE].live.backlog
    assert on_disk.count == on_disk.delayed == 1
    bench.disk.hold()
    first = bench.ask(Create("other"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    # All of this is decided while a commit takes long.
    more = bench.ask(Publish(NODE, (replace(entry("new"), delay=0.25),)))
    withdrawn = bench.ask(Retract(NODE, (Settlement(item_id="d2"),)))
    bench.clock.advance(0.5)
    bench.disk.release()
    assert isinstance(await first, CreateResult)
    assert isinstance(await more, PublishResult)
    assert await withdrawn == Ok()
    expected = ["d0", "d1", "new"]
    for name in expected:
        await until(lambda name=name: name in bench.tokens)
        await bench.ask(bench.accept(name), BEE)
    assert [*bench.tokens] == [*NAMES, *expected]
    assert bench.restarts == 0
    assert on_disk.count == on_disk.delayed == 0


async def test_a_delay_that_is_being_written_is_the_next_to_end(bench: Bench) -> None:
    """The store does not know of it yet."""
    for name in NAMES:
        await until(lambda name=name: name in bench.tokens)
        await bench.ask(bench.accept(name), BEE)
    first = [replace(entry(f"d{n}"), delay=0.5) for n in range(3)]
    await bench.ask(Publish(NODE, (*first, replace(entry("last"), delay=50.0))))
    assert bench.engine._core is not None
    on_disk = bench.engine._core.nodes[NODE].live.backlog
    assert on_disk.delayed == 2
    more = bench.ask(Publish(NODE, (replace(entry("new"), delay=0.75),)))
    end = bench.clock.now() + 0.75
    bench.clock.advance(0.5)
    assert on_disk.delayed == 3
    assert isinstance(await more, PublishResult)
    assert on_disk.delayed == 2
    assert on_disk.delayed_until == end


async def dead(bench: Bench, **wish: Any) -> list[str]:
    """The ids of items that have died here."""
    return await ids(bench, state="dead", **wish)


async def test_letters_that_are_being_written_are_found(bench: Bench) -> None:
    """By page, by id, and by a requeue; and not where they no longer are."""
    await bench.ask(Create("graves"))
    await bench.ask(Configure(NODE, {"queue#dead_letter_node": "graves"}))
    await bench.ask(bench.reject("i0"), BEE)
    await bench.ask(bench.reject("i1"), BEE)
    await until(lambda: "i3" in bench.tokens)
    bench.disk.hold()
    rejected = bench.ask(bench.reject("i2"), BEE)
    page, named = (
        asyncio.ensure_future(dead(bench, **wish))
        for wish in ({}, {"item_ids": ("i2", "i1")})
    )
    await asyncio.sleep(0)
    requeued = bench.ask(Requeue(NODE, ("i2", "i0")))
    later, gone = (
        asyncio.ensure_future(dead(bench, **wish))
        for wish in ({}, {"item_ids": ("i2", "i0")})
    )
    await asyncio.sleep(0)
    bench.disk.release()
    assert await rejected == Ok()
    assert await page == ["orders/i0", "orders/i1", "orders/i2"]
    assert await named == ["orders/i1", "orders/i2"]
    assert await requeued == RequeueResult(NODE, ("i2", "i0"))
    assert await later == ["orders/i1"]
    assert await gone == []


async def test_a_request_that_the_store_cannot_answer_is_refused_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has been changed by then, and others go on."""
    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "find_plain", unreadable)
        refused = await bench.ask(Publish(NODE, (entry("new"),)))
        assert isinstance(refused, Unwritten)
        assert isinstance(await bench.ask(Create("other")), CreateResult)
    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "plain_page", unreadable)
        assert isinstance(await bench.look(NODE), Unwritten)
        assert isinstance(await bench.ask(Items(node=NODE)), Unwritten)
    assert (await bench.stats())["available"] == 18
    assert bench.restarts == 0
    assert await ids(bench) == NAMES


async def test_a_step_that_the_store_fails_is_taken_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has changed something by then, and begins anew from the disk."""
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: reported.append(about["exception"]))
    await bench.ask(Create("jobs", {"queue#dead_letter_node": ""}))
    await bench.ask(Create("graves"))
    letters = {"queue#dead_letter_node": "graves"}
    await bench.ask(Configure(NODE, letters))
    await bench.ask(Publish("graves", tuple(map(entry, NAMES))))
    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "find_plain", unreadable)
        refused = await bench.ask(bench.reject("i0"), BEE)
    assert isinstance(refused, Unwritten)
    assert len(reported) == 1
    bench.clock.advance(1.0)
    await until(lambda: bench.restarts == 1)
    assert await ids(bench) == NAMES


async def test_items_that_cannot_be_read_are_given_when_they_can(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service begins anew until then."""
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: reported.append(about["exception"]))
    for name in NAMES[:3]:
        await bench.ask(bench.accept(name), BEE)
        await until(lambda name=name: len(bench.tokens) > NAMES.index(name) + 1)
    with monkeypatch.context() as patch:
        patch.setattr(bench.store, "plain", unreadable)
        await bench.ask(bench.accept("i3"), BEE)
        await until(lambda: bool(reported))
    bench.clock.advance(1.0)
    await until(lambda: bench.restarts == 1)
    bench.engine.heard(BEE, available=True)
    await until(lambda: "i4" in bench.tokens)
