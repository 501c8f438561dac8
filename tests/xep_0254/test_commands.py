"""Commands by a client that knows nothing of queues: slixmpp's plugin of XEP-0050."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adhoc_client import Operator
from qos.core.queue.item import ItemOutcome
from qos.testing import friends, logged_in
from qos.testing.queues import queue_service
from qos.testing.server import LoopbackServer
from xep_0254 import XEP_0254, Affiliation, Event, NewItem
from xep_0254.service import QueueService

QUEUE = "queue.localhost"


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    async with friends("boss", "bee", "eve", components={QUEUE: "secret"}) as server:
        yield server


@pytest.fixture
async def service(
    server: LoopbackServer, tmp_path: Path
) -> AsyncIterator[QueueService]:
    store = f"sqlite:{tmp_path}/queues.db"
    async with queue_service(
        server, QUEUE, store=store, creators=["boss@localhost"]
    ) as service:
        yield service


@pytest.fixture
async def queues(
    server: LoopbackServer, service: QueueService
) -> AsyncIterator[XEP_0254]:
    """The queues of boss, by the plugin."""
    async with logged_in(server, "boss/plugin", {"xep_0254": {}}) as client:
        yield XEP_0254.of(client)


@pytest.fixture
async def boss(
    server: LoopbackServer, service: QueueService
) -> AsyncIterator[Operator]:
    async with logged_in(server, "boss/1") as client:
        yield Operator(client, QUEUE)


@pytest.fixture
async def bee(server: LoopbackServer, service: QueueService) -> AsyncIterator[Operator]:
    async with logged_in(server, "bee/1") as client:
        yield Operator(client, QUEUE)


async def test_an_account_sees_the_commands_that_it_can_use(
    queues: XEP_0254, boss: Operator, bee: Operator
) -> None:
    """XEP-0050 §2.2; the rest would only be refused."""
    assert set(await boss.listed()) == {"create"}
    assert await bee.listed() == {}
    await queues.create(QUEUE, "orders")
    own = {"queues", "queue", "browse", "dead", "workers", "create", "configure"}
    assert set(await boss.listed()) == own | {"purge", "delete"}
    await queues.set_affiliations(
        QUEUE, "orders", {"bee@localhost": Affiliation.PUBLISH_ONLY}
    )
    assert set(await bee.listed()) == {"queues", "queue"}
    await queues.set_affiliations(
        QUEUE, "orders", {"bee@localhost": Affiliation.MEMBER}
    )
    assert set(await bee.listed()) == {"queues", "queue", "browse"}
    await queues.create(QUEUE, "news", {"queue#node_type": "topic"})
    await queues.set_affiliations(QUEUE, "news", {"bee@localhost": Affiliation.MEMBER})
    assert set(await bee.listed()) == {"queues", "queue", "browse", "create"}


async def test_a_queue_is_created_configured_and_deleted(
    boss: Operator, queues: XEP_0254
) -> None:
    await boss.execute("create")
    assert boss.status == "executing"
    assert boss.values["queue#lock_timeout"] == "60"
    await boss.go_on(node="orders", **{"queue#lock_timeout": "5"})
    assert (boss.status, boss.note) == ("completed", "Created 'orders'.")
    await boss.execute("configure")
    assert boss.options("node") == ["orders"]
    await boss.go_on("next", node="orders")
    assert boss.values["queue#lock_timeout"] == "5"
    await boss.go_on(**{"queue#lock_timeout": "7"})
    assert boss.note == "Changed the configuration of 'orders'."
    config = await queues.configuration(QUEUE, "orders")
    assert config["queue#lock_timeout"] == "7"
    await boss.execute("delete")
    await boss.go_on(node="orders")
    await boss.go_on(confirm=True)
    assert boss.note == "Deleted 'orders'."
    assert await queues.nodes(QUEUE) == []


async def test_the_queues_and_their_counts_are_shown(
    queues: XEP_0254, boss: Operator
) -> None:
    await queues.create(QUEUE, "orders")
    await queues.create(QUEUE, "bills & more")
    await queues.publish(QUEUE, "orders", [NewItem(text="a"), NewItem(text="b")])
    await boss.execute("queues")
    assert boss.status == "completed"
    counts = {row["node"]: row["available"] for row in boss.rows}
    assert counts == {"bills & more": "0", "orders": "2"}
    await boss.execute("queue")
    assert boss.options("node") == ["bills & more", "orders"]
    await boss.go_on(node="orders")
    assert boss.status == "completed"
    assert boss.values["available"] == "2"
    assert boss.values["oldest_seconds"] == "0.0"


async def test_many_queues_are_shown_page_by_page(
    queues: XEP_0254, boss: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No turn of the loop may grow with what there is."""
    monkeypatch.setattr("qos.core.queue.command_outcomes.QUEUES_PAGE_MAX", 25)
    monkeypatch.setattr("xep_0254.commands.STEP_S", 0.0)
    names = [f"q{number:02}" for number in range(60)]
    for name in names:
        await queues.create(QUEUE, name)
    form = await boss.execute("queues")
    shown = boss.names
    while boss.status == "executing":
        text = "There are more queues: next shows up to 25 of them."
        assert form["instructions"] == text
        form = await boss.go_on("next")
        shown += boss.names
    assert shown == names
    assert [row["node"] for row in boss.rows] == names[50:]
    await boss.execute("queues")
    await boss.go_on("complete")
    assert boss.status == "completed"


async def test_items_are_browsed(queues: XEP_0254, bee: Operator) -> None:
    """By whoever may subscribe; nothing is locked."""
    await queues.create(QUEUE, "orders", {"queue#keep_accepted": "60"})
    await queues.set_affiliations(
        QUEUE, "orders", {"bee@localhost": Affiliation.MEMBER}
    )
    entries = [NewItem(text=f"<{number}>", item_id=f"i{number}") for number in range(3)]
    await queues.publish(QUEUE, "orders", entries)
    await bee.execute("browse")
    await bee.go_on("next", node="orders", state="live")
    assert bee.status == "completed"
    assert [row["id"] for row in bee.rows] == ["i0", "i1", "i2"]
    assert "&lt;1&gt;" in bee.rows[1]["payload"]
    assert {row["state"] for row in bee.rows} == {"available"}
    await bee.execute("browse")
    why = await bee.refusal("next", node="orders", state="dead")
    assert why == "bee@localhost does not own 'orders'"
    await bee.go_on("next", node="orders", state="live")
    assert len(bee.rows) == 3


async def die(queues: XEP_0254, node: str, *item_ids: str) -> None:
    """Publish items, and reject them."""
    came: asyncio.Queue[str] = asyncio.Queue()

    def take(event: Event) -> None:
        for item in event.items:
            came.put_nowait(item.item_id)

    queues.add_listener(QUEUE, node, take)
    await queues.subscribe(QUEUE, node, queue_requests=10)
    for item_id in item_ids:
        await queues.publish(QUEUE, node, [NewItem(text="x", item_id=item_id)])
        assert await came.get() == item_id
        await queues.unlock(
            QUEUE, node, item_id, outcome=ItemOutcome.REJECTED, reason="no address"
        )
    await queues.unsubscribe(QUEUE, node)
    queues.remove_listener(QUEUE, node, take)


async def live(queues: XEP_0254, node: str) -> list[str]:
    return [item.item_id async for item in queues.browse(QUEUE, node)]


async def test_chosen_dead_items_are_requeued(queues: XEP_0254, boss: Operator) -> None:
    await queues.create(QUEUE, "orders")
    await boss.execute("dead")
    await boss.go_on("next", node="orders")
    assert (boss.status, boss.note) == ("completed", "There are no dead items.")
    await die(queues, "orders", "i1", "i2", "i3")
    await boss.execute("dead")
    await boss.go_on("next", node="orders")
    assert boss.options("items") == ["i1", "i2", "i3"]
    why = await boss.refusal("complete")
    assert why == "no item is chosen: choose some, or cancel"
    await boss.go_on("complete", items=["i1", "i3"])
    assert boss.note == "Requeued in 'orders': 2."
    assert await live(queues, "orders") == ["i1", "i3"]


async def test_all_dead_items_are_requeued_some_at_a_time(
    queues: XEP_0254, boss: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those in the dead-letter queue; a command that takes for ever ends in between."""
    monkeypatch.setattr("qos.core.queue.requeuing._LOOKED_AT_MAX", 2)
    monkeypatch.setattr("qos.core.queue.command_outcomes.REQUEUED_MAX", 4)
    monkeypatch.setattr("qos.core.queue.command_outcomes.DEAD_PAGE_MAX", 2)
    monkeypatch.setattr("qos.core.queue.command_inputs.DEAD_PAGE_MAX", 2)
    await queues.create(QUEUE, "morgue")
    await queues.create(QUEUE, "orders", {"queue#dead_letter_node": "morgue"})
    await die(queues, "orders", *(f"i{number}" for number in range(5)))
    await boss.execute("dead")
    form = await boss.go_on("next", node="morgue")
    assert "where they died, as in 'orders'" in form["instructions"]
    await boss.cancel()
    await boss.execute("dead")
    await boss.go_on("next", node="orders")
    pages = [boss.options("items")]
    await boss.go_on("next")
    pages.append(boss.options("items"))
    assert pages == [["i0", "i1"], ["i2", "i3"]]
    await boss.go_on("complete", every=True)
    more = "There are more: execute the command again."
    assert boss.note == f"Requeued in 'orders': 4. {more}"
    await boss.execute("dead")
    await boss.go_on("next", node="orders")
    await boss.go_on("complete", every=True)
    assert boss.note == "Requeued in 'orders': 1."
    assert len(await live(queues, "orders")) == 5


async def test_workers_are_listed(queues: XEP_0254, boss: Operator) -> None:
    await queues.create(QUEUE, "orders")
    await boss.execute("workers")
    await boss.go_on(node="orders")
    assert boss.note == "'orders' has no worker."
    await queues.subscribe(QUEUE, "orders", queue_requests=7, selector="color = 'red'")
    await boss.execute("workers")
    await boss.go_on(node="orders")
    (row,) = boss.rows
    assert row["jid"] == "boss@localhost/plugin"
    assert (row["requests"], row["selector"]) == ("7", "color = 'red'")


async def test_a_queue_is_purged_after_it_has_asked_once_more(
    queues: XEP_0254, boss: Operator
) -> None:
    await queues.create(QUEUE, "orders")
    await queues.publish(QUEUE, "orders", [NewItem(text="a"), NewItem(text="b")])
    await boss.execute("purge")
    form = await boss.go_on("next", node="orders")
    assert "2 available, 0 acquired" in form["instructions"]
    why = await boss.refusal("complete")
    assert why == "nothing was done: check the box, or cancel"
    assert len(await live(queues, "orders")) == 2
    await boss.go_on("complete", confirm=True)
    assert (boss.status, boss.note) == ("completed", "Removed all items of 'orders'.")
    assert await live(queues, "orders") == []
