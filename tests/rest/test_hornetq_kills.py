"""HornetQ's clients under `kill -9`: each message is made once and seen once.

With auto-ack too: a message is not acknowledged before its client asks for the next one.

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
from qos.testing.ports import free_ports
from rest_bench import basic, rest
from waiting import LIMIT_S

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]

MESSAGES = 50
KILLS = 2

#: Longer than all kills together: a lock that ends gives its message to others.
LOCK_TIMEOUT = "600"

FORM = "application/x-www-form-urlencoded"


class Clients:
    """They try again until they have an answer, and go on by its links."""

    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self._queue = f"http://127.0.0.1:{port}/hornetq/queues/orders"
        self._session = session
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.again = 0
        self.seen: Counter[str] = Counter()

    async def request(
        self, what: str, url: str, body: str = "", method: str = "POST"
    ) -> tuple[int, dict[str, str], str]:
        """The status, headers and body of an answer, after as many attempts as it takes."""
        headers = {
            "Authorization": basic("alice"),
            "Accept-Wait": "1",
            "Content-Type": FORM if "acknowledge" in what else "text/plain",
        }
        while True:
            try:
                async with self._session.request(
                    method,
                    url,
                    data=body.encode(),
                    headers=headers,
                    allow_redirects=False,
                ) as answer:
                    text = await answer.text()
            except (aiohttp.ClientError, TimeoutError):
                self.again += 1
                await asyncio.sleep(0.05)
                continue
            self.statuses[what, answer.status] += 1
            return answer.status, dict(answer.headers), text

    async def publish(self) -> None:
        """Each message to a link of its own."""
        _, headers, _ = await self.request("create", f"{self._queue}/create")
        link = headers["Location"]
        for number in range(MESSAGES):
            status, headers, _ = await self.request("post", link, f"m{number}")
            assert status == 201
            link = headers["msg-create-next"]

    async def consumer(self, auto_ack: str) -> tuple[str, dict[str, str]]:
        """The URL of a new consumer, and its headers; one whose answer is lost is idle."""
        status, headers, _ = await self.request(
            "acknowledge mode", f"{self._queue}/pull-consumers", f"autoAck={auto_ack}"
        )
        assert status == 201
        return headers["Location"], headers

    async def consume(self) -> None:
        """With auto-ack."""
        url, headers = await self.consumer("true")
        link = headers["msg-consume-next"]
        while sum(self.seen.values()) < MESSAGES:
            status, headers, body = await self.request("next", link)
            if status == 200:
                self.seen[body] += 1
            # After a restart, and after a lost answer, the link is still the one to use.
            assert status in {200, 503}, (status, body)
            link = headers.get("msg-consume-next", link)
        await self.request("delete", url, method="DELETE")

    async def acknowledge(self) -> None:
        """With client-ack; what could not be acknowledged comes again."""
        url, headers = await self.consumer("false")
        while sum(self.seen.values()) < MESSAGES:
            link = headers["msg-acknowledge-next"]
            status, given, body = await self.request("next", link)
            if status == 503:
                continue
            if status == 412:
                headers = given
            if "msg-acknowledgement" in given:
                status, headers, _ = await self.request(
                    "acknowledge", given["msg-acknowledgement"], "acknowledge=true"
                )
                assert status in {204, 412}
                if status == 204:
                    self.seen[body] += 1
        await self.request("delete", url, method="DELETE")


@pytest.mark.long
async def test_each_message_of_hornetq_is_made_once_and_seen_once(
    tmp_path: Path,
) -> None:
    """H4, H8 to H11: between any two steps, and in the middle of one."""
    (port,) = free_ports(1)
    rng = random.Random(3)
    timeout = aiohttp.ClientTimeout(total=LIMIT_S)
    async with (
        services("rest_process") as start,
        aiohttp.ClientSession(timeout=timeout) as session,
    ):
        process = await start(tmp_path, port, LOCK_TIMEOUT)
        network = AnswersLost(port, rng)
        server = await asyncio.start_server(network.accept, "127.0.0.1", 0)
        clients = Clients(server.sockets[0].getsockname()[1], session)
        works = (clients.publish(), clients.consume(), clients.acknowledge())
        tasks = [asyncio.create_task(work) for work in works]
        try:
            for _ in range(KILLS):
                await asyncio.sleep(rng.uniform(0.1, 0.4))
                await process.kill()
                process = await start(tmp_path, port, LOCK_TIMEOUT)
            async with asyncio.timeout(2 * LIMIT_S):
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            server.close()
            await process.kill()
    assert clients.seen == {f"m{number}": 1 for number in range(MESSAGES)}
    assert network.lost > MESSAGES // 20
    async with rest(tmp_path) as bench:
        shown = (await bench.get("/queues/orders")).text
        assert not await bench.items("orders"), shown
    assert f'"accepted": {MESSAGES},' in shown


async def test_a_kill_after_each_step_changes_no_answer(tmp_path: Path) -> None:
    """H4, H8 to H11: its answer was lost, and it is done again after a restart."""
    (port,) = free_ports(1)
    async with services("rest_process") as start, aiohttp.ClientSession() as session:
        process = await start(tmp_path, port, LOCK_TIMEOUT)
        clients = Clients(port, session)

        async def twice(
            what: str, url: str, body: str = "", method: str = "POST"
        ) -> tuple[int, dict[str, str], str]:
            nonlocal process
            first = await clients.request(what, url, body, method)
            await process.kill()
            process = await start(tmp_path, port, LOCK_TIMEOUT)
            again = await clients.request(what, url, body, method)
            assert (again[0], again[2]) == (first[0], first[2])
            return again

        try:
            queue = f"http://127.0.0.1:{port}/hornetq/queues/orders"
            for body in ("1", "2"):
                await clients.request("post", f"{queue}/create/{body}", body)
            _, headers, _ = await twice("create", f"{queue}/create")
            status, _, _ = await twice("post", headers["Location"], "3")
            assert status == 201
            bodies = []
            auto, headers = await clients.consumer("true")
            for _ in range(2):
                _, headers, body = await twice("next", headers["msg-consume-next"])
                bodies.append(body)
            _, headers = await clients.consumer("false")
            _, headers, body = await twice("next", headers["msg-acknowledge-next"])
            bodies.append(body)
            status, _, _ = await twice(
                "acknowledge", headers["msg-acknowledgement"], "acknowledge=true"
            )
            assert status == 204
            await clients.request("delete", auto, method="DELETE")
        finally:
            await process.kill()
    assert bodies == ["1", "2", "3"]
    async with rest(tmp_path) as bench:
        assert not await bench.items("orders")
