"""A queue service that may open no file any more, and then may again.

An operator raises `ulimit -n` of a running process, or whatever took the descriptors of
the machine has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
from typing import TYPE_CHECKING

import pytest

from qos.users import hashed
from waiting import limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qos.testing.server import LoopbackServer
    from tests.cli.conftest import Commands, Running

QUEUE = "queue.localhost"

#: Each descriptor below it is in use.
NONE_FREE = 3

#: The first bytes of a client at each door, and of the answer.
GREETINGS = {
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 401 "),
    # AMQP 1.0, security §5.3.2: the header of a layer of SASL.
    "amqp": (b"AMQP\x03\x01\x00\x00", b"AMQP\x03\x01\x00\x00"),
}


class Client:
    """A client that has connected to a door, and has said its first words."""

    def __init__(self, door: str) -> None:
        self._greeting, self._answer = GREETINGS[door]

    async def connect(self, port: int) -> asyncio.StreamWriter:
        """The kernel accepts it, whatever the service may do."""
        self._reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(self._greeting)
        return writer

    async def answered(self) -> bool:
        async with limit():
            return await self._reader.readexactly(len(self._answer)) == self._answer


@contextlib.contextmanager
def without_descriptors(running: Running) -> Iterator[None]:
    """The command may open nothing within."""
    pid, what = running.process.pid, resource.RLIMIT_NOFILE
    before = resource.prlimit(pid, what)
    resource.prlimit(pid, what, (NONE_FREE, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, what, before)


@pytest.fixture
async def doors(commands: Commands) -> tuple[Running, dict[str, int]]:
    """A service with all doors; returns it and the port of each door."""
    users = commands.folder / "users"
    users.touch(0o600)
    users.write_text(f"shop:{hashed('secret')}\n")
    options = []
    for door in GREETINGS:
        options += [f"--{door}", "127.0.0.1:0", f"--{door}-users", str(users)]
    serving = await commands.serve(*options)
    ports = {
        door: int(line.rstrip("/").rpartition(":")[2])
        for door in GREETINGS
        for line in serving.err
        if f"{door}://" in line
    }
    return serving, ports


async def test_each_door_serves_again_when_there_are_descriptors_again(
    commands: Commands,
    server: LoopbackServer,
    doors: tuple[Running, dict[str, int]],
) -> None:
    """Those who came meanwhile have waited, and are served; and its own stream, which was
    cut, is there again.
    """
    serving, ports = doors
    assert ports.keys() == GREETINGS.keys()
    assert (await commands.queue("create")).status == 0
    clients = {door: Client(door) for door in ports}
    async with contextlib.AsyncExitStack() as stack:
        with without_descriptors(serving):
            for door, client in clients.items():
                writer = await client.connect(ports[door])
                stack.callback(writer.close)
            # Of all doors together, once a minute.
            await serving.note("no connection can be accepted")
            # What is open works on: the stream, and the store.
            published = await commands.queue("publish", "--text", "x")
            assert published.status == 0, published.err
            assert server.disconnect(QUEUE) == 1
            await serving.note("connect")
        for client in clients.values():
            assert await client.answered()
        async with limit():
            stats = await commands.queue("stats")
            while stats.status:
                # It is on its way back to the server.
                stats = await commands.queue("stats")
        assert stats.out[0]["available"] == 1
    assert serving.process.returncode is None
