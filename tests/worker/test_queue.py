"""One object with which a program publishes to a queue and works on it."""

import asyncio
import os
import signal
import threading
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP

import qos
from qos.core.queue.item import ItemOutcome
from qos.errors import (
    CannotConnect,
    InvalidArgument,
    LocalProtocolError,
    RequestRefused,
)
from qos.testing import LoopbackServer
from qos.worker import Job, NewItem, Published, Queue, UnrecoverableError
from waiting import limit, until
from worker_setup import NODE, QUEUE, Handler, LogIn
from worker_setup import Queue as Service
from xep_0254 import XEP_0254

OPEN = {"access_model": "open", "backoff": "0"}


def device(server: LoopbackServer) -> qos.Device:
    """A device of the account `bee`."""
    return qos.connect(
        "bee@localhost/1",
        "secret",
        store="memory:",
        host=server.host,
        port=server.port,
        tls="off",
        retry_first_s=0.1,
    )


async def begun(handler: Handler, queue: Queue, **options: Any) -> asyncio.Task[None]:
    """A run whose handler has an item, and waits."""
    handler.go_on.clear()
    running = asyncio.create_task(queue.run(handler, **options))
    await until(lambda: handler.jobs or running.done())
    assert not running.done(), running
    return running


# -- publish and run -------------------------------------------------------


async def test_one_account_publishes_and_works(bee: ClientXMPP, queue: Service) -> None:
    """By the same client, and at the same time."""
    orders = Queue(bee, QUEUE, NODE, create=OPEN)
    assert (orders.service, orders.node) == (QUEUE, NODE)
    handler = Handler()
    running = asyncio.create_task(orders.run(handler, parallel=3))
    published = [
        entry
        for number in range(9)
        for entry in await orders.publish(json={"number": number})
    ]
    await queue.until(accepted=9)
    orders.stop()
    async with limit():
        await running
    assert sorted(handler.ids) == sorted(entry.item_id for entry in published)
    assert {job.outcome for job in handler.jobs} == {ItemOutcome.ACCEPTED}
    assert sorted(str(job.json()) for job in handler.jobs) == [
        f"{{'number': {number}}}" for number in range(9)
    ]


async def test_one_account_publishes_here_and_works_there(
    bee: ClientXMPP, queue: Service, log_in: LogIn
) -> None:
    """Two clients of it; both make the queue, whoever is first."""
    handler, other = Handler(), await log_in("bee/2")
    working = Queue(other, QUEUE, NODE, create=OPEN)
    running = asyncio.create_task(working.run(handler))
    await Queue(bee, QUEUE, NODE, create=OPEN).publish(text="on")
    await until(lambda: handler.jobs)
    working.stop()
    await running
    assert handler.jobs[0].publisher == "bee@localhost"
    assert handler.jobs[0].text() == "on"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"json": [1, "ü", None]}, b'[1,"\xc3\xbc",null]'),
        ({"json": False}, b"false"),
        ({"text": ""}, b""),
        ({"text": "<two>\nwords"}, b"<two>\nwords"),
        ({"entries": [NewItem("<a xmlns='u:a'/>")]}, b"<a xmlns='u:a'/>"),
        ({"entries": [NewItem(ET.Element("{u:a}a"))]}, b"<a xmlns='u:a'/>"),
        ({"entries": [NewItem()]}, b""),
        ({"entries": [NewItem(json=7, priority=9)]}, b"7"),
    ],
    ids=("list", "false", "empty", "text", "XML", "element", "nothing", "item"),
)
async def test_a_handler_gets_what_was_published(
    bee: ClientXMPP,
    queue: Service,
    content: Mapping[str, Any],
    expected: bytes,
) -> None:
    """JSON, a text, an element as text or not, and nothing at all."""
    orders = Queue(bee, QUEUE, NODE, create=OPEN)
    (published,) = await orders.publish(**content)
    handler = Handler()
    running = await begun(handler, orders)
    orders.stop()
    handler.go_on.set()
    await running
    (job,) = handler.jobs
    assert (job.id, job.content()) == (published.item_id, expected)


async def test_nothing_to_publish_is_refused_with_what_to_give(
    bee: ClientXMPP, queue: Service
) -> None:
    """JSON null is nothing by itself; the error was about a tuple."""
    said = (
        "entries must be a list of at least one NewItem, unless json or text is given "
        "(None is not given: JSON null has to be inside of a value, such as [None])"
    )
    orders = Queue(bee, QUEUE, NODE, create=OPEN)
    for publishing in (
        orders.publish(json=None),
        XEP_0254.of(bee).publish(QUEUE, NODE, json=None),
    ):
        with pytest.raises(InvalidArgument) as refused:
            await publishing
        assert str(refused.value) == said


async def test_a_queue_for_dead_letters_is_created_by_itself(
    bee: ClientXMPP, queue: Service
) -> None:
    """Nobody publishes to it here, or works on it; and a program is started again."""
    for _ in range(2):
        dead = Queue(bee, QUEUE, "dead", create=True)
        await dead.create()
        await dead.create()
        orders = Queue(bee, QUEUE, NODE, create={"dead_letter_node": "dead"})
        await orders.create()
    config = await XEP_0254.of(bee).configuration(QUEUE, NODE)
    assert config["queue#dead_letter_node"] == "dead"
    with pytest.raises(LocalProtocolError, match="create=True"):
        await Queue(bee, QUEUE, "other").create()
    with pytest.raises(InvalidArgument, match="attempts"):
        await dead.create(attempts=0)


async def test_it_tells_a_new_item_from_a_repeated_one(
    bee: ClientXMPP, queue: Service
) -> None:
    """A publisher that was killed publishes the same ids again."""
    orders = Queue(bee, QUEUE, NODE, create=OPEN)
    first, second = NewItem(text="a", item_id="order-1"), NewItem(item_id="order-2")
    assert await orders.publish([first]) == [Published("order-1", repeated=False)]
    again = await orders.publish([first, second])
    assert again == [Published("order-1", repeated=True), Published("order-2")]
    await queue.until(available=2)


# -- stopping --------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_in_the_middle_of_an_item_lets_it_end(
    bee: ClientXMPP, queue: Service, number: signal.Signals
) -> None:
    """What runs is finished and accepted, and the rest goes back."""
    await queue.create()
    await queue.publish("a", "b", "c")
    before = signal.getsignal(number)
    handler, orders = Handler(), Queue(bee, QUEUE, NODE)
    running = await begun(handler, orders, grace_s=3600)
    os.kill(os.getpid(), number)
    await queue.until(subscribers=0, acquired=1, available=2)
    handler.go_on.set()
    async with limit():
        await running
    assert [job.outcome for job in handler.jobs] == [ItemOutcome.ACCEPTED]
    await queue.until(accepted=1, available=2, acquired=0)
    if number is signal.SIGINT:  # asyncio restores Python's default for it
        before = signal.default_int_handler
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("again", ["signal", "stop", "cancel"])
async def test_a_second_stop_gives_the_item_back(
    bee: ClientXMPP, queue: Service, again: str
) -> None:
    """So does a cancellation, which is a stop in a hurry."""
    await queue.create()
    await queue.publish("a")
    orders = Queue(bee, QUEUE, NODE)
    running = await begun(Handler(), orders, grace_s=3600)
    if again == "cancel":
        running.cancel()
    else:
        stop = (
            orders.stop
            if again == "stop"
            else lambda: os.kill(os.getpid(), signal.SIGTERM)
        )
        stop()
        await queue.until(subscribers=0, acquired=1)
        stop()
    async with limit():
        await asyncio.wait((running,))
    assert running.cancelled() == (again == "cancel")
    await queue.until(available=1, acquired=0, subscribers=0)
    found = [each async for each in queue.owner.browse(QUEUE, NODE)]
    assert found[0].delivery_count == 0


async def test_it_can_run_again_after_a_stop_but_not_twice_at_once(
    bee: ClientXMPP, queue: Service
) -> None:
    """A second worker of the client would get the same items."""
    await queue.create()
    orders = Queue(bee, QUEUE, NODE)
    orders.stop()  # harmless
    for item_id in "ab":
        await queue.publish(item_id)
        handler = Handler()
        running = await begun(handler, orders)
        assert handler.ids == [item_id]
        with pytest.raises(
            LocalProtocolError, match="has a worker of 'orders' already"
        ):
            await orders.run(Handler())
        handler.go_on.set()
        await queue.until(accepted=1 + "ab".index(item_id))
        # A stop and the signals still reach the first one.
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        orders.stop()
        await running
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert not orders._workers


async def test_an_unrecoverable_error_ends_it(bee: ClientXMPP, queue: Service) -> None:
    await queue.create()
    await queue.publish("a")
    with pytest.raises(UnrecoverableError, match="no licence"):
        await Queue(bee, QUEUE, NODE).run(Handler(UnrecoverableError("no licence")))
    await queue.until(available=1, subscribers=0)


async def test_a_run_that_does_not_begin_leaves_the_signals_alone(
    bee: ClientXMPP,
) -> None:
    """A program that goes on must still end by SIGTERM."""
    before = signal.getsignal(signal.SIGTERM)
    orders = Queue(bee, QUEUE, NODE)
    with pytest.raises(InvalidArgument, match="handler must be a function"):
        await orders.run("pack")  # type: ignore[arg-type]  # what is tested
    assert signal.getsignal(signal.SIGTERM) == before


async def test_in_another_thread_it_runs_without_signals(
    bee: ClientXMPP, queue: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python lets only the main thread handle them."""
    await queue.create()
    await queue.publish("a")
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(threading, "main_thread", threading.Thread)
    orders, handler = Queue(bee, QUEUE, NODE), Handler()
    running = await begun(handler, orders)
    assert signal.getsignal(signal.SIGTERM) == before
    handler.go_on.set()
    orders.stop()
    await running


# -- a service that is away ------------------------------------------------


@pytest.mark.parametrize("create", [False, True])
async def test_a_worker_waits_for_a_service_that_is_away_at_the_start(
    bee: ClientXMPP, queue: Service, caplog: pytest.LogCaptureFixture, create: bool
) -> None:
    """A machine starts its services in any order."""
    own = XEP_0254.of(bee)
    await own.create(QUEUE, NODE)
    await own.publish(QUEUE, NODE, text="a")
    await queue.stop()
    orders, handler = Queue(bee, QUEUE, NODE, create=create), Handler()
    running = asyncio.create_task(orders.run(handler))
    await until(lambda: caplog.text.count("not subscribed, again in") > 1)
    await queue.start()
    await until(lambda: handler.jobs)
    orders.stop()
    await running
    assert (await own.stats(QUEUE, NODE))["available"] == 0


@pytest.mark.parametrize("create", [False, True])
async def test_a_worker_whose_service_is_away_stops_by_a_signal(
    bee: ClientXMPP, caplog: pytest.LogCaptureFixture, create: bool
) -> None:
    """It waits to make its queue, or to subscribe."""
    orders = Queue(bee, QUEUE, NODE, create=create)
    running = asyncio.create_task(orders.run(Handler()))
    await until(lambda: caplog.text.count("not subscribed, again in") > 1)
    os.kill(os.getpid(), signal.SIGTERM)
    async with limit():
        await running


@pytest.mark.parametrize("create", [False, True])
async def test_a_publisher_tries_until_the_service_is_there(
    queue: Service, log_in: LogIn, create: bool
) -> None:
    bee = await log_in("bee/1", xep_0254={"retry_s": 0.2})
    await XEP_0254.of(bee).create(QUEUE, NODE)
    await queue.stop()
    orders = Queue(bee, QUEUE, NODE, create=create)
    with pytest.raises(RequestRefused, match="service-unavailable") as refused:
        await orders.publish(json=1, attempts=2)
    assert refused.value.unreachable
    publishing = asyncio.create_task(orders.publish(json=2, attempts=100))
    await asyncio.sleep(1)
    assert not publishing.done()
    await queue.start()
    await publishing
    assert (await XEP_0254.of(bee).stats(QUEUE, NODE))["available"] == 1


# -- a device of qos.connect -----------------------------------------------


async def test_a_device_publishes_and_works(
    server: LoopbackServer, queue: Service
) -> None:
    async with device(server) as bee:
        orders = Queue(bee, f"{QUEUE.upper()}", NODE, create=OPEN)
        (published,) = await orders.publish(json={"number": 7})
        handler = Handler()
        running = await begun(handler, orders, parallel=2)
        os.kill(os.getpid(), signal.SIGTERM)
        handler.go_on.set()
        await running
        assert handler.ids == [published.item_id]
        stats = await XEP_0254.of(bee.client).stats(QUEUE, NODE)
        assert (stats["available"], stats["acquired"]) == (0, 0)


async def test_a_device_that_is_not_entered_or_has_ended_is_told(
    server: LoopbackServer, queue: Service
) -> None:
    """And then the signals are the program's again."""
    await queue.create()
    bee = device(server)
    with pytest.raises(InvalidArgument, match="session must be a device of"):
        Queue(bee, QUEUE, NODE)
    before = signal.getsignal(signal.SIGTERM)
    async with bee:
        orders = Queue(bee, QUEUE, NODE)
        handler = Handler()
        await queue.publish("a")
        running = await begun(handler, orders)
        await bee.aclose()
        with pytest.raises(CannotConnect, match="the session has been closed"):
            await running
    for attempt in (orders.publish(json=1), orders.run(handler)):
        with pytest.raises(CannotConnect, match="the session has been closed"):
            await attempt
    assert signal.getsignal(signal.SIGTERM) == before


async def test_a_job_of_run_is_one_of_a_worker(bee: ClientXMPP, queue: Service) -> None:
    """Its handler decides about it as ever; the worker has its options."""
    orders, seen = Queue(bee, QUEUE, NODE, create=OPEN), []

    async def pack(job: Job) -> None:
        seen.append(job.properties["n"])
        await job.reject("too heavy")

    items = [NewItem(properties={"n": number}) for number in (1, 2, 3)]
    await orders.publish(items)
    running = asyncio.create_task(orders.run(pack, selector="n > 1", parallel=2))
    await queue.until(dead=2, available=1)
    orders.stop()
    await running
    assert sorted(seen) == [2, 3]
    dead = XEP_0254.of(bee).browse(QUEUE, NODE, state="dead")
    assert [each.history[0].reason async for each in dead] == [
        "rejected: too heavy"
    ] * 2
