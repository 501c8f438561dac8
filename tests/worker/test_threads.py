"""Handlers that are plain functions: celery's users bring such."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from slixmpp import ClientXMPP

from qos import InvalidArgument, LocalProtocolError
from qos.worker import Job, UnrecoverableError, Worker
from waiting import LIMIT_S, until
from worker_setup import NODE, QUEUE, Queue


async def work(bee: ClientXMPP, queue: Queue, handler: object, *ids: str) -> Worker:
    """Let a worker handle these items."""
    await queue.create()
    await queue.publish(*ids)
    worker = Worker(bee, QUEUE, NODE, parallel=4, grace_s=30)
    working = asyncio.create_task(worker.run(handler))  # type: ignore[arg-type]  # any
    await queue.until(accepted=len(ids))
    worker.stop()
    await working
    return worker


async def test_a_plain_function_runs_in_threads_and_its_items_are_accepted(
    bee: ClientXMPP, queue: Queue
) -> None:
    """It was called in the loop, and then its result was awaited: each item failed."""
    together = threading.Barrier(4, timeout=LIMIT_S)
    found: dict[str, str] = {}

    def pack(job: Job) -> None:
        together.wait()
        found[job.id] = threading.current_thread().name

    await work(bee, queue, pack, "a", "b", "c", "d")
    assert sorted(found) == ["a", "b", "c", "d"]
    assert len(set(found.values())) == 4
    assert all(name.startswith("qos.worker") for name in found.values())
    await until(lambda: not ours())


def ours() -> list[threading.Thread]:
    return [
        each for each in threading.enumerate() if each.name.startswith("qos.worker")
    ]


async def test_a_lambda_around_a_coroutine_function_is_waited_for(
    bee: ClientXMPP, queue: Queue
) -> None:
    ended = []

    async def pack(job: Job) -> None:
        await asyncio.sleep(0.05)
        ended.append(job.id)

    await work(bee, queue, lambda job: pack(job), "a", "b")
    assert sorted(ended) == ["a", "b"]


async def test_what_is_a_coroutine_function_needs_no_thread(
    bee: ClientXMPP, queue: Queue
) -> None:
    """A partial of one, and an object that is called."""
    threads: set[str] = set()

    async def pack(_: int, job: Job) -> None:
        threads.add(threading.current_thread().name)

    class Packer:
        async def __call__(self, job: Job) -> None:
            await pack(1, job)

    await work(bee, queue, functools.partial(pack, 1), "a")
    await queue.publish("b")
    worker = Worker(bee, QUEUE, NODE)
    working = asyncio.create_task(worker.run(Packer()))
    await queue.until(accepted=2)
    worker.stop()
    await working
    assert threads == {threading.main_thread().name}


@pytest.mark.parametrize("error", [ZeroDivisionError, StopIteration])
async def test_a_plain_function_that_fails_gets_its_item_again(
    bee: ClientXMPP, queue: Queue, error: type[Exception]
) -> None:
    """A future refuses StopIteration: the job would never have ended."""
    counts: list[int] = []

    def pack(job: Job) -> None:
        counts.append(job.delivery_count)
        if job.delivery_count == 0:
            raise error

    await work(bee, queue, pack, "a")
    assert counts == [0, 1]


async def test_a_plain_function_may_give_up_the_worker(
    bee: ClientXMPP, queue: Queue
) -> None:
    await queue.create()
    await queue.publish("a")

    def pack(_: Job) -> None:
        raise UnrecoverableError("no more paper")

    with pytest.raises(UnrecoverableError, match="no more paper"):
        await Worker(bee, QUEUE, NODE).run(pack)


async def test_a_stop_waits_for_the_threads_but_not_beyond_the_grace(
    bee: ClientXMPP, queue: Queue
) -> None:
    await queue.create()
    await queue.publish("a")
    begun, end = threading.Event(), threading.Event()
    ended: list[str] = []

    def pack(job: Job) -> None:
        begun.set()
        end.wait(LIMIT_S)
        ended.append(job.id)

    worker = Worker(bee, QUEUE, NODE, grace_s=30)
    working = asyncio.create_task(worker.run(pack))
    await until(begun.is_set)
    worker.stop()
    await queue.until(subscribers=0)
    assert not working.done()
    end.set()
    await working
    assert ended == ["a"]
    assert (await queue.stats())["accepted"] == 1

    await queue.publish("b")
    begun.clear()
    end.clear()
    worker = Worker(bee, QUEUE, NODE, grace_s=0.1)
    working = asyncio.create_task(worker.run(pack))
    await until(begun.is_set)
    worker.stop()
    await working
    assert ended == ["a"]
    assert (await queue.stats())["available"] == 1
    end.set()
    await until(lambda: not ours())


async def test_a_consumer_that_is_no_coroutine_function_is_refused() -> None:
    """It was taken, ran, and failed afterwards, when its result was awaited."""
    from qos.testing.clients import close, new_client
    from xep_qos import XEP_QOS

    client = new_client("bee@localhost/1", "secret", {"xep_qos": {"store": "memory:"}})
    with pytest.raises(LocalProtocolError, match="`async def`"):
        XEP_QOS.of(client).consumer()(lambda message, handover: None)  # type: ignore[type-var]  # wrong
    await close(client)


async def test_a_handler_that_would_never_run_is_refused(bee: ClientXMPP) -> None:
    """The body of a generator does not run when it is called: its items were accepted."""

    def pack(job: Job) -> Iterator[str]:
        yield job.id

    async def pack_later(job: Job) -> AsyncIterator[str]:
        yield job.id

    class Packer:
        def __call__(self, job: Job) -> Iterator[str]:
            yield job.id

    worker = Worker(bee, QUEUE, NODE)
    for handler in (pack, pack_later, functools.partial(pack), Packer()):
        with pytest.raises(InvalidArgument, match="without `yield`"):
            await worker.run(handler)
