"""Retracts of one worker; in batches, if it works in batches.

A batch is one iq with several items (the schema of XEP-0060 allows it): all are done or
none, so what is refused together is asked again one by one, and each gets an answer of
its own. There is nothing to wait for while nothing is under way; what comes to be done
while an answer is, goes into the next request, and a batch that is full goes at once.

Knows the service's answers; nothing of jobs and locks.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from qos.errors import LocalProtocolError, RequestFailed, RequestRefused
from xep_0254.queueing import XEP_0254

__all__ = ["RetractBatcher"]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A waiting caller; the result says whether to ask for the item alone."""

    item: tuple[str, str]
    timeout_s: float
    alone: asyncio.Future[bool]


class RetractBatcher:
    """Retracts items of one node, by their tokens.

    Args:
        plugin: that asks.
        service: whom.
        node: where they are.
        batch: items in one request, at most.
    """

    def __init__(
        self, plugin: XEP_0254, service: str, node: str, *, batch: int
    ) -> None:
        self._plugin = plugin
        self._service = service
        self._node = node
        self._batch = batch
        self._waiting: list[_Waiting] = []
        self._asking: set[asyncio.Task[None]] = set()
        # Those of them that the next request waits for.
        self._ahead: set[asyncio.Task[None]] = set()
        self._beginning = False

    async def retract(self, item_id: str, token: str, timeout_s: float) -> None:
        """See XEP_0254.retract; its errors, too, are those of this item."""
        # A service that gives no tokens may never have heard of several items.
        if self._batch > 1 and token:
            loop = asyncio.get_running_loop()
            alone: asyncio.Future[bool] = loop.create_future()
            self._waiting.append(_Waiting((item_id, token), timeout_s, alone))
            self._begin_soon()
            try:
                if not await alone:
                    return
            except asyncio.CancelledError:
                # The service has sent the item again, so it may have lost the request:
                # the next one, in which the item is asked for again, waits for no other.
                self._ahead.clear()
                raise
        await self._plugin.retract(
            self._service, self._node, item_id, token, timeout_s=timeout_s
        )

    def _begin_soon(self) -> None:
        if not self._beginning:
            self._beginning = True
            # Not at once: what else ends in this turn of the loop joins.
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._beginning = False
        # Who has been cancelled wants nothing any more.
        waiting = [each for each in self._waiting if not each.alone.done()]
        while waiting and (not self._ahead or len(waiting) >= self._batch):
            some, waiting = waiting[: self._batch], waiting[self._batch :]
            task = asyncio.get_running_loop().create_task(self._ask(some))
            self._asking.add(task)
            self._ahead.add(task)
            task.add_done_callback(self._asked)
        self._waiting = waiting

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        self._ahead.discard(task)
        if self._waiting:
            self._begin_soon()

    async def _ask(self, some: list[_Waiting]) -> None:
        alone = False
        failed: Exception | None = None
        try:
            await self._plugin.retract_all(
                self._service,
                self._node,
                [each.item for each in some],
                timeout_s=min(each.timeout_s for each in some),
            )
        except (RequestRefused, LocalProtocolError) as error:
            # Of one item it is the answer.
            alone, failed = len(some) > 1, error
        except RequestFailed as error:
            failed = error
        for each in some:
            if each.alone.done():
                continue
            if failed is None or alone:
                each.alone.set_result(alone)
            else:
                each.alone.set_exception(failed)

    async def end(self) -> None:
        """Wait for no answer any longer."""
        asking = list(self._asking)
        self._waiting.clear()
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)
