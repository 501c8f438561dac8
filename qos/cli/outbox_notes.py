"""Notes of `send` about slow messages, and about messages already in the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import chain, repeat
from typing import TYPE_CHECKING

from qos.cli.connection import Connection
from qos.cli.output import note
from qos.core.message.model import OutgoingState
from qos.core.strings import bare
from qos.engine import Delivery
from qos.errors import StillOutstanding
from xep_qos.roster import why_none_is_online

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["following_earlier", "saying_what_is_awaited"]

#: Seconds between two notes about waiting messages: after 10 s, 1 min, 5 min, and then
#: every 10 min.
_DELAYS_S = (10.0, 50.0, 240.0)
_LAST_DELAY_S = 600.0

#: The most earlier messages whose outcomes are printed.
_EARLIER_MAX = 1000


@asynccontextmanager
async def following_earlier(
    connection: Connection,
    report: Callable[[Delivery], Coroutine[object, object, None]],
    *,
    but: str | None,
) -> AsyncIterator[None]:
    """Say how many messages the outbox holds, and print their outcomes meanwhile.

    Args:
        connection: with an open store, not started yet.
        report: called for each message; returns when its outcome is printed.
        but: the id of the message that is sent now, if an earlier run sent it.
    """
    ids = [
        message.msg_id
        for message in connection.qos.store.outgoing()
        if message.msg_id != but
    ]
    if ids:
        are = "message is" if len(ids) == 1 else "messages are"
        go = "goes" if len(ids) == 1 else "go"
        note(f"{len(ids)} earlier {are} in the outbox and {go} out too")
    deliveries = map(connection.qos.delivery, ids[:_EARLIER_MAX])
    tasks = [asyncio.ensure_future(report(delivery)) for delivery in deliveries]
    try:
        yield
        if any(not task.done() for task in tasks):
            note(connection.what_stays)
    finally:
        await _cancelled(tasks)


def saying_what_is_awaited(
    connection: Connection, to: str, ids: Collection[str]
) -> AbstractAsyncContextManager[None]:
    """Say from time to time which messages wait, and why.

    Args:
        connection: the session that sends them.
        to: their receiver.
        ids: the messages that have not ended; changed meanwhile.
    """
    return _running(_say_what_is_awaited(connection, to, ids))


async def _say_what_is_awaited(
    connection: Connection, to: str, ids: Collection[str]
) -> None:
    for delay_s in chain(_DELAYS_S, repeat(_LAST_DELAY_S)):
        await asyncio.sleep(delay_s)
        msg_id = next(iter(ids), None)
        if msg_id is not None:
            count = f" ({len(ids)} messages)" if len(ids) > 1 else ""
            note(f"still waiting for {to}{count}: {_why(connection, msg_id)}")


def _why(connection: Connection, msg_id: str) -> str:
    """The reason why a message has not ended, as far as it is known."""
    if not connection.online.is_set():
        return "there is no connection to the server"
    record = connection.qos.store.find_outgoing(msg_id)
    if record is None:
        return "its outcome is being written"
    if record.state is OutgoingState.RELEASING:
        return "the receiver has the message, and has not confirmed it yet"
    if record.state is not OutgoingState.QUEUED or "/" in record.to:
        return f"no answer that accepts it, after {record.attempts or 'some'} attempts"
    client = connection.client
    return why_none_is_online(client, bare(record.to), client.boundjid.bare)


@asynccontextmanager
async def _running(work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    task = asyncio.get_running_loop().create_task(work)
    try:
        yield
    finally:
        await _cancelled([task])


async def _cancelled(tasks: Collection[asyncio.Future[None]]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        # A failure of stdout is also reported by the message that is sent now.
        if isinstance(result, Exception) and not isinstance(result, StillOutstanding):
            note(str(result))
