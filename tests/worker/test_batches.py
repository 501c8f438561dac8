"""A worker in batches: it settles in batches, and each item has its own answer."""

import asyncio
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP

from qos.core.queue.item import ItemOutcome
from qos.errors import JobLost, MessageTooLarge
from qos.worker import Job, Worker, settlements
from raw_client import local
from waiting import limit
from worker_setup import NODE, Queue, ScriptedService
from xep_0254.queueing import XEP_0254

ITEM, *_REST = [f"<item id='i{n}' q:token='t{n}'/>" for n in range(3)]
ITEMS = "".join([ITEM, *_REST])


def ids_in(request: ET.Element) -> list[str | None]:
    return [each.get("id") for each in request.iter() if local(each) == "item"]


async def three(worker: Worker, scripted: ScriptedService) -> list[Job]:
    await scripted.subscribe()
    await scripted.event(f"<items node='{NODE}'>{ITEMS}</items>")
    return [await anext(worker) for _ in range(3)]


def accept(jobs: list[Job]) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(job.accept()) for job in jobs]


async def test_what_ends_together_is_retracted_by_one_request(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """A server's cost is per stanza, whatever is in it."""
    async with scripted.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, scripted)
        accepting = accept(jobs)
        request = await scripted.asked("retract")
        assert ids_in(request) == ["i0", "i1", "i2"]
        assert not any(job.outcome for job in jobs)
        await scripted.answer(request)
        await asyncio.gather(*accepting)
        assert {job.outcome for job in jobs} == {ItemOutcome.ACCEPTED}


async def test_a_batch_is_never_larger_than_the_worker_was_told(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """A service may have a limit of its own."""
    async with scripted.worker(bee, parallel=3, batch=2) as worker:
        accepting = accept(await three(worker, scripted))
        first = await scripted.asked("retract")
        assert len(ids_in(first)) == 2
        await scripted.answer(first)
        second = await scripted.asked("retract")
        assert len(ids_in(second)) == 1
        await scripted.answer(second)
        await asyncio.gather(*accepting)


async def test_a_worker_without_batches_retracts_one_by_one(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """A foreign service may support nothing else."""
    async with scripted.worker(bee, parallel=3) as worker:
        accepting = accept(await three(worker, scripted))
        for _ in range(3):
            request = await scripted.asked("retract")
            assert len(ids_in(request)) == 1
            await scripted.answer(request)
        await asyncio.gather(*accepting)


async def test_of_a_batch_that_is_refused_each_item_has_its_own_answer(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """All or none: two items are done although the lock of the third has ended."""
    async with scripted.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, scripted)
        accepting = accept(jobs)
        await scripted.refuse(await scripted.asked("retract"), "item-not-found")
        for _ in range(3):
            request = await scripted.asked("retract")
            if ids_in(request) == ["i1"]:
                await scripted.refuse(request, "item-not-found")
            else:
                await scripted.answer(request)
        ends = await asyncio.gather(*accepting, return_exceptions=True)
        assert [isinstance(each, JobLost) for each in ends] == [False, True, False]
        assert [job.lost.is_set() for job in jobs] == [False, True, False]


async def test_a_batch_without_an_answer_is_repeated(
    bee: ClientXMPP, scripted: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the tokens the service knows what it has already done."""
    monkeypatch.setattr(settlements, "_ANSWER_S_MIN", 0.1)
    async with scripted.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, scripted)
        accepting = accept(jobs)
        await scripted.asked("retract")
        while not all(each.done() for each in accepting):
            await scripted.answer(await scripted.asked("retract"))
            await scripted.in_step()
        assert {job.outcome for job in jobs} == {ItemOutcome.ACCEPTED}


async def test_a_batch_is_repeated_at_once_when_its_items_are_sent_again(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """The service has restarted, and there will be no answer to wait for."""
    async with scripted.worker(bee, parallel=3, batch=3) as worker:
        accepting = accept(await three(worker, scripted))
        await scripted.asked("retract")
        clock = asyncio.get_running_loop().time
        began = clock()
        await scripted.event(f"<items node='{NODE}'>{ITEMS}</items>")
        second = await scripted.asked("retract")
        assert clock() - began < settlements._ANSWER_S_MIN
        assert len(ids_in(second)) == 3
        await scripted.answer(second)
        await asyncio.gather(*accepting)


async def test_an_item_that_is_sent_again_takes_no_answer_from_its_batch(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """It is asked for again at once; the other items wait for the first answer."""
    async with scripted.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, scripted)
        accepting = accept(jobs)
        first = await scripted.asked("retract")
        await scripted.event(f"<items node='{NODE}'>{ITEM}</items>")
        second = await scripted.asked("retract")
        assert (len(ids_in(first)), ids_in(second)) == (3, ["i0"])
        await scripted.answer(first)
        await asyncio.gather(*accepting[1:])
        assert jobs[0].outcome is None
        await scripted.answer(second)
        await accepting[0]
        assert {job.outcome for job in jobs} == {ItemOutcome.ACCEPTED}


async def test_an_item_that_is_sent_again_before_it_is_asked_for_is_asked_for_once(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """A service refuses a request that names an item twice."""
    async with scripted.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, scripted)
        accepting = accept(jobs[1:2])
        first = await scripted.asked("retract")
        accepting += accept(jobs[:1])
        await scripted.in_step()
        await scripted.event(f"<items node='{NODE}'>{ITEM}</items>")
        second = await scripted.asked("retract")
        assert (ids_in(first), ids_in(second)) == (["i1"], ["i0"])
        await scripted.answer(first)
        await scripted.answer(second)
        await asyncio.gather(*accepting)


async def test_what_ends_while_an_answer_is_under_way_shares_the_next_request(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """Handlers do not end together; the answers set the pace."""
    async with scripted.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, scripted)
        accepting = accept(jobs[:1])
        first = await scripted.asked("retract")
        for job in jobs[1:]:
            accepting += accept([job])
            await scripted.in_step()
        await scripted.answer(first)
        second = await scripted.asked("retract")
        assert (ids_in(first), ids_in(second)) == (["i0"], ["i1", "i2"])
        await scripted.answer(second)
        await asyncio.gather(*accepting)


async def test_items_that_share_a_request_share_its_task(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """A task for each was half of the processor time of a settlement."""
    async with scripted.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, scripted)
        before = asyncio.all_tasks()
        accepting = accept(jobs)
        request = await scripted.asked("retract")
        assert len(asyncio.all_tasks() - before - set(accepting)) == 1
        await scripted.answer(request)
        await asyncio.gather(*accepting)


async def test_a_batch_goes_on_when_who_waits_for_an_item_is_cancelled(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """Of two who wait for one item, only the one that is cancelled stops waiting."""
    async with scripted.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, scripted)
        accepting = accept(jobs)
        again = asyncio.create_task(jobs[0].accept())
        request = await scripted.asked("retract")
        accepting[0].cancel()
        accepting[1].cancel()
        await asyncio.wait(accepting[:2])
        await scripted.answer(request)
        await asyncio.gather(accepting[2], again)
        assert {job.outcome for job in jobs} == {ItemOutcome.ACCEPTED}


async def test_a_batch_that_is_never_answered_is_in_doubt_at_the_end(
    bee: ClientXMPP, scripted: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time begins with the accept, not with the first repeat."""
    monkeypatch.setattr(settlements, "_ANSWER_S_MIN", 0.3)
    monkeypatch.setattr(settlements, "_SETTLE_S_MIN", 0.2)
    monkeypatch.setattr(settlements, "_SETTLE_S_MAX", 0.2)
    async with scripted.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, scripted)
        ends = await asyncio.gather(*accept(jobs), return_exceptions=True)
        assert all("may have been accepted" in str(each) for each in ends)
        assert all(isinstance(each, JobLost) for each in ends)
        assert all(job.lost.is_set() for job in jobs)
        # By then there was no time left for a repeat.
        assert len(ids_in(await scripted.asked("retract"))) == 3
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(scripted.asked("retract"), 20)


@pytest.mark.parametrize("batch", [1, 3])
async def test_an_accept_that_was_never_sent_leaves_the_job_held(
    batch: int, bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """It can be tried again, and until then its lock is kept."""
    channel = XEP_0254.of(bee)._channel
    async with scripted.worker(
        bee, parallel=3, batch=batch, lock_timeout_s=60
    ) as worker:
        jobs = await three(worker, scripted)
        limit, channel._stanza_bytes_max = channel._stanza_bytes_max, 10
        ends = await asyncio.gather(*accept(jobs), return_exceptions=True)
        assert all(isinstance(each, MessageTooLarge) for each in ends)
        assert all(job.held and not job.settling for job in jobs)
        channel._stanza_bytes_max = limit
        for _ in jobs:
            await scripted.asked("extend")
        accepting = accept(jobs)
        while not all(each.done() for each in accepting):
            await scripted.answer(await scripted.asked("retract"))
            await scripted.in_step()
        assert {job.outcome for job in jobs} == {ItemOutcome.ACCEPTED}


@pytest.mark.parametrize("refused", [False, True])
async def test_a_worker_that_ends_without_answers_leaves_nobody_waiting(
    refused: bool,
    bee: ClientXMPP,
    scripted: ScriptedService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither for a share of a request nor for a request of its own."""
    monkeypatch.setattr("qos.worker.stop_times.STOP_S", 0.1)
    async with scripted.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, scripted)
        before = asyncio.all_tasks()
        accepting = accept(jobs)
        request = await scripted.asked("retract")
        if refused:
            await scripted.refuse(request, "item-not-found")
            for _ in range(3):
                await scripted.asked("retract")
    ends = await asyncio.gather(*accepting, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ends)
    assert [job.outcome for job in jobs] == [None] * 3
    assert asyncio.all_tasks() <= before


async def test_a_worker_in_batches_ends_every_item_of_a_real_queue(
    bee: ClientXMPP, queue: Queue
) -> None:
    """Our service accepts the batches of our worker."""
    await queue.create()
    await queue.publish(*(f"i{n}" for n in range(40)))
    ended: list[str] = []
    async with (
        limit(),
        Worker(bee, "queue.localhost", NODE, parallel=10, batch=4) as worker,
    ):
        async for job in worker:
            async with job:
                pass
            ended.append(job.id)
            if len(ended) == 40:
                break
    assert sorted(ended) == sorted(f"i{n}" for n in range(40))
    await queue.until(available=0, acquired=0)
