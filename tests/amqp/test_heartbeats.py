"""Heartbeats: each end sends them as often as the other one asks for (transport §2.4.5)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from proton import Timeout
from proton.utils import BlockingConnection

from amqp_bench import Bench, gateway
from frame_peer import OPEN, FramePeer, described
from qos.amqp import bounds
from qos.amqp.broker import Broker
from qos.amqp.source import Source
from qos.core.amqp import values
from qos.core.amqp.sasl import AMQP_HEADER, ANONYMOUS, Outcome, SaslServer

#: What a peer asks for in these tests, in seconds; it is told half of the time-out.
IDLE_S = 1.0


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        yield bench


async def test_the_gateway_sends_heartbeats_as_often_as_its_peer_asks_for(
    bench: Bench,
) -> None:
    """From the first one on, which was late however short the time was."""
    async with FramePeer(bench.port, idle_ms=int(1000 * IDLE_S)) as peer:
        for _ in range(3):
            async with asyncio.timeout(IDLE_S):
                await peer.heartbeat()


async def test_a_client_with_a_short_heartbeat_stays_at_a_silent_queue(
    bench: Bench,
) -> None:
    """It closed the connection, and got its item again and again."""

    def work(client: BlockingConnection) -> None:
        client.create_receiver("orders")
        with pytest.raises(Timeout):
            client.wait(lambda: False, timeout=4 * IDLE_S)
        assert client.conn is not None
        assert client.conn.state & client.conn.REMOTE_ACTIVE

    await bench.proton(work, heartbeat=IDLE_S)


async def test_a_peer_is_told_our_idle_time_out(bench: Bench) -> None:
    async with FramePeer(bench.port) as peer:
        assert (await peer.frame(OPEN)).value(4) == 1000 * bounds.IDLE_S


async def test_the_bridge_sends_heartbeats_as_often_as_its_broker_asks_for() -> None:
    beats = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sasl = SaslServer([ANONYMOUS])
        while sasl.receive(await reader.read(1000)) is None:
            writer.write(bytes(sasl.output))
            sasl.output.clear()
        sasl.decided(Outcome.OK)
        writer.write(bytes(sasl.output) + AMQP_HEADER)
        idle = values.uint(int(1000 * IDLE_S))
        null = values.NULL
        opened = described(OPEN, values.string("broker"), null, null, null, idle)
        size = (8 + len(opened)).to_bytes(4, "big")
        writer.write(size + b"\x02\x00\x00\x00" + opened)
        while data := await reader.read(1000):
            if data == b"\x00\x00\x00\x08\x02\x00\x00\x00":
                beats.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        link = Source(Broker(host="127.0.0.1", port=port, address="x"), credit=1)
        opening = asyncio.create_task(link.open())
        async with asyncio.timeout(4 * IDLE_S):
            await beats.wait()
        opening.cancel()
        await asyncio.wait((opening,))
        await link.close()
