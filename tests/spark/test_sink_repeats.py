"""A batch that is repeated with another number of partitions is written once.

Spark keeps neither the number of a partition nor the rows in it. The first tests have
tasks without Spark; the others are real queries, restarted in the session of the tests.
"""

import asyncio
import contextlib
import itertools
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from slixmpp import Message

from qos.spark.message_sink import XmppStreamWriter, XmppWriter
from qos.spark.options import BadOption
from qos.spark.queue_sink import QueueStreamWriter
from qos.spark.rows import RowFailed
from qos.testing import LoopbackServer, friends, logged_in
from sink_tasks import NODE, SERVICE, WHOLE, login, no_task, queue, schema, shop, write
from uncommitted_sinks import UncommittedQueue, UncommittedXmpp
from waiting import LIMIT_S, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

BEE = "bee@localhost/1"


task = pytest.fixture(autouse=True)(no_task)


@contextlib.asynccontextmanager
async def receiver(server: LoopbackServer) -> AsyncIterator[Counter[str]]:
    """The bodies that a receiver has been handed over, each with its count."""
    bodies: Counter[str] = Counter()

    def count(message: Message) -> None:
        bodies[message["body"]] += 1

    async with logged_in(server, "bee/1") as bee:
        bee.add_event_handler("message", count)
        yield bodies


# -- tasks without Spark ---------------------------------------------------


async def test_a_queue_has_each_row_once_with_any_number_of_partitions() -> None:
    """The ids were made from the number of the partition: 120 rows became 210 items."""
    async with shop() as (server, owner):
        rows = [Row(payload=f"<x xmlns='u' n='{n}'/>") for n in range(120)]
        for count in (1, 4, 3):
            writer = QueueStreamWriter(queue(server) | WHOLE, schema("payload"))
            for partition in range(count):
                await write(writer, rows[partition::count], partition=partition)
        payloads = [item.payload async for item in owner.browse(SERVICE, NODE)]
        assert sorted(payloads) == sorted(row.payload for row in rows)


async def test_a_receiver_has_each_row_once_with_any_number_of_partitions(
    tmp_path: Path,
) -> None:
    """From other stores and resources: 60 of 80 messages were handed over twice."""
    async with friends("boss", "bee") as server, receiver(server) as bodies:
        options = login(server) | WHOLE | {"store": str(tmp_path / "store")}
        rows = [Row(to=BEE, body=f"{n}") for n in range(80)]
        for count in (1, 4, 3):
            writer = XmppStreamWriter(options, schema("to", "body"))
            for partition in range(count):
                await write(writer, rows[partition::count], partition=partition)
        assert bodies == Counter(row.body for row in rows)


def outstanding(folder: Path) -> dict[str, int]:
    """The messages that wait in each store."""
    counts = {}
    for path in folder.glob("*.sqlite"):
        with contextlib.closing(
            sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        ) as db:
            ((counts[path.stem],),) = db.execute("SELECT COUNT(*) FROM outgoing")
    return counts


def waits_in(folder: Path, partition: int, count: int) -> bool:
    return outstanding(folder).get(f"sender-{partition}") == count


class Killed(Exception):
    """A task does not go on."""


def until_killed(rows: list[Row], killed: threading.Event) -> Iterator[Row]:
    yield from rows
    assert killed.wait(LIMIT_S)
    raise Killed


async def test_messages_of_a_partition_that_is_gone_are_sent_by_the_next_run(
    tmp_path: Path,
) -> None:
    """Tasks are killed while the receiver is away; then there is one partition.

    The batch has each row once, also that of which the next run knows nothing.
    """
    store = tmp_path / "store"
    async with friends("boss", "bee") as server:
        options = login(server) | WHOLE | {"store": str(store)}
        rows = [Row(to=BEE, body=f"{n}") for n in range(12)]
        writer = XmppWriter(options, schema("to", "body"))
        for partition in range(4):
            accepted = threading.Event()
            part = until_killed(rows[partition::4], accepted)
            writing = asyncio.create_task(write(writer, part, partition=partition))
            await until(partial(waits_in, store, partition, 3))
            accepted.set()
            with pytest.raises(Killed):
                await writing
        async with receiver(server) as bodies:
            writer = XmppWriter(options, schema("to", "body"))
            # Row 3 has left its source meanwhile, and was that of partition 3.
            now = [row for row in rows if row.body != "3"]
            await write(writer, now)
            assert sum(outstanding(store).values()) > 0
            await asyncio.to_thread(writer.commit, [None])
            assert set(outstanding(store).values()) == {0}
            await asyncio.to_thread(writer.commit, [None])
            assert bodies == Counter(row.body for row in rows)


async def test_a_store_that_is_in_use_is_left_to_its_user(tmp_path: Path) -> None:
    """A task that Spark has given up may still send from it. A bad file is named."""
    store = tmp_path / "store"
    async with friends("boss", "bee") as server:
        options = login(server) | WHOLE | {"store": str(store)}
        writer = XmppStreamWriter(options, schema("to", "body"))
        going = threading.Event()

        def rows() -> Iterator[Row]:
            yield Row(to=BEE, body="x")
            assert going.wait(LIMIT_S)

        writing = asyncio.create_task(write(writer, rows(), partition=5))
        await until(partial(waits_in, store, 5, 1))
        await asyncio.to_thread(writer.commit, [None], 1)
        assert outstanding(store) == {"sender-5": 1}
        going.set()
        async with receiver(server) as bodies:
            assert await writing == 1
            assert bodies == {"x": 1}
        (store / "7.sqlite").write_text("no store")
        with pytest.raises(RowFailed, match=r"of an earlier run: .*7\.sqlite"):
            await asyncio.to_thread(writer.commit, [None], 1)


async def test_a_store_with_the_id_of_another_folder_is_refused(tmp_path: Path) -> None:
    """Its repeats would not be recognised."""
    async with friends("boss", "bee") as server, receiver(server):
        options = login(server) | WHOLE | {"store": str(tmp_path)}
        rows = [Row(to=BEE, body="x")]
        await write(XmppStreamWriter(options, schema("to", "body")), rows)
        (tmp_path / "sender-id").unlink()
        writer = XmppStreamWriter(options, schema("to", "body"))
        with pytest.raises(RowFailed, match="begin with a new folder"):
            await write(writer, rows)


def test_a_folder_that_cannot_be_made_is_a_bad_option(tmp_path: Path) -> None:
    """The driver says so before any task runs, in one line."""
    (tmp_path / "file").write_text("")
    options = {"jid": "a@localhost", "password": "p", **WHOLE}
    options["store"] = str(tmp_path / "file" / "store")
    with pytest.raises(BadOption, match=r"xmpp: option store: .*Not a directory"):
        XmppWriter(options, schema("to", "body"))


async def test_the_same_id_is_the_same_message_whatever_it_says(tmp_path: Path) -> None:
    """A message is another one by its id or by its receiver; the guide says so."""
    columns = ("to", "body", "order")
    async with friends("boss", "bee", "cat") as server, receiver(server) as bodies:
        options = login(server) | {"id": "order", "store": str(tmp_path)}
        rows = [
            Row(to=BEE, body="first", order="1"),
            Row(to=BEE, body="again", order="1"),
            Row(to=BEE, body="second", order="2"),
        ]
        for batch, partition in ((1, 0), (2, 1)):
            writer = XmppStreamWriter(options, schema(*columns))
            await write(writer, rows, batch=batch, partition=partition)
        assert bodies == {"first": 1, "second": 1}
        async with logged_in(server, "cat/1") as cat:
            arrived = asyncio.Event()
            cat.add_event_handler("message", lambda _: arrived.set())
            await write(writer, [Row(to="cat@localhost/1", body="f", order="1")])
            await arrived.wait()


async def test_the_same_id_with_other_content_is_a_conflict_in_a_queue() -> None:
    """In the batch, or in a later one; the error names the row."""
    async with shop() as (server, owner):
        options = queue(server, id="order")
        writer = QueueStreamWriter(options, schema("payload", "order"))
        rows = [Row(payload="<x/>", order="1"), Row(payload="<x/>", order="1")]
        for batch in (1, 2):
            assert await write(writer, rows, batch=batch) == 2
        for batch in (2, 3):
            other = [*rows, Row(payload="<y/>", order="1")]
            with pytest.raises(RowFailed, match=r"row 3 of partition 0: .*conflict"):
                await write(writer, other, batch=batch)
        stats = await owner.stats(SERVICE, NODE)
        assert stats["available"] == 1


# -- queries of Spark --------------------------------------------------------


class Restarts:
    """Two queries that write lines, restarted between the sink and Spark's commit."""

    def __init__(self, spark: SparkSession, server: LoopbackServer, folder: Path):
        self._spark = spark
        self._server = server
        self._folder = folder
        self._flag = folder / "flag"
        self._lines = folder / "lines"
        self._lines.mkdir()
        for form in (UncommittedQueue, UncommittedXmpp):
            spark.dataSource.register(form)

    def add(self, name: str, count: int) -> list[str]:
        """A file of lines for both queries."""
        lines = [f"{name}-{number}" for number in range(count)]
        new = self._folder / name
        new.write_text("\n".join(lines))
        new.rename(self._lines / f"{name}.txt")
        return lines

    async def run(self, partitions: int, *, commits: bool) -> None:
        """Write the batch of each query with so many partitions."""
        if commits:
            self._flag.unlink(missing_ok=True)
        else:
            self._flag.touch()
        payload = "concat('<x xmlns=\"u\">', value, '</x>') AS payload"
        items = queue(self._server)
        messages = login(self._server) | {"store": str(self._folder / "store")}
        written = (
            ("uncommitted-queue", items, (payload,)),
            ("uncommitted-xmpp", messages, (f"'{BEE}' AS to", "value AS body")),
        )
        await asyncio.gather(
            *(
                asyncio.to_thread(self._run, partitions, commits, *query)
                for query in written
            )
        )

    def _run(
        self,
        partitions: int,
        commits: bool,
        form: str,
        options: dict[str, str],
        columns: tuple[str, ...],
    ) -> None:
        java = cast(Any, self._spark)
        # Spark asks for a format the session of the thread.
        of = java._get_j_spark_session_class(java._jvm)
        of.setActiveSession(java._jsparkSession)
        lines = self._spark.readStream.text(str(self._lines))
        query = (
            lines.repartition(partitions)
            .selectExpr(*columns)
            .writeStream.format(form)
            .options(**options, **WHOLE, flag=str(self._flag))
            .option("checkpointLocation", str(self._folder / form))
            .trigger(availableNow=True)
            .start()
        )
        if commits:
            query.awaitTermination()
        else:
            with pytest.raises(PySparkException, match="the flag is there"):
                query.awaitTermination()


async def each_row_is_written_once(
    spark: SparkSession, folder: Path, batches: Sequence[Sequence[int]], *, lines: int
) -> None:
    """Write batches, each with these numbers of partitions; the last run commits it."""
    async with shop() as (server, owner), receiver(server) as bodies:
        queries = Restarts(spark, server, folder)
        written: list[str] = []
        for number, runs in enumerate(batches):
            written += queries.add(f"batch{number}", lines)
            for partitions in runs[:-1]:
                await queries.run(partitions, commits=False)
            await queries.run(runs[-1], commits=True)
            payloads = [item.payload async for item in owner.browse(SERVICE, NODE)]
            assert sorted(payloads) == sorted(
                f"<x xmlns='u'>{line}</x>" for line in written
            )
            assert bodies == Counter(written)
    most = max(itertools.chain(*batches))
    assert len(outstanding(folder / "store")) == most


@pytest.mark.timeout(300)
@pytest.mark.xdist_group("spark")
async def test_a_restart_with_other_partitions_writes_each_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Between the sink and the commit: with 4 of them instead of 1."""
    await each_row_is_written_once(spark, tmp_path, [[1, 4]], lines=40)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("spark")
async def test_twenty_restarts_with_each_number_of_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    """1, 2, 4 and 7 of them, after each other number: each row is written once."""
    orders = itertools.islice(itertools.permutations([1, 2, 4, 7]), 20)
    batches = [[order[-1], *order] for order in orders]
    await each_row_is_written_once(spark, tmp_path, batches, lines=14)
