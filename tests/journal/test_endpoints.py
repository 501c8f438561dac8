"""The journals of real endpoints: on a server, with their stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from slixmpp import ClientXMPP, ComponentXMPP

from journals import read_journal
from qos.core.message.model import Level
from qos.errors import JournalError
from qos.journal.writer import JournalWriter
from qos.stores import store_from_url
from qos.testing import LoopbackServer, friends, logged_in
from qos.testing.clients import close
from qos.worker import Job, Worker
from waiting import LIMIT_S, limit, until
from worker_setup import NODE, QUEUE, SECRET, Handler, Queue
from xep_0254 import QueueService
from xep_qos import XEP_QOS

ALICE, BOB = "alice@localhost/1", "bob@localhost/1"


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    async with friends("alice", "bob", "owner", components={QUEUE: SECRET}) as server:
        yield server


def options(folder: Path, name: str, **more: Any) -> dict[str, Any]:
    url = f"sqlite:{folder}/{name}.db"
    return {"xep_qos": {"store": url, "journal": folder / "journal", **more}}


def told(
    folder: Path, role: str, *names: str, without: tuple[str, ...] = ()
) -> list[tuple[Any, ...]]:
    """These fields of the lines of a role, the event first."""
    return [
        tuple(line.get(name) for name in ("event", *names))
        for line in read_journal(folder)
        if line["role"] == role and line["event"] not in without
    ]


def takes(client: ClientXMPP) -> None:
    """An application that takes each message with a body."""
    client.add_event_handler("message", lambda _message: None)


async def send(alice: ClientXMPP, level: Level) -> str:
    message = alice.make_message(BOB, mbody="a secret")
    delivery = await XEP_QOS.of(alice).submit(message, level=level)
    return (await delivery.outcome()).status.value


async def test_both_ends_tell_the_life_of_an_assured_message(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """Each step once, in order, under one id; and nothing of its contents."""
    async with (
        logged_in(server, "alice/1", options(tmp_path, "alice")) as alice,
        logged_in(server, "bob/1", options(tmp_path, "bob"), prepare=takes),
    ):
        assert await send(alice, Level.ASSURED) == "delivered"
    journal = tmp_path / "journal"
    assert told(journal, "sender", "attempt", "node") == [
        ("accepted", None, ALICE),
        ("offered", 1, ALICE),
        ("received", None, ALICE),
        ("released", 2, ALICE),
        ("delivered", 2, ALICE),
    ]
    assert told(journal, "receiver", "node") == [
        ("held", BOB),
        ("released", BOB),
        ("handed-over", BOB),
        ("done", BOB),
    ]
    lines = read_journal(journal)
    same = {(line["msg_id"], line["from"], line["to"]) for line in lines}
    assert len(same) == 1
    assert {line["level"] for line in lines} == {"assured"}
    first, held = lines[0], told(journal, "receiver", "bytes")[0]
    assert held == ("held", first["bytes"])
    assert "secret" not in str(lines)


async def test_both_ends_know_an_acknowledged_message_by_the_same_id(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """It has no id of its own on the wire: the id of the iq is used."""
    async with (
        logged_in(server, "alice/1", options(tmp_path, "alice")) as alice,
        logged_in(server, "bob/1", options(tmp_path, "bob"), prepare=takes),
    ):
        assert await send(alice, Level.ACKNOWLEDGED) == "delivered"
    journal = tmp_path / "journal"
    sent, taken = told(journal, "sender"), told(journal, "receiver")
    assert sent == [("accepted",), ("offered",), ("delivered",)]
    assert taken == [("released",), ("handed-over",), ("done",)]
    assert len({line["msg_id"] for line in read_journal(journal)}) == 1


@pytest.mark.parametrize("level", [Level.ASSURED, Level.ACKNOWLEDGED])
async def test_a_message_that_nobody_takes_is_refused_and_not_handed_over(
    server: LoopbackServer,
    tmp_path: Path,
    level: Level,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An assured message is still to be handed over; an acknowledged one has ended."""
    async with (
        logged_in(server, "alice/1", options(tmp_path, "alice")) as alice,
        logged_in(server, "bob/1", options(tmp_path, "bob")) as bob,
    ):
        sending = asyncio.create_task(send(alice, level))
        await until(lambda: "no handler has taken" in caplog.text)
        takes(bob)
        assert await sending == "delivered"
    condition = "unexpected-request"
    events = told(tmp_path / "journal", "receiver", "condition")
    untaken = events.index(("refused", condition))
    assured = level is Level.ASSURED
    assert events[untaken + 1] == (
        ("released", None) if assured else ("expired", condition)
    )
    assert events[-3:] == [("released", None), ("handed-over", None), ("done", None)]
    assert events.count(("handed-over", None)) == 1
    assert events.count(("held", None)) == (1 if assured else 0)


async def test_a_refusal_is_told_by_both(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """Both lines say who was refused, and why."""
    async with (
        logged_in(server, "alice/1", options(tmp_path, "alice")) as alice,
        logged_in(server, "bob/1", options(tmp_path, "bob", trust="carol@localhost")),
    ):
        assert await send(alice, Level.ASSURED) == "not delivered"
        # A peer that breaks the protocol is refused too.
        iq = alice.make_iq_set(ito=BOB)
        iq.append(_element("<assured xmlns='urn:xmpp:qos'/>"))
        with pytest.raises(Exception, match="bad-request"):
            await iq.send(timeout=LIMIT_S)  # type: ignore[no-untyped-call]
    journal = tmp_path / "journal"
    assert told(journal, "sender", "condition")[-1] == ("not-delivered", "not-allowed")
    assert told(journal, "receiver", "condition", "from") == [
        ("refused", "not-allowed", ALICE),
        ("refused", "bad-request", ALICE),
    ]


def _element(text: str) -> Any:
    from xml.etree import ElementTree as ET

    return ET.fromstring(text)  # noqa: S314 - our own


async def test_a_message_that_was_taken_back_is_withdrawn(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """It is not counted as a failure."""
    async with logged_in(server, "alice/1", options(tmp_path, "alice")) as alice:
        message = alice.make_message("nobody@localhost", mbody="x")
        delivery = await XEP_QOS.of(alice).submit(message, level=Level.ASSURED)
        await delivery.withdraw()
    assert told(tmp_path / "journal", "sender") == [("accepted",), ("withdrawn",)]


async def test_a_bad_folder_is_told_when_the_plugin_is_loaded(tmp_path: Path) -> None:
    """The store is closed again; otherwise a second attempt would be impossible."""
    file = tmp_path / "file"
    file.touch()
    client = ClientXMPP(ALICE, "x")
    config = options(tmp_path, "alice", journal=file)["xep_qos"]
    with pytest.raises(JournalError, match=str(file)):
        client.register_plugin("xep_qos", config)
    store = store_from_url(config["store"])
    store.open()
    await store.close()
    for wrong in ("", 5):
        with pytest.raises(ValueError, match="journal"):
            client.register_plugin("xep_qos", {"journal": wrong})
    await close(client)


# -- queues ----------------------------------------------------------------


class _Journaled(Queue):
    """A queue service with a journal."""

    folder: Path

    async def start(self) -> None:
        component = ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's lack
            QUEUE, SECRET, self._server.host, self._server.component_port
        )
        service = QueueService(component, self._url, journal=self.folder)
        self._running = component, service
        component.connect()
        await component.wait_until("session_start", timeout=LIMIT_S)


async def test_a_queue_and_its_worker_tell_the_same(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """Accepted, released, failed, rejected: by the id of the item, and the attempt."""
    journal = tmp_path / "journal"
    async with (
        logged_in(server, "owner/1", {"xep_0254": {}}) as owner,
        logged_in(server, "bob/1", {"xep_0254": {}}) as bob,
    ):
        queue = _Journaled(server, tmp_path / "queues.db", owner)
        queue.folder = journal
        await queue.start()
        await queue.create()
        await queue.publish("a")
        writer = JournalWriter(journal, BOB)
        async with Worker(bob, QUEUE, NODE, journal=writer, grace_s=0) as worker:
            await (await anext(worker)).release()
            await (await anext(worker)).modify()
            await (await anext(worker)).accept()
            await queue.publish("b")
            await (await anext(worker)).reject("a secret")
            await queue.publish("c")
            await anext(worker)
        await writer.close()
        await queue.stop()
    assert told(journal, "queue", "item", "attempt", "to", "from", "condition") == [
        ("published", "a", None, None, "owner@localhost", None),
        ("acquired", "a", 1, BOB, None, None),
        ("released", "a", None, None, BOB, None),
        ("acquired", "a", 1, BOB, None, None),
        ("modified", "a", None, None, BOB, "failed"),
        ("acquired", "a", 2, BOB, None, None),
        ("accepted", "a", None, None, BOB, None),
        ("published", "b", None, None, "owner@localhost", None),
        ("acquired", "b", 1, BOB, None, None),
        ("rejected", "b", None, None, BOB, "rejected"),
        ("dead", "b", None, None, None, "rejected"),
        ("published", "c", None, None, "owner@localhost", None),
        ("acquired", "c", 1, BOB, None, None),
        ("released", "c", None, None, BOB, None),
    ]
    assert told(journal, "worker", "item", "attempt", "from", "condition") == [
        ("started", "a", 1, QUEUE, None),
        ("released", "a", None, QUEUE, None),
        ("started", "a", 1, QUEUE, None),
        ("modified", "a", None, QUEUE, "failed"),
        ("started", "a", 2, QUEUE, None),
        ("accepted", "a", None, QUEUE, None),
        ("started", "b", 1, QUEUE, None),
        ("rejected", "b", None, QUEUE, None),
        ("started", "c", 1, QUEUE, None),
        ("released", "c", None, QUEUE, "stopped"),
    ]
    lines = read_journal(journal)
    assert {line["queue"] for line in lines} == {NODE}
    assert {line["node"] for line in lines} == {QUEUE, BOB}
    assert "secret" not in str(lines)


async def test_a_job_that_is_lost_is_told_once(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """Later acts of its handler have no effect."""
    journal = tmp_path / "journal"
    async with (
        logged_in(server, "owner/1", {"xep_0254": {}}) as owner,
        logged_in(server, "bob/1", {"xep_0254": {}}) as bob,
    ):
        queue = _Journaled(server, tmp_path / "queues.db", owner)
        queue.folder = journal
        await queue.start()
        await queue.create()
        await queue.publish("a")
        writer = JournalWriter(journal, BOB)
        handler = Handler()
        handler.go_on.clear()
        async with Worker(bob, QUEUE, NODE, journal=writer) as worker:
            working = asyncio.create_task(worker.run(handler))
            await until(lambda: len(handler.jobs) == 1)
            job: Job = handler.jobs[0]
            await queue.owner.purge(QUEUE, NODE)
            async with limit():
                await job.lost.wait()
            handler.go_on.set()
            worker.stop()
            await working
        await writer.close()
        await queue.stop()
    assert told(journal, "worker") == [("started",), ("lost",)]
    assert told(journal, "queue") == [("published",), ("acquired",), ("purged",)]
