"""Connections get lost and services restart; a worker goes on."""

import asyncio
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP

from qos.core.queue.item import ItemOutcome
from qos.testing import Link, LoopbackServer
from qos.testing.clients import close
from qos.worker import Worker
from raw_client import local, stanza
from waiting import LIMIT_S, limit, until
from worker_setup import NODE, QUEUE, Handler, LogIn, Queue, ScriptedService
from xep_0254 import XEP_0254

NEVER_S = 3600.0


def options_of(request: ET.Element) -> dict[str | None, str | None]:
    """The values of the form in a request."""
    return {
        field.get("var"): field[0].text
        for field in request.iter()
        if local(field) == "field"
    }


async def test_a_worker_says_who_it_is_before_it_asks_for_items(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """The service hears of a worker's end only if it has seen its presence."""
    async with scripted.worker(bee, parallel=7, batch=3, durable_locks=True):
        presence = await scripted.component.expect(stanza("presence"))
        assert presence.get("from") == "bee@localhost/1"
        request = await scripted.asked("subscribe")
        (subscribe,) = (each for each in request.iter() if local(each) == "subscribe")
        assert subscribe.get("jid") == "bee@localhost/1"
        values = options_of(request)
        del values["FORM_TYPE"]
        assert values == {
            "pubsub#queue_requests": "7",
            "queue#batch": "3",
            "queue#durable_locks": "1",
            "queue#events": "message",
        }


async def test_a_handler_goes_on_while_the_worker_comes_back(
    bee: ClientXMPP, queue: Queue, server: LoopbackServer, log_in: LogIn
) -> None:
    """A connection that is lost is not a worker that died.

    No other worker of its account gets the item meanwhile.
    """
    await queue.create(max_deliveries=1)
    handler, sibling = Handler(), Handler()
    handler.go_on.clear()
    other = await log_in("bee/2")
    async with (
        Worker(bee, QUEUE, NODE, parallel=2) as worker,
        Worker(other, QUEUE, NODE) as second,
    ):
        await worker.subscribed()
        await second.subscribed()
        second.take_at_most(0)
        await queue.until(subscribers=1)
        await queue.publish("a", "b")
        working = asyncio.create_task(worker.run(handler))
        await until(lambda: len(handler.jobs) == 2)
        second.take_at_most(1)
        helping = asyncio.create_task(second.run(sibling))
        for _ in range(5):
            server.disconnect("bee@localhost/1")
            await bee.wait_until("session_start", timeout=LIMIT_S)
            await worker.ask()
        handler.go_on.set()
        await queue.until(accepted=2)
        for each in (worker, second):
            each.stop()
        await asyncio.gather(working, helping)
    assert [job.outcome for job in handler.jobs] == [ItemOutcome.ACCEPTED] * 2
    assert sibling.jobs == []


async def test_what_was_not_begun_when_the_connection_was_lost_is_begun_later(
    bee: ClientXMPP, queue: Queue, server: LoopbackServer
) -> None:
    """Its lock is the worker's as well."""
    await queue.create()
    async with Worker(bee, QUEUE, NODE, parallel=2) as worker:
        await worker.subscribed()
        await queue.publish("a", "b")
        first = await anext(worker)
        await queue.until(acquired=2)
        server.disconnect("bee@localhost/1")
        await bee.wait_until("session_start", timeout=LIMIT_S)
        await worker.ask()
        for job in (first, await anext(worker)):
            assert job.delivery_count == 0
            await job.accept()
    assert (await queue.stats())["accepted"] == 2


async def test_it_takes_its_locks_up_before_it_asks_for_more(
    bee: ClientXMPP, scripted: ScriptedService, server: LoopbackServer
) -> None:
    """What it holds counts when the service gives out more.

    And it is a new worker once only: later, items may have come.
    """
    async with scripted.worker(bee, lock_timeout_s=NEVER_S) as worker:
        await scripted.component.expect(stanza("presence"))
        request = await scripted.asked("subscribe")
        assert options_of(request)["queue#new_worker"] == "1"
        await scripted.answer(request)
        await scripted.deliver("i", "t")
        job = await anext(worker)
        server.disconnect("bee@localhost/1")
        await scripted.extended(await scripted.asked("extend"), NEVER_S)
        await scripted.component.expect(stanza("presence"))
        request = await scripted.asked("subscribe")
        assert "queue#new_worker" not in options_of(request)
        await scripted.answer(request)
        assert job.held


async def test_a_lock_that_is_over_is_not_taken_up(
    bee: ClientXMPP, scripted: ScriptedService, server: LoopbackServer
) -> None:
    """The service says so, and the worker goes on without this job."""
    async with scripted.holding(bee, lock_timeout_s=NEVER_S) as (_, job):
        server.disconnect("bee@localhost/1")
        await scripted.refuse(await scripted.asked("extend"), "item-not-found")
        await job.lost.wait()
        await scripted.subscribe()


@pytest.mark.parametrize("extend", [True, False])
async def test_a_lock_that_cannot_be_taken_up_now_is_tried_again(
    bee: ClientXMPP, scripted: ScriptedService, server: LoopbackServer, extend: bool
) -> None:
    """By the next extension, or when the job is settled; it is not lost."""
    options: dict[str, Any] = {"lock_timeout_s": NEVER_S, "extend": extend}
    async with scripted.holding(bee, **options) as (_, job):
        server.disconnect("bee@localhost/1")
        request = await scripted.asked("extend")
        await scripted.refuse(request, "resource-constraint", "wait")
        await scripted.component.expect(stanza("presence"))
        await scripted.answer(await scripted.asked("subscribe"))
        if extend:
            await scripted.extended(await scripted.asked("extend"), NEVER_S)
        assert job.held


async def test_a_worker_whose_locks_end_with_its_connection_comes_back(
    bee: ClientXMPP, queue: Queue, server: LoopbackServer
) -> None:
    """Its items count as failed and come again, and nothing is left behind."""
    await queue.create()
    handler = Handler()
    handler.go_on.clear()
    async with Worker(bee, QUEUE, NODE, resumable_locks=False) as worker:
        await worker.subscribed()
        await queue.publish("a", "b")
        working = asyncio.create_task(worker.run(handler))
        await until(lambda: handler.jobs)
        server.disconnect("bee@localhost/1")
        # The worker asks whether the lock is still its own; it is not.
        await handler.jobs[0].lost.wait()
        handler.go_on.set()
        await queue.until(accepted=2)
        worker.stop()
        await working
    again = [job for job in handler.jobs if job.outcome is ItemOutcome.ACCEPTED]
    assert sorted((job.id, job.delivery_count) for job in again) == [("a", 1), ("b", 0)]


async def test_what_was_not_begun_when_the_connection_was_lost_is_dropped(
    bee: ClientXMPP, queue: Queue, server: LoopbackServer
) -> None:
    """Its lock ended with the presence: beginning it now would be useless."""
    await queue.create()
    async with Worker(bee, QUEUE, NODE, parallel=2, resumable_locks=False) as worker:
        await worker.subscribed()
        await queue.publish("a", "b")
        first = await anext(worker)
        await queue.until(acquired=2)
        server.disconnect("bee@localhost/1")
        await first.lost.wait()
        again = [await anext(worker), await anext(worker)]
        assert {(job.id, job.delivery_count) for job in again} == {("a", 1), ("b", 1)}
        for job in again:
            await job.accept()


async def test_what_was_dropped_with_the_connection_is_taken_when_it_is_sent_again(
    bee: ClientXMPP, scripted: ScriptedService, server: LoopbackServer
) -> None:
    """The service may never have noticed the lost connection.

    Then the lock is still ours.
    """
    async with scripted.worker(bee, resumable_locks=False) as worker:
        await scripted.subscribe()
        await scripted.deliver("i", "t")
        await scripted.in_step()
        server.disconnect("bee@localhost/1")
        await scripted.answer(await scripted.asked("subscribe"))
        await scripted.deliver("i", "t")
        async with limit():
            job = await anext(worker)
        assert (job.id, job.token) == ("i", "t")
        assert not job.lost.is_set()


async def test_a_durable_lock_outlives_the_connection(
    bee: ClientXMPP, queue: Queue, server: LoopbackServer
) -> None:
    """A short gap must not cost a long job."""
    await queue.create()
    async with Worker(bee, QUEUE, NODE, durable_locks=True) as worker:
        await worker.subscribed()
        await queue.publish("i")
        async with await anext(worker) as job:
            server.disconnect("bee@localhost/1")
            await bee.wait_until("session_start", timeout=LIMIT_S)
        assert job.outcome is ItemOutcome.ACCEPTED
    stats = await queue.stats()
    assert (stats["accepted"], stats["available"]) == (1, 0)


async def test_a_worker_goes_on_when_the_service_has_restarted(
    bee: ClientXMPP, queue: Queue
) -> None:
    """Its locks hold, its subscription is there, and new items come."""
    await queue.create()
    async with Worker(bee, QUEUE, NODE, parallel=2, resubscribe_s=0.2) as worker:
        await worker.subscribed()
        await queue.publish("before")
        job = await anext(worker)
        await queue.stop()
        accepting = asyncio.create_task(job.accept())
        await queue.start()
        await accepting
        assert job.outcome is ItemOutcome.ACCEPTED
        await queue.publish("after")
        async with await anext(worker) as job:
            assert job.id == "after"
    assert (await queue.stats())["accepted"] == 2


async def test_a_worker_begins_when_the_service_comes(
    bee: ClientXMPP, queue: Queue
) -> None:
    """Machines start in any order."""
    await queue.create()
    await queue.publish("i")
    await queue.stop()
    handler = Handler()
    async with Worker(bee, QUEUE, NODE) as worker:
        working = asyncio.create_task(worker.run(handler))
        await queue.start()
        await queue.until(accepted=1)
        worker.stop()
        await working


async def test_a_worker_waits_for_its_session_without_a_word(
    server: LoopbackServer, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker may be made before the client connects.

    That is no reason for a warning.
    """
    await queue.create()
    await queue.publish("i")
    client = client_of("bee@localhost/2")
    try:
        async with Worker(client, QUEUE, NODE) as worker:
            client.connect(server.host, server.port)
            async with await anext(worker) as job:
                pass
        assert job.outcome is ItemOutcome.ACCEPTED
    finally:
        await close(client)
    assert not [each for each in caplog.records if each.name.startswith("qos.worker")]


def client_of(jid: str) -> ClientXMPP:
    client = ClientXMPP(
        jid, "secret", plugin_config={"feature_mechanisms": {"unencrypted_scram": True}}
    )
    client.enable_plaintext = True
    client.enable_starttls = client.enable_direct_tls = False
    return client


async def test_a_lost_event_comes_with_the_next_subscribe(
    bee: ClientXMPP, queue: Queue, server: LoopbackServer
) -> None:
    """Otherwise the item would wait for its lock to time out, and count as failed."""
    await queue.create(lock_timeout=NEVER_S)
    async with Worker(bee, QUEUE, NODE, resubscribe_s=0.2) as worker:
        await worker.subscribed()
        # Nothing arrives at the worker, but its stanzas reach the service.
        worker._plugin.remove_listener(QUEUE, NODE, worker._on_event)
        await queue.publish("i")
        await queue.until(acquired=1)
        worker._plugin.add_listener(QUEUE, NODE, worker._on_event)
        async with await anext(worker) as job:
            assert (job.id, job.delivery_count) == ("i", 0)
    assert job.outcome is ItemOutcome.ACCEPTED


async def test_a_worker_works_on_a_bad_link(
    bee: ClientXMPP, queue: Queue, server: LoopbackServer
) -> None:
    """A fifth of all stanzas is lost, and many are doubled.

    Each item is accepted once.
    """
    await queue.create(lock_timeout=NEVER_S, max_deliveries=1000)
    ids = [f"i{number}" for number in range(20)]
    await queue.publish(*ids)
    queue.owner.timeout_s = 0.3
    accepted: list[str] = []
    async with Worker(bee, QUEUE, NODE, parallel=4, resubscribe_s=0.3) as worker:
        await worker.subscribed()
        XEP_0254.of(bee).timeout_s = 0.3
        server.link = Link("bees", loss=0.2, duplicate=0.2)
        for _ in ids:
            async with await anext(worker) as job:
                pass
            assert job.outcome is ItemOutcome.ACCEPTED
            accepted.append(job.id)
        server.link = None
    assert sorted(accepted) == sorted(ids)
    assert (await queue.stats())["accepted"] == len(ids)


async def test_a_subscription_that_was_taken_away_is_asked_for_again(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """At once, not only after the interval."""
    async with scripted.worker(bee):
        await scripted.subscribe()
        await scripted.event(
            f"<subscription node='{NODE}' jid='bee@localhost/1' subscription='none'/>"
        )
        await scripted.subscribe()


async def test_a_worker_begins_whatever_a_server_says_for_the_service(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """Machines start in any order, and the service itself has not refused."""
    async with scripted.worker(bee) as worker:
        request = await scripted.asked("subscribe")
        await scripted.refuse(request, "forbidden", "auth", by="")
        await scripted.answer(await scripted.asked("subscribe"))
        await worker.subscribed()


async def test_a_later_refusal_does_not_end_the_worker(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """A queue can be deleted and created again; meanwhile running jobs go on."""
    async with scripted.holding(bee) as (worker, job):
        await scripted.event(f"<delete node='{NODE}'/>")
        await job.lost.wait()
        await scripted.component.expect(stanza("presence"))
        await scripted.refuse(await scripted.asked("subscribe"), "item-not-found")
        await scripted.subscribe()
        await scripted.deliver("i", "t2")
        assert (await anext(worker)).id == "i"
