"""Retracts of one worker, in batches if the worker works in batches.

A batch is one iq with several items (the schema of XEP-0060 allows that). All are done
or none: so items that are refused together are asked for again one by one, each with an
answer of its own. Without a request in flight a retract is sent at once. Retracts that
come while a request is in flight go into the next one. A full batch is sent at once.

This module knows the service's answers, but nothing of jobs and locks.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from qos.errors import LocalProtocolError, RequestFailed, RequestRefused
from xep_0254.queueing import XEP_0254

__all__ = ["Retract", "RetractBatcher"]


class Retract(Protocol):
    """A retract that shares a request with others.

    Attributes:
        item: the id of the item, and the token of the delivery.
        timeout_s: how long to wait for an answer.
        withdrawn: whether nobody waits for the answer any more.
    """

    item: tuple[str, str]
    timeout_s: float

    @property
    def withdrawn(self) -> bool:
        """See above."""

    def answered(self, failed: Exception | None, *, alone: bool) -> None:
        """Take the answer.

        Args:
            failed: the error; None: the item is retracted.
            alone: the error concerns all items: ask for this one alone.
        """


class _Waiting:
    """A retract with a coroutine that waits; the result is `alone`."""

    def __init__(self, item: tuple[str, str], timeout_s: float) -> None:
        self.item = item
        self.timeout_s = timeout_s
        self.alone: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    @property
    def withdrawn(self) -> bool:
        return self.alone.done()

    def answered(self, failed: Exception | None, *, alone: bool) -> None:
        if failed is None or alone:
            self.alone.set_result(alone)
        else:
            self.alone.set_exception(failed)


class RetractBatcher:
    """Retracts items of one node, by their tokens.

    Args:
        plugin: sends the requests.
        service: the JID of the service.
        node: the name of the node.
        batch: the most items in one request.
    """

    def __init__(
        self, plugin: XEP_0254, service: str, node: str, *, batch: int
    ) -> None:
        self._plugin = plugin
        self._service = service
        self._node = node
        self._batch = batch
        self._waiting: list[Retract] = []
        self._asking: set[asyncio.Task[None]] = set()
        # The requests that the next one must wait for.
        self._ahead: set[asyncio.Task[None]] = set()
        self._beginning = False

    async def retract(self, item_id: str, token: str, timeout_s: float) -> None:
        """See XEP_0254.retract; its errors too concern this item."""
        if self.takes(token):
            waiting = _Waiting((item_id, token), timeout_s)
            self.add(waiting)
            try:
                if not await waiting.alone:
                    return
            except asyncio.CancelledError:
                # The item was sent again, and the next request repeats it.
                self.wait_for_none()
                raise
        await self.retract_alone(item_id, token, timeout_s)

    async def retract_alone(self, item_id: str, token: str, timeout_s: float) -> None:
        """As `retract`, in a request of its own."""
        await self._plugin.retract(
            self._service, self._node, item_id, token, timeout_s=timeout_s
        )

    def takes(self, token: str) -> bool:
        """Whether items with such a token share requests."""
        # A service without tokens may not support several items.
        return self._batch > 1 and bool(token)

    def add(self, retract: Retract) -> None:
        """Let a retract join the next request."""
        self._waiting.append(retract)
        self._begin_soon()

    def wait_for_none(self) -> None:
        """Send the next request at once.

        The service has sent an item again, so it may have lost the present request.
        """
        self._ahead.clear()

    def _begin_soon(self) -> None:
        if not self._beginning:
            self._beginning = True
            # Not at once: other items that end in this turn of the loop join.
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._beginning = False
        waiting = [retract for retract in self._waiting if not retract.withdrawn]
        while waiting and (not self._ahead or len(waiting) >= self._batch):
            batch, waiting = waiting[: self._batch], waiting[self._batch :]
            task = asyncio.get_running_loop().create_task(self._ask(batch))
            self._asking.add(task)
            self._ahead.add(task)
            task.add_done_callback(self._answered)
        self._waiting = waiting

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._asking.discard(task)
        self._ahead.discard(task)
        if self._waiting:
            self._begin_soon()

    async def _ask(self, batch: list[Retract]) -> None:
        alone = False
        failed: Exception | None = None
        try:
            await self._plugin.retract_all(
                self._service,
                self._node,
                [retract.item for retract in batch],
                timeout_s=min(retract.timeout_s for retract in batch),
            )
        except (RequestRefused, LocalProtocolError) as error:
            # The answer for a single item is final.
            alone, failed = len(batch) > 1, error
        except RequestFailed as error:
            failed = error
        for retract in batch:
            if not retract.withdrawn:
                retract.answered(failed, alone=alone)

    async def end(self) -> None:
        """Stop waiting for answers."""
        asking = list(self._asking)
        self._waiting.clear()
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)
