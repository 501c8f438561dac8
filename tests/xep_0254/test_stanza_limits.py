"""A request or an answer that is too large for a server ends alone, and no queue with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from slixmpp import ClientXMPP, ComponentXMPP

from qos.core.queue.item import ItemOutcome
from qos.errors import MessageTooLarge, RequestRefused
from qos.stream.stream_limits import StreamLimits
from qos.testing import friends, logged_in
from qos.testing.clients import close
from waiting import LIMIT_S, limit
from xep_0254 import XEP_0254, NewItem, QueueService
from xep_0254.events import Event

QUEUE = "queue.localhost"


@contextlib.asynccontextmanager
async def client_and_service(
    folder: Path, stanza_bytes_max: int
) -> AsyncIterator[tuple[ClientXMPP, ComponentXMPP, QueueService]]:
    """A client and a queue service at a server that ends streams at this size."""
    async with friends(
        "alice", components={QUEUE: "hush"}, stanza_bytes_max=stanza_bytes_max
    ) as server:
        component = ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's lack
            QUEUE, "hush", server.host, server.component_port
        )
        service = QueueService(component, f"sqlite:{folder}/q.db", creators="anyone")
        try:
            component.connect()
            await component.wait_until("session_start", timeout=LIMIT_S)
            plugins = {"xep_0254": {}, "xep_qos": {"trust": QUEUE}}
            async with logged_in(server, "alice/a", plugins) as alice:
                yield alice, component, service
        finally:
            await service.aclose()
            await close(component)


async def test_a_publish_that_is_too_large_is_refused_after_two_ends(
    tmp_path: Path,
) -> None:
    """Before, it was repeated, and each repeat ended the stream, with all requests."""
    async with client_and_service(tmp_path, 20_000) as (alice, _, _), limit():
        sessions: list[object] = []
        alice.add_event_handler("session_start", sessions.append)
        queueing = XEP_0254.of(alice)
        await queueing.create(QUEUE, "orders")
        with pytest.raises(MessageTooLarge) as caught:
            await queueing.publish(QUEUE, "orders", text="x" * 30_000)
        assert caught.value.size > caught.value.limit
        assert len(sessions) == 2
        await queueing.publish(QUEUE, "orders", text="x" * 5_000)
        with pytest.raises(MessageTooLarge):
            await queueing.publish(QUEUE, "orders", text="x" * 40_000)
        assert len(sessions) == 2


async def test_an_answer_that_is_too_large_is_a_refusal(tmp_path: Path) -> None:
    """The server of the service would end its stream, which all its clients share."""
    async with client_and_service(tmp_path, 262_144) as (alice, component, _), limit():
        queueing = XEP_0254.of(alice)
        await queueing.create(QUEUE, "orders")
        await queueing.publish(QUEUE, "orders", text="x" * 30_000)
        StreamLimits.of(component).sizes.announced(20_000)
        with pytest.raises(RequestRefused, match="takes 20000") as caught:
            await queueing.items(QUEUE, "orders")
        assert caught.value.condition == "policy-violation"
        assert (await queueing.stats(QUEUE, "orders"))["available"] == 1


async def subscribed(
    client: ClientXMPP, *, acknowledged: bool = False, batch: int = 1
) -> asyncio.Queue[Event]:
    """A worker of the queue `orders`; returns its events."""
    events: asyncio.Queue[Event] = asyncio.Queue()
    queueing = XEP_0254.of(client)
    queueing.add_listener(QUEUE, "orders", events.put_nowait)
    await queueing.subscribe(
        QUEUE,
        "orders",
        queue_requests=20,
        batch=batch,
        events="acknowledged" if acknowledged else "message",
    )
    return events


async def reason(queueing: XEP_0254, service: QueueService) -> str:
    """Why the only dead item is dead. It is too large for the answer to its owner, too."""
    while not (await queueing.stats(QUEUE, "orders"))["dead"]:  # noqa: ASYNC110
        await asyncio.sleep(0)
    found = service.engine.store.archived("orders", ItemOutcome.REJECTED, limit=2)
    (failure,) = (failure for item in found for failure in item.history)
    return failure.reason


@pytest.mark.parametrize("acknowledged", [False, True])
async def test_an_item_that_is_too_large_for_an_event_is_dead_with_that_reason(
    tmp_path: Path, acknowledged: bool
) -> None:
    """Before, it was given and taken from worker to worker, who never got it, until it
    was dead since it had *timed out*.
    """
    async with (
        client_and_service(tmp_path, 262_144) as (alice, component, service),
        limit(),
    ):
        queueing = XEP_0254.of(alice)
        await queueing.create(QUEUE, "orders")
        large, small = NewItem(text="x" * 30_000), NewItem(text="y")
        await queueing.publish(QUEUE, "orders", [large, small])
        StreamLimits.of(component).sizes.announced(20_000)
        events = await subscribed(alice, acknowledged=acknowledged)
        assert [each.item_id for each in (await events.get()).items] == [small.item_id]
        why = await reason(queueing, service)
        assert why.startswith("rejected: the event has 3")
        assert why.endswith("bytes, and the server of this service takes 20000")
        assert events.empty()


async def test_items_go_in_as_many_events_as_the_server_takes(tmp_path: Path) -> None:
    """Each fits, but not all together: then none of them was sent."""
    async with client_and_service(tmp_path, 262_144) as (alice, component, _), limit():
        queueing = XEP_0254.of(alice)
        await queueing.create(QUEUE, "orders")
        items = [NewItem(text="x" * 4_000) for _ in range(10)]
        await queueing.publish(QUEUE, "orders", items)
        StreamLimits.of(component).sizes.announced(20_000)
        events = await subscribed(alice, batch=10)
        given = [await events.get() for _ in range(4)]
        ids = [each.item_id for event in given for each in event.items]
        assert ids == [each.item_id for each in items]
        assert [len(event.items) for event in given] == [3, 3, 3, 1]


async def test_an_item_whose_event_ends_the_stream_twice_is_dead_with_that_reason(
    tmp_path: Path,
) -> None:
    """Its publish was just small enough, and its event is larger by a few attributes. The
    others come, and the service is not cut off again.
    """
    async with (
        client_and_service(tmp_path, 20_000) as (alice, component, service),
        limit(),
    ):
        sessions: list[object] = []
        component.add_event_handler("session_start", sessions.append)
        component.add_event_handler("disconnected", lambda _: component.connect())
        queueing = XEP_0254.of(alice)
        await queueing.create(QUEUE, "orders", {"queue#lock_timeout": "100000"})
        large, small = NewItem(text="x" * 19_650), NewItem(text="y")
        await queueing.publish(QUEUE, "orders", [large])
        events = await subscribed(alice)
        await queueing.publish(QUEUE, "orders", [small])
        assert [each.item_id for each in (await events.get()).items] == [small.item_id]
        assert "the server of this service takes" in await reason(queueing, service)
        assert len(sessions) == 2
