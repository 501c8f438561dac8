"""An item that is too large for the server of the service waits for a consumer by HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from qos.core.queue.item import Affiliation
from qos.stream.stream_limits import StreamLimits
from qos.testing.clients import logged_in
from send_bench import ALICE, DOMAIN, SendBench, sending
from waiting import limit, until
from xep_0254 import XEP_0254
from xep_0254.events import Event

NODE = (DOMAIN, "orders")
LARGE, SMALL = b"x" * 30_000, b"small"


def announce(bench: SendBench, bytes_max: int) -> None:
    """The limit that the server announces at the next login (XEP-0478)."""
    StreamLimits.of(bench.service._xmpp).sizes.announced(bytes_max)


async def post(bench: SendBench, body: bytes) -> None:
    answer = await bench.post("/queues/orders/messages", body)
    assert answer.status in {200, 201}, answer


async def test_it_goes_to_a_consumer_by_http_and_the_worker_gets_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Before, the first XMPP worker made it a dead item, whoever else could take it."""
    async with (
        sending(tmp_path) as bench,
        logged_in(bench.server, "lamp/1", {"xep_0254": {}}) as lamp,
        limit(),
    ):
        queueing, events = XEP_0254.of(lamp), asyncio.Queue[Event]()
        await queueing.create(*NODE)
        await queueing.set_affiliations(*NODE, {ALICE: Affiliation.OWNER})
        announce(bench, 20_000)
        queueing.add_listener(*NODE, events.put_nowait)
        await queueing.subscribe(*NODE, queue_requests=5)
        for body in (LARGE, SMALL, LARGE):
            await post(bench, body)
        (item,) = (await events.get()).items
        assert item.payload is not None

        async def oversized() -> bool:
            return (await queueing.stats(*NODE))["oversized"] == 2

        await until(oversized)
        stats = await queueing.stats(*NODE)
        assert (stats["available"], stats["acquired"], stats["dead"]) == (2, 1, 0)
        taken = await bench.post("/queues/orders/consumer")
        assert (taken.status, taken.body) == (200, LARGE)
        done = taken.link("acknowledgement")
        assert (await bench.post(done, b"acknowledge=true")).status == 204
        lines = [text for text in caplog.messages if "can go to no XMPP worker" in text]
        assert len(lines) == 1
        assert lines[0].endswith("the server of this service takes 20000")
        assert events.empty()
        # The server has another limit in the next session.
        announce(bench, 262_144)
        bench.service._session_started(resumed=False)
        lamp.send_presence(pto=DOMAIN)
        large = (await events.get()).items
        while large[0].item_id == item.item_id:
            large = (await events.get()).items
        assert (await queueing.stats(*NODE))["acquired"] == 2
