"""A queue service for tests, as a user of this library starts it."""

from pathlib import Path

import pytest

from qos.errors import RequestRefused
from qos.testing import friends, logged_in, queue_service
from qos.testing.clients import Plugins
from qos.worker import Worker
from waiting import limit
from xep_0254 import XEP_0254, NewItem

QUEUE = "queue.localhost"
COMPONENTS = {QUEUE: "secret"}
PLUGINS: Plugins = {"xep_0254": {}}


async def test_what_is_published_is_worked_on() -> None:
    """Everything that a test of a queue needs is in one place, and nothing is left
    behind.
    """
    async with (
        friends("boss", "bee", components=COMPONENTS) as server,
        queue_service(server, QUEUE),
        logged_in(server, "boss", PLUGINS) as boss,
        logged_in(server, "bee", PLUGINS) as bee,
    ):
        queues = XEP_0254.of(boss)
        await queues.create(QUEUE, "orders", {"pubsub#access_model": "open"})
        async with Worker(bee, QUEUE, "orders") as worker:
            await queues.publish(QUEUE, "orders", [NewItem(item_id="one")])
            async with limit(), await anext(worker) as job:
                assert job.id == "one"
        assert (await queues.stats(QUEUE, "orders"))["accepted"] == 1


async def test_it_comes_back_with_the_server() -> None:
    """As with a real server: a test of a restart needs nothing more than a restart."""
    async with (
        friends("boss", components=COMPONENTS) as server,
        queue_service(server, QUEUE),
        logged_in(server, "boss", PLUGINS) as boss,
    ):
        queues = XEP_0254.of(boss)
        await queues.create(QUEUE, "orders")
        await server.restart()
        # At first the service is away: a publish is repeated until it is back.
        await queues.publish(QUEUE, "orders", [NewItem()], attempts=100)
        assert (await queues.stats(QUEUE, "orders"))["available"] == 1


async def test_a_store_of_the_users_own_outlives_it(tmp_path: Path) -> None:
    """Thus a test can restart the service. It then has to remove the store itself."""
    store = f"sqlite:{tmp_path / 'queues.sqlite'}"
    async with (
        friends("boss", components=COMPONENTS) as server,
        logged_in(server, "boss", PLUGINS) as boss,
    ):
        queues = XEP_0254.of(boss)
        async with queue_service(server, QUEUE, store=store):
            await queues.create(QUEUE, "orders")
            await queues.publish(QUEUE, "orders", [NewItem(item_id="one")])
        async with queue_service(server, QUEUE, store=store):
            page = await queues.items(QUEUE, "orders")
    assert [item.item_id for item in page.items] == ["one"]


async def test_who_may_create_can_be_said() -> None:
    """For tests of an application that may not create queues."""
    async with (
        friends("boss", "bee", components=COMPONENTS) as server,
        queue_service(server, QUEUE, creators=["boss@localhost"]),
        logged_in(server, "boss", PLUGINS) as boss,
        logged_in(server, "bee", PLUGINS) as bee,
    ):
        await XEP_0254.of(boss).create(QUEUE, "orders")
        with pytest.raises(RequestRefused, match="forbidden"):
            await XEP_0254.of(bee).create(QUEUE, "others")
