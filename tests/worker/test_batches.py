"""A worker in batches: it settles in batches, and each item has its own answer."""

import asyncio
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP

from qos.core.queue.item import ItemOutcome
from qos.errors import JobLost
from qos.worker import Job, Worker, leases
from raw_client import local
from worker_setup import NODE, ByHand, Queue

ITEM, *_REST = [f"<item id='i{n}' q:token='t{n}'/>" for n in range(3)]
ITEMS = "".join([ITEM, *_REST])


def ids_in(request: ET.Element) -> list[str | None]:
    return [each.get("id") for each in request.iter() if local(each) == "item"]


async def three(worker: Worker, by_hand: ByHand) -> list[Job]:
    await by_hand.subscribe()
    await by_hand.event(f"<items node='{NODE}'>{ITEMS}</items>")
    return [await anext(worker) for _ in range(3)]


def accept(jobs: list[Job]) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(job.accept()) for job in jobs]


async def test_what_ends_together_is_retracted_by_one_request(
    bee: ClientXMPP, by_hand: ByHand
) -> None:
    """A server's cost is per stanza, whatever is in it."""
    async with by_hand.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, by_hand)
        accepting = accept(jobs)
        request = await by_hand.asked("retract")
        assert ids_in(request) == ["i0", "i1", "i2"]
        assert not any(job.outcome for job in jobs)
        await by_hand.answer(request)
        await asyncio.gather(*accepting)
        assert {job.outcome for job in jobs} == {ItemOutcome.ACCEPTED}


async def test_a_batch_is_never_larger_than_the_worker_was_told(
    bee: ClientXMPP, by_hand: ByHand
) -> None:
    """A service may have a limit of its own."""
    async with by_hand.worker(bee, parallel=3, batch=2) as worker:
        accepting = accept(await three(worker, by_hand))
        first = await by_hand.asked("retract")
        assert len(ids_in(first)) == 2
        await by_hand.answer(first)
        second = await by_hand.asked("retract")
        assert len(ids_in(second)) == 1
        await by_hand.answer(second)
        await asyncio.gather(*accepting)


async def test_a_worker_without_batches_retracts_one_by_one(
    bee: ClientXMPP, by_hand: ByHand
) -> None:
    """A foreign service may support nothing else."""
    async with by_hand.worker(bee, parallel=3) as worker:
        accepting = accept(await three(worker, by_hand))
        for _ in range(3):
            request = await by_hand.asked("retract")
            assert len(ids_in(request)) == 1
            await by_hand.answer(request)
        await asyncio.gather(*accepting)


async def test_of_a_batch_that_is_refused_each_item_has_its_own_answer(
    bee: ClientXMPP, by_hand: ByHand
) -> None:
    """All or none: two items are done although the lock of the third has ended."""
    async with by_hand.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, by_hand)
        accepting = accept(jobs)
        await by_hand.refuse(await by_hand.asked("retract"), "item-not-found")
        for _ in range(3):
            request = await by_hand.asked("retract")
            if ids_in(request) == ["i1"]:
                await by_hand.refuse(request, "item-not-found")
            else:
                await by_hand.answer(request)
        ends = await asyncio.gather(*accepting, return_exceptions=True)
        assert [isinstance(each, JobLost) for each in ends] == [False, True, False]
        assert [job.lost.is_set() for job in jobs] == [False, True, False]


async def test_a_batch_without_an_answer_is_repeated(
    bee: ClientXMPP, by_hand: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the tokens the service knows what it has already done."""
    monkeypatch.setattr(leases, "_ANSWER_S_MIN", 0.1)
    async with by_hand.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, by_hand)
        accepting = accept(jobs)
        await by_hand.asked("retract")
        while not all(each.done() for each in accepting):
            await by_hand.answer(await by_hand.asked("retract"))
            await by_hand.in_step()
        assert {job.outcome for job in jobs} == {ItemOutcome.ACCEPTED}


async def test_a_batch_is_repeated_at_once_when_its_items_are_sent_again(
    bee: ClientXMPP, by_hand: ByHand
) -> None:
    """The service has restarted, and there will be no answer to wait for."""
    async with by_hand.worker(bee, parallel=3, batch=3) as worker:
        accepting = accept(await three(worker, by_hand))
        await by_hand.asked("retract")
        clock = asyncio.get_running_loop().time
        began = clock()
        await by_hand.event(f"<items node='{NODE}'>{ITEMS}</items>")
        second = await by_hand.asked("retract")
        assert clock() - began < leases._ANSWER_S_MIN
        assert len(ids_in(second)) == 3
        await by_hand.answer(second)
        await asyncio.gather(*accepting)


async def test_an_item_that_is_sent_again_takes_no_answer_from_its_batch(
    bee: ClientXMPP, by_hand: ByHand
) -> None:
    """It is asked for again at once; the other items wait for the first answer."""
    async with by_hand.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, by_hand)
        accepting = accept(jobs)
        first = await by_hand.asked("retract")
        await by_hand.event(f"<items node='{NODE}'>{ITEM}</items>")
        second = await by_hand.asked("retract")
        assert (len(ids_in(first)), ids_in(second)) == (3, ["i0"])
        await by_hand.answer(first)
        await asyncio.gather(*accepting[1:])
        assert jobs[0].outcome is None
        await by_hand.answer(second)
        await accepting[0]
        assert {job.outcome for job in jobs} == {ItemOutcome.ACCEPTED}


async def test_an_item_that_is_sent_again_before_it_is_asked_for_is_asked_for_once(
    bee: ClientXMPP, by_hand: ByHand
) -> None:
    """A service refuses a request that names an item twice."""
    async with by_hand.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, by_hand)
        accepting = accept(jobs[1:2])
        first = await by_hand.asked("retract")
        accepting += accept(jobs[:1])
        await by_hand.in_step()
        await by_hand.event(f"<items node='{NODE}'>{ITEM}</items>")
        second = await by_hand.asked("retract")
        assert (ids_in(first), ids_in(second)) == (["i1"], ["i0"])
        await by_hand.answer(first)
        await by_hand.answer(second)
        await asyncio.gather(*accepting)


async def test_what_ends_while_an_answer_is_under_way_shares_the_next_request(
    bee: ClientXMPP, by_hand: ByHand
) -> None:
    """Handlers do not end together; the answers set the pace."""
    async with by_hand.worker(bee, parallel=3, batch=3) as worker:
        jobs = await three(worker, by_hand)
        accepting = accept(jobs[:1])
        first = await by_hand.asked("retract")
        for job in jobs[1:]:
            accepting += accept([job])
            await by_hand.in_step()
        await by_hand.answer(first)
        second = await by_hand.asked("retract")
        assert (ids_in(first), ids_in(second)) == (["i0"], ["i1", "i2"])
        await by_hand.answer(second)
        await asyncio.gather(*accepting)


async def test_a_worker_in_batches_ends_every_item_of_a_real_queue(
    bee: ClientXMPP, queue: Queue
) -> None:
    """Our service accepts the batches of our worker."""
    await queue.create()
    await queue.publish(*(f"i{n}" for n in range(40)))
    ended: list[str] = []
    async with (
        asyncio.timeout(20),
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
