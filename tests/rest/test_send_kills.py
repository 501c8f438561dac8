"""`queue serve --http-send` under `kill -9` while users post messages to a device.

Each message that was posted is handed over once, and its outcome says so, whatever the
users heard of it.

The rows are those of docs/rest-checklist.md.
"""

import asyncio
import json
import os
import random
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from forked import Forked, command
from lossy import AnswersLost
from qos.core.rest.link_header import read_links
from qos.testing.ports import free_ports
from rest_bench import basic
from send_bench import DOMAIN, SECRET, SendBench, write_files, xmpp
from waiting import LIMIT_S, limit

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

#: `make sends` has more.
MESSAGES = int(os.environ.get("SENDS", "150"))
KILLS = int(os.environ.get("SEND_KILLS", "4"))
USERS = 3
LOST = 0.1


class Script:
    """Posts messages, as a shell script would: again until there is an answer."""

    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._session = session
        self.statuses: Counter[tuple[str, int]] = Counter()
        # A user can have 200 requests at a time.
        self._waiting = asyncio.Semaphore(100)

    async def ask(
        self, what: str, method: str, path: str, body: str = "", **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """The status, the links and where the message is, and the body."""
        named = {
            "Authorization": basic("alice"),
            "Content-Type": "text/plain",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        while True:
            try:
                async with self._session.request(
                    method, self._url + path, data=body.encode(), headers=named
                ) as answer:
                    text = await answer.text()
                    links = read_links(answer.headers.get("Link", ""))
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.05)
                continue
            self.statuses[what, answer.status] += 1
            if answer.status < 500 and answer.status != 429:
                return answer.status, {each.rel: each.href for each in links}, text
            await asyncio.sleep(0.2)

    async def post(self, url: str, first: int) -> list[str]:
        """Post each message to a link of its own; the URLs of their outcomes."""
        _, links, _ = await self.ask("factory", "POST", url)
        sent = []
        for number in range(first, MESSAGES, USERS):
            link = links["create-next"]
            status, links, _ = await self.ask("post", "POST", link, f"m{number}")
            assert status in {202, 405}
            item_id = link.rsplit("/", 1)[1].partition(".")[0]
            sent.append(f"{url}/messages/{item_id}")
        return sent

    async def until_delivered(self, path: str) -> None:
        """Ask for the outcome until it is there."""
        status = 202
        async with self._waiting:
            while status == 202:
                status, _, body = await self.ask(
                    "outcome", "GET", path, Prefer="wait=5"
                )
        assert status == 200, body
        assert json.loads(body)["outcome"] == "delivered", body


async def serve(folder: Path, component_port: int, port: int) -> Forked:
    """The command, when it listens."""
    users, targets = write_files(folder)
    words = [
        *("queue", "serve", "--component", DOMAIN, "--port", str(component_port)),
        *("--store", f"sqlite:{folder / 'q.sqlite'}", "--http", f"127.0.0.1:{port}"),
        *("--http-users", str(users), "--http-send", str(targets)),
    ]
    environment = {**os.environ, "HOME": str(folder), "XMPP_QOS_PASSWORD": SECRET}
    process = await Forked.start(command, words, environment)
    async with limit():
        while b"http://" not in (line := await process.stderr.readline()):
            assert line
    return process


async def kill(process: Forked) -> None:
    process.kill()
    await process.wait()


async def test_each_message_is_handed_over_once(tmp_path: Path) -> None:
    """S3, S4: at any moment between post and outcome, and in the middle of one."""
    (port,) = free_ports(1)
    rng = random.Random(12)
    async with (
        xmpp() as server,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LIMIT_S)) as session,
    ):
        bench = SendBench(tmp_path, server)
        process = await serve(tmp_path, server.component_port, port)
        network = AnswersLost(port, rng)
        listener = await asyncio.start_server(network.accept, "127.0.0.1", 0)
        script = Script(listener.sockets[0].getsockname()[1], session)
        store = f"sqlite:{tmp_path / 'lamp.sqlite'}"
        try:
            async with bench.device(store=store), asyncio.TaskGroup() as users:
                posting = [
                    users.create_task(script.post(bench.url, first))
                    for first in range(USERS)
                ]
                for _ in range(KILLS):
                    await asyncio.sleep(rng.uniform(0.1, 0.6))
                    await kill(process)
                    process = await serve(tmp_path, server.component_port, port)
                sent = [url for each in await asyncio.gather(*posting) for url in each]
                async with asyncio.timeout(LIMIT_S + MESSAGES / 10):
                    await asyncio.gather(*map(script.until_delivered, sent))
        finally:
            listener.close()
            await kill(process)
    got = Counter(bench.got.get_nowait()["body"] for _ in range(bench.got.qsize()))
    assert got == {f"m{number}": 1 for number in range(MESSAGES)}
    print(f"{MESSAGES} posted, {KILLS} kills, {network.lost} answers lost")
    # Answers were lost on the way, and repeats were told from first posts.
    assert network.lost > MESSAGES // 20
    assert script.statuses["post", 405] > MESSAGES // 40
