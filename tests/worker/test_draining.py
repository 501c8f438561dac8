"""A worker has drained when the service has answered, and there was nothing."""

import asyncio

import pytest
from slixmpp import ClientXMPP

from qos.testing import LoopbackServer
from qos.worker import Worker
from qos.worker.draining import Draining
from worker_setup import NODE, QUEUE, ScriptedService


@pytest.mark.looptime(end=None)
async def test_silence_alone_is_no_drain_at_a_service_that_does_not_answer(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """It stands still: its items are there, and nobody has said that there are none."""
    async with scripted.worker(bee) as worker:
        await scripted.subscribe()
        draining = asyncio.create_task(Draining(bee, worker, 5).until_drained())
        for _ in range(3):
            # Asked, without an answer: asked again.
            request = await scripted.asked("subscribe")
        await asyncio.sleep(20)
        assert not draining.done()
        await scripted.answer(request)
        await draining


async def test_items_that_come_while_it_asks_are_work(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """The question brings what was lost on its way."""
    async with Worker(bee, QUEUE, NODE, grace_s=0) as worker:
        await scripted.subscribe()
        draining = Draining(bee, worker, 5)
        ending = asyncio.create_task(draining.until_drained())
        request = await scripted.asked("subscribe")
        await scripted.deliver("i", "t")
        job = await anext(worker)
        draining.active()
        await scripted.answer(request)
        await asyncio.sleep(1)
        assert not ending.done()
        accepting = asyncio.create_task(job.accept())
        await scripted.answer(await scripted.asked("retract"))
        await accepting
        await scripted.answer(await scripted.asked("subscribe"))
        await ending
        await scripted.component.close()


async def test_a_session_that_began_anew_has_its_own_time_without_work(
    bee: ClientXMPP, scripted: ScriptedService, server: LoopbackServer
) -> None:
    """Items that the old session has lost come again in the new one."""
    loop = asyncio.get_running_loop()
    async with scripted.worker(bee) as worker:
        await scripted.subscribe()
        ending = asyncio.create_task(Draining(bee, worker, 5).until_drained())
        request = await scripted.asked("subscribe")
        server.disconnect("bee@localhost/1")
        again = await scripted.asked("subscribe")
        assert again.get("id") != request.get("id")
        await scripted.answer(again)
        answered_at = loop.time()
        await scripted.answer(await scripted.asked("subscribe"))
        await ending
        assert loop.time() - answered_at > 4.5


async def test_a_worker_that_takes_nothing_for_a_while_is_not_subscribed(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """So that items go to workers that can do them."""
    async with scripted.worker(bee, parallel=4) as worker:
        await scripted.subscribe()
        worker.take_at_most(0)
        await scripted.answer(await scripted.asked("unsubscribe"))
        worker.take_at_most(3)
        request = await scripted.asked("subscribe")
        assert ">3<" in "".join(
            f">{each.text}<" for each in request.iter() if each.text
        )
        await scripted.answer(request)
