"""Two services that push to each other, under `kill -9`.

Between them is a network that cuts connections in place of answers. Each message comes to
the other service once: by the one-off links of REST-*, and by the push consumers of
HornetQ, in several sessions.

The rows are those of docs/rest-checklist.md.
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

from killed_services import Service as Process
from killed_services import Start, services
from lossy import AnswersLost
from qos.core.rest.messages import render_message
from qos.testing.ports import free_ports
from rest_bench import basic, rest
from test_pushing import ATOM, atom
from waiting import LIMIT_S

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

#: The way in which the messages of a queue are pushed: `once` is REST-*, the others are
#: links of a push consumer of HornetQ.
LINKS = {
    "once": "",
    "template": "rel='template' method='PUT' href='{base}/hornetq/queues/{to}/create/"
    "{{id}}'",
    "ids": "rel='destination' href='{base}/hornetq/queues/{to}'",
    "links": "rel='destination' href='{base}/queues/{to}'",
}

REGISTRATION = """<push-registration><durable>true</durable><link {link}/>
<maxRetries>2</maxRetries><retryWaitMillis>20</retryWaitMillis>
<sessionCount>4</sessionCount><authentication><basic-auth><username>alice</username>
<password>secret</password></basic-auth></authentication></push-registration>"""

#: By one way in one direction; `make pushes` has more.
MESSAGES = int(os.environ.get("PUSHES", "104")) // len(LINKS) // 2
KILLS = int(os.environ.get("PUSH_KILLS", "3"))
PATIENCE_S = 800.0

LOGIN = basic("alice")


def bodies(name: str, way: str) -> list[str]:
    """The messages that one service pushes in one way."""
    return [f"<m xmlns='urn:m'>{name}-{way}-{n}</m>" for n in range(MESSAGES)]


class Service:
    """One of the two.

    Attributes:
        folder: of its store.
        port: of HTTP.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self._process: Process | None = None

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def fill(self, name: str) -> None:
        """Make its queues, with the messages that it is to push."""
        self.folder.mkdir()
        async with rest(self.folder) as bench:
            for way in LINKS:
                await bench.create(f"to-{way}", max_items="100000")
                node = f"from-{way}"
                await bench.create(node, max_items="100000", max_deliveries="1000")
                await bench.publish(node, *bodies(name, way))

    async def start(self, start: Start) -> None:
        self._process = await start(self.folder, self.port)

    async def kill(self) -> None:
        if self._process is not None:
            await self._process.kill()

    async def push_to(self, port: int, session: aiohttp.ClientSession) -> None:
        """Push to the other service, at this port."""
        base = f"http://127.0.0.1:{port}"
        for way, link in LINKS.items():
            made = f"{self._url}/hornetq/queues/from-{way}/push-consumers"
            found = link.format(base=base, to=f"to-{way}")
            data, kind = REGISTRATION.format(link=found).encode(), "application/xml"
            if way == "once":
                made = f"{self._url}/queues/from-{way}/subscribers"
                href = f"{base}/queues/to-{way}/once"
                data, kind = atom(href, "post-message-once"), ATOM
            headers = {"Content-Type": kind, "Push-Authorization": LOGIN}
            async with session.post(made, data=data, headers=headers) as answer:
                assert answer.status == 201, await answer.text()

    async def until_pushed(self, session: aiohttp.ClientSession) -> None:
        """Wait until nothing is left to push."""
        async with asyncio.timeout(PATIENCE_S):
            for way in LINKS:
                queue = f"{self._url}/queues/from-{way}"
                while (await _json(queue, session))["counts"]["accepted"] < MESSAGES:
                    (its,) = await _json(f"{queue}/subscribers", session)
                    assert its["enabled"], its
                    await asyncio.sleep(0.1)

    async def bodies(self) -> Counter[str]:
        """The bodies that have come, and how often."""
        found: Counter[str] = Counter()
        async with rest(self.folder) as bench:
            for way in LINKS:
                assert not await bench.items(f"from-{way}")
                items = (await bench.items(f"to-{way}")).values()
                payloads = bench.engine.store.payloads([each.seq for each in items])
                for each in items:
                    body, _ = render_message(each, payloads[each.seq])
                    found[body.decode()] += 1
        return found


async def _json(url: str, session: aiohttp.ClientSession) -> Any:
    async with session.get(url) as answer:
        assert answer.status == 200
        return json.loads(await answer.read())


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


@pytest.mark.long
async def test_two_services_push_each_message_once(tmp_path: Path) -> None:
    """U2, U5 and H14, at any moment between two steps, and in the middle of one."""
    rng = random.Random(7)
    a, b = [
        Service(tmp_path / name, port)
        for name, port in zip("ab", free_ports(2), strict=True)
    ]
    await a.fill("a")
    await b.fill("b")
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    async with (
        services("push_process") as start,
        network(a.port, rng) as (to_a, port_a),
        network(b.port, rng) as (to_b, port_b),
        aiohttp.ClientSession(
            timeout=timeout, headers={"Authorization": LOGIN}
        ) as session,
    ):
        try:
            await asyncio.gather(a.start(start), b.start(start))
            await a.push_to(port_b, session)
            await b.push_to(port_a, session)
            for number in range(KILLS):
                await asyncio.sleep(rng.uniform(0.1, 0.6))
                victims = ((a,), (b,), (a, b))[number % 3]
                for each in victims:
                    await each.kill()
                await asyncio.gather(*(each.start(start) for each in victims))
            await a.until_pushed(session)
            await b.until_pushed(session)
        finally:
            await a.kill()
            await b.kill()
    for service, name in ((a, "b"), (b, "a")):
        wanted = [body for way in LINKS for body in bodies(name, way)]
        assert await service.bodies() == dict.fromkeys(wanted, 1)
    # Answers were lost on the way.
    assert to_a.lost + to_b.lost > MESSAGES // 10
