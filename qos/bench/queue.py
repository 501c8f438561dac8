"""Items from a publisher to workers, through a queue of its own that is deleted."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from slixmpp import ClientXMPP

from qos.bench.figures import Figures, figures_of
from qos.bench.pace import keep_in_flight
from qos.worker import Job, Worker
from xep_0254.queueing import XEP_0254

__all__ = ["WAIT_S", "QueueTraffic", "own_queue"]

#: An item that no worker has accepted this long after the last one, in seconds, is missing.
WAIT_S = 10.0

#: The most items that a worker has at once.
_PARALLEL = 64


@asynccontextmanager
async def own_queue(publisher: ClientXMPP, service: str) -> AsyncIterator[str]:
    """A new queue with a name that nobody has; it is deleted at the end.

    Raises:
        RequestRefused: the account may not create queues there.
        NoAnswer: there is no such service.
    """
    plugin = XEP_0254.of(publisher)
    node = await plugin.create(service, f"bench-{secrets.token_hex(8)}")
    try:
        yield node
    finally:
        await plugin.delete(service, node)


class QueueTraffic:
    """Items from one publisher to workers.

    Args:
        publisher: it has a session, and the plugin xep_0254.
        workers: likewise; each is a worker.
        service: the JID of the queue service.
        node: the queue.

    """

    def __init__(
        self,
        publisher: ClientXMPP,
        workers: Sequence[ClientXMPP],
        service: str,
        node: str,
    ) -> None:
        self._plugin = XEP_0254.of(publisher)
        self._workers = [
            Worker(worker, service, node, parallel=_PARALLEL) for worker in workers
        ]
        self._service, self._node = service, node
        self._row = 0
        self._accepted: dict[int, float] = {}
        self._twice = 0
        self._arrival = asyncio.Event()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """The workers are subscribed, and work."""
        async with contextlib.AsyncExitStack() as stack:
            for worker in self._workers:
                await stack.enter_async_context(worker)
                await worker.subscribed()
            running = [
                asyncio.ensure_future(worker.run(self._handle))
                for worker in self._workers
            ]
            try:
                yield
            finally:
                for task in running:
                    task.cancel()
                await asyncio.wait(running)

    async def measure(
        self, *, window: int, payload_bytes: int, seconds: float
    ) -> Figures:
        """Publish as much as there is time for.

        Args:
            window: the unconfirmed items of the publisher.
            payload_bytes: the text of each item; a shorter one is made longer, since
                each has its number in it.
            seconds: after which nothing more is published.

        Raises:
            QosError: an item is not confirmed.
        """
        self._row += 1
        self._accepted.clear()
        self._twice = 0

        async def send(number: int) -> None:
            text = f"{self._row}:{number}:".ljust(payload_bytes, "x")
            await self._plugin.publish(self._service, self._node, text=text)

        began_s = time.process_time()
        times = await keep_in_flight(send, window=window, seconds=seconds)
        await self._until_accepted(len(times.given))
        ends = [*times.ended, *self._accepted.values()]
        return figures_of(
            f"queue, {len(self._workers)} workers",
            window=window,
            payload_bytes=payload_bytes,
            messages=len(times.given),
            latencies_s=[
                accepted - times.given[number]
                for number, accepted in self._accepted.items()
            ],
            seconds=max(ends) - min(times.given),
            cpu_s=time.process_time() - began_s,
            twice=self._twice,
            confirmed_rate=len(times.ended) / (max(times.ended) - min(times.given)),
        )

    async def _until_accepted(self, count: int) -> None:
        """Wait until all are accepted, or none comes any more."""
        with contextlib.suppress(TimeoutError):
            while len(self._accepted) < count:
                self._arrival.clear()
                async with asyncio.timeout(WAIT_S):
                    await self._arrival.wait()

    async def _handle(self, job: Job) -> None:
        row, number, _ = job.text().split(":", 2)
        await job.accept()
        if row != str(self._row):
            return
        if int(number) in self._accepted:
            self._twice += 1
        self._accepted[int(number)] = time.monotonic()
        self._arrival.set()
