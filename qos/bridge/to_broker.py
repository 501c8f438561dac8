"""From a queue to a broker: each item is sent at least once, under one message-id.

An item stays locked while its message is with the broker, and ends in the queue after
the broker has accepted it. If the bridge dies or the link is lost in between, the item
comes again, and its message is sent again with the same message-id: a broker that looks
for duplicates drops it, and any other has it twice.
"""

from __future__ import annotations

import asyncio
import logging
import time

from qos.amqp.broker import BrokerLost
from qos.amqp.target import Target
from qos.bridge.bridge import Bridge
from qos.core.amqp.bridging import message_of
from qos.core.queue.item import Disposition, Item, ItemOutcome
from qos.core.queue.properties import why_stop
from qos.errors import JobLost, RemoteProtocolError
from qos.worker import Job, Worker
from qos.worker.draining import Draining
from xep_0254.elements import legal

__all__ = ["ToBroker"]

log = logging.getLogger(__name__)

#: Items that are with the broker at a time, and in one event.
_PARALLEL = 200
_BATCH = 50

_REASON_CHARS_MAX = 1000


class ToBroker(Bridge[Target]):
    """Sends the items of a queue to a broker's node."""

    _handling = 0
    _draining: Draining | None = None

    def _link(self) -> Target:
        return Target(self._broker)

    async def _carry(self, link: Target) -> None:
        worker = Worker(
            self._session.client,
            self._service,
            self._node,
            parallel=_PARALLEL,
            batch=_BATCH,
            grace_s=self._work_s,
            journal=self._journal,
        )

        async def handle(job: Job) -> None:
            self._handling += 1
            try:
                await self._handle(link, job)
            except JobLost as error:
                log.warning("%s", error)
            finally:
                self._handling -= 1
                if self._draining is not None:
                    self._draining.active()

        working = self._loop.create_task(worker.run(handle))
        stopping = self._loop.create_task(self._until_stopped(worker))
        try:
            await asyncio.wait(
                (working, stopping, link.lost), return_when=asyncio.FIRST_COMPLETED
            )
            worker.stop()
            if link.lost.done():
                worker.stop()  # at once: nothing can come to its end
            await working
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.wait((working, stopping))

    async def _until_stopped(self, worker: Worker) -> None:
        """Return when the bridge is stopped; stop it when it has drained."""
        await worker.subscribed()
        self._ready()
        if self._drain_s is not None:
            client = self._session.client
            draining = Draining(
                client, worker, self._drain_s, lambda: self._handling > 0
            )
            self._draining = draining
            if not await self._unless_stopped(draining.until_drained()):
                return
            self.stop()
        await self._stopping.wait()

    async def _handle(self, link: Target, job: Job) -> None:
        """Send an item, and settle it as the broker has settled the message."""
        why = why_stop(job.properties)
        if why:
            await self._reject(job, why)
            return
        now = time.time()
        try:
            message = message_of(_item(job, now), job.payload_text, now)
        except RemoteProtocolError as error:
            await self._reject(job, f"it cannot be a message: {error}")
            return
        if link.bytes_max and len(message) > link.bytes_max:
            text = f"{len(message)} bytes, and the broker takes {link.bytes_max}"
            await self._reject(job, text)
            return
        try:
            outcome = await link.send(message)
        except BrokerLost:
            await job.release()
            return
        await self._settle(job, outcome)

    async def _settle(self, job: Job, disposition: Disposition) -> None:
        if disposition.outcome is ItemOutcome.ACCEPTED:
            await job.accept()
            self.done += 1
        elif disposition.outcome is ItemOutcome.REJECTED:
            await self._reject(job, disposition.reason or "rejected by the broker")
        elif disposition.outcome is ItemOutcome.MODIFIED:
            await job.modify(
                delivery_failed=disposition.delivery_failed,
                undeliverable_here=disposition.undeliverable_here,
            )
        else:
            await job.release()

    async def _reject(self, job: Job, reason: str) -> None:
        reason = legal(reason)[:_REASON_CHARS_MAX]
        log.warning("item %r is dead: %s", job.id, reason)
        self.refused += 1
        await job.reject(reason)


def _item(job: Job, now: float) -> Item:
    """The item of a job, as far as a worker knows it, in the form of the service."""
    item = job.item
    published = now if item.published is None else item.published
    return Item(
        seq=0,
        node=job.node,
        item_id=job.id,
        publisher=job.publisher,
        digest="",
        size=0,
        priority=job.priority,
        published_at=published,
        available_at=published,
        expires_at=None if item.ttl is None else now + item.ttl,
        properties=job.properties,
    )
