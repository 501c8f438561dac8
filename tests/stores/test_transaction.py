"""A transaction of an application on the SQLite store."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import closing
from contextvars import Context
from pathlib import Path

import pytest

from qos.core.effects import Save
from qos.core.model import IncomingState
from qos.errors import LocalProtocolError, StoreError
from qos.stores import FilesStore, MemoryStore, SqliteStore
from qos.stores.base import Transaction
from qos.testing.store_contract import incoming, opened, outgoing, records, write

DONE = incoming("k", state=IncomingState.DONE, payload="")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path / "store.db")
    async with opened(made):
        transaction = made.transaction()
        await transaction.execute("CREATE TABLE lamps (name TEXT UNIQUE, level INT)")
        await commit(transaction)
        await write(made, Save(incoming("k")))
        yield made


async def commit(transaction: Transaction, *saves: Save) -> None:
    written = transaction.write(saves)
    if written is not None:
        await written


async def lamps(store: SqliteStore) -> list[tuple[object, ...]]:
    """What others see."""
    path = store.url.partition(":")[2]
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT name, level FROM lamps ORDER BY name").fetchall()


async def test_it_sees_its_own_writes_and_others_see_them_when_it_has_committed(
    store: SqliteStore,
) -> None:
    """As any transaction."""
    transaction = store.transaction()
    await transaction.execute("INSERT INTO lamps VALUES (?, ?)", ("hall", 3))
    assert await transaction.execute("SELECT * FROM lamps") == [("hall", 3)]
    assert await lamps(store) == []
    await commit(transaction, Save(DONE))
    assert await lamps(store) == [("hall", 3)]
    assert records(store) == ([], [DONE])


async def test_what_is_rolled_back_never_was_and_the_store_goes_on(
    store: SqliteStore,
) -> None:
    """Another transaction as well."""
    for _ in range(2):
        transaction = store.transaction()
        await transaction.execute("INSERT INTO lamps VALUES ('hall', 3)")
        transaction.rollback()
        transaction.rollback()
    await write(store, Save(outgoing(1)))
    assert await lamps(store) == []
    assert records(store) == ([outgoing(1)], [incoming("k")])


async def test_a_transaction_without_a_statement_is_a_write_like_any_other(
    store: SqliteStore,
) -> None:
    """It shares a commit, and takes no turn."""
    transaction = store.transaction()
    other = store.write((Save(outgoing(1)),))
    assert transaction.write((Save(DONE),)) is other
    await asyncio.wait_for(asyncio.shield(other or asyncio.sleep(0)), 5)
    with pytest.raises(LocalProtocolError, match="has ended"):
        await transaction.execute("SELECT 1")


async def test_other_writes_wait_for_it_and_then_come_before_the_next_one(
    store: SqliteStore,
) -> None:
    """Neither side can keep the other away for longer than one turn."""
    first, second = store.transaction(), store.transaction()
    await first.execute("INSERT INTO lamps VALUES ('first', 1)")
    begun = asyncio.ensure_future(second.execute("SELECT COUNT(*) FROM outgoing"))
    waits = Context().run(store.write, (Save(outgoing(1)),))  # somebody else's
    assert waits is not None
    await asyncio.sleep(0.05)
    assert not waits.done()
    assert not begun.done()
    await commit(first, Save(DONE))
    assert await asyncio.wait_for(begun, 5) == [(1,)]
    assert waits.done()
    second.rollback()


async def test_who_gives_up_waiting_for_its_turn_leaves_it_to_the_next(
    store: SqliteStore,
) -> None:
    """Cancelled while it waits, and cancelled just as its turn has come."""
    for late in (False, True):
        first, second, third = (store.transaction() for _ in range(3))
        await first.execute("SELECT 1")
        waits = asyncio.ensure_future(second.execute("SELECT 2"))
        last = asyncio.ensure_future(third.execute("SELECT 3"))
        await asyncio.sleep(0)
        if late:
            first.rollback()
            while store._commits._turns and not store._commits._turns[0].done():
                if len(store._commits._turns) == 1:
                    break
                await asyncio.sleep(0)
        waits.cancel()
        if not late:
            first.rollback()
        assert await asyncio.wait_for(last, 5) == [(3,)]
        second.rollback()
        third.rollback()
        await asyncio.wait_for(write(store, Save(outgoing(1))), 5)


@pytest.mark.parametrize(
    ("sql", "denied"),
    [
        ("COMMIT", "begin or end a transaction"),
        ("SAVEPOINT here", "use a savepoint"),
        ("PRAGMA synchronous = OFF", "use a pragma"),
        ("ATTACH ':memory:' AS other", "attach a database"),
        ("DELETE FROM incoming", "change 'incoming'"),
        ("UPDATE outgoing SET state = 'delivered'", "change 'outgoing'"),
        ("INSERT INTO changes (kind) VALUES ('forget')", "change 'changes'"),
        ("DROP TABLE ended", "change 'ended'"),
        ("ALTER TABLE about RENAME TO gone", "change 'about'"),
        ("CREATE INDEX slow ON incoming (source)", "change 'incoming'"),
        (
            "CREATE TRIGGER t AFTER INSERT ON outgoing BEGIN SELECT 1; END",
            "change 'outgoing'",
        ),
        ("UPDATE sqlite_sequence SET seq = 0", "change 'sqlite_sequence'"),
    ],
)
async def test_what_is_the_stores_own_is_not_the_applications(
    store: SqliteStore, sql: str, denied: str
) -> None:
    """One wrong statement would break the promise for all messages."""
    transaction = store.transaction()
    await transaction.execute("INSERT INTO lamps VALUES ('hall', 3)")
    with pytest.raises(LocalProtocolError, match=denied):
        await transaction.execute(sql)
    # Nothing was done, and it can go on.
    await commit(transaction, Save(DONE))
    assert await lamps(store) == [("hall", 3)]
    assert records(store) == ([], [DONE])


async def test_an_application_may_have_what_tables_it_likes(store: SqliteStore) -> None:
    """Also with columns that are called as tables of ours, and numbers of its own."""
    transaction = store.transaction()
    for sql in (
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, ended TEXT)",
        "CREATE INDEX jobs_ended ON jobs (ended)",
        "CREATE TABLE log (at REAL)",
        "CREATE TRIGGER logs AFTER UPDATE ON jobs BEGIN INSERT INTO log VALUES (1); END",
        "INSERT INTO jobs (ended) VALUES ('no')",
        "UPDATE jobs SET ended = 'yes'",
        "CREATE TABLE short (x)",
        "DROP TABLE short",
    ):
        await transaction.execute(sql)
    assert await transaction.execute("SELECT * FROM jobs, log") == [(1, "yes", 1.0)]
    await commit(transaction, Save(DONE))
    await write(store, Save(outgoing(1)))


async def test_a_statement_that_fails_raises_as_sqlite_does_and_harms_no_other(
    store: SqliteStore,
) -> None:
    """Its handler may know what to do about it."""
    transaction = store.transaction()
    await transaction.execute("INSERT INTO lamps VALUES ('hall', 3)")
    with pytest.raises(sqlite3.IntegrityError):
        await transaction.execute("INSERT INTO lamps VALUES ('hall', 4)")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await transaction.execute("SELECT * FROM nowhere")
    await commit(transaction, Save(DONE))
    assert await lamps(store) == [("hall", 3)]


async def test_what_sqlite_has_undone_by_itself_is_not_committed_in_part(
    store: SqliteStore,
) -> None:
    """What comes after such an error must not stand without what came before."""
    transaction = store.transaction()
    await transaction.execute("INSERT INTO lamps VALUES ('hall', 3)")
    with pytest.raises(sqlite3.IntegrityError):
        await transaction.execute("INSERT OR ROLLBACK INTO lamps VALUES ('hall', 4)")
    with pytest.raises(LocalProtocolError, match="has been undone"):
        await transaction.execute("INSERT INTO lamps VALUES ('door', 1)")
    with pytest.raises(LocalProtocolError, match="has been undone"):
        await commit(transaction, Save(DONE))
    assert await lamps(store) == []
    assert records(store) == ([], [incoming("k")])
    await write(store, Save(outgoing(1)))


async def test_a_write_that_would_wait_for_its_own_transaction_is_refused(
    store: SqliteStore,
) -> None:
    """It would wait for ever: the handler for the write, and the write for it.

    As any write that fails, so that whoever writes has one way to learn of it.
    """
    transaction = store.transaction()
    await transaction.execute("SELECT 1")
    refused = store.write((Save(outgoing(1)),))
    assert refused is not None
    assert refused.done(), "it can be seen at once"
    with pytest.raises(StoreError, match="send before its first statement"):
        await refused
    assert store.write(()) is None
    await commit(transaction)
    assert records(store) == ([], [incoming("k")])
    await write(store, Save(outgoing(1)))


async def test_a_store_is_closed_when_its_transactions_have_ended(
    tmp_path: Path,
) -> None:
    """What was being committed is there."""
    store = SqliteStore(tmp_path / "store.db")
    async with opened(store):
        transaction = store.transaction()
        await transaction.execute("CREATE TABLE lamps (name, level)")
        transaction.write(())
    assert await lamps(store) == []
    async with opened(store):
        transaction = store.transaction()
        await transaction.execute("INSERT INTO lamps VALUES ('hall', 3)")
        transaction.rollback()
    assert await lamps(store) == []


@pytest.mark.parametrize("where", ["statement", "before", "after"])
def test_effect_and_mark_are_both_there_after_a_kill_or_neither(
    tmp_path: Path, where: str
) -> None:
    """Wherever the process dies."""
    path = tmp_path / "store.db"
    child = textwrap.dedent(
        """
        import asyncio, os, signal, sys
        from pathlib import Path
        from qos.core.effects import Save
        from qos.core.model import IncomingState
        from qos.stores import SqliteStore
        from qos.testing.store_contract import incoming, write

        async def main(path, where):
            store = SqliteStore(Path(path))
            store.open()
            first = store.transaction()
            await first.execute("CREATE TABLE lamps (name, level)")
            await first.write(())
            await write(store, Save(incoming("k")))
            second = store.transaction()
            await second.execute("INSERT INTO lamps VALUES ('hall', 3)")
            die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            if where == "statement":
                die()
            if where == "before":
                store.probe = die
            await second.write(
                (Save(incoming("k", state=IncomingState.DONE, payload="")),)
            )
            die()

        asyncio.run(main(*sys.argv[1:]))
        """
    )
    died = subprocess.run(
        [sys.executable, "-c", child, str(path), where], timeout=60, check=False
    )
    assert died.returncode == -signal.SIGKILL

    async def found() -> None:
        store = SqliteStore(path)
        async with opened(store):
            done = where == "after"
            assert await lamps(store) == ([("hall", 3)] if done else [])
            assert records(store) == ([], [DONE if done else incoming("k")])

    asyncio.run(found())
    assert os.stat(path).st_mode & 0o077 == 0


@pytest.mark.parametrize("kind", ["memory", "files"])
async def test_other_stores_have_none(tmp_path: Path, kind: str) -> None:
    """They say so before anything is done."""
    store = MemoryStore() if kind == "memory" else FilesStore(tmp_path / "store")
    async with opened(store):
        assert store.transaction() is None
