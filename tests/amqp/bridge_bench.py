"""A RabbitMQ, a queue at the embedded server, and bridges as processes between them."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from proton import Link, Message, Terminus
from proton.reactor import LinkOption
from proton.utils import BlockingConnection

import forked
from benchmarks.rabbitmq import start_rabbitmq
from forked import Forked
from qos.ids import new_id
from qos.testing import LoopbackServer, friends, logged_in
from qos.testing.ports import free_ports
from qos.testing.processes import Child, Process
from waiting import LIMIT_S, limit, until
from worker_setup import NODE, QUEUE, SECRET, Queue

__all__ = ["Bridge", "Bridges", "Rabbit", "bridges"]

T = TypeVar("T")

#: It takes 4 s alone, and 20 s when the machine has much to do.
_START_S = 2 * LIMIT_S

_PASSWORD = "guest"  # noqa: S105 - of every new RabbitMQ


class Durable(LinkOption):
    """A queue that the link makes is durable, as those of the bridge are."""

    def apply(self, link: Link) -> None:
        terminus = link.target if link.is_sender else link.source
        terminus.durability = Terminus.CONFIGURATION


class Rabbit:
    """A RabbitMQ with AMQP 1.0.

    Attributes:
        port: where it listens.
    """

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._folder = folder
        self._processes: tuple[Process, ...] = ()

    async def start(self) -> None:
        plugins = ("rabbitmq_amqp1_0",)
        self._processes = await start_rabbitmq(self._folder, self.port, plugins=plugins)
        await self._processes[0].until_listening(self.port, seconds=_START_S)

    async def stop(self) -> None:
        for each in self._processes:
            await each.kill()

    def url(self, address: str, user: str = "guest") -> str:
        return f"amqp://{user}@127.0.0.1:{self.port}/{address}"

    def _use(self, work: Callable[[BlockingConnection], T]) -> T:
        url = f"amqp://guest:guest@127.0.0.1:{self.port}"
        connection = BlockingConnection(url, allowed_mechs="PLAIN", timeout=LIMIT_S)
        try:
            return work(connection)
        finally:
            connection.close()

    async def publish(self, address: str, messages: Sequence[Message]) -> None:
        """Publish messages; each is confirmed."""

        def work(connection: BlockingConnection) -> None:
            sender = connection.create_sender(address, options=Durable())
            for each in messages:
                sender.send(each)

        await asyncio.to_thread(self._use, work)

    async def take(self, address: str) -> list[Message]:
        """Take all messages away that are there: those before one that comes last."""
        last = Message(id=f"last-{new_id()}", durable=True)
        await self.publish(address, [last])

        def work(connection: BlockingConnection) -> list[Message]:
            durable = Durable()
            receiver = connection.create_receiver(address, credit=100, options=durable)
            found: list[Message] = []
            while True:
                message = receiver.receive(timeout=LIMIT_S)
                receiver.accept()
                if message.id == last.id:
                    return found
                found.append(message)

        return await asyncio.to_thread(self._use, work)


class Bridge:
    """A running bridge.

    Attributes:
        process: of it.
        notes: the lines of its stderr that were read.
    """

    def __init__(self, process: asyncio.subprocess.Process | Forked) -> None:
        self.process = process
        self.notes: list[str] = []

    async def note(self, word: str) -> None:
        """Read its notes up to one with this word."""
        assert self.process.stderr is not None
        async with limit():
            while line := (await self.process.stderr.readline()).decode():
                self.notes.append(line.rstrip())
                if word in line:
                    return
        raise AssertionError(f"ended without {word!r}: {self.notes}")

    async def end(self) -> int:
        """Wait for its end; returns the status."""
        assert self.process.stderr is not None
        async with limit():
            rest = await self.process.stderr.read()
            self.notes += rest.decode().splitlines()
            return await self.process.wait()

    async def kill(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.end()

    @property
    def said(self) -> str:
        return "\n".join(self.notes)


class Bridges:
    """Starts bridges.

    Attributes:
        queue: the service, with the node `orders`.
        port: of the XMPP server.
    """

    def __init__(self, server: LoopbackServer, queue: Queue, folder: Path) -> None:
        self.queue = queue
        self.port = server.port
        self._folder = folder
        self._started: list[Bridge] = []

    async def start(
        self,
        *words: str | Path,
        node: str = NODE,
        password: str | None = _PASSWORD,
        program: Sequence[str] = (),
        function: Callable[..., int] = forked.command,
    ) -> Bridge:
        """Start a bridge: its direction, the URL, and further options.

        It is a fork, which runs the function; or a program is given that runs the command.
        """
        environment = {
            **os.environ,
            "HOME": str(self._folder),
            "XMPP_QOS_PASSWORD": "secret",
            "XMPP_QOS_BROKER_PASSWORD": password or "",
        }
        command = [
            *("bridge", *map(str, words[:2]), QUEUE, node),
            *("--jid", "owner@localhost", "--host", "127.0.0.1"),
            *("--port", str(self.port), "--tls", "off"),
            *("--retry-first", "0.2", "--retry-max", "1", *map(str, words[2:])),
        ]
        process: asyncio.subprocess.Process | Forked
        if program:
            process = await asyncio.create_subprocess_exec(
                *(*Child.mortal(), *program, *command),
                env=environment,
                stderr=subprocess.PIPE,
            )
        else:
            process = await Forked.start(function, command, environment)
        bridge = Bridge(process)
        self._started.append(bridge)
        return bridge

    async def run(
        self, *words: str | Path, status: int = 0, **options: object
    ) -> Bridge:
        """Start a bridge, and wait until it ends with this status."""
        bridge = await self.start(*words, **options)  # type: ignore[arg-type]  # those
        assert await bridge.end() == status, bridge.said
        return bridge

    async def carry(
        self,
        *words: str | Path,
        notes: Sequence[str] = (),
        password: str | None = _PASSWORD,
        **counts: int,
    ) -> Bridge:
        """Start a bridge, and stop it when it has carried what is there.

        Args:
            words: see `start`.
            notes: what it says meanwhile, in this order.
            password: at the broker.
            counts: of the queue, when all is carried.
        """
        bridge = await self.start(*words, password=password)
        for word in notes:
            await bridge.note(word)
        await self.queue.until(**counts)
        # There may be nothing left to carry: it may still be starting.
        await until(lambda: catches(bridge.process.pid, signal.SIGTERM))
        bridge.process.send_signal(signal.SIGTERM)
        assert await bridge.end() == 0, bridge.said
        return bridge

    async def ids(self) -> list[str]:
        """The ids of all items of the queue."""
        return [each.item_id async for each in self.queue.owner.browse(QUEUE, NODE)]

    async def close(self) -> None:
        for each in self._started:
            await each.kill()


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal by now."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = re.findall(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


@contextlib.asynccontextmanager
async def bridges(folder: Path) -> AsyncIterator[Bridges]:
    """A server, a service and a queue."""
    async with (
        friends("owner", components={QUEUE: SECRET}) as server,
        logged_in(server, "owner/1", {"xep_0254": {}}) as owner,
    ):
        queue = Queue(server, folder / "queues.db", owner)
        await queue.start()
        running = Bridges(server, queue, folder)
        try:
            await queue.create()
            yield running
        finally:
            await running.close()
            await queue.stop()
