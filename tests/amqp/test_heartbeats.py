"""Heartbeats: each end sends them as often as the other one asks for (transport §2.4.5).

The time is that of a clock which the tests turn, at both ends.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from proton import Endpoint

from amqp_bench import Bench, gateway
from frame_peer import OPEN, FramePeer, described
from qos.amqp import bounds, heartbeats
from qos.amqp.broker import Broker
from qos.amqp.source import Source
from qos.core.amqp import values
from qos.core.amqp.frames import FrameCutter
from qos.core.amqp.sasl import AMQP_HEADER, ANONYMOUS, Outcome, SaslServer
from qos.testing import ManualClock
from raw_amqp import RawAmqp
from turned_time import turned
from waiting import limit, until

#: What a peer asks for in these tests, in seconds.
IDLE_S = 1.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    return turned(monkeypatch, heartbeats)


@pytest.fixture
async def bench(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Bench]:
    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        yield bench


async def test_the_gateway_sends_heartbeats_as_often_as_its_peer_asks_for(
    bench: Bench, clock: ManualClock
) -> None:
    """From the first one on, which was late however short the time was."""
    async with FramePeer(bench.port, idle_ms=int(1000 * IDLE_S)) as peer:
        await peer.ping()
        for _ in range(3):
            before = peer.beats
            clock.advance(IDLE_S)
            await peer.ping()
            assert peer.beats > before


@pytest.mark.parametrize("idle_ms", [0, 3_600_000])
async def test_the_gateway_says_that_it_is_there_though_its_peer_asks_for_less(
    idle_ms: int, bench: Bench, clock: ManualClock
) -> None:
    """A proxy in between asks for nothing, and ends a connection that seems idle to it."""
    assert bounds.BEAT_S < 50
    async with FramePeer(bench.port, idle_ms=idle_ms) as peer:
        await peer.ping()
        for _ in range(3):
            before = peer.beats
            clock.advance(bounds.BEAT_S)
            await peer.ping()
            assert peer.beats > before


async def test_a_client_with_a_short_heartbeat_stays_at_a_silent_queue(
    bench: Bench, clock: ManualClock
) -> None:
    """It closed the connection, and got its item again and again.

    Proton tells half of the time after which it closes.
    """
    client = await asyncio.to_thread(RawAmqp, bench.port, idle_s=2 * IDLE_S)

    def begin() -> None:
        client.receiver("orders", 10)
        client.until(lambda: client.is_open)
        client.tick(clock.now())

    await asyncio.to_thread(begin)

    def hear(now: float) -> None:
        before = client.read
        client.until(lambda: client.read > before)
        client.tick(now)

    for _ in range(8):
        clock.advance(IDLE_S)
        await asyncio.to_thread(hear, clock.now())
        assert client.is_open
    await asyncio.to_thread(client.close)


async def test_a_peer_is_told_our_idle_time_out(bench: Bench) -> None:
    async with FramePeer(bench.port) as peer:
        assert (await peer.frame(OPEN)).value(4) == 1000 * bounds.IDLE_S


@pytest.mark.parametrize(
    ("asked_s", "every_s"), [(IDLE_S, IDLE_S), (3600.0, bounds.BEAT_S)]
)
async def test_the_bridge_sends_heartbeats_as_often_as_its_broker_asks_for(
    asked_s: float, every_s: float, clock: ManualClock
) -> None:
    """Or more often: for a proxy in between."""
    beats = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sasl, cutter = SaslServer([ANONYMOUS]), FrameCutter(1 << 20)
        while sasl.receive(await reader.read(1000)) is None:
            writer.write(bytes(sasl.output))
            sasl.output.clear()
        data = sasl.decided(Outcome.OK)
        writer.write(bytes(sasl.output) + AMQP_HEADER)
        idle = values.uint(int(1000 * asked_s))
        null = values.NULL
        opened = described(OPEN, values.string("broker"), null, null, null, idle)
        size = (8 + len(opened)).to_bytes(4, "big")
        writer.write(size + b"\x02\x00\x00\x00" + opened)
        while data or (data := await reader.read(1000)):
            if b"\x00\x00\x00\x08\x02\x00\x00\x00" in cutter.cut(data):
                beats.set()
            data = b""
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        link = Source(Broker(host="127.0.0.1", port=port, address="x"), credit=1)
        opening = asyncio.create_task(link.open())

        def is_due() -> bool:
            """The broker has opened the connection, and is told in time that we are there."""
            due = clock.deadline()
            is_open = (
                link._pump and link._pump.connection.state & Endpoint.REMOTE_ACTIVE
            )
            return bool(is_open) and due is not None and due <= clock.now() + every_s

        await until(is_due)
        clock.advance(every_s)
        async with limit():
            await beats.wait()
        opening.cancel()
        await asyncio.wait((opening,))
        await link.close()
