"""A queue store as a file: its cost, its identity, and its errors.

The parts that it shares with the store of messages are tested there.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holder import holder
from qos.core.queue.effects import (
    Change,
    ForgetOld,
    NoteSeen,
    RemoveItem,
    RemoveNode,
    RemovePurged,
    SaveEnded,
    SaveItem,
    SaveLock,
    SaveNode,
    SaveSubscription,
)
from qos.core.queue.item import (
    EndedItem,
    Item,
    ItemOutcome,
    ItemState,
    Node,
    Subscription,
)
from qos.core.queue.places import FIRST, LAST
from qos.core.queue.terminus import Terminus
from qos.errors import (
    LocalProtocolError,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreInUse,
    StoreReadOnly,
)
from qos.stores import SqliteStore, queue_plain, queue_store, sqlite_file
from qos.stores.queue_store import SqliteQueueStore, queue_store_from_url
from qos.stores.sqlite_check import BackgroundCheck
from qos.testing.queue_store_records import item, write
from queue_files import NODE, accepted, ended, query, run

if TYPE_CHECKING:
    from tests.stores.conftest import Disk, Place


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue_store.db"


# -- what it promises beyond the dicts --------------------------------------


async def test_to_change_an_item_that_is_not_there_fails_the_write(path: Path) -> None:
    """Its first write has failed: it must not return as an item without a payload."""
    store = SqliteQueueStore(path)
    store.open()
    try:
        with pytest.raises(UnicodeEncodeError):
            await write(store, SaveItem(item(1), "\ud800"))
        with pytest.raises(StoreError, match="no such item"):
            await write(store, SaveNode(NODE), SaveItem(item(1, holder="w@b/1")))
        assert store.get(1) is None
        # Nothing of that write was made, and the next one is made.
        await write(store, SaveItem(item(2), "two"))
        assert store.payloads([1, 2]) == {2: "two"}
    finally:
        await store.close()
    assert query(path, "SELECT * FROM node") == []


async def test_what_is_written_at_once_is_one_commit(path: Path) -> None:
    """A queue in which each item waits for the disk alone is worth nothing."""
    store = SqliteQueueStore(path)
    commits: list[str] = []
    store.probe = commits.append
    store.open()
    commits.clear()
    writes = [store.write([SaveItem(item(n), "x")]) for n in range(1, 200)]
    assert len(set(writes)) == 1
    assert writes[0] is not None
    await writes[0]
    assert commits == ["commit"]
    await store.close()


async def test_a_lock_does_not_write_the_payload_again(path: Path) -> None:
    """A delivery of an item of 1 MB writes some kilobytes."""
    store, wal = SqliteQueueStore(path), path.with_name("queue_store.db-wal")
    store.open()
    assert store._writer is not None
    store._writer.execute("PRAGMA wal_autocheckpoint = 0")
    await write(store, SaveItem(item(1), "x" * 2**20))
    before = wal.stat().st_size
    assert before > 2**20
    for count in range(4):
        await write(store, SaveItem(item(1, holder="w@b/1", delivery_count=count)))
    # It is not overwritten either when it is removed.
    await write(store, RemoveItem(1))
    assert wal.stat().st_size - before < 150_000
    await store.close()


async def test_a_lock_leaves_the_indices_of_items_alone(path: Path) -> None:
    """Each delivery locks an item, and an index costs as much as the row itself.

    SQLite opens a tree for writing if a statement can change it. Of the index of archived
    items the state is the condition, and no lock makes it true. The index of the items that
    are in memory is small.
    """
    store = SqliteQueueStore(path)
    store.open()
    statements: list[str] = []
    assert store._writer is not None
    await write(store, SaveItem(item(1), "x"))
    store._writer.set_trace_callback(statements.append)
    await write(store, SaveLock(item(1, state=ItemState.ACQUIRED, holder="w@b/1")))
    assert store.contents().items[0].holder == "w@b/1"
    await store.close()
    (update,) = [each for each in statements if each.startswith("UPDATE")]
    opened = {
        row[3] for row in query(path, f"EXPLAIN {update}") if row[1] == "OpenWrite"
    }
    trees = dict(query(path, "SELECT rootpage, name FROM sqlite_schema"))
    assert {trees[page] for page in opened} == {
        "item",
        "item_archived",
        "item_in_memory",
    }


def test_nothing_is_left_of_what_is_removed(path: Path) -> None:
    """Whether it was removed alone, with its node, or because its time was over."""
    kept = accepted(4)
    everything: list[Change] = [
        SaveNode(NODE),
        SaveSubscription(
            Subscription(
                node="jobs", jid="w@b/1", subid="1", via="w@b/1", queue_requests=1
            )
        ),
        *[SaveItem(each, "x" * 5000) for each in (item(1), item(2), kept)],
        SaveEnded(ended("a")),
    ]
    tables = ("node", "subscription", "item", "item_payload", "ended")

    def rows() -> list[int]:
        return [query(path, f"SELECT COUNT(*) FROM {each}")[0][0] for each in tables]  # noqa: S608

    store = SqliteQueueStore(path)
    run(store, everything)
    assert rows() == [1, 1, 3, 3, 1]
    run(store, [ForgetOld(99.9, 9)])
    assert rows() == [1, 1, 3, 3, 1]
    run(store, [ForgetOld(100.0, 9)])
    assert rows() == [1, 1, 2, 2, 0]
    run(store, [RemoveItem(1), *everything[-2:]])
    assert rows() == [1, 1, 2, 2, 1]
    run(store, [RemoveNode("jobs", 0)])
    assert rows() == [0, 0, 2, 2, 1]
    run(store, [RemovePurged(2)])
    assert rows() == [0, 0, 0, 0, 1]
    run(store, [RemovePurged(2), RemovePurged(2)])
    assert rows() == [0, 0, 0, 0, 0]
    assert query(path, "SELECT * FROM deleted") == []


# -- what it costs ----------------------------------------------------------

COSTS: dict[str, Change | Callable[[SqliteQueueStore], object]] = {
    "publish": SaveItem(item(10_001), "x"),
    "lock": SaveLock(item(7, state=ItemState.ACQUIRED, holder="w@b/1")),
    "kill": SaveItem(item(8, state=ItemState.ARCHIVED, outcome=ItemOutcome.REJECTED)),
    "move": SaveItem(item(9, node="dead")),
    "remove item": RemoveItem(7),
    "remember": SaveEnded(ended("again")),
    "forget old": ForgetOld(50.0, 9),
    "is nothing old": lambda store: not store.has_old(50.0),
    "is anything old": lambda store: store.has_old(100.0),
    "forget some of many": ForgetOld(100.0, 9),
    "count node": SaveNode(replace(NODE, accepted=1)),
    "payloads": lambda store: store.payloads([3, 4]),
    "get": lambda store: store.get(3),
    "ended": lambda store: store.ended("jobs", "end-4"),
    "settled": lambda store: store.settled("jobs", [("often", "token-4")]),
    "archived": lambda store: store.archived(
        "jobs", ItemOutcome.ACCEPTED, after=20, limit=5
    ),
    "count another node": lambda store: store.count_archived(
        "empty", ItemOutcome.ACCEPTED, most=1000
    ),
    "find archived": lambda store: store.find_archived(
        "jobs", "id-20", ItemOutcome.ACCEPTED
    ),
    # Last: what reads of a new node of this name cost meanwhile is another question.
    "remove node": RemoveNode("jobs", 0),
    "remove some of it": RemovePurged(9),
}


async def costs(path: Path, count: int) -> dict[str, int]:
    """SQLite's instructions for each step, with this many of everything."""
    store = SqliteQueueStore(path)
    store.open()
    live = [SaveItem(item(seq), "x") for seq in range(1, 11)]
    kept = [SaveItem(accepted(seq), "x") for seq in range(11, count + 11)]
    memories = [SaveEnded(ended(f"end-{number}")) for number in range(count)]
    memories += [
        SaveEnded(replace(ended("often"), token=f"token-{number}"))
        for number in range(count)
    ]
    await write(store, SaveNode(NODE), *live, *kept, *memories)
    steps = 0

    def counts() -> None:
        nonlocal steps
        steps += 1

    for connection in (store._reader, store._writer):
        assert connection is not None
        connection.set_progress_handler(counts, 1)
    found = {}
    for name, cost in COSTS.items():
        steps = 0
        if callable(cost):
            assert cost(store) is not None
        else:
            await write(store, cost)
        found[name] = steps
    await store.close()
    return found


async def test_nothing_costs_more_when_there_is_more(tmp_path: Path) -> None:
    """Each is done for every item, in a queue of any length."""
    few = await costs(tmp_path / "few.db", 30)
    many = await costs(tmp_path / "many.db", 3000)
    for name in COSTS:
        assert 0 < many[name] <= few[name] * 1.5, (name, few[name], many[name])


# -- whose it is ------------------------------------------------------------


def test_the_file_says_whose_it_is_and_which_version(path: Path) -> None:
    """By SQLite's means for this."""
    run(SqliteQueueStore(path))
    assert query(path, "PRAGMA application_id") == [(int.from_bytes(b"QoSq"),)]
    assert query(path, "PRAGMA user_version") == [(len(queue_store.MIGRATIONS),)]


def test_the_tables_have_what_the_values_have(path: Path) -> None:
    """A field without a column would fail every write; so would the reverse."""
    run(SqliteQueueStore(path))
    tables = {
        "item": Item,
        "ended": EndedItem,
        "node": Node,
        "subscription": Subscription,
        "terminus": Terminus,
    }
    for table, kind in tables.items():
        columns = query(path, f"PRAGMA table_info({table})")
        names = {field.name for field in fields(kind)}
        assert {column[1] for column in columns} == names


def test_a_store_of_messages_is_none_of_a_queue(tmp_path: Path) -> None:
    """Nor the reverse: a mixed-up path must not mix the two."""
    messages, items = (
        SqliteStore(tmp_path / "messages"),
        SqliteQueueStore(tmp_path / "items"),
    )
    for store in (messages, items):
        store.open()
        asyncio.run(store.close())
    for mixed in (
        SqliteQueueStore(tmp_path / "messages"),
        SqliteStore(tmp_path / "items"),
    ):
        with pytest.raises(StoreDamaged, match="the database of another application"):
            mixed.open()


@pytest.mark.parametrize(
    "url",
    ["", "memory:", "files:x", "sqlite:", "sqlite:a\0b", "redis:x", "queue_store.db"],
)
def test_a_url_that_names_no_store_of_a_queue_is_the_callers_fault(url: str) -> None:
    """Everything that a queue has confirmed must survive, so `memory:` is refused."""
    with pytest.raises(
        LocalProtocolError, match="must be the URL sqlite:PATH"
    ) as caught:
        queue_store_from_url(url)
    assert repr(url) in str(caught.value)


def test_a_url_names_a_store_and_does_not_open_it(path: Path) -> None:
    """A command reports wrong arguments before it touches a disk."""
    store = queue_store_from_url(f"sqlite:{path}")
    assert store.url == f"sqlite:{path}"
    assert not path.exists()
    run(store, [SaveItem(item(1), "x")])
    assert path.exists()


# -- what is wrong with it --------------------------------------------------

HOLDS = """
import sys
from qos.stores.queue_store import queue_store_from_url
queue_store_from_url(sys.argv[1]).open()
print("open", flush=True)
sys.stdin.read()
"""


def test_another_process_has_it_until_it_dies(path: Path) -> None:
    """Two services would deliver every item twice."""
    store = SqliteQueueStore(path)
    with holder(HOLDS, store.url), pytest.raises(StoreInUse, match=store.url):
        store.open()
    run(store)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE item SET state = 'lost'",
        "UPDATE item SET outcome = 'lost'",
        "UPDATE item SET receivers = '['",
        "UPDATE item SET excluded = '7'",
        "UPDATE item SET history = '[[1]]'",
        "UPDATE item SET token = CAST(x'ff' AS TEXT)",
        "UPDATE node SET config = 'x'",
        'UPDATE node SET affiliations = \'{"a@b": "king"}\'',
        "UPDATE node SET affiliations = '[1]'",
        "DELETE FROM about",
    ],
)
def test_a_row_that_is_no_value_is_damage(path: Path, statement: str) -> None:
    """Somebody has edited it; the rest is not changed."""
    store = SqliteQueueStore(path)
    run(store, [SaveNode(NODE), SaveItem(item(1), "x")])
    query(path, statement)
    with pytest.raises(StoreDamaged, match=str(path)):
        store.open()


def test_a_damaged_payload_of_a_great_store_is_found_when_it_is_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading all payloads at each start would take too long; the rest is checked."""
    monkeypatch.setattr(sqlite_file, "_CHECKED_BYTES_MAX", 0)
    store = SqliteQueueStore(path)
    run(store, [SaveItem(item(1), "x"), SaveEnded(ended("a"))])
    overwrite(path, "item_payload")
    assert store.open().items == [item(1)]
    with pytest.raises(StoreDamaged, match="malformed"):
        store.payloads([1])
    asyncio.run(store.close())


async def test_damage_of_a_great_store_is_found_in_the_background(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a start takes no longer the more items there are."""
    monkeypatch.setattr(sqlite_file, "_CHECKED_BYTES_MAX", 0)
    store = SqliteQueueStore(path)
    store.open()
    seen = NoteSeen(1.0, 1.0)
    await write(store, SaveItem(item(1), "x"), SaveEnded(ended("a")), seen)
    checking = store.check()
    assert checking is not None
    await checking
    assert store.check() is None
    await store.close()
    overwrite(path, "ended")
    assert store.open().items == [item(1)]
    checking = store.check()
    assert checking is not None
    with pytest.raises(StoreDamaged, match=str(path)):
        await checking
    await store.close()


async def test_a_small_store_is_checked_when_it_is_opened(path: Path) -> None:
    """That takes no time, and tells of damage before anybody is served."""
    store = SqliteQueueStore(path)
    store.open()
    await write(store, SaveEnded(ended("a")))
    assert store.check() is None
    await store.close()
    overwrite(path, "ended")
    with pytest.raises(StoreDamaged):
        store.open()


async def test_a_check_ends_with_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for what may take seconds, and nothing is said to be damaged."""
    monkeypatch.setattr(sqlite_file, "_CHECKED_BYTES_MAX", 0)
    store = SqliteQueueStore(path)
    store.open()
    may_look = threading.Event()
    connect = store._new_reader
    monkeypatch.setattr(store, "_new_reader", lambda: (may_look.wait(10), connect())[1])
    checking = store.check()
    assert checking is not None
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    may_look.set()
    await closing
    await checking


def test_a_look_that_was_begun_is_interrupted(path: Path) -> None:
    """SQLite looks at a whole table in one statement."""

    async def scenario() -> None:
        began = threading.Event()

        def look(db: sqlite3.Connection) -> None:
            db.create_function("begin", 0, began.set)
            endless = (
                "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"
                " SELECT COUNT(*) FROM n, (SELECT begin())"
            )
            db.execute(endless).fetchall()

        checking = BackgroundCheck(
            lambda: sqlite3.connect(path, check_same_thread=False), look
        )
        await asyncio.to_thread(began.wait, 10)
        await checking.stop()
        assert checking.done.exception() is None

    asyncio.run(scenario())


def overwrite(path: Path, table: str) -> None:
    """Garbage in the first page of a table."""
    sql = f"SELECT rootpage FROM sqlite_schema WHERE name = '{table}'"  # noqa: S608
    ((page,),) = query(path, sql)
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(os.urandom(4096))


def test_a_full_disk_loses_nothing_and_is_no_end(disk: Disk) -> None:
    """A write that does not fit is refused completely, and the queue goes on later."""
    store = SqliteQueueStore(disk.folder / "queue_store.db")

    async def scenario() -> None:
        store.open()
        await write(store, SaveItem(item(1), "one"))
        disk.fill()
        try:
            with pytest.raises(StoreFull, match=store.url):
                await write(store, RemoveItem(1), SaveItem(item(2), "x" * 100_000))
            assert store.get(1) == item(1)
        finally:
            disk.free()
        await write(store, SaveItem(item(2), "two"))
        await store.close()

    asyncio.run(scenario())
    assert store.open().items == [item(1), item(2)]
    asyncio.run(store.close())


def test_a_store_that_cannot_be_written_is_said_to_be_one(place: Place) -> None:
    """When it is opened, not when the first item comes."""
    store = SqliteQueueStore(place.folder / "queue_store.db")
    run(store, [SaveItem(item(1), "x")])
    with place.read_only(), pytest.raises(StoreReadOnly, match=store.url):
        store.open()
    assert store.open().items == [item(1)]
    asyncio.run(store.close())


def test_a_look_for_items_that_are_ready_ends_though_it_has_found_none(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delayed ones may lie before them, a million of them."""
    monkeypatch.setattr(queue_plain, "LOOKED_AT", 4)
    store = SqliteQueueStore(path)
    later = {"published_at": 1.0, "available_at": 9.0}
    items = [item(seq, item_id=f"d{seq}", priority=5, **later) for seq in range(1, 11)]
    items += [item(seq, item_id=f"i{seq}", priority=4) for seq in range(11, 14)]
    items += [item(14, item_id="low", priority=0)]
    run(store, [SaveItem(each, "x") for each in items])
    store.open()
    looks, end = [], FIRST
    while end < LAST:
        page, end = store.plain("jobs", 0, start=end, limit=2, now=5.0)
        looks.append(([each.seq for each in page], end))
    assert looks == [
        ([], (-5, 0, 5, "")),
        ([], (-5, 0, 9, "")),
        ([11, 12], (-4, 0, 13, "")),
        ([13, 14], (0, 0, 15, "")),
        ([], LAST),
    ]
    asyncio.run(store.close())
