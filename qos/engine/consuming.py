"""Runs the handlers of consumers, each with a transaction of the store.

This module does not decide when a handler runs, or what its end means for the message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeAlias

from qos.core.backoff import Backoff
from qos.core.message.model import Incoming
from qos.core.record import record
from qos.errors import LocalProtocolError
from qos.stores.base import Parameters, Store, Transaction

__all__ = ["Consuming", "Consumption", "Handover"]

log = logging.getLogger(__name__)

#: The time that a handler has from its first statement on, in seconds. While its
#: transaction is open, nothing else can be written: received messages wait for it, and
#: so do messages to be sent.
_TRANSACTION_S_MAX = 10.0


class Handover:
    """The transaction that the handler of a consumer gets together with the message.

    Attributes:
        msg_id: the sender's id for the message.
        key: identifies this message and no other, at each hand-over and after a
            restart. Use it as an idempotency key where there is no transaction.
        count: the number of this hand-over of the message, from 1. Begins anew when an
            operator has released the message.
        redelivered: whether the message may have been handed over before.
    """

    def __init__(
        self,
        record: Incoming,
        transaction: Transaction | None,
        limit: asyncio.Timeout,
        context: Context,
    ) -> None:
        self.msg_id = record.msg_id
        self.key = record.key
        self.count = record.handovers
        self.redelivered = record.redelivered
        self._transaction = transaction
        self._limit = limit
        self._context = context

    def __repr__(self) -> str:
        return f"<Handover {self.count} of {self.msg_id!r}>"

    async def execute(
        self, sql: str, parameters: Parameters = ()
    ) -> list[tuple[Any, ...]]:
        """Execute a statement on tables of the application in the file of the store.

        All statements of this handler are in one transaction, together with the mark
        that the message is done. The transaction is committed when the handler returns,
        and undone when it raises. From the first statement on, nothing else is written
        into the store: be quick.

        Args:
            sql: one statement, as for sqlite3, on the application's own tables. See
                qos.stores.sqlite_guard for the other permitted statements. `COMMIT`,
                `ATTACH`, `PRAGMA` and temporary tables, for instance, are not
                permitted.
            parameters: its values.

        Returns:
            Its rows.

        Raises:
            LocalProtocolError: the statement is not permitted, and has changed nothing;
                or the store has no transactions.
            sqlite3.Error: the statement fails.
        """
        if self._transaction is None:
            raise LocalProtocolError(
                "only a store sqlite:PATH has transactions: use handover.key to "
                "recognise a message that was handed over before"
            )
        if not self._transaction.is_open:
            # Set it in the handler's own context too: this code may run in a task of
            # gather or wait_for. Otherwise, other writes of the handler into the store
            # would wait for its own transaction.
            begin = self._transaction.begin()
            loop = asyncio.get_running_loop()
            await loop.create_task(begin, context=self._context)
        if self._limit.when() is None:
            now = asyncio.get_running_loop().time()
            self._limit.reschedule(now + _TRANSACTION_S_MAX)
        return await self._transaction.execute(sql, parameters)


#: Called with the transaction, to be committed or undone, and the error of the handler.
Ended: TypeAlias = Callable[[Transaction | None, BaseException | None], None]


@record(frozen=True, slots=True, kw_only=True)
class Consumption:
    """The way in which a message is consumed.

    Attributes:
        name: the name of the consumer, for the log.
        handle: the handler that takes the message.
        handovers_max: the most hand-overs of one message.
        backoff: the delays between two hand-overs.
        lane: messages of the same lane are handed over one after another, each when the
            previous one is done or parked; None: at once.
    """

    name: str
    handle: Callable[[Handover], Awaitable[object]]
    handovers_max: int
    backoff: Backoff
    lane: str | None


class Consuming:
    """The running handlers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def begin(self, record: Incoming, consumption: Consumption, on_end: Ended) -> None:
        """Start the handler; `on_end` is called at its end, unless `aclose` ends it."""
        transaction = self._store.transaction()
        context = copy_context()
        run = self._run(record, consumption, transaction, context)
        task = asyncio.get_running_loop().create_task(run, context=context)
        self._tasks.add(task)
        # Not at the end of the task itself: a task that is cancelled at once never
        # begins.
        task.add_done_callback(partial(self._has_run, transaction, on_end))

    def is_running(self) -> bool:
        """Whether the caller is itself one of the handlers."""
        return asyncio.current_task() in self._tasks

    async def aclose(self) -> None:
        """End the running handlers, as if the process had died."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(
        self,
        record: Incoming,
        consumption: Consumption,
        transaction: Transaction | None,
        context: Context,
    ) -> None:
        async with asyncio.timeout(None) as limit:
            handover = Handover(record, transaction, limit, context)
            await consumption.handle(handover)

    def _has_run(
        self, transaction: Transaction | None, on_end: Ended, task: asyncio.Task[None]
    ) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            on_end(transaction, task.exception())
        elif not self._closed:
            # Cancelled by the application: this task, or something that it waited for.
            on_end(transaction, asyncio.CancelledError())
        elif transaction is not None:
            transaction.rollback()
