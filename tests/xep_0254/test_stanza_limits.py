"""A request or an answer that is too large for a server ends alone, and no queue with it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from slixmpp import ClientXMPP, ComponentXMPP

from qos.errors import MessageTooLarge, RequestRefused
from qos.stream.stream_limits import StreamLimits
from qos.testing import friends, logged_in
from qos.testing.clients import close
from waiting import LIMIT_S, limit
from xep_0254 import XEP_0254, QueueService

QUEUE = "queue.localhost"


@contextlib.asynccontextmanager
async def client_and_service(
    folder: Path, stanza_bytes_max: int
) -> AsyncIterator[tuple[ClientXMPP, ComponentXMPP]]:
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
            async with logged_in(server, "alice/a", {"xep_0254": {}}) as alice:
                yield alice, component
        finally:
            await service.aclose()
            await close(component)


async def test_a_publish_that_is_too_large_is_refused_after_two_ends(
    tmp_path: Path,
) -> None:
    """Before, it was repeated, and each repeat ended the stream, with all requests."""
    async with client_and_service(tmp_path, 20_000) as (alice, _), limit():
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
    async with client_and_service(tmp_path, 262_144) as (alice, component), limit():
        queueing = XEP_0254.of(alice)
        await queueing.create(QUEUE, "orders")
        await queueing.publish(QUEUE, "orders", text="x" * 30_000)
        StreamLimits.of(component).sizes.announced(20_000)
        with pytest.raises(RequestRefused, match="takes 20000") as caught:
            await queueing.items(QUEUE, "orders")
        assert caught.value.condition == "policy-violation"
        assert (await queueing.stats(QUEUE, "orders"))["available"] == 1
