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

from qos.core.message.effects import Forget, Save
from qos.core.message.model import IncomingState
from qos.errors import LocalProtocolError, StoreError
from qos.stores import FilesStore, MemoryStore, SqliteStore
from qos.stores.base import Change, Transaction
from qos.testing.store_records import incoming, opened, outgoing, records, write
from waiting import LIMIT_S, limit

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


async def commit(transaction: Transaction, *changes: Change) -> None:
    written = transaction.write(changes)
    if written is not None:
        await written


async def lamps(store: SqliteStore) -> list[tuple[object, ...]]:
    """The rows that other connections see."""
    path = store.url.partition(":")[2]
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT name, level FROM lamps ORDER BY name").fetchall()


async def test_it_sees_its_own_writes_and_others_see_them_when_it_has_committed(
    store: SqliteStore,
) -> None:
    """As for any transaction."""
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
    """Other transactions do too."""
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
    assert other is not None
    async with limit():
        await asyncio.shield(other)
    with pytest.raises(LocalProtocolError, match="has ended"):
        await transaction.execute("SELECT 1")


async def test_other_writes_wait_for_it_and_then_come_before_the_next_one(
    store: SqliteStore,
) -> None:
    """Neither side can keep the other waiting for longer than one turn."""
    first, second = store.transaction(), store.transaction()
    await first.execute("INSERT INTO lamps VALUES ('first', 1)")
    begun = asyncio.ensure_future(second.execute("SELECT COUNT(*) FROM outgoing"))
    waits = Context().run(store.write, (Save(outgoing(1)),))  # a write of another task
    assert waits is not None
    # These go through the same thread, one after the other.
    for _ in range(3):
        await first.execute("SELECT 1")
    assert not waits.done()
    assert not begun.done()
    await commit(first, Save(DONE))
    async with limit():
        assert await begun == [(1,)]
    assert waits.done()
    second.rollback()


async def test_who_gives_up_waiting_for_its_turn_leaves_it_to_the_next(
    store: SqliteStore,
) -> None:
    """Cancelled while it waits, and cancelled just when its turn has come."""
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
        async with limit():
            assert await last == [(3,)]
        second.rollback()
        third.rollback()
        async with limit():
            await write(store, Save(outgoing(1)))


#: Statements that would break the promise for all messages, with the rule that each
#: breaks.
HOSTILE = [
    ("COMMIT", "begin or end a transaction"),
    ("-- a comment\nCOMMIT", "begin or end a transaction"),
    ("/**/ END", "begin or end a transaction"),
    ("ROLLBACK", "begin or end a transaction"),
    ("SAVEPOINT here", "use a savepoint"),
    ("PRAGMA synchronous = OFF", "use a pragma"),
    ("PRAGMA writable_schema = ON", "use a pragma"),
    ("PRAGMA ignore_check_constraints = ON", "use a pragma"),
    ("SELECT * FROM pragma_journal_mode", "use a pragma"),
    ("ATTACH ':memory:' AS other", "attach a database"),
    ("DETACH main", "detach a database"),
    ("SELECT load_extension('x')", "load an extension"),
    ("ANALYZE", "action 28"),
    ("CREATE TEMP TABLE incoming (id, key, state, payload)", "use temporary tables"),
    ("CREATE TABLE temp.incoming (id, key, state, payload)", "use temporary tables"),
    ("CREATE TEMP VIEW incoming AS SELECT 'k' AS key", "use temporary tables"),
    ("CREATE VIRTUAL TABLE temp.incoming USING fts5 (key)", "use temporary tables"),
    (
        "CREATE TEMP TRIGGER t BEFORE UPDATE ON incoming BEGIN SELECT RAISE(IGNORE); END",
        "use temporary tables",
    ),
    ("DELETE FROM incoming", "change 'incoming'"),
    ("REPLACE INTO INCOMING (id) VALUES (1)", "change 'incoming'"),
    ("UPDATE outgoing SET state = 'delivered'", "change 'outgoing'"),
    ("INSERT OR REPLACE INTO remembered VALUES ('resource', 'x')", "change 'remem"),
    ("DROP TABLE ended", "change 'ended'"),
    ("ALTER TABLE about RENAME TO gone", "change 'about'"),
    ("ALTER TABLE incoming ADD COLUMN more", "change 'incoming'"),
    ("CREATE TABLE IF NOT EXISTS Incoming (key)", "change 'Incoming'"),
    ("CREATE INDEX slow ON incoming (source)", "change 'incoming'"),
    ("DROP INDEX outgoing_by_msg_id", "change 'outgoing'"),
    (
        "CREATE TRIGGER t AFTER INSERT ON outgoing BEGIN SELECT 1; END",
        "change 'outgoing'",
    ),
    ("UPDATE sqlite_sequence SET seq = 0", "change 'sqlite_sequence'"),
]


@pytest.mark.parametrize(("sql", "rule"), HOSTILE)
async def test_a_statement_that_would_break_the_store_is_refused_and_does_nothing(
    store: SqliteStore, sql: str, rule: str
) -> None:
    """Earlier effects, and the mark, are there after a restart."""
    undone = store.transaction()  # SQLite has seen our ROLLBACK then
    await undone.execute("INSERT INTO lamps VALUES ('undone', 0)")
    undone.rollback()
    transaction = store.transaction()
    await transaction.execute("INSERT INTO lamps VALUES ('hall', 3)")
    with pytest.raises(LocalProtocolError, match=rule) as refused:
        await transaction.execute(sql)
    assert sql.split()[-1][-8:] in str(refused.value), "the error shows the statement"
    await commit(transaction, Save(DONE))
    await is_done_after_a_restart(store)


async def is_done_after_a_restart(store: SqliteStore) -> None:
    """The effect of the message and the mark are in the file, and nothing else."""
    assert records(store) == ([], [DONE])
    await store.close()
    store.open()
    assert records(store) == ([], [DONE])
    assert await lamps(store) == [("hall", 3)]


async def test_a_statement_with_the_text_of_the_stores_own_is_refused(
    store: SqliteStore,
) -> None:
    """Python's module reuses a prepared statement by its text, without asking again."""
    first = store.transaction()
    await first.execute("SELECT 1")
    await commit(first, Save(incoming("k")), Forget(incoming("other")))
    second = store.transaction()
    await second.execute("INSERT INTO lamps VALUES ('hall', 3)")
    # As the store has just forgotten the other one, but for the mark of its statements,
    # which no application knows.
    sql = "DELETE FROM incoming WHERE key IN (VALUES (?))"
    with pytest.raises(LocalProtocolError, match="change 'incoming'"):
        await second.execute(sql, ("k",))
    await commit(second, Save(DONE))
    await is_done_after_a_restart(store)


async def test_each_statement_is_judged_by_itself(store: SqliteStore) -> None:
    """The verdict on the statement before it does not matter."""
    transaction = store.transaction()
    await transaction.execute("INSERT INTO lamps VALUES ('hall', 3)")
    await transaction.execute(
        "CREATE TABLE short (id INTEGER PRIMARY KEY AUTOINCREMENT)"
    )
    await transaction.execute("ALTER TABLE short RENAME TO brief")
    await transaction.execute("DROP TABLE brief")
    with pytest.raises(LocalProtocolError, match="change 'sqlite_sequence'"):
        await transaction.execute("DELETE FROM sqlite_sequence")
    with pytest.raises(sqlite3.IntegrityError):
        await transaction.execute("INSERT INTO lamps VALUES ('hall', 4)")
    await commit(transaction, Save(DONE))
    await is_done_after_a_restart(store)


async def test_the_error_shows_the_beginning_of_a_long_statement(
    store: SqliteStore,
) -> None:
    """It goes into a log."""
    transaction = store.transaction()
    with pytest.raises(LocalProtocolError, match="DELETE FROM incoming") as refused:
        await transaction.execute(
            "DELETE FROM incoming WHERE 1 IN (" + "1, " * 999 + "1)"
        )
    assert len(str(refused.value)) < 200
    transaction.rollback()


async def test_a_trigger_of_the_application_does_not_reach_the_stores_tables(
    store: SqliteStore,
) -> None:
    """SQLite accepts such a trigger; a statement that would fire it is refused."""
    transaction = store.transaction()
    await transaction.execute("INSERT INTO lamps VALUES ('hall', 3)")
    await transaction.execute(
        "CREATE TRIGGER t AFTER UPDATE ON lamps BEGIN DELETE FROM incoming; END"
    )
    await transaction.execute("CREATE VIEW v AS SELECT * FROM incoming")
    await transaction.execute(
        "CREATE TRIGGER u INSTEAD OF DELETE ON v BEGIN DELETE FROM incoming; END"
    )
    for sql in ("UPDATE lamps SET level = 4", "DELETE FROM v"):
        with pytest.raises(LocalProtocolError, match="change 'incoming'"):
            await transaction.execute(sql)
    await commit(transaction, Save(DONE))
    await is_done_after_a_restart(store)


async def test_an_application_may_have_what_tables_it_likes(store: SqliteStore) -> None:
    """Even with column names of our tables, and numbers of its own."""
    transaction = store.transaction()
    for sql in (
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, ended TEXT)",
        "CREATE INDEX jobs_ended ON jobs (ended)",
        "CREATE TABLE log (at REAL)",
        "CREATE TRIGGER logs AFTER UPDATE ON jobs BEGIN INSERT INTO log VALUES (1); END",
        "INSERT INTO jobs (ended) VALUES ('no')",
        "UPDATE jobs SET ended = 'yes'",
        "CREATE TABLE short (id INTEGER PRIMARY KEY AUTOINCREMENT)",
        "ALTER TABLE short ADD COLUMN x NOT NULL DEFAULT 1 CHECK (x > 0)",
        "ALTER TABLE short RENAME TO brief",
        "DROP TABLE brief",
        "CREATE VIRTUAL TABLE words USING fts5 (word)",
        "INSERT INTO words VALUES ('lamp')",
        "SELECT * FROM words WHERE words MATCH 'lamp'",
        "DROP TABLE words",
        "WITH RECURSIVE n (x) AS (SELECT 1 UNION SELECT 1) SELECT x FROM n",
        "SELECT name FROM pragma_table_info('jobs')",
    ):
        await transaction.execute(sql)
    assert await transaction.execute("SELECT * FROM jobs, log") == [(1, "yes", 1.0)]
    await commit(transaction, Save(DONE))
    await write(store, Save(outgoing(1)))


async def test_a_statement_that_fails_raises_as_sqlite_does_and_harms_no_other(
    store: SqliteStore,
) -> None:
    """The handler may know how to handle it."""
    transaction = store.transaction()
    await transaction.execute("INSERT INTO lamps VALUES ('hall', 3)")
    with pytest.raises(sqlite3.IntegrityError):
        await transaction.execute("INSERT INTO lamps VALUES ('hall', 4)")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await transaction.execute("SELECT * FROM nowhere")
    with pytest.raises(sqlite3.Error, match="one statement at a time"):
        await transaction.execute("SELECT 1; COMMIT")
    await commit(transaction, Save(DONE))
    assert await lamps(store) == [("hall", 3)]


async def test_what_sqlite_has_undone_by_itself_is_not_committed_in_part(
    store: SqliteStore,
) -> None:
    """After such an error, later statements must not be committed without the earlier
    ones.
    """
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
    """Otherwise the handler would wait for the write, and the write for the handler.

    The write fails as any other write does, so that callers need one way to handle it.
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
    """A commit that was being made is there."""
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
    """At whatever point the process dies."""
    path = tmp_path / "store.db"
    child = textwrap.dedent(
        """
        import asyncio, os, signal, sys
        from pathlib import Path
        from qos.core.message.effects import Save
        from qos.core.message.model import IncomingState
        from qos.stores import SqliteStore
        from qos.testing.store_records import incoming, write

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
        [sys.executable, "-P", "-c", child, str(path), where],
        timeout=LIMIT_S,
        check=False,
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
    """They refuse before anything is done."""
    store = MemoryStore() if kind == "memory" else FilesStore(tmp_path / "store")
    async with opened(store):
        assert store.transaction() is None
