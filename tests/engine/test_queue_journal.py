"""The journal of a queue service names each item that ends, with a purge of any number."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from journals import read_journal
from qos.core.queue import backlog, item_index
from qos.core.queue.requests import Create, Delete, Publish, Purge, Retract, Settlement
from qos.engine import queue_commit
from queue_bench import BEE, NODE, Bench, entry, opened
from waiting import until

NAMES = [f"i{number:02}" for number in range(20)]
OTHERS = [f"j{number:02}" for number in range(10)]
FREE_AT_ONCE = {"queue#dedupe_window": "0"}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few items are many here: in memory are 2 to 4 of a queue, and a commit removes 3."""
    monkeypatch.setattr(item_index, "HEAD", 2)
    monkeypatch.setattr(backlog, "READ", 3)
    monkeypatch.setattr(queue_commit, "_PURGED_ROWS", 3)
    monkeypatch.setattr(queue_commit, "_PURGED_ROWS_PER_NEW", 0)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Its worker holds i00 and i01; the others are there."""
    files = tmp_path / "queues.sqlite"
    async with opened(files, journal=tmp_path / "journal") as bench:
        await bench.ask(Publish(NODE, tuple(map(entry, NAMES))))
        await bench.until(2)
        yield bench


async def lines(bench: Bench, folder: Path) -> list[tuple[str, str]]:
    """The events of all items since they are there, when all rows have gone that go."""
    await until(lambda: not bench.store.has_purged())
    await bench.engine.aclose()
    return [
        (line["event"], line["item"])
        for line in read_journal(folder / "journal")
        if line["event"] != "published"
    ]


async def test_each_item_is_named_though_it_was_on_disk_only(
    bench: Bench, tmp_path: Path
) -> None:
    """One that a worker gets later, one that is withdrawn, and all that are purged."""
    await bench.restart()
    bench.engine.online()
    bench.engine.heard(BEE, available=True)
    core = bench.engine._core
    assert core is not None
    assert len(core.nodes[NODE].items) == 2
    await bench.ask(bench.accept("i00"), BEE)
    await bench.until(3)
    await bench.ask(Retract(NODE, (Settlement(item_id="i15"),)))
    await bench.ask(Purge(NODE))
    happened = await lines(bench, tmp_path)
    assert happened[:5] == [
        *(("acquired", "i00"), ("acquired", "i01"), ("accepted", "i00")),
        *(("acquired", "i02"), ("withdrawn", "i15")),
    ]
    rest = {*NAMES} - {"i00", "i15"}
    assert happened[5:] == [("purged", name) for name in sorted(rest)]


async def test_each_purged_item_is_named_once(bench: Bench, tmp_path: Path) -> None:
    """Beside a node that is deleted, whose items go first."""
    await bench.ask(Create("a", {}))
    await bench.ask(Publish("a", tuple(map(entry, OTHERS))))
    await bench.ask(Purge(NODE))
    await bench.ask(Delete("a"))
    assert bench.store.has_purged()
    happened = await lines(bench, tmp_path)
    assert sorted(happened[2:]) == [("purged", name) for name in NAMES + OTHERS]


async def test_what_is_purged_is_named_after_a_restart_too(
    bench: Bench, tmp_path: Path
) -> None:
    """In slices, as its rows go."""
    await bench.ask(Purge(NODE))
    assert bench.store.has_purged()
    await bench.restart()
    bench.engine.online()
    bench.clock.advance(1.0)
    happened = await lines(bench, tmp_path)
    assert happened[2:] == [("purged", name) for name in NAMES]


async def test_an_id_that_is_used_again_has_two_lives(
    bench: Bench, tmp_path: Path
) -> None:
    """The first one ends before the second begins, though many rows have still to go."""
    await bench.ask(Create("a", FREE_AT_ONCE))
    await bench.ask(Publish("a", tuple(map(entry, OTHERS))))
    await bench.ask(Purge("a"))
    await bench.ask(Publish("a", (entry("j09"),)))
    assert bench.store.has_purged()
    await bench.ask(Retract("a", (Settlement(item_id="j09"),)))
    happened = await lines(bench, tmp_path)
    assert [event for event, name in happened if name == "j09"] == [
        "purged",
        "withdrawn",
    ]
    purged = [name for event, name in happened if event == "purged"]
    assert sorted(purged) == OTHERS
