"""A server, a queue service and clients, for the tests of workers."""

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from slixmpp import ClientXMPP

from qos.testing import LoopbackServer, friends, logged_in
from raw_client import RawComponent
from worker_setup import BEES, QUEUE, SECRET, LogIn, Queue, ScriptedService

#: Less than a lock, or than a worker takes to subscribe again; both come by themselves.
_ENDS_S = 50.0


@pytest.fixture(autouse=True)
def one_clock(request: pytest.FixtureRequest) -> None:
    """The virtual clock of a test goes on where the real one of its fixtures was.

    And it ends, unless a test says `end=None`: what has to come at once must not pass
    for coming by and by.
    """
    bounds = pytest.mark.looptime(
        start=time.monotonic, end=lambda: time.monotonic() + _ENDS_S
    )
    request.node.add_marker(bounds)


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    components = {QUEUE: SECRET, BEES: SECRET}
    async with friends("bee", "owner", components=components) as server:
        yield server


@pytest.fixture
async def log_in(server: LoopbackServer) -> AsyncIterator[LogIn]:
    async with contextlib.AsyncExitStack() as stack:

        async def log_in(name: str, **plugins: Any) -> ClientXMPP:
            plugins.setdefault("xep_0254", {})
            return await stack.enter_async_context(logged_in(server, name, plugins))

        yield log_in


@pytest.fixture
async def bee(log_in: LogIn) -> ClientXMPP:
    return await log_in("bee/1")


@pytest.fixture
async def queue(
    server: LoopbackServer, log_in: LogIn, tmp_path: Path
) -> AsyncIterator[Queue]:
    """Our real queue service, running."""
    queue = Queue(server, tmp_path / "queues.db", await log_in("owner/1"))
    try:
        await queue.start()
        yield queue
    finally:
        await queue.stop()


@pytest.fixture
async def scripted(server: LoopbackServer) -> AsyncIterator[ScriptedService]:
    """A queue service scripted by a test."""
    async with RawComponent(QUEUE, SECRET, port=server.component_port) as component:
        yield ScriptedService(component)
