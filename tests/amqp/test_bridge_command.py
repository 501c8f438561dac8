"""`xmpp-qos bridge`: an XMPP server that is away, and a stderr that nobody reads.

The broker is our own gateway, which needs no time to start.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from proton import Message

import turned_clock
from amqp_bench import Bench, gateway
from bridge_bench import Bridge, Bridges, bridges
from proxy import Proxy
from qos.testing.ports import ADDRESS
from small_pipe import SmallPipe
from waiting import until
from worker_setup import NODE, QUEUE
from xep_0254 import NewItem

FROM, TO = "--from-broker", "--to-broker"

#: Longer than any test takes, and less than the clock is turned by.
DRAIN = ("--drain", "1800")

#: Items that no bridge forwards any more. The notes on so many, with ids as long as
#: these, do not fit into what may wait.
DEAD = 600
LONG = "x" * 500


@dataclass
class Place:
    """A queue, a broker, and bridges between them.

    Attributes:
        bench: the queue, and the bridges.
        broker: our gateway.
        link: between a bridge and the XMPP server.
    """

    bench: Bridges
    broker: Bench
    link: Proxy

    async def start(self, direction: str, *words: str, **options: Any) -> Bridge:
        """Start a bridge, which reaches its XMPP server through the link."""
        url = f"amqp://alice@127.0.0.1:{self.broker.port}/orders"
        options = {"function": turned_clock.command, "password": "secret", **options}
        words = ("--port", str(self.link.port), *words)
        return await self.bench.start(direction, url, *words, **options)

    async def at_broker(self) -> list[str]:
        """The ids of the messages that the broker has."""
        return list(await self.broker.items("orders"))


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    folder = tmp_path / "broker"
    folder.mkdir()
    async with bridges(tmp_path) as bench, gateway(folder) as broker:
        await broker.create("orders")
        yield Place(bench, broker, Proxy(bench.port))


@pytest.fixture
def pipe() -> Iterator[SmallPipe]:
    pipe = SmallPipe()
    yield pipe
    pipe.close()


class Away:
    """A server of which there is only the port: it ends connections, or says nothing.

    Attributes:
        came: how many connections it has accepted.
    """

    def __init__(self, port: int, *, is_mute: bool) -> None:
        self.came = 0
        self._port, self._is_mute = port, is_mute
        self._writers: list[asyncio.StreamWriter] = []

    def _accept(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        self._writers.append(writer)
        if not self._is_mute:
            writer.close()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, ADDRESS, self._port)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def turn(self, bridge: Bridge) -> None:
        """Let an hour pass for the bridge, after which it tries again to connect."""
        came = self.came
        bridge.process.send_signal(turned_clock.TURNS)
        await until(lambda: self.came > came or bridge.process.returncode is not None)


@pytest.mark.parametrize("is_mute", [True, False])
async def test_a_bridge_whose_xmpp_server_is_away_has_not_drained_the_queue(
    is_mute: bool, place: Place
) -> None:
    """Otherwise a job of a scheduler ends with success, and has done nothing."""
    async with place.link:
        bridge = await place.start(TO, *DRAIN)
        await bridge.note("ready")
    async with Away(place.link.port, is_mute=is_mute) as away:
        await bridge.note("trying again")
        for _ in range(4):
            await away.turn(bridge)
        assert bridge.process.returncode is None
    await place.bench.queue.publish("i")
    async with place.link:
        await place.bench.queue.until(accepted=1, acquired=0)
        bridge.process.send_signal(signal.SIGTERM)
        assert await bridge.end() == 130, bridge.said
    assert "carried 1, refused 0" in bridge.said
    assert await place.at_broker() == ["string:i"]


async def test_a_bridge_that_never_reaches_its_xmpp_server_has_not_drained(
    place: Place,
) -> None:
    """It gives up as without --drain, and says so by its status."""
    await place.bench.queue.publish("i")
    bridge = await place.start(TO, *DRAIN, "--connect-timeout", "600")
    await bridge.note("trying again")
    bridge.process.send_signal(turned_clock.TURNS)
    assert await bridge.end() == 4, bridge.said
    assert await place.at_broker() == []


async def test_a_bridge_that_has_a_message_in_hand_has_not_drained_the_broker(
    place: Place,
) -> None:
    """The broker has no more, but the queue does not have it yet."""
    async with place.link:
        bridge = await place.start(FROM, *DRAIN)
        await bridge.note("ready")
    async with Away(place.link.port, is_mute=False) as away:
        await bridge.note("trying again")
        message = Message(id="m", body="text", durable=True)
        await place.broker.proton(
            lambda client: client.create_sender("orders").send(message)
        )
        await bridge.note("not published")
        for _ in range(4):
            await away.turn(bridge)
        assert bridge.process.returncode is None
    async with place.link:
        await place.bench.queue.until(available=1)
        await until(lambda: _is_settled(place))
        bridge.process.send_signal(signal.SIGTERM)
        assert await bridge.end() == 130, bridge.said
    assert await place.bench.ids() == ["string:m"]


async def _is_settled(place: Place) -> bool:
    return not await place.at_broker()


async def publish_dead(place: Place, kind: str) -> None:
    """Publish items that a bridge rejects, with a note on each; and one good item."""
    worn = {"qos_hops": 16}
    items = [
        NewItem("<a xmlns='b'/>", f"{kind}-{number}-{LONG}", properties=worn)
        for number in range(DEAD)
    ]
    for start in range(0, DEAD, 50):
        await place.bench.queue.owner.publish(QUEUE, NODE, items[start : start + 50])
    await place.bench.queue.publish(kind)


async def test_a_bridge_whose_stderr_nobody_reads_works_on_and_hears_a_signal(
    place: Place, pipe: SmallPipe
) -> None:
    """Each rejected item is a note. What is missing among them is counted at its place."""
    async with place.link:
        with pipe.as_stderr() as function:
            bridge = await place.start(TO, function=function)
        await publish_dead(place, "first")
        await place.bench.queue.until(dead=DEAD, accepted=1, acquired=0)
        await until(pipe.dropped)
        (dropped,) = pipe.dropped()
        # The bridge is ready, too.
        assert pipe.read().count(b"\n") - 1 + dropped == DEAD + 1
        await publish_dead(place, "second")
        await place.bench.queue.until(dead=2 * DEAD, accepted=2, acquired=0)
        bridge.process.send_signal(signal.SIGTERM)
        assert await bridge.end() == 0
    assert sorted(await place.at_broker()) == ["string:first", "string:second"]


async def test_a_bridge_goes_on_at_a_sighup(place: Place) -> None:
    async with place.link:
        bridge = await place.start(TO)
        await bridge.note("ready")
        bridge.process.send_signal(signal.SIGHUP)
        await bridge.note("SIGHUP: going on")
        await place.bench.queue.publish("later")
        await place.bench.queue.until(accepted=1)
        bridge.process.send_signal(signal.SIGTERM)
        assert await bridge.end() == 0
    assert await place.at_broker() == ["string:later"]
