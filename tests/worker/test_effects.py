"""The effects of a job happen exactly once, whatever process dies when."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from slixmpp import ClientXMPP

import effects_child
from forked import Forked
from qos.core.queue.item import ItemOutcome
from qos.errors import JobLost, LocalProtocolError, NoAnswer, RequestRefused
from qos.testing import LoopbackServer
from qos.worker import Job, Worker, effects
from waiting import limit, until
from worker_setup import NODE, QUEUE, LogIn, Queue, ScriptedService, token_in
from xep_0254 import XEP_0254


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of the application."""
    path = tmp_path / "application.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE effects (item_id TEXT)")
        db.commit()
    return path


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as db:
        yield db


def effects_in(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT item_id FROM effects ORDER BY 1")]


def prepared_in(db: sqlite3.Connection) -> int:
    waiting = "SELECT count(*) FROM xmpp_qos_prepared WHERE statements <> ''"
    (count,) = db.execute(waiting).fetchone()
    return int(count)


async def work(job: Job, db: sqlite3.Connection) -> None:
    async with job, job.effects(db) as recorded:
        recorded.execute("INSERT INTO effects VALUES (?)", (job.id,))


# -- without a crash -------------------------------------------------------


def test_a_delivery_whose_effects_are_there_has_none_again(
    db: sqlite3.Connection,
) -> None:
    """Its event may come again, to a worker that was started again.

    The worker then prepares the effects again, and the service, which knows the token,
    answers that the item is accepted.
    """
    db.isolation_level = None
    key = effects.Key("queue@x/1", "bee@x", "orders", "item", "token")
    statements = [("INSERT INTO effects VALUES (?)", ("item",))]
    for is_there_now in (True, False):
        effects.prepare(db, key, statements)
        assert effects.apply(db, key) is is_there_now
        assert effects_in(db) == ["item"]
        assert not effects.prepared(
            db, service=key.service, account=key.account, node=key.node
        )


@pytest.mark.parametrize(
    ("done_at", "started_at", "again"),
    [
        pytest.param(12.0, 1.79e9, False, id="1970, then right"),
        pytest.param(1.79e9, 12.0, False, id="right, then 1970"),
        pytest.param(1.79e9, 1.79e9 + 8 * 86_400.0, True, id="eight days later"),
    ],
)
def test_what_was_done_under_a_wrong_clock_is_not_done_again(
    db: sqlite3.Connection,
    monkeypatch: pytest.MonkeyPatch,
    done_at: float,
    started_at: float,
    again: bool,
) -> None:
    """A mark is forgotten after a week that has passed, not after one that has not."""
    db.isolation_level = None
    key = effects.Key("queue@x/1", "bee@x", "orders", "item", "token")
    where = {"service": key.service, "account": key.account, "node": key.node}
    for now, does in ((done_at, True), (started_at, again)):
        monkeypatch.setattr(effects, "time", SimpleNamespace(time=lambda: now))  # noqa: B023
        assert effects.prepared(db, **where) == []
        effects.prepare(db, key, [("INSERT INTO effects VALUES (?)", ("item",))])
        assert effects.apply(db, key) is does
    # A second start with the same clock.
    assert effects.prepared(db, **where) == []


@pytest.mark.parametrize("text", [bytes, lambda found: found.decode().upper()])
def test_what_is_prepared_is_read_as_it_was_written(
    db: sqlite3.Connection, text: Callable[[bytes], object]
) -> None:
    """A text factory of the connection is for the application's own reads."""
    db.text_factory = text
    key = effects.Key("queue@x/1", "bee@x", "orders", "item", "token")
    effects.prepare(db, key, [("INSERT INTO effects VALUES (?)", ("item",))])
    where = {"service": key.service, "account": key.account, "node": key.node}
    assert effects.prepared(db, **where) == [key]
    assert db.text_factory is text
    assert effects.apply(db, key)
    assert not effects.apply(db, key)
    assert effects_in(db) == [text(b"item")]


async def test_effects_are_there_when_the_job_is_accepted_and_not_before(
    bee: ClientXMPP, scripted: ScriptedService, db: sqlite3.Connection
) -> None:
    """Before the answer, the item may still go to another worker."""
    async with scripted.holding(bee) as (_, job):
        working = asyncio.create_task(work(job, db))
        request = await scripted.asked("retract")
        assert (effects_in(db), prepared_in(db)) == ([], 1)
        await scripted.answer(request)
        await working
    assert job.outcome is ItemOutcome.ACCEPTED
    assert (effects_in(db), prepared_in(db)) == (["i"], 0)


@pytest.mark.parametrize("condition", ["item-not-found", "unexpected-request"])
async def test_effects_of_a_job_that_is_refused_are_dropped(
    bee: ClientXMPP, scripted: ScriptedService, db: sqlite3.Connection, condition: str
) -> None:
    """Another worker does the item, and its effects would happen twice."""
    async with scripted.holding(bee) as (_, job):
        working = asyncio.create_task(work(job, db))
        await scripted.refuse(await scripted.asked("retract"), condition)
        await working
    assert job.outcome is None
    assert (effects_in(db), prepared_in(db)) == ([], 0)


async def test_effects_that_nobody_can_tell_of_stay_prepared_until_one_can(
    bee: ClientXMPP, scripted: ScriptedService, db: sqlite3.Connection
) -> None:
    """A conflict names the present holder, but not the result of the first retract."""
    async with scripted.holding(bee) as (worker, job):
        working = asyncio.create_task(work(job, db))
        await scripted.refuse(await scripted.asked("retract"), "conflict")
        await working
        assert prepared_in(db) == 1
        recovering = asyncio.create_task(worker.recover(db))
        await scripted.refuse(await scripted.asked("retract"), "conflict")
        assert await recovering == 1
        recovering = asyncio.create_task(worker.recover(db))
        request = await scripted.asked("retract")
        assert token_in(request) == "t"
        await scripted.answer(request)
        assert await recovering == 0
    assert (effects_in(db), prepared_in(db)) == (["i"], 0)


@pytest.mark.parametrize(
    ("condition", "by"),
    [("forbidden", ""), ("item-not-found", "localhost")],
)
async def test_effects_stay_prepared_whatever_a_server_says_for_the_service(
    bee: ClientXMPP,
    scripted: ScriptedService,
    db: sqlite3.Connection,
    condition: str,
    by: str,
) -> None:
    """The service has accepted the item; only its answer was lost."""
    async with scripted.holding(bee) as (worker, job):
        working = asyncio.create_task(work(job, db))
        await scripted.refuse(await scripted.asked("retract"), "conflict")
        await working
        recovering = asyncio.create_task(worker.recover(db))
        await scripted.refuse(await scripted.asked("retract"), condition, "auth", by=by)
        with pytest.raises(RequestRefused, match=condition):
            await recovering
        assert prepared_in(db) == 1


async def test_what_is_recovered_late_by_two_is_done_once(
    bee: ClientXMPP, scripted: ScriptedService, db: sqlite3.Connection, path: Path
) -> None:
    """Workers that share a database file recover each other's effects."""
    with closing(sqlite3.connect(path)) as other:
        async with scripted.holding(bee) as (worker, job):
            working = asyncio.create_task(work(job, db))
            first = await scripted.asked("retract")
            recovering = asyncio.create_task(worker.recover(other))
            await scripted.answer(await scripted.asked("retract"))
            assert await recovering == 0
            assert effects_in(other) == ["i"]
            await scripted.answer(first)
            await working
    assert job.outcome is ItemOutcome.ACCEPTED
    assert (effects_in(db), prepared_in(db)) == (["i"], 0)


async def test_effects_are_not_lost_when_the_id_is_used_again(
    bee: ClientXMPP, queue: Queue, db: sqlite3.Connection
) -> None:
    """A worker that died after its retract may come back while another item has the id."""
    await queue.create(dedupe_window=0)
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        job = await anext(worker)
        key = effects.Key(QUEUE, "bee@localhost", NODE, "i", job.token)
        effects.prepare(db, key, [("INSERT INTO effects VALUES ('first')", ())])
        await job.accept()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE, effects_db=db) as worker:
        await work(await anext(worker), db)
    assert (effects_in(db), prepared_in(db)) == (["first", "i"], 0)
    assert (await queue.stats())["accepted"] == 2


async def test_effects_that_have_become_forbidden_stay_prepared(
    bee: ClientXMPP, queue: Queue, db: sqlite3.Connection
) -> None:
    """A new trigger of the application touches our table.

    Meanwhile the worker goes on.
    """
    await queue.create()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        job = await anext(worker)
        key = effects.Key(QUEUE, "bee@localhost", NODE, "i", job.token)
        effects.prepare(db, key, [("INSERT INTO effects VALUES ('i')", ())])
        await job.accept()
        db.execute(
            "CREATE TRIGGER t AFTER INSERT ON effects"
            " BEGIN DELETE FROM xmpp_qos_prepared; END"
        )
        db.commit()
        assert await worker.recover(db) == 1
        assert (effects_in(db), prepared_in(db)) == ([], 1)
        db.execute("DROP TRIGGER t")
        db.commit()
        assert await worker.recover(db) == 0
    assert (effects_in(db), prepared_in(db)) == (["i"], 0)


async def test_two_workers_on_one_database_file_do_each_item_once(
    bee: ClientXMPP, queue: Queue, log_in: LogIn, path: Path
) -> None:
    """One process for each processor, and one database."""
    await queue.create()
    ids = [f"i{number:02}" for number in range(20)]
    await queue.publish(*ids)
    clients = [bee, await log_in("bee/2")]
    connections = [sqlite3.connect(path) for _ in clients]
    workers = [
        Worker(client, QUEUE, NODE, parallel=3, effects_db=db)
        for client, db in zip(clients, connections, strict=True)
    ]
    runs = []
    for worker, db in zip(workers, connections, strict=True):

        async def handler(job: Job, db: sqlite3.Connection = db) -> None:
            async with job.effects(db) as effects:
                effects.execute("INSERT INTO effects VALUES (?)", (job.id,))

        runs.append(asyncio.create_task(worker.run(handler)))
    await queue.until(accepted=20)
    for worker in workers:
        worker.stop()
    await asyncio.gather(*runs)
    assert effects_in(connections[0]) == ids
    for db in connections:
        db.close()


async def test_a_statement_that_fails_fails_before_the_item_is_gone(
    bee: ClientXMPP, queue: Queue, db: sqlite3.Connection
) -> None:
    """After the retract no worker would do the item again."""
    await queue.create()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        job = await anext(worker)
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await insert_into_nothing(job, db)
        assert job.outcome is ItemOutcome.MODIFIED
    assert effects_in(db) == []
    assert not db.in_transaction


async def insert_into_nothing(job: Job, db: sqlite3.Connection) -> None:
    async with job, job.effects(db) as effects:
        effects.execute("INSERT INTO effects VALUES ('half')")
        effects.execute("INSERT INTO nowhere VALUES (1)")


async def test_an_exception_in_the_block_prepares_nothing(
    bee: ClientXMPP, queue: Queue, db: sqlite3.Connection
) -> None:
    """Half of the work must not be done."""
    await queue.create()
    await queue.publish("i")

    async def fail(job: Job) -> None:
        async with job, job.effects(db) as effects:
            effects.execute("INSERT INTO effects VALUES ('half')")
            raise ValueError("it does not work")

    async with Worker(bee, QUEUE, NODE) as worker:
        with pytest.raises(ValueError, match="does not work"):
            await fail(await anext(worker))
    assert effects_in(db) == []


async def test_every_kind_of_value_comes_back_as_it_was(
    bee: ClientXMPP, queue: Queue, db: sqlite3.Connection
) -> None:
    """Between the two transactions the values are stored as text in a table."""
    values = (None, -(2**63), 0.1, "ü\x00'", b"\x00\xff")
    db.execute("CREATE TABLE kinds (a, b, c, d, e)")
    db.commit()
    db.row_factory = lambda _cursor, row: {"row": row}
    await queue.create()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        job = await anext(worker)
        async with job.effects(db) as effects:
            effects.execute("INSERT INTO kinds VALUES (?, ?, ?, ?, ?)", values)
            named = dict(zip("abcde", values, strict=True))
            effects.execute("INSERT INTO kinds VALUES (:a, :b, :c, :d, :e)", named)
    assert db.execute("SELECT * FROM kinds").fetchall() == [{"row": values}] * 2


#: Statements that would run before the item is accepted, or twice, or outside the
#: transaction; with the rule that each breaks.
HOSTILE = [
    ("COMMIT", "begin or end a transaction"),
    (" commit;", "begin or end a transaction"),
    ("-- a comment\nCOMMIT", "begin or end a transaction"),
    ("/**/END", "begin or end a transaction"),
    ("BEGIN", "begin or end a transaction"),
    ("ROLLBACK", "begin or end a transaction"),
    ("/**/ SAVEPOINT here", "use a savepoint"),
    ("ATTACH ':memory:' AS more", "attach a database"),
    ("DETACH other", "detach a database"),
    ("/**/ PRAGMA synchronous = OFF", "use a pragma"),
    ("INSERT INTO other.effects VALUES ('half')", "change the database 'other'"),
    ("INSERT INTO scratch VALUES ('half')", "use temporary tables"),
    ("CREATE TEMP TABLE effects (item_id)", "use temporary tables"),
    ("DELETE FROM xmpp_qos_prepared", "change 'xmpp_qos_prepared'"),
    ("CREATE TABLE XMPP_QOS_prepared (x)", "change 'XMPP_QOS_prepared'"),
    (
        "CREATE TRIGGER t AFTER UPDATE ON xmpp_qos_prepared BEGIN SELECT 1; END",
        "change 'xmpp_qos_prepared'",
    ),
    ("SELECT ends()", "begin or end a transaction"),
]


@pytest.mark.parametrize(("sql", "rule"), HOSTILE)
def test_a_statement_that_would_leave_the_transaction_is_no_effect(
    path: Path, sql: str, rule: str
) -> None:
    """All effects happen, or none: none of them, if the process dies here."""
    key = effects.Key("queue@x/1", "bee@x", "orders", "item", "token")
    where = {"service": key.service, "account": key.account, "node": key.node}
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert effects.prepared(db, **where) == []
        before = db.execute("SELECT sql FROM sqlite_schema").fetchall()
        db.execute("ATTACH ? AS other", (str(path.with_name("other.db")),))
        db.execute("CREATE TABLE other.effects (item_id)")
        db.execute("CREATE TEMP TABLE scratch (item_id)")
        db.create_function("ends", 0, lambda: str(db.execute("COMMIT")))
        for seen in ("BEGIN", "COMMIT"):  # the module keeps them, prepared
            db.execute(seen)
        statements = [
            ("INSERT INTO effects VALUES ('half')", ()),
            (sql, ()),
            ("INSERT INTO effects VALUES ('whole')", ()),
        ]
        with pytest.raises(LocalProtocolError, match=rule):
            effects.prepare(db, key, statements)
        assert not db.in_transaction
        assert [row[1] for row in db.execute("PRAGMA database_list")] == [
            *("main", "temp", "other")
        ]
        assert db.execute("SELECT * FROM other.effects").fetchall() == []
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    with closing(sqlite3.connect(path)) as db:
        assert effects_in(db) == []
        assert db.execute("SELECT sql FROM sqlite_schema").fetchall() == before
        assert effects.prepared(db, **where) == []


def test_a_temporary_table_does_not_hide_what_is_prepared(
    db: sqlite3.Connection, path: Path
) -> None:
    """Effects written into it would be gone after a crash."""
    db.isolation_level = None
    key = effects.Key("queue@x/1", "bee@x", "orders", "item", "token")
    where = {"service": key.service, "account": key.account, "node": key.node}
    assert effects.prepared(db, **where) == []
    db.execute("CREATE TEMP TABLE xmpp_qos_prepared AS SELECT * FROM xmpp_qos_prepared")
    effects.prepare(db, key, [("INSERT INTO effects VALUES ('item')", ())])
    with closing(sqlite3.connect(path)) as other:
        assert effects.prepared(other, **where) == [key]
        assert effects.apply(other, key)
        assert effects_in(other) == ["item"]
    assert effects.prepared(db, **where) == []
    assert not effects.apply(db, key)


async def test_an_item_whose_effects_are_refused_is_not_accepted(
    bee: ClientXMPP, queue: Queue, db: sqlite3.Connection
) -> None:
    """The error shows the statement; the item has failed, and comes again."""
    await queue.create()
    await queue.publish("i")

    async def end(job: Job) -> None:
        async with job, job.effects(db) as effects:
            effects.execute("INSERT INTO effects VALUES ('half')")
            effects.execute("-- x\nCOMMIT")

    async with Worker(bee, QUEUE, NODE) as worker:
        job = await anext(worker)
        with pytest.raises(LocalProtocolError, match=r"x\\nCOMMIT' is refused"):
            await end(job)
        assert job.outcome is ItemOutcome.MODIFIED
        await work(await anext(worker), db)
    assert (effects_in(db), prepared_in(db)) == (["i"], 0)


async def test_what_is_no_value_is_refused_where_it_is_recorded(
    bee: ClientXMPP, scripted: ScriptedService, db: sqlite3.Connection
) -> None:
    """Between the two transactions the values are stored as text in a table."""
    async with scripted.worker(bee) as worker:
        await scripted.subscribe()
        await scripted.deliver("i", "t")
        effects = (await anext(worker)).effects(db)
        with pytest.raises(LocalProtocolError, match="no value"):
            effects.execute("INSERT INTO effects VALUES (?)", (object(),))  # type: ignore[arg-type]


async def test_an_open_transaction_of_the_application_is_not_touched(
    bee: ClientXMPP, queue: Queue, db: sqlite3.Connection
) -> None:
    """It would be committed or rolled back together with ours."""
    await queue.create()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        job = await anext(worker)
        db.execute("INSERT INTO effects VALUES ('its own')")
        with pytest.raises(LocalProtocolError, match="in a transaction"):
            await work(job, db)
        db.commit()
    assert effects_in(db) == ["its own"]


async def test_effects_need_a_token_and_a_job_that_is_open(
    bee: ClientXMPP, scripted: ScriptedService, db: sqlite3.Connection
) -> None:
    """Otherwise nobody could tell later whether this delivery was accepted."""
    async with scripted.worker(bee, parallel=2) as worker:
        await scripted.subscribe()
        await scripted.deliver("i", "")
        with pytest.raises(LocalProtocolError, match="no token"):
            await (await anext(worker)).effects(db).__aenter__()
        await scripted.deliver("j", "t")
        job = await anext(worker)
        accepting = asyncio.create_task(job.accept())
        await scripted.answer(await scripted.asked("retract"))
        await accepting
        with pytest.raises(LocalProtocolError, match="accepted before"):
            await job.effects(db).__aexit__(None, None, None)


async def test_effects_of_a_job_that_is_lost_are_not_even_prepared(
    bee: ClientXMPP, scripted: ScriptedService, db: sqlite3.Connection
) -> None:
    """There is nothing to ask the service for."""
    async with scripted.holding(bee) as (_, job):
        await scripted.event(f"<purge node='{NODE}'/>")
        await job.lost.wait()
        with pytest.raises(JobLost):
            await job.effects(db).__aexit__(None, None, None)
        tables = db.execute("SELECT name FROM sqlite_schema").fetchall()
        assert tables == [("effects",)]


async def test_recovering_without_the_service_decides_nothing(
    bee: ClientXMPP, scripted: ScriptedService, db: sqlite3.Connection
) -> None:
    """No answer is not a refusal."""
    XEP_0254.of(bee).timeout_s = 0.2
    async with scripted.holding(bee) as (worker, job):
        working = asyncio.create_task(work(job, db))
        await scripted.refuse(await scripted.asked("retract"), "conflict")
        await working
        with pytest.raises(NoAnswer):
            await worker.recover(db)
    assert prepared_in(db) == 1


@pytest.mark.parametrize(
    ("busy", "told"), [("db", "in a transaction"), ("other", "locked")]
)
async def test_a_worker_waits_until_its_database_is_free(
    bee: ClientXMPP,
    queue: Queue,
    path: Path,
    caplog: pytest.LogCaptureFixture,
    busy: str,
    told: str,
) -> None:
    """A handler may wait inside a transaction, and a backup takes its time."""
    await queue.create()
    with (
        closing(sqlite3.connect(path, timeout=0)) as db,
        closing(sqlite3.connect(path)) as other,
    ):
        worker = Worker(bee, QUEUE, NODE, effects_db=db, resubscribe_s=0.05)
        async with worker:
            await worker.subscribed()
            holder = {"db": db, "other": other}[busy]
            holder.execute("BEGIN IMMEDIATE")
            await until(lambda: told in caplog.text)
            holder.rollback()
            await queue.publish("i")
            await work(await anext(worker), db)
        assert effects_in(db) == ["i"]


async def test_a_database_that_is_not_free_at_first_is_told_at_once(
    bee: ClientXMPP, queue: Queue, path: Path
) -> None:
    """It may never become free, as with a connection without autocommit."""
    await queue.create()
    with closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN")
        async with Worker(bee, QUEUE, NODE, effects_db=db) as worker:
            with pytest.raises(LocalProtocolError, match="in a transaction"):
                await worker.subscribed()


async def test_a_database_that_has_gone_ends_the_worker(
    bee: ClientXMPP, queue: Queue, path: Path
) -> None:
    """Each further item would fail."""
    await queue.create()
    with closing(sqlite3.connect(path)) as db:
        async with Worker(
            bee, QUEUE, NODE, effects_db=db, resubscribe_s=0.05
        ) as worker:
            await worker.subscribed()
            db.close()
            with pytest.raises(sqlite3.ProgrammingError, match="closed"):
                await anext(worker)


async def test_effects_of_another_account_are_not_touched(
    bee: ClientXMPP, scripted: ScriptedService, db: sqlite3.Connection
) -> None:
    """The service tells an account only about its own settlements."""
    async with scripted.holding(bee) as (worker, job):
        working = asyncio.create_task(work(job, db))
        await scripted.refuse(await scripted.asked("retract"), "conflict")
        await working
        db.execute("UPDATE xmpp_qos_prepared SET account = 'other@localhost'")
        db.commit()
        assert await worker.recover(db) == 0
    assert prepared_in(db) == 1


# -- killed ----------------------------------------------------------------


@pytest.fixture
async def killed(server: LoopbackServer, queue: Queue, path: Path) -> "Killed":
    return Killed(server.port, path)


class Killed:
    """Runs the child; see effects_child."""

    def __init__(self, port: int, path: Path) -> None:
        self._port = port
        self._path = path

    async def __call__(self, step: str) -> str:
        """The output of the child; '' if it was killed."""
        child = await Forked.start(effects_child.live, self._port, self._path, step)
        async with limit():
            said, complaint = await child.communicate(b"")
        assert complaint == b""
        assert child.returncode == (0 if said else -9), said
        return said.decode().strip()


@pytest.mark.crash
@pytest.mark.timeout(180)
@pytest.mark.looptime(False)
@pytest.mark.parametrize(
    "steps",
    [["before"], ["after"], [f"sql:{number}" for number in range(25)]],
    ids=["before the retract", "after the answer", "each statement"],
)
async def test_a_worker_that_is_killed_at_any_step_has_done_each_item_once(
    queue: Queue, killed: Killed, db: sqlite3.Connection, steps: list[str]
) -> None:
    """The three steps leave no gap between them: that is their purpose."""
    await queue.create(max_deliveries=1000, lock_timeout=3600)
    survived = False
    published = []
    for step in steps:
        published.append(step)
        await queue.publish(step)
        survived = await killed(step) == "done"
        if survived:
            break
    # As often as necessary: a killed item comes again, or is done.
    while (await queue.stats())["accepted"] != len(published):
        assert await killed("recover") == "done"
        if (await queue.stats())["accepted"] != len(published):
            assert await killed("never") == "done"
    await recovered(killed, queue, published)
    assert effects_in(db) == sorted(published)
    assert prepared_in(db) == 0
    assert survived == (steps[0] == "sql:0")


async def recovered(killed: Killed, queue: Queue, published: list[str]) -> None:
    """A last worker recovers what the others have left, and does one item of its own."""
    published.append("last")
    await queue.publish("last")
    assert await killed("never") == "done"
