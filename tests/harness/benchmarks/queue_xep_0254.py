"""A queue of XEP-0254 with this library: publishes, and four workers with a session each.

The program of the child processes of `benchmarks.queue_rows`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from slixmpp import ClientXMPP

from benchmarks.queue_roles import NUMBER_BYTES, WORKERS, main
from qos.testing.clients import new_client
from qos.testing.ports import ADDRESS
from qos.worker import Job, Worker
from xep_0254.queueing import XEP_0254, NewItem

__all__ = ["NODE", "WORKERS_ITEMS"]

NODE = "bench"

#: The most items that a worker has at once; as many as the peers'.
WORKERS_ITEMS = 100

_LOGIN_S_MAX = 20.0


class Xep0254:
    """See benchmarks.queue_roles.Library."""

    def __init__(self) -> None:
        self._login: Callable[[], ClientXMPP]
        self._service = ""
        self._batch = 1
        self._port = 0
        self._plugin: XEP_0254
        self._working: list[asyncio.Task[None]] = []
        # The items of the next request, each with the future for its answer.
        self._next: list[tuple[NewItem, asyncio.Future[None]]] = []
        self._requests: set[asyncio.Task[None]] = set()

    async def connect(self, port: int, **options: Any) -> None:
        """See Library; the options are those of benchmarks.queue_rows."""
        self._port, self._service = port, options["service"]
        self._batch = options["batch"]
        self._login = partial(_client, options["account"], options["password"])
        self._plugin = XEP_0254.of(await self._session())

    async def _session(self) -> ClientXMPP:
        client = self._login()
        client.connect(ADDRESS, self._port)
        async with asyncio.timeout(_LOGIN_S_MAX):
            await XEP_0254.of(client).session()
        return client

    # -- the publisher -----------------------------------------------------

    async def publish(self, item: bytes) -> None:
        """See Library. Items given in one turn of the loop share a request."""
        # The number is binary: in hexadecimal, its digits replace bytes of the filling.
        text = item[:NUMBER_BYTES].hex() + item[2 * NUMBER_BYTES :].decode("ascii")
        new = NewItem(f"<item xmlns='xmpp-qos:bench:0'>{text}</item>")
        if self._batch == 1:
            await self._plugin.publish(self._service, NODE, [new])
            return
        loop = asyncio.get_running_loop()
        published: asyncio.Future[None] = loop.create_future()
        if not self._next:
            loop.call_soon(self._publish_next)
        self._next.append((new, published))
        await published

    def _publish_next(self) -> None:
        waiting, self._next = self._next, []
        for start in range(0, len(waiting), self._batch):
            some = waiting[start : start + self._batch]
            request = asyncio.ensure_future(self._publish_some(some))
            self._requests.add(request)
            request.add_done_callback(self._requests.discard)

    async def _publish_some(
        self, some: list[tuple[NewItem, asyncio.Future[None]]]
    ) -> None:
        try:
            await self._plugin.publish(self._service, NODE, [new for new, _ in some])
        except Exception as error:  # noqa: BLE001 - raised by those who wait
            for _, published in some:
                published.set_exception(error)
        else:
            for _, published in some:
                published.set_result(None)

    # -- the workers -------------------------------------------------------

    async def work(self, done: Callable[[bytes], None]) -> None:
        """See Library."""
        await self._plugin.create(self._service, NODE, {"pubsub#access_model": "open"})

        async def handle(job: Job) -> None:
            payload = job.payload
            assert payload is not None
            number = bytes.fromhex((payload.text or "")[: 2 * NUMBER_BYTES])
            await job.accept()
            done(number)

        for _ in range(WORKERS):
            worker = Worker(
                await self._session(),
                self._service,
                NODE,
                parallel=WORKERS_ITEMS,
                batch=self._batch,
            )
            # It is left when the process ends.
            await worker.__aenter__()
            await worker.subscribed()
            self._working.append(asyncio.ensure_future(worker.run(handle)))


def _client(account: str, password: str) -> ClientXMPP:
    # The server gives each session a resource of its own.
    return new_client(account, password, {XEP_0254.name: {}})


if __name__ == "__main__":
    main(Xep0254)
