"""Two services that push to each other by one-off links, under `kill -9`.

Between them is a network that cuts connections in place of answers. Each message comes to
the other service once.
"""

import asyncio
import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lossy import AnswersLost, kill, start
from qos.core.rest.messages import render_message
from qos.testing.ports import free_ports
from rest_bench import basic, rest
from test_pushing import ATOM, atom

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

#: In both directions; `make pushes` has more.
MESSAGES = int(os.environ.get("PUSHES", "100"))
KILLS = int(os.environ.get("PUSH_KILLS", "3"))
PATIENCE_S = 800.0

LOGIN = basic("alice")


def bodies(name: str) -> list[str]:
    """The messages of one service."""
    return [f"<m xmlns='urn:m'>{name}{number}</m>" for number in range(MESSAGES // 2)]


class Service:
    """One of the two.

    Attributes:
        folder: of its store.
        port: of HTTP.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self._process: asyncio.subprocess.Process | None = None

    async def fill(self, name: str) -> None:
        """Make its queues, with the messages that it is to push."""
        self.folder.mkdir()
        async with rest(self.folder) as bench:
            await bench.create("in", max_items="100000")
            await bench.create("out", max_items="100000", max_deliveries="1000")
            await bench.publish("out", *(bodies(name)))

    async def start(self) -> None:
        self._process = await start(self.folder, self.port, program="push_process.py")

    async def kill(self) -> None:
        if self._process is not None:
            await kill(self._process)

    async def push_to(self, port: int, session: aiohttp.ClientSession) -> str:
        """Push to the other service, at this port; returns the URL of the subscriber."""
        mine = f"http://127.0.0.1:{self.port}"
        async with session.post(
            f"{mine}/queues/out/subscribers",
            data=atom(f"http://127.0.0.1:{port}/queues/in/once", "post-message-once"),
            headers={
                "Authorization": LOGIN,
                "Push-Authorization": LOGIN,
                "Content-Type": ATOM,
            },
        ) as answer:
            assert answer.status == 201
            return mine + answer.headers["Location"]

    async def until_pushed(
        self, subscriber: str, session: aiohttp.ClientSession
    ) -> None:
        """Wait until nothing is left to push."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                its = await _json(subscriber, session)
                assert its["enabled"], its
                queue = f"http://127.0.0.1:{self.port}/queues/out"
                counts = (await _json(queue, session))["counts"]
                if counts["accepted"] == MESSAGES // 2:
                    return
                await asyncio.sleep(0.2)

    async def bodies(self) -> Counter[str]:
        """The bodies that have come, and how often."""
        async with rest(self.folder) as bench:
            assert not await bench.items("out")
            items = (await bench.items("in")).values()
            payloads = bench.engine.store.payloads([each.seq for each in items])
            return Counter(
                render_message(each, payloads[each.seq])[0].decode() for each in items
            )


async def _json(url: str, session: aiohttp.ClientSession) -> dict[str, Any]:
    async with session.get(url, headers={"Authorization": LOGIN}) as answer:
        assert answer.status == 200
        found: dict[str, Any] = json.loads(await answer.read())
        return found


@contextlib.asynccontextmanager
async def network(
    port: int, rng: random.Random
) -> AsyncIterator[tuple[AnswersLost, int]]:
    """A network in front of a port that loses answers, and its own port."""
    lossy = AnswersLost(port, rng)
    server = await asyncio.start_server(lossy.accept, "127.0.0.1", 0)
    try:
        yield lossy, server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_two_services_push_each_message_once(tmp_path: Path) -> None:
    """U2 and U5, at any moment between two steps, and in the middle of one."""
    rng = random.Random(7)
    a, b = [
        Service(tmp_path / name, port)
        for name, port in zip("ab", free_ports(2), strict=True)
    ]
    await a.fill("a")
    await b.fill("b")
    timeout = aiohttp.ClientTimeout(total=20)
    async with (
        network(a.port, rng) as (to_a, port_a),
        network(b.port, rng) as (to_b, port_b),
        aiohttp.ClientSession(timeout=timeout) as session,
    ):
        try:
            await asyncio.gather(a.start(), b.start())
            from_a = await a.push_to(port_b, session)
            from_b = await b.push_to(port_a, session)
            for number in range(KILLS):
                await asyncio.sleep(rng.uniform(0.1, 0.6))
                victims = ((a,), (b,), (a, b))[number % 3]
                for each in victims:
                    await each.kill()
                await asyncio.gather(*(each.start() for each in victims))
            await a.until_pushed(from_a, session)
            await b.until_pushed(from_b, session)
        finally:
            await a.kill()
            await b.kill()
    for service, name in ((a, "b"), (b, "a")):
        assert await service.bodies() == dict.fromkeys(bodies(name), 1)
    # Answers were lost on the way.
    assert to_a.lost + to_b.lost > MESSAGES // 40
