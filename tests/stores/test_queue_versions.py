"""A queue store that an older program has written, or a newer one."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from qos.core.queue.effects import (
    Change,
    ForgetOld,
    SaveEnded,
    SaveItem,
    SaveNode,
    SaveSubscription,
)
from qos.core.queue.item import (
    Affiliation,
    ItemOutcome,
    ItemState,
    Node,
    Subscription,
)
from qos.core.queue.properties import Properties
from qos.errors import StoreTooNew
from qos.stores import queue_rows, queue_store, sqlite_file
from qos.stores.queue_counts import differences
from qos.stores.queue_store import SqliteQueueStore
from qos.testing.queue_store_records import item, write
from queue_files import NODE, accepted, ended, query, run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue_store.db"


def test_an_older_file_is_brought_forward(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer file is left alone."""
    store = SqliteQueueStore(path)
    run(store, [SaveItem(item(1), "x")])
    more = (*queue_store.MIGRATIONS, ("CREATE TABLE audit (note TEXT)",))
    with monkeypatch.context() as patch:
        patch.setattr(queue_store, "MIGRATIONS", more)
        assert store.open().items == [item(1)]
        asyncio.run(store.close())
    assert query(path, "PRAGMA user_version") == [(len(more),)]
    with pytest.raises(StoreTooNew, match=f"version {len(more)}"):
        store.open()


def file_of_version(path: Path, version: int) -> None:
    """An empty store as an older program has left it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA application_id = {queue_store.APPLICATION_ID}")
        db.execute("PRAGMA journal_mode = WAL")
        for statement in chain.from_iterable(queue_store.MIGRATIONS[:version]):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {version}")
        db.execute("INSERT INTO about VALUES ('store_id', 'x')")


def _file_of_version_2(path: Path, *nodes: tuple[str, str, str]) -> dict[str, Node]:
    """The nodes, by name, read from a version-2 file with these.

    Name, config, owners.
    """
    file_of_version(path, 2)
    with closing(sqlite3.connect(path)) as db, db:
        for node in nodes:
            db.execute("INSERT INTO node VALUES (?, 1.0, ?, ?, 7)", node)
    store = SqliteQueueStore(path)
    contents = store.open()
    asyncio.run(store.close())
    return {node.name: node for node in contents.nodes}


def test_the_nodes_of_version_2_each_get_an_identity(path: Path) -> None:
    """They count for no account: their creators are not known."""
    found = _file_of_version_2(path, ("a", "{}", "{}"), ("b", "{}", '{"o@x":"owner"}'))
    assert len({node.identity for node in found.values()}) == 2
    assert all(len(node.identity) == 32 for node in found.values())
    assert found["b"] == Node(
        name="b",
        identity=found["b"].identity,
        created_at=1.0,
        config={"pubsub#access_model": "open"},
        affiliations={"o@x": Affiliation.OWNER},
        accepted=7,
    )


def test_a_node_of_version_2_that_was_open_by_default_stays_open(path: Path) -> None:
    """The default has changed; workers of such a node must be able to go on."""
    closed = '{"pubsub#access_model":"whitelist","queue#ttl":"5"}'
    found = _file_of_version_2(
        path, ("a", '{"queue#ttl":"5"}', "{}"), ("b", closed, "{}")
    )
    assert found["a"].config == {"queue#ttl": "5", "pubsub#access_model": "open"}
    assert found["b"].config == {"queue#ttl": "5", "pubsub#access_model": "whitelist"}


@pytest.mark.parametrize(
    ("owners", "others", "stays"),
    [
        ('"ö@x":"owner"', '"ö@x":"owner"', True),
        ('"ö@x":"owner","ÿ@x":"owner"', '"ö@x":"publisher","ÿ@x":"owner"', True),
        ('"ö@x":"owner","ÿ@x":"member"', '"ö@x":"publisher"', True),
        ('"s@x":"owner","ö@x":"owner"', '"ö@x":"owner"', False),
        ('"ö@x":"owner"', '"ö@x":"member"', False),
        ('"ö@x":"owner"', "", False),
    ],
)
def test_a_dead_letter_node_of_version_2_stays_only_if_every_owner_may_publish_there(
    path: Path, owners: str, others: str, stays: bool
) -> None:
    """It is not known who set it.

    Perhaps a stranger who had made another account an owner.
    """
    config = '{"queue#dead_letter_node":"graves"}'
    found = _file_of_version_2(
        path,
        ("jobs", config, f"{{{owners}}}"),
        ("graves", "{}", f"{{{others}}}"),
        ("lost", '{"queue#dead_letter_node":"nowhere"}', '{"ö@x":"owner"}'),
    )
    named = {"queue#dead_letter_node": "graves"} if stays else {}
    bound = (found["graves"].identity, "ö@x") if stays else ("", "")
    jobs = found["jobs"]
    assert (jobs.dead_letter, jobs.dead_letter_by) == bound
    assert jobs.config == {"pubsub#access_model": "open", **named}
    assert found["lost"].config == {"pubsub#access_model": "open"}


def test_items_and_subscriptions_of_version_3_have_neither_properties_nor_selectors(
    path: Path,
) -> None:
    """They go on as they were, and get both from then on."""
    store = SqliteQueueStore(path)
    wish = Subscription(
        node="jobs", jid="w@b/1", subid="s", via="w@b/1", queue_requests=3
    )
    file_of_version(path, 3)
    before = item(7)
    plain = {
        **{name: getattr(before, name) for name in queue_rows.ITEM},
        **dict.fromkeys(("receivers", "excluded", "history"), "[]"),
        "state": "available",
    }
    later = ("annotations", "gen", "lost", "origin_identity", "properties", "resumable")
    for name in later:
        del plain[name]
    wished = {name: getattr(wish, name) for name in queue_rows.SUBSCRIPTION}
    del wished["selector"], wished["link"], wished["resumable_locks"]
    with closing(sqlite3.connect(path)) as db, db:
        for table, row in (("item", plain), ("subscription", wished)):
            columns = ", ".join(f'"{name}"' for name in row)
            marks = ", ".join("?" * len(row))
            sql = f"INSERT INTO {table} ({columns}) VALUES ({marks})"  # noqa: S608
            db.execute(sql, tuple(row.values()))
        db.execute("INSERT INTO item_payload VALUES (7, '<x/>')")
    properties: Properties = {"n": 1, "f": 1.0, "b": True, "s": "ä"}
    after = replace(before, properties=properties)

    async def scenario() -> None:
        contents = store.open()
        assert (contents.items, contents.subscriptions) == ([before], [wish])
        await write(
            store,
            SaveItem(after),
            SaveSubscription(replace(wish, selector="n > 5")),
            SaveItem(item(8, properties=properties), "x"),
        )
        await store.close()
        contents = store.open()
        assert contents.items == [after, item(8, properties=properties)]
        assert [type(each) for each in contents.items[0].properties.values()] == [
            *(bool, float, int, str),
        ]
        assert contents.subscriptions == [replace(wish, selector="n > 5")]
        await store.close()

    asyncio.run(scenario())


def test_a_file_of_version_1_keeps_what_it_remembers(path: Path) -> None:
    """It knew one end for an id, and not of which item; now it can know all of them."""
    store = SqliteQueueStore(path)
    file_of_version(path, 1)
    query(
        path,
        "INSERT INTO ended VALUES"
        " ('jobs', 'a', 'p@example.org', 'd', 2.0, 100.0, 't', 'w@b', 'accepted')",
    )
    before = replace(
        ended("a"),
        seq=0,
        digest="d",
        token="t",  # noqa: S106 - of a delivery
        account="w@b",
        outcome=ItemOutcome.ACCEPTED,
    )
    again = replace(before, seq=1, token="t2")  # noqa: S106 - of a delivery

    async def scenario() -> None:
        store.open()
        assert store.ended("jobs", "a") == [before]
        await write(store, SaveEnded(again))
        assert store.ended("jobs", "a") == [before, again]
        await write(store, ForgetOld(100.0, 9))
        assert store.ended("jobs", "a") == []
        await store.close()

    asyncio.run(scenario())
    run(SqliteQueueStore(path.with_name("new.db")))
    tables = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    assert query(path, tables) == query(path.with_name("new.db"), tables)


def rows_of_version(path: Path) -> None:
    """Put one record of each kind into the columns that the file has."""
    node, wish = (
        replace(NODE, identity="i", creator="o@x"),
        Subscription(
            node="jobs", jid="w@b/1", subid="s", via="w@b/1", queue_requests=3
        ),
    )
    dead = replace(
        accepted(3), outcome=ItemOutcome.REJECTED, forget_at=None, order=2**40
    )
    changes: list[Change] = [
        *(SaveNode(node), SaveSubscription(wish), SaveEnded(ended("old"))),
        *(SaveItem(one, "<x/>") for one in (item(1), accepted(2), dead)),
        SaveItem(item(4, state=ItemState.ACQUIRED, holder="w@b/1"), "<y/>"),
    ]
    insert_rows(path, changes)


def insert_rows(path: Path, changes: Sequence[Change]) -> None:
    """Put records into the columns that the file has."""
    with closing(sqlite3.connect(path)) as db, db:
        for kind, _, values in queue_rows.rows(changes):
            # The payload of an item is after these.
            row = dict(zip(COLUMNS[kind.table], values, strict=False))
            info = db.execute(f"PRAGMA table_info({kind.table})").fetchall()
            row = {name: row[name] for _, name, *_ in info}
            marks = ", ".join("?" * len(row))
            db.execute(f"INSERT INTO {kind.table} VALUES ({marks})", [*row.values()])  # noqa: S608
            if kind is queue_rows._SAVE_ITEM:
                payload = (row["seq"], values[-1])
                db.execute("INSERT INTO item_payload VALUES (?, ?)", payload)


def test_letters_of_version_11_get_the_identity_of_their_node(path: Path) -> None:
    """Only those whose node is still there: another one may have had its name."""
    file_of_version(path, 11)
    letter = replace(item(1), node="graves", origin=NODE.name, origin_id="a")
    lost = replace(letter, seq=3, item_id="l3", origin="deleted")
    items = (letter, item(2, node="graves"), lost)
    node = replace(NODE, identity="i")
    insert_rows(path, [SaveNode(node), *(SaveItem(one, "<x/>") for one in items)])
    store = SqliteQueueStore(path)
    identities = [one.origin_identity for one in store.open().items]
    asyncio.run(store.close())
    assert identities == ["i", "", ""]


COLUMNS = {
    "item": queue_rows._ITEM_ROW,
    "ended": queue_rows._ENDED_ROW,
    "node": queue_rows.NODE,
    "subscription": queue_rows.SUBSCRIPTION,
}


@pytest.mark.parametrize("version", [14, 15])
def test_the_indices_of_versions_14_and_15_had_less(path: Path, version: int) -> None:
    """Nothing with a ttl, then nothing with a delay; they are made anew."""
    file_of_version(path, version)
    rows_of_version(path)
    plain = (
        'ended_at IS NULL AND "order" = 0 AND available_at <= published_at'
        " AND origin = '' AND excluded = '[]' AND history = '[]'"
    )
    if version == 14:
        plain += " AND expires_at IS NULL"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            f"CREATE INDEX item_fresh ON item (node, gen, priority, seq, size) WHERE {plain}"
        )
        db.execute(
            "CREATE INDEX item_in_memory ON item (seq) WHERE ended_at IS NULL"
            f" AND (state = 'acquired' OR NOT ({plain}))"
        )
        if version == 15:
            db.execute(
                "CREATE INDEX item_expiring ON item (node, gen, expires_at, seq)"
                f" WHERE {plain} AND expires_at IS NOT NULL"
            )
        (row,) = db.execute(
            "SELECT expires_at, state FROM item WHERE seq = 1"
        ).fetchall()
        assert row == (None, "available")
        db.execute(
            "UPDATE item SET expires_at = 9.5, available_at = published_at + 5"
            " WHERE seq = 1"
        )
    store = SqliteQueueStore(path)
    contents = store.open(paged_at=0.0)
    assert contents.plain is not None
    assert contents.plain["jobs"].expires_at == 9.5
    assert contents.plain["jobs"].delayed == 1
    assert 1 not in {each.seq for each in contents.items}
    (expiring,) = store.expiring("jobs", 0, after=(0.0, 0), limit=9)
    (delayed,) = store.delayed("jobs", 0, after=(0.0, 0, 0, 0), until=99.0, limit=9)
    assert expiring.seq == delayed.seq == 1
    asyncio.run(store.close())


@pytest.mark.parametrize("version", range(1, len(queue_store.MIGRATIONS) + 1))
def test_a_large_file_of_any_version_is_checked(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """It was refused for the tables that its version does not have."""
    monkeypatch.setattr(sqlite_file, "_CHECKED_BYTES_MAX", 0)
    monkeypatch.setattr(SqliteQueueStore, "_checks_later", False)
    file_of_version(ram_path / "q.db", version)
    rows_of_version(ram_path / "q.db")
    store = SqliteQueueStore(ram_path / "q.db")
    assert len(store.open().items) == 2
    assert differences(store._read) == []
    asyncio.run(store.close())


@pytest.mark.parametrize("version", range(1, len(queue_store.MIGRATIONS) + 1))
def test_a_file_of_any_version_is_brought_forward_whenever_it_is_killed(
    ram_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """All items and ends are there; a copy of the files is what a kill leaves."""
    folder = ram_path / "store"
    folder.mkdir()
    file_of_version(folder / "q.db", version)
    rows_of_version(folder / "q.db")
    copies: list[Path] = []
    migrate = SqliteQueueStore._migrate

    def killed(store: SqliteQueueStore, db: sqlite3.Connection) -> None:
        def copy(_statement: str) -> None:
            copies.append(ram_path / f"copy {len(copies)}")
            shutil.copytree(folder, copies[-1])

        db.set_trace_callback(copy)
        migrate(store, db)
        copy("the end")
        db.set_trace_callback(None)

    def shown(path: Path) -> object:
        store = SqliteQueueStore(path)
        contents = store.open()
        (node,) = contents.nodes
        # Those of the first versions get a random one.
        contents.nodes = [replace(node, identity="")]
        try:
            return (
                *(contents, store.payloads([1, 2, 3, 4]), store.ended("jobs", "old")),
                *(store.archived("jobs", outcome, limit=9) for outcome in ItemOutcome),
            )
        finally:
            asyncio.run(store.close())

    with monkeypatch.context() as patch:
        patch.setattr(SqliteQueueStore, "_migrate", killed)
        expected = shown(folder / "q.db")
    steps = sum(map(len, queue_store.MIGRATIONS[version:]))
    assert len(copies) > steps
    for each in copies:
        assert shown(each / "q.db") == expected
    contents = expected[0]  # type: ignore[index]  # a tuple
    assert [each.seq for each in contents.items] == [1, 4]
    assert (contents.dead, contents.next_seq) == ({"jobs": 1}, 5)
    assert (contents.next_order, contents.nodes[0].gen) == (2**40 + 1, 0)
