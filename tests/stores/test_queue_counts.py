"""The counts in the database of a queue service: true after each commit, and read at once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from qos.core.queue.effects import Change, NoteSeen, SaveItem, SaveLock, SaveNode
from qos.core.queue.item import Item, ItemState
from qos.stores.queue_counts import Difference, differences
from qos.stores.queue_store import SqliteQueueStore
from qos.testing.queue_store_changes import Chance
from qos.testing.queue_store_model import QueueModel
from qos.testing.queue_store_records import archived_item, item, write
from queue_files import NODE, query

#: A moment in the middle of a span of 64 s in which delays are counted.
NOW = 64 * 1000 + 30.0


@pytest.mark.parametrize("seed", range(30))
async def test_they_are_those_of_the_rows(ram_path: Path, seed: int) -> None:
    """After each commit of random changes, and when all times have been moved."""
    chance = Chance(random.Random(seed))
    model = QueueModel()
    for _ in range(3):
        store = SqliteQueueStore(ram_path / "store.db")
        store.open()
        for _ in range(6):
            await write(store, *chance.write(model))
            assert differences(store._read) == []
        await store.close()
    # The clock was set back by far.
    store.open(1.0)
    assert differences(store._read) == []
    await store.close()


def held_back(seq: int, until: float) -> Item:
    """An item whose delay ends at this time."""
    return item(seq, published_at=1.0, available_at=until)


async def test_delays_are_counted_to_the_moment(ram_path: Path) -> None:
    """Also those that end in the span of this moment, and at its ends."""
    store = SqliteQueueStore(ram_path / "store.db")
    store.open()
    ends = [NOW - 30, NOW - 1, NOW, NOW + 1, NOW + 33.9, NOW + 34, NOW + 1e6]
    items = [held_back(seq, until) for seq, until in enumerate(ends, start=1)]
    locked = held_back(9, NOW + 5)
    await write(store, SaveNode(NODE), *(SaveItem(each, "x") for each in items))
    await write(store, SaveItem(locked, "x"))
    await write(store, SaveLock(item(9, state=ItemState.ACQUIRED, holder="w@b/1")))
    for now in [*ends, 0.0, NOW + 2e6]:
        contents = store.contents(paged_at=now)
        assert contents.plain is not None
        plain = contents.plain[NODE.name]
        later = [at for at in ends if at > now]
        assert plain.delayed == len(later)
        # The locked one may be the first of them: nothing is due before.
        assert plain.delayed_until in {min(later, default=None), NOW + 5}
    await store.close()


async def test_a_count_that_is_wrong_is_named(ram_path: Path) -> None:
    """With what it says, and what is there; and one that is missing, or too much."""
    path = ram_path / "store.db"
    store = SqliteQueueStore(path)
    store.open()
    changes: list[Change] = [SaveNode(NODE), *(SaveItem(item(n), "x") for n in (1, 2))]
    await write(store, *changes, SaveItem(archived_item(3), "x"))
    await store.close()
    query(path, "UPDATE item_count SET items = 5 WHERE kind = 'plain'")
    query(path, "INSERT INTO item_count VALUES ('gone', 0, 'dead', '', 1, 7)")
    store.open()
    size = item(1).size
    assert differences(store._read) == [
        Difference("gone", "dead", (1, 0), (7, 0)),
        Difference(NODE.name, "plain", (5, 2), (2 * size, 2 * size)),
    ]
    await store.close()
    query(path, "DELETE FROM item_count")
    store.open()
    assert differences(store._read) == [
        Difference(NODE.name, "plain", (0, 2), (0, 2 * size))
    ]
    await store.close()


async def test_a_start_takes_as_many_steps_however_many_items_there_are(
    ram_path: Path,
) -> None:
    """Steps of SQLite's machine; a row that is looked at takes ten."""
    steps = []
    for count in (100, 3000):
        store = SqliteQueueStore(ram_path / f"{count}.db")
        store.open(NOW)
        items = (
            item(
                seq,
                published_at=NOW,
                available_at=NOW + seq % 2 * 1e6,
                expires_at=NOW + 1e7,
                origin="other" if seq % 3 else "",
                origin_identity="i" if seq % 3 else "",
            )
            for seq in range(1, count + 1)
        )
        await write(store, SaveNode(NODE), *(SaveItem(each, "x") for each in items))
        await write(store, NoteSeen(NOW, NOW))
        steps.append(0)

        def count_it() -> int:
            steps[-1] += 1
            return 0

        assert store._reader is not None
        store._reader.set_progress_handler(count_it, 1)
        plain = store.contents(paged_at=NOW).plain
        assert plain is not None
        assert plain[NODE.name].items == count
        store._read(store._newest)
        await store.close()
    assert steps[1] <= steps[0] + 50


async def test_an_item_that_is_saved_again_at_once_is_counted_once(
    ram_path: Path,
) -> None:
    """INSERT OR REPLACE fires no trigger for the row that it replaces by default."""
    store = SqliteQueueStore(ram_path / "store.db")
    store.open()
    await write(store, SaveNode(NODE), SaveItem(item(1), "x"), SaveItem(item(1), "y"))
    await write(store, SaveItem(item(1), "z"))
    assert differences(store._read) == []
    await store.close()
