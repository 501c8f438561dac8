"""`Queue(create=…)`: the queue is there afterwards, and is this account's own."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from slixmpp import ClientXMPP

from qos.errors import InvalidArgument, RequestRefused
from qos.worker import NewItem, Queue
from waiting import until
from worker_setup import NODE, QUEUE, Handler, LogIn, ScriptedService
from worker_setup import Queue as Service
from xep_0254 import XEP_0254

OPEN = {"access_model": "open", "backoff": "0"}


async def test_without_create_a_queue_that_is_missing_is_an_error(
    bee: ClientXMPP, queue: Service
) -> None:
    """A spelling mistake must not make a queue where nobody works."""
    orders = Queue(bee, QUEUE, NODE)
    for attempt in (orders.publish(json=1), orders.run(Handler())):
        with pytest.raises(RequestRefused, match="item-not-found: there is no"):
            await attempt
    assert await XEP_0254.of(bee).nodes(QUEUE) == []


@pytest.mark.parametrize("first", ["publish", "run"])
async def test_create_makes_the_queue_with_its_options(
    bee: ClientXMPP, queue: Service, first: str
) -> None:
    """Named as on the command line, or in full; the rest are the usual ones."""
    options = {"lock_timeout": "30", "queue#max_deliveries": " 7 "}
    orders = Queue(bee, QUEUE, NODE, create=options)
    if first == "publish":
        await orders.publish(json=1)
    else:
        running = asyncio.create_task(orders.run(Handler()))
        await until(lambda: orders._creation.is_done)
        orders.stop()
        await running
    found = await XEP_0254.of(bee).configuration(QUEUE, NODE)
    names = ("queue#lock_timeout", "queue#max_deliveries", "queue#backoff")
    assert [found[name] for name in names] == ["30", "7", "1"]


@pytest.mark.parametrize("options", [True, {}, {"backoff": "0"}])
async def test_a_queue_may_be_created_twice(
    bee: ClientXMPP,
    queue: Service,
    caplog: pytest.LogCaptureFixture,
    options: bool | Mapping[str, str],
) -> None:
    """A program that starts again finds its own, with the items; so does a sibling."""
    for number in range(2):
        orders = Queue(bee, QUEUE, NODE, create=options)
        await asyncio.gather(*(orders.publish(json=number) for _ in range(3)))
    assert (await XEP_0254.of(bee).stats(QUEUE, NODE))["available"] == 6
    assert not [each for each in caplog.records if each.name.startswith("qos.worker")]


async def test_a_queue_that_was_there_keeps_its_options_and_this_is_told(
    bee: ClientXMPP, queue: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """A program whose options were changed must not seem to have changed the queue."""
    await Queue(bee, QUEUE, NODE, create={"lock_timeout": "30"}).publish(json=1)
    wanted = {"lock_timeout": "31.0", "backoff": "1.0"}
    orders = Queue(bee, QUEUE, NODE, create=wanted)
    await orders.publish(json=2)
    await orders.publish(json=3)
    found = await XEP_0254.of(bee).configuration(QUEUE, NODE)
    assert found["queue#lock_timeout"] == "30"
    assert [each.getMessage() for each in caplog.records] == [
        "'orders' was there, and keeps its options: queue#lock_timeout is '30', not '31'"
    ]


@pytest.mark.parametrize("access", ["open", "whitelist"])
async def test_a_queue_of_another_account_is_not_taken_for_ones_own(
    bee: ClientXMPP, queue: Service, access: str
) -> None:
    """Its owner could read what is published, whether this account sees it or not."""
    await queue.owner.create(QUEUE, NODE, {"pubsub#access_model": access})
    for _ in range(2):
        orders = Queue(bee, QUEUE, NODE, create=OPEN)
        for attempt in (orders.publish(json=1), orders.run(Handler())):
            with pytest.raises(RequestRefused) as refused:
                await attempt
            assert str(refused.value) == (
                "queue.localhost refused to create 'orders': conflict: it is there, and "
                "this account is no owner of it; leave out `create` to use it, or choose "
                "another name"
            )
            assert not refused.value.is_temporary
    await queue.until(available=0, subscribers=0)


async def test_any_owner_of_the_queue_may_have_created_it(
    bee: ClientXMPP, queue: Service
) -> None:
    await queue.create()
    await queue.owner.set_affiliations(QUEUE, NODE, {"bee@localhost": "owner"})  # type: ignore[dict-item]  # its word
    await Queue(bee, QUEUE, NODE, create=True).publish(json=1)
    await queue.until(available=1)


@pytest.mark.parametrize("condition", ["forbidden", "resource-constraint"])
async def test_a_refusal_to_create_is_not_taken_for_a_queue_that_is_there(
    bee: ClientXMPP, scripted: ScriptedService, condition: str
) -> None:
    publishing = asyncio.create_task(
        Queue(bee, QUEUE, NODE, create=True).publish(json=1)
    )
    await scripted.refuse(await scripted.asked("create"), condition)
    with pytest.raises(RequestRefused, match=f"refused to create: {condition}"):
        await publishing


async def test_a_service_that_does_not_tell_whose_the_queue_is_is_not_believed(
    bee: ClientXMPP, scripted: ScriptedService
) -> None:
    """Its refusal is passed on, and each new attempt asks again."""
    orders = Queue(bee, QUEUE, NODE, create=True)
    for _ in range(2):
        publishing = asyncio.create_task(orders.publish(json=1))
        await scripted.refuse(await scripted.asked("create"), "conflict")
        asked = await scripted.asked("configure")
        await scripted.refuse(asked, "feature-not-implemented")
        with pytest.raises(RequestRefused, match="refused to show options: feature-"):
            await publishing


async def test_a_create_whose_answer_is_lost_is_repeated(
    scripted: ScriptedService, log_in: LogIn
) -> None:
    """The second one finds the queue, which the first one made."""
    bee = await log_in("bee/1", xep_0254={"timeout_s": 0.05, "retry_s": 0.01})
    publishing = asyncio.create_task(
        Queue(bee, QUEUE, NODE, create=True).publish(json=1)
    )
    await scripted.asked("create")
    await scripted.refuse(await scripted.asked("create"), "conflict")
    await scripted.answer(await scripted.asked("configure"))
    await scripted.answer(await scripted.asked("publish"))
    assert [entry.repeated for entry in await publishing] == [False]


@pytest.mark.parametrize(
    "wrong",
    [
        {"entries": ()},
        {"entries": [NewItem("<a>")]},
        {"entries": ["<a/>"]},
        {"json": 1, "text": "1"},
        {"json": {1, 2}},
        {"json": 1, "attempts": 0},
    ],
    ids=("none", "no XML", "a string", "both", "a set", "attempts"),
)
async def test_a_mistake_in_what_is_published_creates_no_queue(
    bee: ClientXMPP, queue: Service, wrong: Mapping[str, Any]
) -> None:
    """Nothing was sent: this is what the error means."""
    orders = Queue(bee, QUEUE, NODE, create=True)
    with pytest.raises(InvalidArgument):
        await orders.publish(**wrong)
    assert await XEP_0254.of(bee).nodes(QUEUE) == []
