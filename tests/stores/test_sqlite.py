# ruff: noqa: S608 - no SQL here is of anybody else's making
from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path

import pytest

from qos.core.message.effects import Forget, Save
from qos.core.message.model import Incoming, IncomingState, Outgoing, OutgoingState
from qos.errors import StoreDamaged, StoreError, StoreTooNew
from qos.stores import SqliteStore, Store, sqlite, sqlite_changes, sqlite_file
from qos.stores.base import INCOMING_FIELDS, OUTGOING_FIELDS
from qos.testing.store_contract import StoreContract
from qos.testing.store_faults import Probe
from qos.testing.store_records import incoming, opened, outgoing, records, write
from row_probes import probe_rows


@pytest.mark.timeout(240)
class TestContract(StoreContract):
    """The steps are the commit, and before and after each row that it changes."""

    def new_store(self, folder: Path) -> Store:
        return SqliteStore(folder / "store.db")

    def watch(self, store: Store, probe: Probe) -> None:
        assert isinstance(store, SqliteStore)
        store.probe = probe
        if store._writer is not None:
            probe_rows(store._writer, TABLES, probe)


@pytest.mark.timeout(240)
class TestContractOfGreatCommits(TestContract):
    """A commit with more changes than fit into one statement has several statements."""

    @pytest.fixture(autouse=True)
    def _small_statements(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite_changes, "_ROWS_MAX", 2)


TABLES = ("outgoing", "outgoing_payload", "incoming", "incoming_payload", "remembered")


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


# -- the file --------------------------------------------------------------


async def test_only_its_owner_may_read_a_store(tmp_path: Path) -> None:
    """It contains messages; so do the two files that SQLite puts beside it."""
    store = SqliteStore(tmp_path / "store.db")
    umask = os.umask(0)
    try:
        async with opened(store):
            await write(store, Save(outgoing(1)))
            modes = {
                entry.name: stat.S_IMODE(entry.stat().st_mode)
                for entry in os.scandir(tmp_path)
            }
    finally:
        os.umask(umask)
    names = {"store.db", "store.db-wal", "store.db-shm"}
    assert modes == dict.fromkeys(names, 0o600)


async def test_a_closed_store_is_one_file(tmp_path: Path) -> None:
    """It may be copied, and the WAL must not grow."""
    store = SqliteStore(tmp_path / "store.db")
    async with opened(store):
        await write(store, Save(outgoing(1)))
    assert set(os.listdir(tmp_path)) == {"store.db"}


async def test_a_commit_is_on_the_disk(tmp_path: Path) -> None:
    """With a WAL, `synchronous=NORMAL` would not wait for it."""
    store = SqliteStore(tmp_path / "store.db")
    async with opened(store):
        assert store._writer is not None
        assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_store_without_a_thread_is_not_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first commit would fail without it, and be made together with the second one."""

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(StoreError, match="can't start new thread"):
            SqliteStore(tmp_path / "qos.db").open()
    store = SqliteStore(tmp_path / "qos.db")
    store.open()
    await store.close()


async def test_the_file_says_whose_it_is(tmp_path: Path) -> None:
    """And its version, by SQLite's means for this."""
    path = tmp_path / "store.db"
    async with opened(SqliteStore(path)):
        pass
    assert query(path, "PRAGMA application_id") == [(sqlite.APPLICATION_ID,)]
    assert query(path, "PRAGMA user_version") == [(len(sqlite.MIGRATIONS),)]


async def test_a_file_that_was_not_finished_is_made_anew(tmp_path: Path) -> None:
    """The process died while it created the store, under another name."""
    for suffix in ("-new", "-new-wal", "-new-journal"):
        (tmp_path / f"store.db{suffix}").write_bytes(b"half")
    async with opened(SqliteStore(tmp_path / "store.db")) as contents:
        assert contents.next_seq == 1
    assert set(os.listdir(tmp_path)) == {"store.db"}


async def test_a_file_system_without_wal_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite would go on there in a mode of unknown safety."""

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
            if sql == "PRAGMA journal_mode = WAL":
                sql = "PRAGMA journal_mode = DELETE"
            return super().execute(sql, *parameters)  # type: ignore[arg-type]

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Connection)
    )
    with pytest.raises(StoreError, match="WAL"):
        SqliteStore(tmp_path / "store.db").open()


# -- the schema ------------------------------------------------------------


async def test_the_schema_has_what_the_records_have(tmp_path: Path) -> None:
    """A stored field without a column would be lost, or fail every write."""
    path = tmp_path / "store.db"
    async with opened(SqliteStore(path)):
        pass
    for table, names, more in (
        ("outgoing", OUTGOING_FIELDS, {"flow"}),
        ("incoming", INCOMING_FIELDS, {"id"}),
    ):
        columns = {row[1] for row in query(path, f"PRAGMA table_info({table})")}
        assert columns == set(names) - {"payload"} | more


def test_what_is_stored_comes_first_in_a_record() -> None:
    """A field that `model.py` adds to these groups is not stored yet: see base.py."""
    for record, stored in ((Outgoing, OUTGOING_FIELDS), (Incoming, INCOMING_FIELDS)):
        names = tuple(field.name for field in fields(record))
        assert names[: len(stored)] == stored


@contextmanager
def migrations(*more: tuple[str, ...]) -> Iterator[int]:
    """A program that is some versions newer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "MIGRATIONS", sqlite.MIGRATIONS + more)
        yield len(sqlite.MIGRATIONS)


ADD_A_TABLE = ("CREATE TABLE audit (note TEXT)", "INSERT INTO audit VALUES ('new')")
ADD_A_COLUMN = ("ALTER TABLE audit ADD COLUMN at REAL",)


async def test_an_older_file_is_brought_forward(tmp_path: Path) -> None:
    """By all missing steps, in order; nothing in it is lost."""
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    async with opened(store):
        await write(store, Save(outgoing(1)), Save(incoming("k")))
        store_id = store.store_id
    with migrations(ADD_A_TABLE, ADD_A_COLUMN) as version:
        for _ in range(2):
            async with opened(store):
                assert records(store) == ([outgoing(1)], [incoming("k")])
                assert store.store_id == store_id
        assert query(path, "PRAGMA user_version") == [(version,)]
        assert query(path, "SELECT * FROM audit") == [("new", None)]
    with pytest.raises(StoreTooNew, match=f"version {version}"):
        store.open()


async def test_the_id_of_a_new_file_can_be_given(tmp_path: Path) -> None:
    """For several stores of one sender. A file that is there keeps its own."""
    for name, new_id in (("a", "one sender"), ("b", "one sender"), ("a", "another")):
        store = SqliteStore(tmp_path / name, new_id=new_id)
        async with opened(store):
            assert store.store_id == "one sender"


async def test_a_file_from_before_the_first_version_takes_every_step(
    tmp_path: Path,
) -> None:
    """A file that the first release would have made, as this one's ancestor."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA application_id = {sqlite.APPLICATION_ID}")
        db.execute("CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
        db.execute("INSERT INTO about VALUES ('store_id', 'old')")
        db.commit()
    with pytest.MonkeyPatch.context() as patch:
        first = tuple(s for s in sqlite.MIGRATIONS[0] if "TABLE about" not in s)
        patch.setattr(sqlite, "MIGRATIONS", (first, *sqlite.MIGRATIONS[1:]))
        store = SqliteStore(path)
        async with opened(store):
            assert store.store_id == "old"
            await write(store, Save(outgoing(1)))


async def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """All steps are one transaction."""
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    async with opened(store):
        await write(store, Save(outgoing(1)))
    already = pytest.raises(StoreError, match="outgoing already exists")
    with migrations(ADD_A_TABLE, ("CREATE TABLE outgoing (twice)",)), already:
        store.open()
    assert query(path, "SELECT name FROM sqlite_schema WHERE name = 'audit'") == []
    async with opened(store):
        assert records(store) == ([outgoing(1)], [])


# -- writing ---------------------------------------------------------------


async def test_a_payload_is_written_once(tmp_path: Path) -> None:
    """Three steps of a message of 1 MB write some kilobytes, not 3 MB more."""
    store = SqliteStore(tmp_path / "store.db")
    wal = tmp_path / "store.db-wal"
    sent = outgoing(1, payload="x" * 2**20)
    held = incoming("k", payload="y" * 2**20)
    async with opened(store):
        assert store._writer is not None
        store._writer.execute("PRAGMA wal_autocheckpoint = 0")
        await write(store, Save(sent), Save(held))
        before = os.stat(wal).st_size
        assert before > 2 * 2**20
        for step in (OutgoingState.OFFERED, OutgoingState.RELEASING):
            await write(store, Save(replace(sent, state=step)))
        await write(store, Save(replace(held, state=IncomingState.RELEASING)))
        assert os.stat(wal).st_size - before < 100_000
        assert records(store)[1][0].payload == held.payload
        # It is not overwritten either when it is forgotten, as Debian's SQLite would
        # do.
        await write(store, Forget(sent))
        assert os.stat(wal).st_size - before < 200_000
        # A new payload under the same key is written.
        again = replace(held, payload="z" * 2**20)
        await write(store, Save(again))
        assert records(store)[1] == [again]


async def test_nothing_is_left_of_what_is_forgotten(tmp_path: Path) -> None:
    """Its space is used again."""
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    sent = [outgoing(seq, payload="x" * 10_000) for seq in range(1, 51)]
    held = [incoming(f"k{seq}", payload="x" * 10_000) for seq in range(1, 51)]
    sizes = []
    for _ in range(3):
        async with opened(store):
            await write(store, *map(Save, sent), *map(Save, held))
            await write(store, *map(Forget, sent), *map(Forget, held))
        sizes.append(os.stat(path).st_size)
    assert sizes[0] == sizes[1] == sizes[2]
    for table in TABLES:
        assert query(path, f"SELECT COUNT(*) FROM {table}") == [(0,)]


async def test_a_great_batch_is_all_or_none_as_well(tmp_path: Path) -> None:
    """More changes than fit into one SQLite statement are one transaction."""
    store = SqliteStore(tmp_path / "store.db")
    sent = [outgoing(seq) for seq in range(1, 2001)]
    async with opened(store):
        steps = itertools.count()

        def fails_late(_step: str) -> None:
            if next(steps) == 5000:
                raise OSError("the cable is loose")

        assert store._writer is not None
        probe_rows(store._writer, TABLES, fails_late)
        with pytest.raises(StoreError):
            await write(store, *map(Save, sent))
        assert records(store) == ([], [])
        await write(store, *map(Save, sent), Forget(sent[-1]))
        assert records(store) == (sent[:-1], [])


async def test_what_sqlite_rolls_back_by_itself_is_rolled_back(tmp_path: Path) -> None:
    """SQLite does so for some errors; then nothing is left to do."""
    store = SqliteStore(tmp_path / "store.db")
    sent = [outgoing(seq) for seq in range(1, 1001)]
    async with opened(store):
        assert store._writer is not None
        store._writer.execute(
            "CREATE TEMP TRIGGER t BEFORE INSERT ON outgoing WHEN NEW.seq = 900"
            " BEGIN SELECT RAISE(ROLLBACK, 'rolled back'); END"
        )
        with pytest.raises(StoreError, match="rolled back"):
            await write(store, *map(Save, sent))
        assert records(store) == ([], [])
        await write(store, *map(Save, sent[:800]))
        assert records(store) == (sent[:800], [])


# -- reading ---------------------------------------------------------------


async def test_every_question_of_the_engine_has_an_index(tmp_path: Path) -> None:
    """These queries are made for each message, with an outbox of any length."""
    store = SqliteStore(tmp_path / "store.db")
    async with opened(store):
        assert store._reader is not None
        asked: list[str] = []
        store._reader.set_trace_callback(asked.append)
        store.queued("a@b", after=0, limit=64)
        store.expiring(1.0, limit=64)
        store.next_expiry()
        store.find_outgoing("x")
        store.find_ended("x")
        store._reader.set_trace_callback(None)
        for sql in asked:
            plan = store._reader.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()
            details = " ".join(row[3] for row in plan)
            assert "USING INDEX" in details or "COVERING INDEX" in details
            assert "TEMP B-TREE" not in details
            assert "SCAN outgoing USING" not in details or "LIMIT 1" in sql
        assert len(asked) == 5


LONG_OUTBOX = """
import asyncio, sqlite3, sys
from qos.stores import SqliteStore
connect, steps = sqlite3.connect, 0
def count():
    global steps
    steps += 10
def counting(*arguments, **options):
    db = connect(*arguments, **options)
    db.set_progress_handler(count, 10)
    return db
sqlite3.connect = counting
def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
before = resident()
store = SqliteStore(sys.argv[1])
contents = store.open()
opened = steps
assert contents.outbox_messages == sum(contents.queued.values()) == 100_000
flow = next(iter(contents.queued))
asked = []
for after in range(0, 90_000, 3_000):
    start = steps
    assert len(store.queued(flow, after=after, limit=64)) == 64
    asked.append(steps - start)
print(opened, resident() - before, max(asked))
asyncio.run(store.close())
"""


def test_a_hundred_thousand_messages_wait_on_the_disk(tmp_path: Path) -> None:
    """Memory is needed for the window, not for the outbox.

    The work is counted in steps of SQLite's virtual machine, which no other load of this
    machine changes: now 57 a message at the start, and 30 a message that is asked for.
    """
    path = tmp_path / "store.db"
    store = SqliteStore(path)

    async def fill() -> None:
        async with opened(store):
            sent = [outgoing(seq, payload="x" * 1024) for seq in range(1, 1001)]
            await write(store, *map(Save, sent))

    asyncio.run(fill())
    with closing(sqlite3.connect(path)) as db:
        columns = [row[1] for row in db.execute("PRAGMA table_info(outgoing)")]
        others = ", ".join(f'"{name}"' for name in columns if name != "seq")
        for table, copied in (("outgoing", others), ("outgoing_payload", "payload")):
            db.execute(
                f"WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL"
                f" SELECT n + 1 FROM n WHERE n < 99)"
                f" INSERT INTO {table} (seq, {copied})"
                f" SELECT n * 1000 + seq, {copied} FROM n, {table} ORDER BY n, seq"
            )
        db.commit()
    done = subprocess.run(
        [sys.executable, "-P", "-c", LONG_OUTBOX, path],
        check=True,
        capture_output=True,
        text=True,
    )
    steps, memory, steps_asked = map(int, done.stdout.split())
    assert steps <= 100 * 100_000
    assert memory <= 60e6
    assert steps_asked <= 50 * 64


async def test_a_damaged_payload_of_a_great_store_is_found_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading all of it at each start would take too long."""
    monkeypatch.setattr(sqlite_file, "_CHECKED_BYTES_MAX", 0)
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    async with opened(store):
        await write(store, Save(outgoing(1)))
    overwrite(path, "outgoing_payload")
    async with opened(store) as contents:
        assert contents.outbox_messages == 1
        with pytest.raises(StoreDamaged, match="malformed"):
            store.find_outgoing("msg-1")
    overwrite(path, "incoming")
    with pytest.raises(StoreDamaged):
        store.open()


async def test_a_queued_message_that_cannot_be_read_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise messages to other accounts would not move, and no deadline would come."""
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    async with opened(store):
        records = [outgoing(seq, to="a@b/c", expires_at=10.0) for seq in (1, 2, 3)]
        await write(store, *map(Save, records))
        with closing(sqlite3.connect(path)) as db:
            db.execute(
                "UPDATE outgoing_payload SET payload = CAST(x'ff' AS TEXT) WHERE seq = 2"
            )
            db.commit()
        whole = [records[0], records[2]]
        for _ in range(2):
            assert store.queued(records[0].flow, after=0, limit=9) == whole
            assert store.expiring(10.0, limit=9) == whole
        with pytest.raises(StoreError):
            store.find_outgoing("msg-2")
    (line,) = caplog.messages
    assert "'msg-2'" in line
    assert store.url in line
    with pytest.raises(StoreError, match="not open"):
        store.queued(records[0].flow, after=0, limit=9)


def overwrite(path: Path, table: str) -> None:
    """Garbage in the first page of a table."""
    sql = f"SELECT rootpage FROM sqlite_schema WHERE name = '{table}'"
    ((page,),) = query(path, sql)
    with path.open("r+b") as file:
        file.seek((int(str(page)) - 1) * 4096)
        file.write(os.urandom(4096))
