"""A queue service whose own connection is away for longer than a lock lasts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from forked import Forked
from proxy import Proxy
from qos.testing.prosody import Prosody
from test_queue_commands_live import QUEUE, Desk
from test_worker_resumes import Scene
from waiting import LIMIT_S, limit

#: A stop of any process for some seconds ends no lock.
LOCK_S = 8.0
AWAY_S = 1.5 * LOCK_S

pytestmark = [pytest.mark.crash, pytest.mark.long, pytest.mark.timeout(5 * LIMIT_S)]


class LinkedDesk(Desk):
    """Its service is behind a proxy, which can be away."""

    def __init__(self, server: Prosody, link: Proxy) -> None:
        super().__init__(server)
        self._link = link

    async def serve(self, store: Path) -> Forked:
        """Run the service, until it is ready."""
        words = ("queue", "serve", "--component", QUEUE, "--store", f"sqlite:{store}")
        at = ("--host", "127.0.0.1", "--port", str(self._link.port))
        again = ("--retry-first", "0.1", "--retry-max", "0.5")
        process = await self._start(
            (*words, *at, *again), self._server.components[QUEUE]
        )
        async with limit():
            assert await process.stderr.readline() == f"ready {QUEUE}\n".encode()
        return process


@pytest.fixture
async def link(prosody: Prosody) -> AsyncIterator[Proxy]:
    async with Proxy(prosody.component_port) as link:
        yield link


@pytest.fixture
async def scene(prosody: Prosody, link: Proxy, tmp_path: Path) -> AsyncIterator[Scene]:
    desk = LinkedDesk(prosody, link)
    scene = Scene(desk, tmp_path)
    await scene.open()
    locks = ("--set", f"lock_timeout={LOCK_S:g}")
    await desk.run("queue", "configure", *locks, user="alice")
    yield scene
    await desk.close()


async def test_a_command_goes_on_while_its_service_is_away(
    link: Proxy, scene: Scene
) -> None:
    """The worker is healthy, and is told by its server all the time that nobody is there.

    With one delivery the item was dead, and the command killed.
    """
    await scene.work("--lock-timeout", f"{LOCK_S:g}")
    await scene.sibling()
    await link.__aexit__(None, None, None)
    await asyncio.sleep(AWAY_S)
    assert scene.log() == ["begins"]
    await link.__aenter__()
    # Longer than what was left of the lock: it is extended again.
    await asyncio.sleep(AWAY_S)
    assert scene.log() == ["begins"]
    await scene.end()


async def test_work_that_ends_while_its_service_is_away_is_accepted(
    link: Proxy, scene: Scene, tmp_path: Path
) -> None:
    """It is done once: the worker says so as soon as anybody listens."""
    await scene.work("--lock-timeout", f"{LOCK_S:g}")
    await link.__aexit__(None, None, None)
    (tmp_path / "go").touch()
    await asyncio.sleep(AWAY_S)
    await link.__aenter__()
    await scene.end()
