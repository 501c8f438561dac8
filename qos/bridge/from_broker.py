"""From a broker into a queue: each message is one item, as its message-id says.

A message is accepted at the broker after its item is on the disk of the service. If the
bridge dies in between, the broker delivers the message again, and the service knows its
id: it is made from the message-id. So nothing is lost, and nothing is in the queue
twice, as long as the service remembers the id (`queue#dedupe_window`).

A message without a message-id gets a random id: it is in the queue at least once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from proton import Condition

from qos.amqp import conditions
from qos.amqp.conditions import condition_of
from qos.amqp.source import Incoming, Source
from qos.bridge.bridge import Bridge
from qos.core.amqp.bridging import item_of
from qos.engine.retry import Retry
from qos.errors import (
    MessageTooLarge,
    QosError,
    RemoteProtocolError,
    RequestFailed,
    RequestRefused,
)
from qos.ids import new_key
from xep_0254.items import NewItem
from xep_0254.request_items import ITEM_BYTES_MAX

__all__ = ["FromBroker"]

log = logging.getLogger(__name__)

#: Messages that the broker sends ahead.
_CREDIT = 200

#: The most items of one publish, and the most bytes of their payloads.
_BATCH_ITEMS_MAX = 100
_BATCH_BYTES_MAX = 100 * 1024

#: Conditions that concern one item, so that others may be accepted.
_FAULTS = frozenset({"bad-request", "conflict", "not-acceptable", "policy-violation"})

#: The condition for too many items: there will be room.
_FULL = "resource-constraint"


@dataclass(frozen=True, slots=True)
class _Entry:
    """A message as an item."""

    incoming: Incoming
    item: NewItem
    size: int


class FromBroker(Bridge[Source]):
    """Publishes the messages of a broker's node to a queue, in their order."""

    _said_no_id = False

    def _link(self) -> Source:
        return Source(self._broker, credit=_CREDIT)

    async def _carry(self, link: Source) -> None:
        self._ready()
        carrying = self._loop.create_task(self._publish_all(link))
        try:
            await asyncio.wait(
                (carrying, link.lost), return_when=asyncio.FIRST_COMPLETED
            )
            if carrying.done():
                carrying.result()
        finally:
            carrying.cancel()
            await asyncio.wait((carrying,))

    async def _publish_all(self, link: Source) -> None:
        """Publish the messages that come, until the bridge is stopped or has drained."""
        while not self._stopping.is_set():
            first = await self._first(link)
            if first is None:
                # Silence says nothing: the broker may stand still.
                if await self._unless_stopped(link.ask()) and link.lost.done():
                    return
                if not link.messages.empty():
                    continue
                self.stop()
                return
            batch = self._batch(link, first)
            if batch:
                await self._publish(link, batch)

    async def _first(self, link: Source) -> Incoming | None:
        """The next message; None: there is no more to do."""
        getting = self._loop.create_task(link.messages.get())
        stopping = self._loop.create_task(self._stopping.wait())
        try:
            await asyncio.wait(
                (getting, stopping),
                timeout=self._drain_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            return getting.result() if getting.done() else None
        finally:
            getting.cancel()
            stopping.cancel()

    def _batch(self, link: Source, first: Incoming) -> list[_Entry]:
        """The messages for one publish; a message that cannot be an item is rejected."""
        batch: list[_Entry] = []
        size = 0
        incoming = first
        while True:
            entry = self._take(link, incoming)
            if entry is not None:
                batch.append(entry)
                size += entry.size
            if (
                len(batch) == _BATCH_ITEMS_MAX
                or size >= _BATCH_BYTES_MAX
                or link.messages.empty()
            ):
                return batch
            incoming = link.messages.get_nowait()

    def _take(self, link: Source, incoming: Incoming) -> _Entry | None:
        def made() -> str:
            if not self._said_no_id:
                self._said_no_id = True
                log.warning(
                    "%s: a message without a message-id: such messages are in the queue "
                    "at least once, perhaps twice",
                    self._broker,
                )
            return new_key()

        if incoming.content is None:
            text = "the message is larger than an item can be"
            self._reject(link, incoming, Condition(conditions.TOO_LARGE, text))
            return None
        try:
            entry = item_of(
                incoming.content,
                new_id=made,
                now=time.time(),
                bytes_max=ITEM_BYTES_MAX,
            )
            item = NewItem(
                entry.payload,
                item_id=entry.item_id,
                priority=entry.priority,
                # 0 is not a time to live for a queue, and it has ended already.
                ttl=None if entry.ttl is None else max(entry.ttl, 0.001),
                properties=entry.properties,
            )
        except RemoteProtocolError as error:
            self._reject(link, incoming, condition_of(error))
            return None
        return _Entry(incoming, item, entry.size)

    async def _publish(self, link: Source, batch: list[_Entry]) -> None:
        """Publish items, and accept their messages; a bad one is found by halving."""
        try:
            await Retry(self._backoff).repeat(
                lambda: self._queueing.publish(
                    self._service,
                    self._node,
                    [entry.item for entry in batch],
                    attempts=1,
                ),
                is_temporary=lambda error: _may_pass(error, alone=len(batch) == 1),
                pause=self._pause,
            )
        except (RequestRefused, MessageTooLarge) as error:
            if not _is_fault(error) and not (len(batch) > 1 and _is_full(error)):
                raise
            if len(batch) == 1:
                self._reject(link, batch[0].incoming, _condition(error))
                return
            middle = len(batch) // 2
            await self._publish(link, batch[:middle])
            await self._publish(link, batch[middle:])
            return
        for entry in batch:
            link.settle(entry.incoming)
        self.done += len(batch)

    async def _pause(self, delay_s: float) -> None:
        log.warning(
            "%s: not published to %r; again in %.1f s",
            self._service,
            self._node,
            delay_s,
        )
        await asyncio.sleep(delay_s)
        await self._session.online.wait()

    def _reject(self, link: Source, incoming: Incoming, condition: Condition) -> None:
        self.refused += 1
        log.warning(
            "%s: a message is rejected: %s: %s",
            self._broker,
            condition.name,
            condition.description,
        )
        link.settle(incoming, condition)


def _may_pass(error: RequestFailed, *, alone: bool) -> bool:
    """Whether to publish the same batch again."""
    if _is_full(error):
        return alone  # there may be room for a part of it
    return error.is_temporary and not _is_fault(error)


def _is_full(error: QosError) -> bool:
    return isinstance(error, RequestRefused) and error.condition == _FULL


def _is_fault(error: QosError) -> bool:
    if isinstance(error, RequestRefused):
        return error.condition in _FAULTS and not error.unreachable
    return isinstance(error, MessageTooLarge)


def _condition(error: RequestRefused | MessageTooLarge) -> Condition:
    if isinstance(error, MessageTooLarge):
        return Condition(conditions.TOO_LARGE, str(error))
    stanza_error = RemoteProtocolError(
        str(error), condition=error.condition, type="cancel"
    )
    return condition_of(stanza_error)
