"""The lines of the engines when the disk fails, with real stores."""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from journals import read_journal
from qos.core.backoff import Backoff
from qos.core.message.effects import Answer, Report, Transmit
from qos.core.message.model import Incoming, Level, Outgoing, Route
from qos.core.message.receiver_table import Request
from qos.core.queue.effects import Notification
from qos.core.queue.requests import (
    Create,
    Publish,
    PublishedItem,
    Refusal,
    Subscribe,
)
from qos.core.queue.requests import Request as QueueRequest
from qos.core.queue.results import Result
from qos.engine import Inbox, InboxLimits, Outbox, OutboxLimits
from qos.engine.queue_engine import QueueEngine
from qos.engine.queue_outputs import Payloads, QueuePort
from qos.errors import StoreFull
from qos.journal.writer import JournalWriter
from qos.stores import SqliteStore
from qos.stores.queue_store import SqliteQueueStore
from qos.testing.clock import ManualClock

NODE = "node@example.org/1"
LAMP = "lamp@example.org/1"
PAYLOAD = "<message xmlns='jabber:client'/>"
#: A reader takes a line of 1970 for a bad one.
NOW = 1_800_000_000.0


class Disk:
    """A disk that is full for a while."""

    full = False

    def __call__(self, _step: str) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Bench:
    """An outbox and an inbox without a peer that answers."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(NOW)
        self.disk = Disk()
        self.store = SqliteStore(folder / "store")
        self.store.probe = self.disk
        contents = self.store.open()
        self.folder = folder / "journal"
        self.journal = JournalWriter(self.folder, NODE, now=self.clock.now)
        self.store.journal = self.journal
        self.answers: list[Answer] = []
        self._ids = itertools.count()
        self.outbox = Outbox(
            self.store,
            contents,
            self,
            clock=self.clock,
            backoff=Backoff(),
            limits=OutboxLimits(window=1),
            journal=self.journal,
        )
        self.inbox = Inbox(
            self.store,
            contents,
            self,
            clock=self.clock,
            limits=InboxLimits(),
            journal=self.journal,
        )

    async def submit(self) -> None:
        await self.outbox.submit(LAMP, PAYLOAD, level=Level.ASSURED)

    async def close(self) -> None:
        self.outbox.stop()
        self.inbox.stop()
        await self.store.close()
        await self.journal.close()

    def route(self, record: Outgoing) -> Route | None:
        return Route(record.to)

    def transmit(self, transmit: Transmit) -> bool:
        return True

    def ping(self) -> bool:
        return True

    def answer(self, request: Request, answer: Answer) -> None:
        self.answers.append(answer)

    def consumption(self, record: Incoming) -> None:
        """None: no message has a consumer."""

    def hand_over(self, record: Incoming) -> bool:
        raise AssertionError(record)

    def report(self, source: str, report: Report) -> None:
        pass

    def new_id(self) -> str:
        return f"id{next(self._ids)}"

    new_msg_id = new_id

    def jitter(self) -> float:
        return 0.0

    async def lines(self) -> list[tuple[Any, ...]]:
        await self.close()
        return [
            (line["event"], line.get("condition")) for line in read_journal(self.folder)
        ]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.close()


@pytest.mark.parametrize("waiting", [False, True], ids=["under way", "queued"])
async def test_a_message_that_was_not_accepted_was_not_delivered(
    bench: Bench, waiting: bool
) -> None:
    """Its sender got an error; a reader must not wait for its end."""
    if waiting:
        await bench.submit()
    bench.disk.full = True
    with pytest.raises(StoreFull):
        await bench.submit()
    bench.disk.full = False
    ended = [("accepted", None), ("not-delivered", "not-stored")]
    assert await bench.lines() == [("accepted", None)] * waiting + ended


async def test_a_step_that_was_not_written_is_noted_again_when_it_is(
    bench: Bench,
) -> None:
    """The first line was premature: the last one counts."""
    bench.outbox.session_started(NODE)
    bench.disk.full = True
    with pytest.raises(StoreFull):
        await bench.submit()
    bench.disk.full = False
    await bench.submit()
    events = await bench.lines()
    assert events == [
        ("accepted", None),
        ("offered", None),
        ("not-delivered", "not-stored"),
        ("accepted", None),
        ("offered", None),
    ]


@pytest.mark.looptime
async def test_what_waits_for_a_transaction_is_shown_to_no_reader_before(
    bench: Bench,
) -> None:
    """After a kill before its commit, no store has it, and it would never end."""
    bench.journal._rotate_s = 1.0
    transaction = bench.store.transaction()
    # In a context of its own, like a consumer.
    await asyncio.create_task(transaction.execute("CREATE TABLE lamps (name TEXT)"))
    accepted = asyncio.create_task(bench.submit())
    await asyncio.sleep(60)
    events = [line["event"] for line in read_journal(bench.folder, hidden=True)]
    assert events == ["accepted"]
    assert not accepted.done()
    assert read_journal(bench.folder) == []
    transaction.rollback()
    await accepted
    assert await bench.lines() == [("accepted", None)]


@pytest.mark.parametrize("kind", ["assured", "acknowledged"])
async def test_a_message_that_could_not_be_kept_has_expired(
    bench: Bench, kind: Any
) -> None:
    """Its sender was told to try again."""
    assured = kind == "assured"
    request = Request(
        kind=kind,
        iq_id="iq1",
        source=LAMP,
        to=NODE,
        namespace="urn:xmpp:qos",
        msg_id="m1" if assured else "",
        payload=PAYLOAD,
        size=len(PAYLOAD),
    )
    bench.disk.full = True
    bench.inbox.request(request, trusted=True)
    await bench.store._commits.drain()
    assert [answer.condition for answer in bench.answers] == ["resource-constraint"]
    bench.disk.full = False
    assert await bench.lines() == [
        ("held" if assured else "released", None),
        ("expired", "not-stored"),
        ("refused", "resource-constraint"),
    ]


class _Port(QueuePort):
    def __init__(self) -> None:
        self._ids = itertools.count()

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        return [(self.new_id(), items)]

    def notify(self, notification: Notification) -> None:
        pass

    def probe(self, jid: str) -> None:
        pass

    def new_id(self) -> str:
        return f"id{next(self._ids)}"


async def test_an_item_that_was_not_stored_was_withdrawn(tmp_path: Path) -> None:
    """Its publisher was refused; the items of others continue as on disk."""
    clock, disk = ManualClock(NOW), Disk()
    store = SqliteQueueStore(tmp_path / "queues")
    store.probe = disk
    folder = tmp_path / "journal"
    engine = QueueEngine(
        store,
        _Port(),
        clock=clock,
        journal=lambda store_id: JournalWriter(folder, NODE, store_id=store_id),
    )

    async def ask(request: QueueRequest, by: str = NODE) -> Result | Refusal:
        done: asyncio.Future[Result | Refusal]
        done = asyncio.get_running_loop().create_future()

        def answer(result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
            done.set_result(result)

        engine.request(request, by, answer)
        return await done

    def entry(item_id: str) -> PublishedItem:
        return PublishedItem(item_id=item_id, payload="<x/>", digest=item_id, size=4)

    engine.online()
    times = {"queue#lock_timeout": "10", "queue#backoff": "0"}
    await ask(Create("q", {**times, "pubsub#access_model": "open"}))
    await ask(Subscribe("q", LAMP, {"pubsub#queue_requests": "2"}), LAMP)
    await ask(Publish("q", (entry("a"),)))
    disk.full = True
    assert isinstance(await ask(Publish("q", (entry("b"),))), Refusal)
    disk.full = False
    clock.advance(1.0)
    clock.advance(10.0)
    await ask(Publish("q", (entry("c"),)))
    await engine.aclose()
    lines = [
        (line["event"], line["item"], line.get("condition"))
        for line in read_journal(folder)
    ]
    assert lines[:5] == [
        ("published", "a", None),
        ("acquired", "a", None),
        ("published", "b", None),
        ("acquired", "b", None),
        ("withdrawn", "b", "not-stored"),
    ]
    assert ("timed-out", "a", "timed out") in lines[5:]
