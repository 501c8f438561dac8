"""A queue by HTTP with aiohttp's client, as `docs/rest.md` has it.

The program of the child processes of the HTTP rows of `benchmarks.gateway_rows`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
from yarl import URL

from benchmarks.queue_roles import WORKERS, main
from qos.core.rest.link_header import read_links
from qos.testing.ports import ADDRESS

_QUEUE = "/queues/bench"
_BYTES = {"Content-Type": "application/octet-stream"}

#: A worker asks for the next item, and waits for it for so long.
_WAIT = {"X-RS-Wait": "10"}

_ANSWER_S_MAX = 30.0


class Http:
    """See benchmarks.queue_roles.Library."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession
        # Of the queue, by relation.
        self._links: Mapping[str, str] = {}
        self._once = False
        # One-off links that nothing was posted to.
        self._unused: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(self, port: int, **options: Any) -> None:
        """See Library.

        The options are `user`, `password`, and `once`: whether each item is posted by
        a one-off link.
        """
        self._once = options["once"]
        login = aiohttp.encode_basic_auth(options["user"], options["password"])
        self._session = aiohttp.ClientSession(
            f"http://{ADDRESS}:{port}",
            headers={"Authorization": login},
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=_ANSWER_S_MAX),
            raise_for_status=True,
        )
        async with self._session.head(_QUEUE) as answer:
            self._links = _links(answer)

    async def work(self, done: Callable[[bytes], None]) -> None:
        """See Library: each worker takes an item, and acknowledges it."""
        self._tasks = [asyncio.create_task(self._work(done)) for _ in range(WORKERS)]

    async def _work(self, done: Callable[[bytes], None]) -> None:
        while True:
            status, links, body = await self._post(self._links["consumer"], b"", _WAIT)
            if status == 202:
                continue
            form = {"Content-Type": "application/x-www-form-urlencoded"}
            await self._post(links["acknowledgement"], b"acknowledge=true", form)
            done(body)

    async def publish(self, item: bytes) -> None:
        """See Library."""
        if not self._once:
            await self._post(self._links["post-message"], item, _BYTES)
            return
        if not self._unused:
            _, links, _ = await self._post(self._links["post-message-once"], b"", {})
            self._unused.append(links["create-next"])
        _, links, _ = await self._post(self._unused.pop(), item, _BYTES)
        self._unused.append(links["create-next"])

    async def _post(
        self, url: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Returns the status, the links by relation, and the body."""
        async with self._session.post(
            URL(url, encoded=True), data=body, headers=headers
        ) as answer:
            return answer.status, _links(answer), await answer.read()


def _links(answer: aiohttp.ClientResponse) -> dict[str, str]:
    found = read_links(answer.headers.get("Link", ""))
    return {link.rel: link.href for link in found}


if __name__ == "__main__":
    main(Http)
