"""The gateway under `kill -9` while clients post once, take and acknowledge.

What was posted is there once, whatever the client heard of it; and each message is
acknowledged once.

The rows are those of docs/rest-checklist.md.
"""

import asyncio
import random
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from killed_services import services
from lossy import AnswersLost
from qos.core.rest.link_header import read_links
from qos.testing.ports import free_ports
from rest_bench import basic, rest
from waiting import LIMIT_S

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

PUBLISHERS = 2

FORM = "application/x-www-form-urlencoded"


class Clients:
    """Publishers and consumers that try again until they have an answer."""

    def __init__(
        self, port: int, session: aiohttp.ClientSession, messages: int
    ) -> None:
        self._messages = messages
        self._url = f"http://127.0.0.1:{port}"
        self._session = session
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.again = 0
        self.done: Counter[str] = Counter()

    async def _post(
        self, what: str, path: str, body: str = "", wait_s: int = 0
    ) -> tuple[int, dict[str, str], str]:
        """The status, links and body of an answer, after as many attempts as it takes."""
        headers = {
            "Authorization": basic("alice"),
            "Prefer": f"wait={wait_s}",
            "Content-Type": FORM if what == "acknowledge" else "text/plain",
        }
        while True:
            try:
                async with self._session.post(
                    self._url + path, data=body.encode(), headers=headers
                ) as answer:
                    text = await answer.text()
                    links = read_links(answer.headers.get("Link", ""))
            except (aiohttp.ClientError, TimeoutError):
                self.again += 1
                await asyncio.sleep(0.05)
                continue
            self.statuses[what, answer.status] += 1
            if answer.status < 500:
                return answer.status, {each.rel: each.href for each in links}, text

    async def publish(self, first: int) -> None:
        """Post each message to a link of its own; a repeat is answered 405."""
        _, links, _ = await self._post("factory", "/queues/orders/once")
        for number in range(first, self._messages, PUBLISHERS):
            status, links, _ = await self._post(
                "post", links["create-next"], f"m{number}"
            )
            assert status in {200, 405}

    async def consume(self) -> None:
        """Take and acknowledge, until all is done; 412: it will come again."""
        while len(self.done) < self._messages:
            status, links, body = await self._post(
                "take", "/queues/orders/consumer", wait_s=1
            )
            if status != 200:
                continue
            path = links["acknowledgement"]
            status, _, _ = await self._post("acknowledge", path, "acknowledge=true")
            assert status in {204, 405, 412}
            if status != 412:
                self.done[body] += 1


@pytest.mark.parametrize(
    ("messages", "kills"), [(200, 4), pytest.param(400, 8, marks=pytest.mark.long)]
)
async def test_each_message_is_posted_once_and_acknowledged_once(
    tmp_path: Path, messages: int, kills: int
) -> None:
    """P3, P8, C3 to C5: at any moment between two steps, and in the middle of one."""
    (port,) = free_ports(1)
    rng = random.Random(11)
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    async with (
        services("rest_process") as start,
        aiohttp.ClientSession(timeout=timeout) as session,
    ):
        process = await start(tmp_path, port)
        network = AnswersLost(port, rng)
        server = await asyncio.start_server(network.accept, "127.0.0.1", 0)
        clients = Clients(server.sockets[0].getsockname()[1], session, messages)
        works = [clients.publish(first) for first in range(PUBLISHERS)]
        tasks = [
            asyncio.create_task(work)
            for work in (*works, *(clients.consume() for _ in range(3)))
        ]
        try:
            for _ in range(kills):
                await asyncio.sleep(rng.uniform(0.1, 0.5))
                await process.kill()
                process = await start(tmp_path, port)
            async with asyncio.timeout(3 * LIMIT_S):
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            server.close()
            await process.kill()
    assert clients.done == {f"m{number}": 1 for number in range(messages)}
    # Answers were lost on the way, and repeats were told from first requests.
    assert network.lost > messages // 20
    assert clients.statuses["post", 405] > messages // 40
    assert clients.statuses["acknowledge", 405] > messages // 40
    async with rest(tmp_path) as bench:
        assert not await bench.items("orders")
        shown = (await bench.get("/queues/orders")).text
    # Each of them once, and nothing else.
    assert f'"accepted": {messages},' in shown
