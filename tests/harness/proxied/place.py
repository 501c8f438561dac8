"""What is behind the proxies: a queue service, and targets that items are pushed to."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from qos.testing.ports import ADDRESS, free_ports
from qos.testing.processes import Process
from qos.testing.prosody import Prosody
from qos.users import hashed
from role import Connect
from web_proxies import PROXIES, WebProxy
from xep_0254.queueing import XEP_0254

__all__ = ["SECRET", "SERVICE", "USER", "Lane", "lanes_of", "service"]

SECRET = "secret of the day"  # noqa: S105 - of an account inside a test
USER, SERVICE = "alice@localhost", "queue.localhost"

_COMMAND = "import sys, qos.cli; sys.exit(qos.cli.main())"


class Target:
    """A web server that items are pushed to; it can restart.

    Attributes:
        port: of it.
        got: how often each item was answered with 200.
    """

    def __init__(self) -> None:
        (self.port,) = free_ports(1)
        self.got: Counter[str] = Counter()
        self._runner: web.ServerRunner | None = None

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        item_id = (await request.read()).decode()
        await asyncio.sleep(random.choice((0.0, 0.0, 0.1, 1.0)))
        self.got[item_id] += 1
        return web.Response()

    async def start(self) -> None:
        """Listen."""
        self._runner = web.ServerRunner(web.Server(self._handle))
        await self._runner.setup()
        await web.TCPSite(self._runner, ADDRESS, self.port).start()

    async def stop(self) -> None:
        """Listen no more, and end all connections."""
        assert self._runner is not None
        await self._runner.cleanup()


@dataclass(slots=True)
class Lane:
    """A queue for a worker and one that is pushed, both behind one kind of proxy.

    Attributes:
        front: between clients and the service.
        back: between the service and the target.
        work, push: the ids of the items of each queue.
        done: how often each item was handled by the worker.
        dead: how many dead items the queues have.
    """

    name: str
    front: WebProxy
    back: WebProxy
    target: Target
    work: set[str] = field(default_factory=set)
    push: set[str] = field(default_factory=set)
    done: Counter[str] = field(default_factory=Counter)
    dead: int = 0

    @property
    def missing(self) -> int:
        """How many items were not handled yet."""
        return len(self.work - self.done.keys()) + len(
            self.push - self.target.got.keys()
        )

    @property
    def row(self) -> tuple[str, ...]:
        """The row of the table."""
        got = self.target.got
        counts = (
            len(self.work) + len(self.push),
            sum(self.done[each] == 1 for each in self.work),
            sum(got[each] == 1 for each in self.push),
            sum(count > 1 for count in (*self.done.values(), *got.values())),
            *(self.missing, self.dead),
        )
        return (self.name, *map(str, counts))


@contextlib.asynccontextmanager
async def lanes_of(folder: Path, http: int) -> AsyncIterator[list[Lane]]:
    """The proxies around the service at this port, and the targets."""
    async with contextlib.AsyncExitStack() as stack:
        lanes = []
        for name in PROXIES:
            target = Target()
            front = WebProxy(name, folder / f"{name}-front", http)
            back = WebProxy(name, folder / f"{name}-back", target.port)
            for each in (target, front, back):
                await each.start()
                stack.push_async_callback(each.stop)
            lanes.append(Lane(name, front, back, target))
        yield lanes


@contextlib.asynccontextmanager
async def service(folder: Path) -> AsyncIterator[tuple[int, XEP_0254]]:
    """A queue service; yields its port for HTTP, and the plugin of the owner."""
    (http,) = free_ports(1)
    (folder / "server").mkdir()
    (users := folder / "users").write_text(f"{USER}:{hashed(SECRET)}\n")
    users.chmod(0o600)
    accounts, components = {"alice": SECRET}, {SERVICE: SECRET}
    async with Prosody(
        folder / "server", accounts=accounts, components=components
    ) as server:
        process = await Process.start(
            *(sys.executable, "-P", "-c", _COMMAND, "queue", "serve"),
            *("--component", SERVICE, "--port", str(server.component_port)),
            *("--store", f"sqlite:{folder / 'queues.sqlite'}", "--http-push", ADDRESS),
            *("--http", f"{ADDRESS}:{http}", "--http-users", str(users)),
            folder=folder,
            environment={"XMPP_QOS_PASSWORD": SECRET},
            name="service",
        )
        try:
            await process.until_listening(http)
            async with Connect.of_account(
                server, "alice/owner"
            ).as_account() as session:
                session.client.register_plugin("xep_0254", {"timeout_s": 10.0})
                session.start()
                await session.online.wait()
                yield http, XEP_0254.of(session.client)
        finally:
            await process.end()
