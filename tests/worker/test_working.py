"""A worker takes items and works on them, and each ends as it should."""

import asyncio
import errno
import logging
import os
import signal
from contextlib import aclosing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP, ComponentXMPP

from qos.core.queue.item import ItemOutcome
from qos.errors import JobLost, LocalProtocolError, RequestRefused
from qos.testing import LoopbackServer
from qos.testing.clients import close
from qos.worker import Job, UnrecoverableError, Worker
from waiting import LIMIT_S, limit, until
from worker_setup import (
    BEES,
    NODE,
    QUEUE,
    SECRET,
    Handler,
    LogIn,
    Queue,
    ScriptedService,
)
from xep_0254 import XEP_0254
from xep_0254.events import DeliveredItem, Event


async def test_each_item_is_handled_and_accepted_once(
    bee: ClientXMPP, queue: Queue
) -> None:
    """This is what a worker is for."""
    await queue.create()
    ids = [f"i{number}" for number in range(30)]
    await queue.publish(*ids)
    handler = Handler()
    async with Worker(bee, QUEUE, NODE, parallel=4, batch=4) as worker:
        working = asyncio.create_task(worker.run(handler))
        await queue.until(accepted=30)
        worker.stop()
        await working
    assert sorted(handler.ids) == sorted(ids)
    assert {job.outcome for job in handler.jobs} == {ItemOutcome.ACCEPTED}


async def test_a_job_says_what_the_event_says(bee: ClientXMPP, queue: Queue) -> None:
    """An application decides by these what to do, and on a second delivery what else."""
    await queue.create()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        first = await anext(worker)
        assert first.payload is not None
        assert first.payload.text == "i"
        assert first.payload_text == "<job xmlns='u:job'>i</job>"
        assert (first.id, first.node, first.priority) == ("i", NODE, 4)
        assert (first.delivery_count, first.first_acquirer) == (0, True)
        assert first.publisher == "owner@localhost"
        await first.modify()
        second = await anext(worker)
        assert (second.delivery_count, second.first_acquirer) == (1, False)
        assert second.token != first.token
        await second.accept()


async def test_there_are_never_more_jobs_than_parallel(
    bee: ClientXMPP, queue: Queue
) -> None:
    """It is a limit of the application."""
    await queue.create()
    await queue.publish(*(f"i{number}" for number in range(9)))
    handler = Handler()
    handler.go_on.clear()
    async with Worker(bee, QUEUE, NODE, parallel=3) as worker:
        working = asyncio.create_task(worker.run(handler))
        await until(lambda: len(handler.jobs) == 3)
        await queue.until(acquired=3, available=6)
        handler.go_on.set()
        await queue.until(accepted=9)
        worker.stop()
        await working


# -- async with job --------------------------------------------------------


async def test_a_clean_exit_accepts(bee: ClientXMPP, queue: Queue) -> None:
    """The usual end needs no word."""
    await queue.create()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        async for job in worker:
            async with job:
                assert job.outcome is None
            assert job.outcome is ItemOutcome.ACCEPTED
            break
    assert (await queue.stats())["accepted"] == 1


async def test_an_exception_is_a_failed_delivery_and_goes_on(
    bee: ClientXMPP, queue: Queue
) -> None:
    """The caller of the block gets the exception, and the service a failure."""
    await queue.create()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        job = await anext(worker)
        with pytest.raises(ZeroDivisionError):
            async with job:
                _ = 1 // 0
        assert job.outcome is ItemOutcome.MODIFIED
        again = await anext(worker)
        assert again.delivery_count == 1
        await again.accept()


async def test_a_cancelled_job_is_released_and_does_not_count(
    bee: ClientXMPP, queue: Queue
) -> None:
    """The item must not suffer because the application was in a hurry."""
    await queue.create()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        job = await anext(worker)
        entered = asyncio.Event()

        async def work() -> None:
            async with job:
                entered.set()
                await asyncio.Event().wait()

        working = asyncio.create_task(work())
        await entered.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert job.outcome is ItemOutcome.RELEASED
        again = await anext(worker)
        assert again.delivery_count == 0
        await again.accept()


async def test_what_a_handler_waits_for_can_be_cancelled_without_harm(
    bee: ClientXMPP, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """For example a shared download that is given up.

    The job fails, and the next one comes.
    """
    await queue.create()
    await queue.publish("bad", "good")
    handler = Handler(asyncio.CancelledError())
    async with Worker(bee, QUEUE, NODE) as worker:
        working = asyncio.create_task(worker.run(handler))
        await queue.until(accepted=2)
        assert not working.done()
        worker.stop()
        await working
    counts = [(job.id, job.delivery_count) for job in handler.jobs]
    assert sorted(counts) == [("bad", 0), ("bad", 1), ("good", 0)]
    assert "item 'bad' failed" in caplog.text


async def test_what_was_settled_inside_stays_so(bee: ClientXMPP, queue: Queue) -> None:
    """A settlement inside the block counts, even if the block then fails."""
    await queue.create()
    await queue.publish("good", "bad")
    async with Worker(bee, QUEUE, NODE, parallel=2) as worker:
        async with await anext(worker) as job:
            await job.reject("no good")
        assert job.outcome is ItemOutcome.REJECTED
        job = await anext(worker)
        with pytest.raises(ZeroDivisionError):
            await accept_and_fail(job)
        assert job.outcome is ItemOutcome.ACCEPTED
        with pytest.raises(LocalProtocolError, match="it is accepted"):
            await job.release()
    assert await queue.reasons() == ["rejected: no good"]


async def accept_and_fail(job: Job) -> None:
    async with job:
        await job.accept()
        await job.accept()  # again: no harm
        _ = 1 // 0


async def test_an_item_that_cannot_be_handled_here_goes_to_another(
    bee: ClientXMPP, queue: Queue, log_in: LogIn
) -> None:
    """A worker without a printer gives print jobs to one that has one."""
    await queue.create()
    other = await log_in("bee/2")
    async with Worker(bee, QUEUE, NODE) as first:
        await first.subscribed()
        await queue.publish("i")
        job = await anext(first)
        await job.modify(delivery_failed=False, undeliverable_here=True)
        async with Worker(other, QUEUE, NODE) as second:
            again = await anext(second)
            assert (again.id, again.delivery_count) == ("i", 0)
            await again.accept()


# -- run -------------------------------------------------------------------


async def test_a_handler_that_fails_is_called_again_until_the_item_is_dead(
    bee: ClientXMPP, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """A poisoned item must end, but must not end the worker."""
    await queue.create(max_deliveries=3)
    await queue.publish("poison", "good")
    tried = []

    async def handler(job: Job) -> None:
        tried.append(job.id)
        if job.id == "poison":
            raise ValueError("it does not work")

    async with Worker(bee, QUEUE, NODE) as worker:
        working = asyncio.create_task(worker.run(handler))
        await queue.until(dead=1, accepted=1)
        worker.stop()
        await working
    assert tried.count("poison") == 3
    failed = [each for each in caplog.records if "failed" in each.getMessage()]
    assert [each.levelno for each in failed] == [logging.ERROR] * 3
    (reason,) = await queue.reasons()
    why = "failed: ValueError: it does not work (test_working.py, line "
    assert reason.startswith(why)


@pytest.mark.parametrize(
    "error",
    [UnrecoverableError("no licence"), OSError(errno.ENOSPC, "disk full")],
    ids=["unrecoverable", "disk full"],
)
async def test_an_unrecoverable_error_gives_all_back_and_ends_the_run(
    bee: ClientXMPP, queue: Queue, error: Exception
) -> None:
    """XEP-0254 §4: otherwise the worker would fail the whole queue, item by item."""
    await queue.create()
    await queue.publish("a", "b", "c")
    handler = Handler(error)
    handler.go_on.clear()
    async with Worker(bee, QUEUE, NODE, parallel=2) as worker:
        working = asyncio.create_task(worker.run(handler))
        await until(lambda: len(handler.jobs) == 2)
        handler.go_on.set()
        with pytest.raises(type(error)) as caught:
            await working
    assert caught.value is error
    # Nothing counts as failed, whatever the other handler has done.
    stats = await queue.stats()
    assert (stats["acquired"], stats["subscribers"]) == (0, 0)
    items = queue.owner.browse(QUEUE, NODE)
    async with aclosing(items):  # type: ignore[type-var]  # it is a generator
        assert {each.delivery_count async for each in items} == {0}


async def test_an_unrecoverable_error_in_a_loop_gives_all_back_too(
    bee: ClientXMPP, queue: Queue
) -> None:
    """The same rule holds for the loop."""
    await queue.create()
    await queue.publish("a", "b")

    async def work() -> None:
        async with Worker(bee, QUEUE, NODE, parallel=2) as worker:
            async for job in worker:
                async with job:
                    raise UnrecoverableError("no licence")

    with pytest.raises(UnrecoverableError):
        await work()
    stats = await queue.stats()
    assert (stats["available"], stats["acquired"], stats["subscribers"]) == (2, 0, 0)


# -- the first subscribe ---------------------------------------------------


async def test_a_queue_that_is_not_there_is_told_at_once(
    bee: ClientXMPP, queue: Queue
) -> None:
    """With a misspelt name it would wait for ever, without notice."""
    with pytest.raises(RequestRefused, match="item-not-found"):
        await Worker(bee, QUEUE, "nowhere").run(Handler())
    async with Worker(bee, QUEUE, "nowhere") as worker:
        with pytest.raises(RequestRefused, match="item-not-found"):
            await anext(worker)
        with pytest.raises(RequestRefused, match="item-not-found"):
            await worker.subscribed()


async def test_a_queue_that_one_may_not_read_is_told_at_once(
    bee: ClientXMPP, queue: Queue
) -> None:
    """The owner has to change that; waiting does not help."""
    await queue.owner.create(QUEUE, NODE, {"pubsub#access_model": "whitelist"})
    with pytest.raises(RequestRefused) as caught:
        await Worker(bee, QUEUE, NODE).run(Handler())
    assert caught.value.type in {"auth", "cancel"}


@pytest.mark.parametrize(
    "options",
    [
        {"parallel": 0},
        {"batch": 2},
        {"batch": 0},
        {"resubscribe_s": 0},
        {"lock_timeout_s": 0},
    ],
    ids=str,
)
async def test_a_bad_option_is_refused(
    bee: ClientXMPP, options: dict[str, int]
) -> None:
    """At the mistake itself, not by a service that may be away."""
    with pytest.raises(ValueError, match="must be"):
        Worker(bee, QUEUE, NODE, **options)  # type: ignore[arg-type]


async def test_a_worker_loads_the_plugin_itself(log_in: LogIn, queue: Queue) -> None:
    """The examples do not load it."""
    bee = await log_in("bee/2")
    bee.plugin.disable("xep_0254")  # type: ignore[attr-defined]  # slixmpp's lack
    await queue.create()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        async with await anext(worker) as job:
            pass
        assert job.outcome is ItemOutcome.ACCEPTED
    assert XEP_0254.of(bee).own == "bee@localhost/2"


async def test_events_come_acknowledged_when_asked_for(
    log_in: LogIn, queue: Queue
) -> None:
    """A plain message can be lost; its lock would have to time out."""
    bee = await log_in("bee/2", xep_qos={"accepts": "anyone"})
    await queue.create()
    async with Worker(bee, QUEUE, NODE, parallel=2, events="acknowledged") as worker:
        await worker.subscribed()
        await queue.publish("a", "b")
        for _ in range(2):
            async with await anext(worker):
                pass
    assert (await queue.stats())["accepted"] == 2


async def test_a_component_can_work_too(queue: Queue, server: LoopbackServer) -> None:
    """A gateway beside a server works like any client."""
    component = ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's lack
        BEES, SECRET, server.host, server.component_port
    )
    try:
        component.connect()
        await component.wait_until("session_start", timeout=LIMIT_S)
        await queue.create()
        async with Worker(component, QUEUE, NODE) as worker:
            await worker.subscribed()
            await queue.publish("i")
            async with await anext(worker) as job:
                pass
            assert job.outcome is ItemOutcome.ACCEPTED
        assert (await queue.stats())["subscribers"] == 0
    finally:
        await close(component)


async def test_a_lost_job_ends_its_block_and_not_the_loop(
    bee: ClientXMPP, queue: Queue
) -> None:
    """A lost lock is normal; the next item waits."""
    await queue.create()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        async with await anext(worker) as job:
            await queue.owner.purge(QUEUE, NODE)
            await until(job.lost.is_set)
            await job.accept()
            raise AssertionError("the block goes on with a lost job")
        assert job.outcome is None
        with pytest.raises(JobLost):
            await job.extend(5)


async def test_a_job_goes_to_somebody_else_when_the_one_it_was_for_is_cancelled(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """Each waiting call is tried; otherwise the job would wait for the next event."""
    async with scripted.worker(bee, parallel=2) as worker:
        await scripted.subscribe()
        first = asyncio.ensure_future(anext(worker))
        second = asyncio.ensure_future(anext(worker))
        await asyncio.sleep(0)
        worker._on_event(Event(node=NODE, items=(DeliveredItem(item_id="i"),)))
        first.cancel()
        async with limit():
            assert (await second).id == "i"
        third = asyncio.ensure_future(anext(worker))
        fourth = asyncio.ensure_future(anext(worker))
        await asyncio.sleep(0)
        third.cancel()
        worker._on_event(Event(node=NODE, items=(DeliveredItem(item_id="j"),)))
        async with limit():
            assert (await fourth).id == "j"


async def test_the_selective_worker_in_the_guide_takes_only_what_it_wants(
    bee: ClientXMPP, queue: Queue, capsys: pytest.CaptureFixture[str]
) -> None:
    """Newcomers copy it."""
    await queue.create()
    file = Path(__file__).parents[2] / "docs" / "code" / "selective_worker.py"
    names: dict[str, Any] = {}
    exec(file.read_text().replace("queue.example.org", QUEUE), names)  # noqa: S102
    await queue.publish("plain")
    model = {"pubsub#publish_model": "open"}
    await queue.owner.configure(QUEUE, NODE, model)
    await names["publish"](bee)
    running = asyncio.create_task(names["work"](bee))
    await queue.until(accepted=1, available=1)
    running.cancel()
    await asyncio.wait((running,))
    assert capsys.readouterr().out.split()[1:] == ["red"]


async def test_the_worker_in_the_guide_works_on_and_stops_when_it_is_told_to(
    bee: ClientXMPP, queue: Queue
) -> None:
    """Newcomers copy it.

    It runs several jobs, survives a bad item, and stops on SIGTERM.
    """
    await queue.create(max_deliveries=1)
    file = Path(__file__).parents[2] / "docs" / "code" / "queue_worker.py"
    text = file.read_text().replace("queue.example.org", QUEUE)
    begun: list[str] = []
    go_on = asyncio.Event()

    async def pack(payload: ET.Element) -> None:
        begun.append(str(payload.text))
        await go_on.wait()
        if payload.text == "bad":
            raise ValueError("this is no order")

    names: dict[str, Any] = {}
    exec(text, names)  # noqa: S102 - our own guide
    names["pack"] = pack
    running = asyncio.create_task(names["work"](bee))
    await queue.publish("bad", *(f"good {number}" for number in range(9)))
    await until(lambda: len(begun) == 8)
    go_on.set()
    await queue.until(accepted=9, dead=1)
    go_on.clear()
    await queue.publish("last")
    await until(lambda: "last" in begun)
    os.kill(os.getpid(), signal.SIGTERM)
    await queue.until(subscribers=0, acquired=1)
    go_on.set()
    await running
    await queue.until(accepted=10, dead=1)
