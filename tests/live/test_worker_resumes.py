"""A worker whose connection is lost, while the server and the service live or restart.

A connection that is lost is not a worker that died: its command goes on.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy import LinkFault, Proxy
from qos.testing.prosody import Prosody
from test_queue_commands_live import Desk, finish
from waiting import LIMIT_S, limit, until

#: Says that it begins, waits for a file, and says that it ends.
COMMAND = (
    *("sh", "-c"),
    'echo begins >> "$1"; while [ ! -e "$2" ]; do sleep 0.1; done; echo ends >> "$1"',
    "sh",
)
RETRY = ("--retry-first", "0.1", "--retry-max", "0.5")

pytestmark = [pytest.mark.crash, pytest.mark.timeout(5 * LIMIT_S)]


class Scene:
    """A queue with one item, which may fail never, and a command that works on it."""

    def __init__(self, desk: Desk, folder: Path) -> None:
        self.desk = desk
        self._folder = folder
        self._log, self._go = folder / "log", folder / "go"

    async def open(self) -> None:
        """Serve the queue."""
        await self.desk.serve(self._folder / "queue.sqlite")
        options = ("--set", "max_deliveries=1", "--set", "access_model=open")
        await self.desk.run("queue", "create", *options, user="alice")

    async def work(self, *options: str) -> asyncio.StreamReader:
        """Begin to work on the item; returns the stderr of the worker."""
        command = (*RETRY, *options, "--", *COMMAND, str(self._log), str(self._go))
        process = await self.desk.start("worker", *command, user="bob")
        async with limit():
            assert (await process.stderr.readline()).startswith(b"ready ")
        await self.desk.run("queue", "publish", "--text", "x", user="alice")
        await until(lambda: self.log() == ["begins"])
        return process.stderr

    async def sibling(self) -> None:
        """Start another worker of the account, which has nothing to do."""
        words = ("worker", *RETRY, "--", "false")
        process = await self.desk.start(*words, user="bob")
        async with limit():
            assert (await process.stderr.readline()).startswith(b"ready ")

    def log(self) -> list[str]:
        """What the commands have said."""
        return self._log.read_text().split() if self._log.exists() else []

    async def end(self) -> None:
        """Let the command end: it was the only one, and its item is accepted."""
        self._go.touch()

        async def is_accepted() -> bool:
            process = await self.desk.start("queue", "stats", user="alice")
            out, _ = await process.communicate(b"")
            if process.returncode:
                return False  # the service is still away
            stats = json.loads(out)
            assert stats["dead"] == 0
            return bool(stats["accepted"] == 1)

        await until(is_accepted)
        assert self.log() == ["begins", "ends"]


@pytest.fixture
async def scene(prosody: Prosody, tmp_path: Path) -> AsyncIterator[Scene]:
    desk = Desk(prosody)
    scene = Scene(desk, tmp_path)
    await scene.open()
    yield scene
    await desk.close()


async def note(stderr: asyncio.StreamReader, word: bytes) -> None:
    """Read the notes of a worker up to one with this word."""
    async with limit():
        while word not in (line := await stderr.readline()):
            assert line, "the worker has ended"


async def test_a_command_goes_on_when_the_server_restarts(
    prosody: Prosody, scene: Scene
) -> None:
    """All that the service hears of the worker is that it is unavailable.

    The session has another resource then, and the sibling may be there first.
    """
    stderr = await scene.work()
    await scene.sibling()
    await prosody.restart()
    await note(stderr, b"connected again")
    await scene.end()


async def test_a_command_goes_on_when_the_server_is_killed(
    prosody: Prosody, scene: Scene
) -> None:
    """Nobody hears of anybody then, and the service comes back as well."""
    stderr = await scene.work("--jid", "bob@localhost/fixed")
    await scene.sibling()
    await prosody.kill()
    await prosody.start()
    await note(stderr, b"connected again")
    await scene.end()


@pytest.mark.parametrize("resource", ["", "/fixed"], ids=["another one", "the same"])
async def test_a_command_goes_on_over_five_lost_connections(
    prosody: Prosody, scene: Scene, resource: str
) -> None:
    """The worker cannot tell why, and the server may tell the service at any time."""
    async with Proxy(prosody.c2s_port) as proxy:
        jid = f"bob@localhost{resource}"
        stderr = await scene.work("--jid", jid, "--port", str(proxy.port))
        await scene.sibling()
        for _ in range(5):
            assert await proxy.inflict(LinkFault.CUT, 0.0) == 1
            await note(stderr, b"connected again")
        await scene.end()


async def test_a_new_worker_of_the_same_resource_does_not_go_on(
    prosody: Prosody, scene: Scene
) -> None:
    """An item that kills its worker ends, long before its lock does."""
    jid = ("--jid", "bob@localhost/fixed")
    words = ("worker", *RETRY, *jid, "--", "sh", "-c", "echo x >> $0; sleep 600")
    log = scene._folder / "killed"
    worker = await scene.desk.start(*words, str(log), user="bob")
    await scene.desk.run("queue", "publish", "--text", "x", user="alice")
    await until(log.exists)
    worker.kill()
    await finish(worker, status=-9)
    again = ("worker", *RETRY, *jid, "--drain", "0.5", "--", "false")
    await scene.desk.run(*again, user="bob")
    (stats,) = await scene.desk.run("queue", "stats", user="alice")
    assert (stats["dead"], stats["acquired"]) == (1, 0)
