"""A service that is stopped for a while (SIGSTOP) takes nothing from its workers.

Time in which it does not read is not theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

import pytest

from qos.testing.clients import close, new_client
from waiting import LIMIT_S, limit
from xep_0254.events import Event
from xep_0254.queueing import XEP_0254

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slixmpp import ClientXMPP

    from qos.testing.server import LoopbackServer
    from tests.cli.conftest import Commands, Running

QUEUE = ("queue.localhost", "orders")

LOCK_S = 10.0

#: Longer than the lock, and than five others after it: so the item would be dead.
STOP_S = 60


@contextlib.asynccontextmanager
async def session(server: LoopbackServer, user: str) -> AsyncIterator[ClientXMPP]:
    """A worker that is written by hand: it waits long for each answer."""
    client = new_client(
        f"{user}@localhost/bee",
        f"secret of {user}",
        {"xep_0254": {"timeout_s": 5.0 * STOP_S}},
    )
    # The server of these tests has nothing else.
    client.plugin["feature_mechanisms"].unencrypted_plain = True
    client.connect(server.host, server.port)
    try:
        await client.wait_until("session_start", timeout=int(LIMIT_S))
        client.send_presence()
        yield client
    finally:
        await close(client)


@pytest.mark.long
async def test_a_lock_lasts_as_long_as_the_service_has_listened(
    queues: Commands, serving: Running, server: LoopbackServer
) -> None:
    """Its worker extends it each second. The item went to another worker when the service
    woke up, and after some such stops it was dead.
    """
    settings = ("--set", f"lock_timeout={LOCK_S:g}")
    assert (await queues.queue("configure", *settings)).status == 0
    events: asyncio.Queue[Event] = asyncio.Queue()
    async with session(server, "bob") as bee, session(server, "alice") as other:
        plugin = XEP_0254.of(bee)
        plugin.add_listener(*QUEUE, events.put_nowait)
        await plugin.subscribe(*QUEUE, queue_requests=1)
        await queues.queue("publish", "--text", "x")
        async with limit():
            (item,) = (await events.get()).items
        # Another worker that would take it.
        seen: asyncio.Queue[Event] = asyncio.Queue()
        XEP_0254.of(other).add_listener(*QUEUE, seen.put_nowait)
        await XEP_0254.of(other).subscribe(*QUEUE, queue_requests=1)
        serving.process.send_signal(signal.SIGSTOP)
        extensions = []
        for _ in range(STOP_S):
            extension = plugin.extend(*QUEUE, item.item_id, item.token, LOCK_S)
            extensions.append(asyncio.create_task(extension))
            await asyncio.sleep(1.0)
        serving.process.send_signal(signal.SIGCONT)
        async with limit():
            granted = await asyncio.gather(*extensions)
        assert granted == [LOCK_S] * STOP_S
        # It has looked at its clock by then.
        await XEP_0254.of(other).stats(*QUEUE)
        assert await plugin.extend(*QUEUE, item.item_id, item.token, LOCK_S) == LOCK_S
        await plugin.retract(*QUEUE, item.item_id, item.token)
        # What would have been given to the other one has been by now.
        await XEP_0254.of(other).stats(*QUEUE)
        assert seen.empty()
    (stats,) = (await queues.queue("stats")).out
    assert (stats["accepted"], stats["dead"], stats["available"]) == (1, 0, 0)
