"""A request or an answer that is too large for a server ends alone, and no queue with it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from slixmpp import ClientXMPP, ComponentXMPP

from qos.errors import MessageTooLarge, RequestRefused
from qos.stream.stream_limits import StreamLimits
from qos.testing import LoopbackServer, friends, logged_in
from qos.testing.clients import close
from waiting import LIMIT_S, limit, until
from xep_0254 import XEP_0254, NewItem, QueueService
from xep_0254.events import Event

QUEUE = "queue.localhost"


def server_of_queues(stanza_bytes_max: int) -> LoopbackServer:
    """A server that ends streams at this size, with a client and a component."""
    return friends(
        "alice", components={QUEUE: "hush"}, stanza_bytes_max=stanza_bytes_max
    )


@contextlib.asynccontextmanager
async def serving(
    server: LoopbackServer, folder: Path
) -> AsyncIterator[tuple[ComponentXMPP, QueueService]]:
    """A queue service that comes back whenever its stream ends."""
    component = ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's lack
        QUEUE, "hush", server.host, server.component_port
    )
    service = QueueService(component, f"sqlite:{folder}/q.db", creators="anyone")

    def connect(_event: object = None) -> None:
        component.connect()

    component.add_event_handler("disconnected", connect)
    try:
        connect()
        await component.wait_until("session_start", timeout=LIMIT_S)
        yield component, service
    finally:
        component.del_event_handler("disconnected", connect)
        await service.aclose()
        await close(component)


@contextlib.asynccontextmanager
async def client_and_service(
    folder: Path, stanza_bytes_max: int
) -> AsyncIterator[tuple[ClientXMPP, ComponentXMPP, QueueService]]:
    """A client and a queue service at a server that ends streams at this size."""
    plugins = {"xep_0254": {}, "xep_qos": {"trust": QUEUE}}
    async with (
        server_of_queues(stanza_bytes_max) as server,
        serving(server, folder) as (component, service),
        logged_in(server, "alice/a", plugins) as alice,
    ):
        yield alice, component, service


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


async def oversized(queueing: XEP_0254) -> None:
    """Wait until an item is found to be too large for workers."""

    async def counted() -> bool:
        try:
            stats = await queueing.stats(QUEUE, "orders")
        except RequestRefused as error:
            if error.condition != "service-unavailable":
                raise
            return False  # its stream has ended
        assert not stats["dead"]
        return stats["oversized"] == 1

    await until(counted)


@pytest.mark.parametrize("acknowledged", [False, True])
async def test_an_item_that_is_too_large_for_an_event_waits_and_is_logged(
    tmp_path: Path, acknowledged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, it was given and taken from worker to worker, who never got it, until it
    was dead since it had *timed out*; later, it was dead at once.
    """
    async with (
        client_and_service(tmp_path, 262_144) as (alice, component, _),
        limit(),
    ):
        queueing = XEP_0254.of(alice)
        await queueing.create(QUEUE, "orders")
        large, small = NewItem(text="x" * 30_000), NewItem(text="y")
        await queueing.publish(QUEUE, "orders", [large, small])
        StreamLimits.of(component).sizes.announced(20_000)
        events = await subscribed(alice, acknowledged=acknowledged)
        assert [each.item_id for each in (await events.get()).items] == [small.item_id]
        await oversized(queueing)
        (line,) = [text for text in caplog.messages if "no XMPP worker" in text]
        assert line.startswith(f"items of 'orders' such as {large.item_id!r} can go to")
        assert line.endswith("bytes, and the server of this service takes 20000")
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


async def test_an_item_whose_event_ends_the_stream_twice_waits(tmp_path: Path) -> None:
    """Its publish was just small enough, and its event is larger by a few attributes. The
    others come, and the service is not cut off again.
    """
    async with (
        client_and_service(tmp_path, 20_000) as (alice, component, _),
        limit(),
    ):
        sessions: list[object] = []
        component.add_event_handler("session_start", sessions.append)
        queueing = XEP_0254.of(alice)
        await queueing.create(QUEUE, "orders", {"queue#lock_timeout": "100000"})
        large, small = NewItem(text="x" * 19_650), NewItem(text="y")
        await queueing.publish(QUEUE, "orders", [large])
        events = await subscribed(alice)
        await queueing.publish(QUEUE, "orders", [small])
        assert [each.item_id for each in (await events.get()).items] == [small.item_id]
        await oversized(queueing)
        assert len(sessions) == 2


@pytest.mark.parametrize("killed", [False, True])
async def test_what_was_learned_outlives_the_service(
    tmp_path: Path, killed: bool
) -> None:
    """Two streams end for it once, and none after each start of the service."""
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    async with server_of_queues(20_000) as server, limit():
        plugins = {"xep_0254": {}, "xep_qos": {"trust": QUEUE}}
        async with logged_in(server, "alice/a", plugins) as alice:
            queueing = XEP_0254.of(alice)
            async with serving(server, before) as (component, _):
                await queueing.create(QUEUE, "orders", {"queue#lock_timeout": "100000"})
                await queueing.publish(QUEUE, "orders", text="x" * 19_650)
                events = await subscribed(alice)
                await oversized(queueing)
                learned = StreamLimits.of(component).sizes.limit
                assert learned is not None
                if killed:
                    # As the disk is when the first item waits because of the limit.
                    shutil.copytree(before, after)
            if not killed:
                shutil.copytree(before, after)
            async with serving(server, after) as (component, _):
                assert StreamLimits.of(component).sizes.limit == learned
                ends: list[object] = []
                component.add_event_handler("stream_error", ends.append)
                alice.send_presence(pto=QUEUE)
                await oversized(queueing)
                await queueing.publish(QUEUE, "orders", text="small")
                assert len((await events.get()).items) == 1
                assert not ends
