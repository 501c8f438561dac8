"""`xmpp-qos bridge`: a stderr that nobody reads holds up no bridge.

The broker is our own gateway, which needs no time to start.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from amqp_bench import Bench, gateway
from bridge_bench import Bridge, Bridges, bridges
from proxy import Proxy
from small_pipe import SmallPipe
from waiting import until
from worker_setup import NODE, QUEUE
from xep_0254 import NewItem

TO = "--to-broker"

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
        options = {"password": "secret", **options}
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
