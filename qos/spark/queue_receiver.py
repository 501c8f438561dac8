"""Takes items of a queue into a landing, and deletes done items at the service.

There are two ways, selected by `claim`:

- *show, then retract*: an item is landed while we hold its lock, and retracted when
  Spark's checkpoint says that it is done. This is for a node with no other consumer. An
  item whose lock ends in between comes again, is recognized, and is retracted then.
- *claim, then show*: an item is written as claimed, retracted, and landed only if the
  service confirms that we were the one to delete it. This is for a node with other
  consumers.

Runs on the event loop of its session, and knows nothing of Spark except its checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from slixmpp import ClientXMPP

from qos.core.backoff import Backoff
from qos.core.queue.node_options import BATCH_MAX, QUEUE_REQUESTS_MAX
from qos.engine.retry import Retry
from qos.errors import JobLost, RequestFailed
from qos.spark.queue_landing import Landing
from qos.worker import Job, Worker
from xep_0254.events import DeliveredItem
from xep_0254.queueing import XEP_0254

__all__ = ["ITEMS_MAX", "Queue", "Receiver"]

log = logging.getLogger(__name__)

#: The most items landed at a time. The rest of what a subscriber may hold is for items
#: that are landed and not done.
ITEMS_MAX: Final = QUEUE_REQUESTS_MAX // 2

#: The number of retracts in flight.
_RETRACTS_MAX = 64

#: Seconds between two looks at the checkpoint, and at unanswered requests.
_LOOK_S = 0.5

#: Seconds before a failed retract is repeated; the item may come again before.
_AGAIN_S = 5.0

#: Seconds for the last retracts, when the query has ended.
_STOP_S = 10.0

#: Seconds for events to arrive, after the service has said that it has given out all
#: items.
_QUIET_S = 0.5

_RETRY = Backoff(first_s=0.2, max_s=5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The queue to be read, and how.

    Attributes:
        service: the JID of the service.
        node: the name of the node.
        claim: *claim, then show*.
        lock_s: the lock time-out of the node; None: not known.
        items_max: the most items landed at a time.
    """

    service: str
    node: str
    claim: bool
    lock_s: float | None
    items_max: int


class Receiver:
    """Holds the locks of the items."""

    def __init__(
        self,
        client: ClientXMPP,
        queue: Queue,
        landing: Landing,
        checkpoint: Callable[[], int],
    ) -> None:
        """Prepare; `start` subscribes.

        Args:
            client: in session.
            queue: the queue.
            landing: open.
            checkpoint: reads it: all files below the returned number are done.
        """
        self._queue = queue
        self._landing = landing
        self._look = checkpoint
        self._done = 0
        requests = min(2 * queue.items_max, QUEUE_REQUESTS_MAX)
        self._worker = Worker(
            client,
            queue.service,
            queue.node,
            parallel=requests,
            batch=min(requests, BATCH_MAX),
            durable_locks=True,
            lock_timeout_s=queue.lock_s,
            grace_s=0.0,
        )
        self._plugin = XEP_0254.of(client)
        #: Items that are not landed, in order of arrival.
        self._buffer: dict[str, Job] = {}
        #: Items that are landed, and still held.
        self._held: dict[str, Job] = {}
        self._arrived = asyncio.Event()
        #: An item that may be done has come again: read the checkpoint now.
        self._hurry = asyncio.Event()
        self._landing_now = asyncio.Lock()
        self._retracts = asyncio.Semaphore(_RETRACTS_MAX)
        self._ending: dict[str, asyncio.Task[None]] = {}
        #: Items whose retract was refused, and when to try again.
        self._not_before: dict[str, float] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Subscribe; returns when the service has accepted us.

        Raises:
            RequestRefused: the service has refused.
            CheckpointError, OSError: the checkpoint cannot be read.
        """
        self._done = self._look()
        await self._worker.__aenter__()
        try:
            await self._worker.subscribed()
        except BaseException:
            await self._worker.aclose()
            raise
        await self._repeat_claims()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._take()),
            loop.create_task(self._look_after()),
        ]

    async def stop(self) -> None:
        """Retract the items that are done, and give the others back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(_STOP_S):
                self.look()
                await asyncio.gather(*self._ending.values())
                self._landing.compact(self._done)
        except (TimeoutError, OSError) as error:
            log.warning("not all that is done was retracted: %r", error)
        for task in self._ending.values():
            task.cancel()
        await self._worker.aclose()

    # -- for Spark ---------------------------------------------------------

    async def land(self, most: int, wait_s: float) -> int:
        """Land the items that have come; returns the number of the next file.

        Args:
            most: the most items.
            wait_s: how long to wait for the first one.

        Raises:
            OSError, sqlite3.Error: the landing, or the checkpoint, cannot be used.
        """
        for task in self._tasks:
            if task.done():
                task.result()
        if not self._buffer:
            self._arrived.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._arrived.wait()
            except TimeoutError:
                return self._landing.next
        async with self._landing_now:
            jobs: list[Job] = []
            while self._buffer and len(jobs) < most:
                job = self._buffer.pop(next(iter(self._buffer)))
                if job.held:  # else it comes again, or another worker has it
                    jobs.append(job)
            if jobs and self._queue.claim:
                await self._claim(jobs)
            elif jobs:
                self._landing.land([job.item for job in jobs])
                self._held.update((job.id, job) for job in jobs)
        return self._landing.next

    async def available(self) -> float | None:
        """How many items the service could still give us; None: unknown.

        When there are none, all items that it has already given have arrived too.
        """
        stats = await self._plugin.stats(self._queue.service, self._queue.node)
        available = stats.get("available")
        if not available:
            await asyncio.sleep(_QUIET_S)
        return available

    async def left(self) -> float:
        """How many items there are, locked ones included; inf: unknown."""
        stats = await self._plugin.stats(self._queue.service, self._queue.node)
        numbers = stats.get("available"), stats.get("acquired")
        return math.inf if None in numbers else sum(number or 0 for number in numbers)

    @property
    def waiting(self) -> int:
        """How many items are here and not landed."""
        return len(self._buffer)

    def look(self) -> None:
        """Read the checkpoint, and begin to retract the items that are done."""
        self._done = max(self._done, self._look())
        now = asyncio.get_running_loop().time()
        for item_id, token in self._landing.unended(self._done):
            if now >= self._not_before.get(item_id, 0.0):
                self._end(item_id, token)
        self._landing.compact(self._done)

    # -- arrival ---------------------------------------------------------------

    async def _take(self) -> None:
        async for job in self._worker:
            number = self._landing.file_of(job.id)
            if number is None:
                self._buffer[job.id] = job
                self._arrived.set()
                continue
            self._landing.redelivered(job.id, job.token)
            self._held[job.id] = job
            if self._queue.claim or number < self._done:
                self._end(job.id, job.token)
            else:
                self._hurry.set()

    async def _look_after(self) -> None:
        while True:
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._hurry.wait()
            try:
                self.look()
            except OSError as error:
                log.warning("the checkpoint cannot be read just now: %s", error)

    # -- ending ------------------------------------------------------------

    def _end(self, item_id: str, token: str) -> None:
        if item_id not in self._ending:
            task = asyncio.get_running_loop().create_task(self._retract(item_id, token))
            self._ending[item_id] = task

    async def _retract(self, item_id: str, token: str) -> None:
        try:
            async with self._retracts:
                is_deleted = await self._ask_to_delete(item_id, token)
        finally:
            del self._ending[item_id]
        job = self._held.get(item_id)
        if job is not None and job.token != token and job.held:
            self._end(item_id, job.token)  # it came again meanwhile
            return
        self._held.pop(item_id, None)
        if is_deleted:
            self._landing.ended(item_id)
            self._not_before.pop(item_id, None)
        else:
            now = asyncio.get_running_loop().time()
            self._not_before[item_id] = now + _AGAIN_S

    async def _ask_to_delete(self, item_id: str, token: str) -> bool:
        """Delete an item with this token; returns whether it is gone."""
        job = self._held.get(item_id)
        try:
            if job is not None and job.token == token and job.held:
                await job.accept()
            else:
                await self._plugin.retract(
                    self._queue.service, self._queue.node, item_id, token
                )
        except (JobLost, RequestFailed) as error:
            # If its lock has ended, it comes again, and is retracted then.
            log.info("%r is not retracted yet: %s", item_id, error)
            return getattr(error, "condition", None) == "item-not-found"
        return True

    # -- claims ------------------------------------------------------------

    async def _claim(self, jobs: list[Job]) -> None:
        name = self._landing.claim([job.item for job in jobs])
        won = await asyncio.gather(*(self._won(job.item, job) for job in jobs))
        self._settle(name, [job.item for job in jobs], won)

    async def _repeat_claims(self) -> None:
        """Ask again about unsettled claims.

        The service knows, for its dedupe window.
        """
        for name, items in self._landing.claims().items():
            won = await asyncio.gather(*map(self._won, items))
            for item, ours in zip(items, won, strict=True):
                if not ours:
                    log.warning("%r was claimed before, and is not ours", item.item_id)
            self._settle(name, items, won)

    def _settle(self, name: str, items: list[DeliveredItem], won: list[bool]) -> None:
        self._landing.settle(
            name, [item for item, ours in zip(items, won, strict=True) if ours]
        )

    async def _won(self, item: DeliveredItem, job: Job | None = None) -> bool:
        """Whether we were the one to delete an item; asked until there is an answer."""
        if job is not None:
            try:
                async with self._retracts:
                    await job.accept()
            except JobLost as lost:
                if lost.condition is not None:
                    return False
            else:
                return True
        try:
            await Retry(_RETRY).repeat(
                lambda: self._delete(item), pause=self._plugin.pause
            )
        except RequestFailed:
            return False
        return True

    async def _delete(self, item: DeliveredItem) -> None:
        async with self._retracts:
            await self._plugin.retract(
                self._queue.service, self._queue.node, item.item_id, item.token
            )
