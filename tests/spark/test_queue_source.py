"""The source `xmpp-queue` as Spark uses it, without a JVM: on the embedded server.

The test does what Spark does: it writes `offsets/N`, reads, and writes `commits/N`. With
Spark, Prosody and kills: see test_queue_live.py.
"""

import asyncio
import contextlib
import json
import os
import pickle
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from qos.errors import CannotConnect, RequestRefused
from qos.spark.landed_items import LandingError
from qos.spark.options import BadOption
from qos.spark.queue_checkpoint import CheckpointError
from qos.spark.queue_source import QueueStreamReader, check_source_options
from qos.testing import LoopbackServer, friends, logged_in, queue_service
from waiting import limit, until
from xep_0254 import XEP_0254, NewItem

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

SERVICE, NODE = "queue.localhost", "orders"


class Shop:
    """A queue, its owner, and queries that read it."""

    def __init__(self, folder: Path, server: LoopbackServer, owner: XEP_0254) -> None:
        self.folder = folder
        self.server = server
        self.owner = owner
        self.queries: list[Query] = []

    async def publish(self, *names: str) -> None:
        items = [NewItem(f"<o xmlns='urn:o'>{name}</o>", name) for name in names]
        await self.owner.publish(SERVICE, NODE, items)

    async def stats(self) -> dict[str, float | None]:
        stats = await self.owner.stats(SERVICE, NODE)
        return {name: stats[name] for name in ("available", "acquired", "accepted")}

    async def empty(self, accepted: int) -> None:
        """Wait until all is retracted, each of so many once."""
        wanted = {"available": 0, "acquired": 0, "accepted": accepted}

        async def as_wanted() -> bool:
            return await self.stats() == wanted

        await until(as_wanted)

    def options(self, **options: str) -> dict[str, str]:
        given = {
            "jid": "bee@localhost",
            "password": "secret",
            "host": self.server.host,
            "port": str(self.server.port),
            "tls": "off",
            "service": SERVICE,
            "node": NODE,
            "landing": str(self.folder / "landing"),
            "checkpoint": str(self.folder / "checkpoint"),
        }
        return given | {name.replace("_", "-"): text for name, text in options.items()}

    def query(self, **options: str) -> "Query":
        query = Query(self.folder / "checkpoint", self.options(**options))
        self.queries.append(query)
        return query


class Query:
    """The calls of Spark to a source, one run of it."""

    def __init__(self, checkpoint: Path, options: dict[str, str]) -> None:
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True, exist_ok=True)
        (checkpoint / "metadata").write_text('{"id":"x"}')
        self.checkpoint = checkpoint
        self.reader = QueueStreamReader(options)

    def _offset(self, batch: int) -> Any:
        text = (self.checkpoint / "offsets" / str(batch)).read_text()
        return json.loads(text.splitlines()[-1])

    def _last(self, kind: str) -> int:
        names = os.listdir(self.checkpoint / kind)
        return max(map(int, names), default=-1)

    def _batch(self, commit: bool, most: int) -> list[Any]:
        done, planned = self._last("commits"), self._last("offsets")
        start = self._offset(done) if done >= 0 else self.reader.initialOffset()
        if planned > done:
            end = self._offset(planned)
        else:
            end = self.reader.latestOffset(start, ReadMaxRows(most))
            if end == start:
                return []
            planned = done + 1
            text = f'v1\n{{"conf":{{}}}}\n{json.dumps(end)}'
            (self.checkpoint / "offsets" / str(planned)).write_text(text)
            if done >= 0:
                self.reader.commit(start)
        # A task gets both by pickle.
        tasks = pickle.dumps((self.reader, self.reader.partitions(start, end)))
        task, parts = pickle.loads(tasks)  # noqa: S301 - our own
        rows = [row for part in parts for row in task.read(part)]
        if commit:
            (self.checkpoint / "commits" / str(planned)).write_text("v1\n{}")
        return rows

    async def batch(self, *, commit: bool = True, most: int = 500) -> list[str]:
        """The ids of the rows of the next batch."""
        rows = await asyncio.to_thread(self._batch, commit, most)
        return [row[0] for row in rows]

    async def batches(self, *wanted: str) -> None:
        """Run batches until all these rows have come, each once."""
        rows: list[str] = []
        async with limit():
            while len(rows) < len(wanted):
                rows += await self.batch()
        assert sorted(rows) == sorted(wanted)

    async def stop(self) -> None:
        await asyncio.to_thread(self.reader.stop)

    async def kill(self) -> None:
        """End without a word, as after `kill -9`; locks stay."""
        running, self.reader._running = self.reader._running, None
        assert running is not None
        await asyncio.to_thread(running._background.close)
        running.landing.close()


@contextlib.asynccontextmanager
async def open_shop(folder: Path, **config: str) -> AsyncIterator[Shop]:
    options = {
        "pubsub#access_model": "open",
        "queue#backoff": "0",
        "queue#keep_accepted": "3600",
        **{f"queue#{name}": text for name, text in config.items()},
    }
    async with (
        friends("boss", "bee", components={SERVICE: "secret"}) as server,
        queue_service(server, SERVICE),
        logged_in(server, "boss", {"xep_0254": {}}) as boss,
    ):
        owner = XEP_0254.of(boss)
        await owner.create(SERVICE, NODE, options)
        shop = Shop(folder, server, owner)
        try:
            yield shop
        finally:
            for query in shop.queries:
                await query.stop()


NAMES = [f"i{number}" for number in range(25)]


async def test_items_are_rows_and_gone_when_their_batch_is_done(tmp_path: Path) -> None:
    """Also the last batch of a query that continues without a further item."""
    async with open_shop(tmp_path) as shop:
        began = time.time()
        await shop.owner.publish(
            SERVICE, NODE, [NewItem("<o xmlns='urn:o'/>", "first", priority=9)]
        )
        query = shop.query()
        (row,) = await asyncio.to_thread(query._batch, True, 10)
        item_id, payload, publisher, published, count, priority = row
        assert (item_id, payload) == ("first", "<o xmlns='urn:o'/>")
        assert (publisher, count, priority) == ("boss@localhost", 0, 9)
        # As text, a time may be cut to a second.
        assert began - 1 <= published.timestamp() <= time.time()
        await shop.empty(1)
        await shop.publish(*NAMES)
        await query.batches(*NAMES)
        await shop.empty(26)


async def test_stop_retracts_the_last_batch_and_gives_back_the_rest(
    tmp_path: Path,
) -> None:
    """Spark does not report it: the source finds it out."""
    async with open_shop(tmp_path, lock_timeout="60") as shop:
        await shop.publish("done", "planned", "waiting")
        query = shop.query()
        assert await query.batch(most=1) == ["done"]
        await query.stop()
        assert await shop.stats() == {"available": 2, "acquired": 0, "accepted": 1}
        again = shop.query()
        assert await again.batch(most=1, commit=False) == ["planned"]
        await again.stop()
        await again.stop()
        assert await shop.stats() == {"available": 2, "acquired": 0, "accepted": 1}
        last = shop.query()
        # What was planned is in the landing, and is not asked for anew.
        assert await last.batch() == ["planned"]
        assert await last.batch() == ["waiting"]
        await shop.empty(3)


async def test_what_was_done_before_a_kill_is_retracted_at_the_next_start(
    tmp_path: Path,
) -> None:
    """With the token in the landing, while the lock lives."""
    async with open_shop(tmp_path, lock_timeout="60") as shop:
        await shop.publish(*NAMES)
        query = shop.query(max_items="10")
        first = await query.batch()
        assert len(first) == 10

        async def holds_more() -> bool:
            return (await shop.stats())["acquired"] == 20

        await until(holds_more)
        await query.kill()
        assert (await shop.stats())["acquired"] == 20
        again = shop.query(max_items="10")
        await again.batches(*(name for name in NAMES if name not in first))
        await shop.empty(25)


async def test_an_item_that_comes_again_is_known(tmp_path: Path) -> None:
    """Its lock has ended while no query ran: it has a newer token."""
    async with open_shop(tmp_path, lock_timeout="0.3", max_deliveries="100") as shop:
        await shop.publish("done", "planned", "waiting")
        query = shop.query(lock="0.3")
        assert await query.batch(most=1) == ["done"]
        assert await query.batch(most=1, commit=False) == ["planned"]
        await query.kill()

        async def timed_out() -> bool:
            return not (await shop.stats())["acquired"]

        await until(timed_out)
        again = shop.query(lock="0.3")
        await again.batches("planned", "waiting")
        await shop.empty(3)
        assert await again.batch() == []


async def test_files_that_are_done_with_are_removed(tmp_path: Path) -> None:
    """Payloads are not kept for ever; ids are."""
    async with open_shop(tmp_path) as shop:
        await shop.publish(*NAMES)
        query = shop.query(max_items="5")
        await query.batches(*NAMES)

        async def removed() -> bool:
            return not list((tmp_path / "landing").glob("items-*"))

        await until(removed)
        await query.stop()
        await shop.publish("later")
        await shop.query().batches("later")


async def test_available_now_takes_what_is_there_and_ends(tmp_path: Path) -> None:
    """More than may be held at a time; and nothing of an empty queue."""
    async with open_shop(tmp_path) as shop:
        query = shop.query(max_items="3")
        await asyncio.to_thread(query.reader.prepareForTriggerAvailableNow)
        assert await query.batch() == []
        await query.stop()
        await shop.publish(*NAMES)
        query = shop.query(max_items="3")
        await asyncio.to_thread(query.reader.prepareForTriggerAvailableNow)
        await shop.publish("later")
        rows: list[str] = []
        while batch := await query.batch(most=3):
            rows += batch
        assert sorted(rows) == sorted(NAMES)
        await query.stop()
        assert await shop.stats() == {"available": 1, "acquired": 0, "accepted": 25}


async def test_two_that_claim_have_each_item_once_together(tmp_path: Path) -> None:
    """For a node with other consumers.

    The items shown are ours, and gone from the queue.
    """
    async with open_shop(tmp_path) as shop:
        queries = []
        for name in "ab":
            (tmp_path / name).mkdir()
            options = shop.options(
                mode="claim",
                max_items="4",
                landing=str(tmp_path / name / "landing"),
                checkpoint=str(tmp_path / name / "checkpoint"),
            )
            queries.append(Query(tmp_path / name / "checkpoint", options))
        shop.queries += queries
        await shop.publish(*NAMES)
        rows: list[str] = []
        async with limit():
            while len(rows) < len(NAMES):
                for batch in await asyncio.gather(*(each.batch() for each in queries)):
                    rows += batch
        assert sorted(rows) == sorted(NAMES)
        await shop.empty(25)


async def test_a_claim_that_a_kill_interrupted_is_settled_at_the_next_start(
    tmp_path: Path,
) -> None:
    """Whether the service had got it or not; items that are not ours are dropped."""
    async with open_shop(tmp_path, lock_timeout="60") as shop:
        await shop.publish("unheard", "heard", "taken")
        query = shop.query(mode="claim")
        await asyncio.to_thread(query.reader.initialOffset)
        running = query.reader._running
        assert running is not None

        async def have_come() -> bool:
            return running.waiting == 3

        await until(have_come)
        jobs = dict(running._receiver._buffer)
        running.landing.claim([job.item for job in jobs.values()])
        run = running._background.run
        await asyncio.to_thread(run, jobs["heard"].accept())
        await asyncio.to_thread(run, jobs["taken"].reject())
        await query.kill()
        again = shop.query(mode="claim")
        await again.batches("unheard", "heard")
        assert (await shop.stats())["acquired"] == 0
        assert not list((tmp_path / "landing").glob("claim-*"))


async def test_a_disk_that_fails_ends_the_query(tmp_path: Path) -> None:
    """Not only its hidden part: otherwise nothing would be retracted any more."""
    async with open_shop(tmp_path) as shop:
        query = shop.query()
        await asyncio.to_thread(query.reader.initialOffset)
        running = query.reader._running
        assert running is not None
        running.landing._db.close()
        await shop.publish("a")

        async def failed() -> bool:
            try:
                await query.batch()
            except sqlite3.Error:
                return True
            return False

        await until(failed)


# -- what is refused -------------------------------------------------------


async def test_a_checkpoint_and_a_landing_belong_together(tmp_path: Path) -> None:
    """If one is lost, or belongs to another, the error is one line.

    Nothing is guessed.
    """
    async with open_shop(tmp_path) as shop:
        await shop.publish("a", "b")
        query = shop.query()
        assert await query.batch(most=1) == ["a"]
        assert await query.batch(most=1) == ["b"]
        await query.stop()
        landing = tmp_path / "landing"

        async def refused(kind: type[Exception], said: str, **options: str) -> None:
            with pytest.raises(kind, match=said):
                await shop.query(**options).batch()

        other = {"landing": str(tmp_path / "other")}
        await refused(LandingError, "checkpoint belongs to another one", **other)
        nowhere = {"checkpoint": str(tmp_path / "nowhere")}
        await refused(CheckpointError, "must be the checkpointLocation", **nowhere)
        empty = tmp_path / "empty"
        empty.mkdir()
        (empty / "metadata").write_text("{}")
        await refused(CheckpointError, "landing has another one", checkpoint=str(empty))
        await shop.queries[-1].stop()
        # The query is begun anew, with a landing of which it has had something.
        shutil.rmtree(tmp_path / "checkpoint")
        await refused(LandingError, "begin with a new landing")
        await shop.queries[-1].stop()
        about = (landing / "landing.json").read_text()
        shutil.rmtree(landing)
        landing.mkdir()
        (landing / "landing.json").write_text(about)
        (tmp_path / "checkpoint" / "offsets").mkdir(parents=True, exist_ok=True)
        query = shop.query()
        offset = {"landing": json.loads(about)["landing"], "next": 2}
        (tmp_path / "checkpoint" / "offsets" / "0").write_text(json.dumps(offset))
        (tmp_path / "checkpoint" / "commits" / "0").write_text("v1")
        with pytest.raises(LandingError, match="it ends before file 2: files were"):
            await query.batch()


async def test_a_service_that_refuses_is_one_line(tmp_path: Path) -> None:
    """No such node, no such account: what Spark shows as the reason."""
    async with open_shop(tmp_path) as shop:
        with pytest.raises(RequestRefused, match="item-not-found"):
            await shop.query(node="nowhere").batch()
        landing = str(tmp_path / "second")
        with pytest.raises(CannotConnect, match="refused the login: not-authorized"):
            await shop.query(password="wrong", landing=landing).batch()  # noqa: S106


GOOD = {
    "jid": "bee@localhost",
    "password": "secret",
    "service": SERVICE,
    "node": NODE,
    "landing": "/landing",
    "checkpoint": "/checkpoint",
}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"jid": ""}, "option jid: '' is not a JID"),
        ({"jid": None}, "option jid is needed"),
        ({"jid": "localhost"}, "jid localhost: an account has the form user@domain"),
        ({"password": ""}, "password"),
        ({"port": "x"}, "option port: 'x'"),
        ({"tls": "no"}, "option tls: invalid choice: 'no'"),
        ({"tls": "off", "host": "example.org"}, "option tls off is for a loopback"),
        ({"service": None}, "option service: it is missing"),
        ({"landing": None, "node": None}, "option node, landing: it is missing"),
        ({"landing": "relative"}, "option landing: 'relative' is not an absolute path"),
        ({"mode": "take"}, "option mode: invalid choice: 'take'"),
        ({"lock": "-1"}, "option lock: '-1'"),
        ({"max-items": "501"}, "max-items: '501' is not a whole number from 1 to 500"),
        ({"colour": "red"}, "there is no option 'colour'"),
        ({"debug": "1"}, "there is no option 'debug'"),
    ],
)
def test_a_bad_option_is_one_line(
    given: dict[str, str | None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the option; and no password is in it."""
    monkeypatch.delenv("XMPP_QOS_PASSWORD", raising=False)
    options = {key: text for key, text in (GOOD | given).items() if text is not None}
    with pytest.raises(BadOption) as caught:
        check_source_options(options)
    assert said in str(caught.value)
    assert str(caught.value).startswith("xmpp-queue: ")
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_password_is_not_sent_to_the_tasks() -> None:
    """They read files."""
    assert b"secret" not in pickle.dumps(QueueStreamReader(GOOD))
    assert b"secret" in pickle.dumps(GOOD)
