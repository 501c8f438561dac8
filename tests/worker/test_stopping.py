"""A worker stops in order: no item is lost, and none counts as failed."""

import asyncio
import os
import signal
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP

from qos.core.queue.item import ItemOutcome
from qos.errors import JobLost, LocalProtocolError
from qos.worker import Job, Worker
from raw_client import local, stanza
from waiting import limit, until
from worker_setup import (
    NODE,
    QUEUE,
    Handler,
    LogIn,
    Queue,
    ScriptedService,
    token_in,
)


def what(element: ET.Element) -> str:
    """The purpose of a worker's stanza, in a word."""
    names = [local(each) for each in element.iter()]
    if names[0] == "presence":
        return element.get("type", "available")
    return next((name for name in ("unsubscribe", "unlock") if name in names), "other")


async def test_a_stop_goes_in_order(bee: ClientXMPP, scripted: ScriptedService) -> None:
    """Unlocked before unsubscribing, an item would come back.

    After leaving, it would count.
    """
    async with Worker(bee, QUEUE, NODE, parallel=2, grace_s=0) as worker:
        await scripted.subscribe()
        await scripted.deliver("begun", "t1")
        await scripted.deliver("waits", "t2")
        begun = await anext(worker)
        worker.stop()
        order = []
        for _ in range(4):
            element = await scripted.component.expect(lambda _: True)
            order.append(what(element))
            if local(element) == "iq":
                await scripted.answer(element)
        assert order == ["unsubscribe", "unlock", "unlock", "unavailable"]
        assert begun.lost.is_set()


async def test_what_runs_is_finished_and_the_rest_released(
    bee: ClientXMPP, queue: Queue
) -> None:
    """Deployments stop workers all day long: that must cost no work."""
    await queue.create()
    await queue.publish("a", "b", "c", "d")
    handler = Handler()
    handler.go_on.clear()
    async with Worker(bee, QUEUE, NODE, parallel=2) as worker:
        working = asyncio.create_task(worker.run(handler))
        await until(lambda: len(handler.jobs) == 2)
        worker.stop()
        await queue.until(subscribers=0, acquired=2)
        handler.go_on.set()
        await working
    assert [job.outcome for job in handler.jobs] == [ItemOutcome.ACCEPTED] * 2
    stats = await queue.stats()
    assert (stats["accepted"], stats["available"]) == (2, 2)


@pytest.mark.parametrize("running", [0, 1, 2])
async def test_a_worker_stops_as_soon_as_nothing_runs(
    bee: ClientXMPP, queue: Queue, running: int
) -> None:
    """The grace time is only an upper limit."""
    await queue.create()
    for item_id in "ab"[:running]:
        await queue.publish(item_id)
    handler = Handler()
    handler.go_on.clear()
    worker = Worker(bee, QUEUE, NODE, parallel=2, grace_s=3600)
    working = asyncio.create_task(worker.run(handler))
    await queue.until(subscribers=1, acquired=running)
    worker.stop()
    await queue.until(subscribers=0)
    handler.go_on.set()
    async with limit():
        await working
    await queue.until(accepted=running, available=0)


async def test_a_stop_goes_on_when_who_waits_for_it_is_cancelled(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """Otherwise items would stay locked, and more would come."""
    worker = Worker(bee, QUEUE, NODE, grace_s=0)
    async with worker:
        await scripted.subscribe()
        await scripted.deliver("i", "t")
        await anext(worker)
        closing = asyncio.create_task(worker.aclose())
        request = await scripted.asked("unsubscribe")
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await scripted.answer(request)
        released = await scripted.asked("unlock")
        assert token_in(released) == "t"
        await scripted.answer(released)
    await scripted.component.expect(stanza("presence", type="unavailable"))


async def test_a_worker_that_stops_takes_nothing_from_another_of_its_client(
    bee: ClientXMPP, queue: Queue
) -> None:
    """Unavailable presence concerns the whole client, and ends locks in all its nodes."""
    await queue.create()
    await queue.owner.create(QUEUE, "other", {"pubsub#access_model": "open"})
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE) as worker:
        job = await anext(worker)
        async with Worker(bee, QUEUE, "other") as stops:
            await stops.subscribed()
        assert (await queue.owner.stats(QUEUE, "other"))["subscribers"] == 0
        await job.accept()
        await queue.publish("next")
        async with await anext(worker) as job:
            assert job.delivery_count == 0
    assert await subscribers(queue) == 0


async def test_a_client_has_one_worker_of_a_queue_at_a_time(
    bee: ClientXMPP, queue: Queue
) -> None:
    """The subscription belongs to the client.

    Both workers would get each item, and do it.
    """
    await queue.create()
    async with Worker(bee, QUEUE, NODE) as worker:
        await worker.subscribed()
        with pytest.raises(LocalProtocolError, match="has a worker of"):
            async with Worker(bee, QUEUE, NODE):
                pass
        await queue.publish("i")
        async with await anext(worker) as job:
            assert job.id == "i"
    async with Worker(bee, QUEUE, NODE) as worker:
        await worker.subscribed()


async def subscribers(queue: Queue) -> object:
    return (await queue.stats())["subscribers"]


@pytest.mark.parametrize("condition", ["", "not-subscribed"])
async def test_who_works_on_unsubscribes_for_one_who_had_no_answer(
    bee: ClientXMPP,
    scripted: ScriptedService,
    monkeypatch: pytest.MonkeyPatch,
    condition: str,
) -> None:
    """Otherwise items would still come for a node where no worker runs."""
    monkeypatch.setattr("qos.worker.stop_times.STOP_S", 0.05)
    async with scripted.worker(bee, resubscribe_s=0.2):
        await scripted.subscribe()
        async with Worker(bee, QUEUE, "gone"):
            await scripted.subscribe()
        requests = [await scripted.asked("unsubscribe") for _ in range(2)]
        assert [node_in(each) for each in requests] == ["gone", "gone"]
        if condition:
            await scripted.refuse(requests[1], condition)
        else:
            await scripted.answer(requests[1])
        for _ in range(2):
            assert node_in(await scripted.subscribe()) == NODE
        assert not scripted.component.received(lambda each: what(each) == "unsubscribe")


def node_in(request: ET.Element) -> str | None:
    """The node that a request names."""
    return next(each.get("node") for each in request.iter() if each.get("node"))


async def test_the_subscription_of_a_new_worker_is_not_taken_for_an_old_ones(
    bee: ClientXMPP, scripted: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is only one subscription for a client and a node."""
    monkeypatch.setattr("qos.worker.stop_times.STOP_S", 0.05)
    async with scripted.worker(bee, resubscribe_s=0.2):
        await scripted.subscribe()
        async with Worker(bee, QUEUE, "gone"):
            await scripted.subscribe()
        await scripted.asked("unsubscribe")
        async with Worker(bee, QUEUE, "gone"):
            for _ in range(3):
                await scripted.subscribe()
            ended = scripted.component.received(
                lambda each: what(each) == "unsubscribe"
            )
            assert not ended


async def test_what_runs_longer_than_the_grace_time_is_cancelled_and_released(
    bee: ClientXMPP, queue: Queue
) -> None:
    """A stop waits, but not for ever."""
    await queue.create()
    await queue.publish("i")
    handler = Handler()
    handler.go_on.clear()
    async with Worker(bee, QUEUE, NODE, grace_s=0.05) as worker:
        working = asyncio.create_task(worker.run(handler))
        await until(lambda: handler.jobs)
        worker.stop()
        await working
    assert handler.jobs[0].outcome is None
    assert await counts(queue) == {"i": 0}


async def counts(queue: Queue) -> dict[str, int | None]:
    """The delivery counts of the present items, by id."""
    await queue.until(acquired=0)
    found = queue.owner.browse(QUEUE, NODE)
    return {each.item_id: each.delivery_count async for each in found}


async def test_a_second_stop_does_not_wait(bee: ClientXMPP, queue: Queue) -> None:
    """A user who presses Ctrl-C twice means it."""
    await queue.create()
    await queue.publish("i")
    handler = Handler()
    handler.go_on.clear()
    async with Worker(bee, QUEUE, NODE, grace_s=3600) as worker:
        working = asyncio.create_task(worker.run(handler))
        await until(lambda: handler.jobs)
        worker.stop()
        worker.stop()
        await working
    assert await counts(queue) == {"i": 0}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_worker(
    bee: ClientXMPP, queue: Queue, number: signal.Signals
) -> None:
    """This is how a system ends processes. The former handlers are restored."""
    await queue.create()
    await queue.publish("i")
    before = signal.getsignal(number)
    handler = Handler()
    handler.go_on.clear()
    async with Worker(bee, QUEUE, NODE) as worker:
        worker.install_signal_handlers()
        working = asyncio.create_task(worker.run(handler))
        await until(lambda: handler.jobs)
        os.kill(os.getpid(), number)
        await queue.until(subscribers=0)
        handler.go_on.set()
        await working
    assert handler.jobs[0].outcome is ItemOutcome.ACCEPTED
    if number is signal.SIGINT:  # asyncio restores Python's default for it
        before = signal.default_int_handler
    assert signal.getsignal(number) == before


async def test_a_signal_stops_all_workers_that_asked_for_it(
    bee: ClientXMPP, queue: Queue, log_in: LogIn
) -> None:
    """A loop has one handler per signal.

    A worker that ends must not remove it for others.
    """
    await queue.create()
    before = signal.getsignal(signal.SIGTERM)
    clients = [bee, await log_in("bee/2"), await log_in("bee/3")]
    first, second, third = (Worker(each, QUEUE, NODE) for each in clients)
    async with first, second:
        async with third:
            for worker in (first, second, third):
                worker.install_signal_handlers()
            working = [
                asyncio.create_task(worker.run(Handler())) for worker in (first, second)
            ]
            await queue.until(subscribers=3)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.gather(*working)
    assert signal.getsignal(signal.SIGTERM) == before


async def test_a_worker_that_was_stopped_before_it_began_takes_nothing(
    bee: ClientXMPP, queue: Queue
) -> None:
    """A signal can come while the application still starts."""
    await queue.create()
    await queue.publish("i")
    handler = Handler()
    worker = Worker(bee, QUEUE, NODE)
    worker.stop()
    await worker.run(handler)
    assert not handler.jobs
    assert (await queue.stats())["available"] == 1


async def test_an_iteration_ends_when_the_worker_is_stopped(
    bee: ClientXMPP, queue: Queue
) -> None:
    """The loop ends where it stands, with its job."""
    await queue.create()
    await queue.publish("a", "b")
    jobs = []
    async with Worker(bee, QUEUE, NODE) as worker:
        async for job in worker:
            async with job:
                jobs.append(job)
                worker.stop()
                await queue.until(subscribers=0)
    assert [job.outcome for job in jobs] == [ItemOutcome.ACCEPTED]
    assert (await queue.stats())["available"] == 1


async def test_an_exception_that_leaves_the_block_releases_all(
    bee: ClientXMPP, queue: Queue
) -> None:
    """The items must not suffer from other errors of the application."""
    await queue.create()
    await queue.publish("a", "b")

    async def work() -> None:
        async with Worker(bee, QUEUE, NODE, parallel=2, grace_s=3600) as worker:
            await anext(worker)
            raise KeyError("elsewhere")

    with pytest.raises(KeyError):
        await work()
    assert await counts(queue) == {"a": 0, "b": 0}
    assert (await queue.stats())["subscribers"] == 0


async def test_a_run_that_is_cancelled_releases_all(
    bee: ClientXMPP, queue: Queue
) -> None:
    """A task group that fails cancels its tasks.

    The items must not wait for their locks.
    """
    await queue.create()
    await queue.publish("a", "b")
    handler = Handler()
    handler.go_on.clear()
    working = asyncio.create_task(
        Worker(bee, QUEUE, NODE, parallel=2, grace_s=3600).run(handler)
    )
    await until(lambda: len(handler.jobs) == 2)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await counts(queue) == {"a": 0, "b": 0}


async def test_an_item_that_comes_when_the_worker_has_stopped_is_released(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """It was in flight; this worker will never begin it."""
    async with scripted.worker(bee, parallel=2) as worker:
        await scripted.subscribe()
        worker.stop()
        request = await scripted.asked("unsubscribe")
        await scripted.deliver("late", "t")
        released = await scripted.asked("unlock")
        assert {each.get("id") for each in released.iter()} >= {"late"}
        await scripted.answer(released)
        await scripted.answer(request)
        await scripted.component.expect(stanza("presence", type="unavailable"))


async def test_an_accept_that_is_under_way_is_waited_for(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """The work is done: if it were released now, it would be done again."""
    worker = Worker(bee, QUEUE, NODE, grace_s=0)
    handler = Handler()
    working = asyncio.create_task(worker.run(handler))
    await scripted.subscribe()
    await scripted.deliver("i", "t")
    accept = await scripted.asked("retract")
    worker.stop()
    await scripted.answer(await scripted.asked("unsubscribe"))
    assert not scripted.component.received(lambda each: what(each) == "unavailable")
    await scripted.answer(accept)
    await working
    assert handler.jobs[0].outcome is ItemOutcome.ACCEPTED
    await scripted.component.expect(stanza("presence", type="unavailable"))
    assert not scripted.component.received(lambda each: what(each) == "unlock")


async def test_a_handler_that_does_not_end_holds_nothing_up(
    bee: ClientXMPP, queue: Queue
) -> None:
    """Its item is released all the same, and its later calls are refused."""
    await queue.create()
    await queue.publish("i")
    end = asyncio.Event()
    refused: list[JobLost] = []

    async def stubborn(job: Job) -> None:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue
        try:
            await job.accept()
        except JobLost as lost:
            refused.append(lost)

    worker = Worker(bee, QUEUE, NODE, grace_s=0)
    working = asyncio.create_task(worker.run(stubborn))
    await queue.until(acquired=1)
    worker.stop()
    assert await counts(queue) == {"i": 0}
    end.set()
    await working
    assert len(refused) == 1


async def test_a_stop_without_a_service_ends_too(
    bee: ClientXMPP, queue: Queue, log_in: LogIn
) -> None:
    """A machine must be able to shut down whatever else is broken."""
    await queue.create()
    await queue.publish("i")
    async with Worker(bee, QUEUE, NODE, grace_s=0) as worker:
        job = await anext(worker)
        await queue.stop()
    assert job.outcome is None


@pytest.mark.parametrize("jobs", [0, 1, 3])
async def test_the_grace_time_is_all_that_a_stop_takes_at_a_silent_service(
    bee: ClientXMPP, scripted: ScriptedService, jobs: int
) -> None:
    """A service manager kills who takes longer. No request may add its own time to it."""
    loop = asyncio.get_running_loop()
    cancelled_at: list[float] = []

    async def handle(job: Job) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled_at.append(loop.time())

    worker = Worker(bee, QUEUE, NODE, parallel=2, grace_s=8)
    working = asyncio.create_task(worker.run(handle))
    await scripted.subscribe()
    for number in range(jobs):
        await scripted.deliver(f"i{number}", f"t{number}")
    await until(lambda: len(worker._leases.jobs) == jobs)
    await asyncio.sleep(0.1)
    begun_at = loop.time()
    worker.stop()
    await working
    assert loop.time() - begun_at < 8.5
    # And jobs have nearly all of it: they are not ended before their time.
    assert len(cancelled_at) == min(jobs, 2)
    assert all(at - begun_at > 6.5 for at in cancelled_at)
