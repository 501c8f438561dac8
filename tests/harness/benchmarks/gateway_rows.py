"""The gateways of our queue service, as contenders of a benchmark: AMQP 1.0, and HTTP."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.amqp_clients import CLIENTS
from benchmarks.brokered import Brokered, Program, PythonProgram, need_modules
from qos.testing.processes import Child, Process
from qos.testing.server import LoopbackServer
from qos.users import hashed

__all__ = [
    "AmqpGateway",
    "Gateway",
    "HttpGateway",
    "PlainHttp",
    "amqp_rows",
    "http_rows",
]

_SERVICE = "queue.localhost"
_USER = "bench@localhost"
_NODE = "bench"

_HTTP_CLIENT = PythonProgram(
    module="benchmarks.http_aiohttp", needs="aiohttp", extra="rest"
)


def amqp_rows(*, receives: bool = True) -> list[AmqpGateway]:
    """Return our rows by AMQP 1.0."""
    return [AmqpGateway(client, receives=receives) for client in CLIENTS]


def http_rows(*, receives: bool = True) -> list[HttpGateway]:
    """Return our rows by HTTP; where nobody receives, a post takes more of the time."""
    links = (False,) if receives else (False, True)
    return [HttpGateway(once=once, receives=receives) for once in links]


class Gateway(Brokered):
    """A gateway of a queue service, with queues on disk: SQLite, as by default.

    See benchmarks.sample.Contender. An item ends when its consumer knows that it is
    accepted: the service has this on disk. The service is a component of an XMPP server
    that has nothing to do. The window is the publisher's: the number of unaccepted
    items.

    Args:
        name: the name of its row.
        program: of the publisher and the workers.
        command: of benchmarks.queue_service; starts the gateway.
        needs: the modules and the extra that the service needs.
        receives: see Brokered.
    """

    _confirms = True

    def __init__(
        self,
        name: str,
        *,
        program: Program,
        command: str,
        needs: tuple[str, str],
        receives: bool,
    ) -> None:
        super().__init__(name, "", program=program, receives=receives)
        self._command = command
        self._needs = needs
        self._password = secrets.token_hex(16)
        self._stack = AsyncExitStack()

    async def _start_server(self, folder: Path, port: int) -> Process:
        module, extra = self._needs
        need_modules(module, extra=extra)
        secret = secrets.token_hex(16)
        xmpp = LoopbackServer(accounts={}, components={_SERVICE: secret})
        await self._stack.enter_async_context(xmpp)
        service = self._keep(
            await Child.start("benchmarks.queue_service", name="service", folder=folder)
        )
        await service.do(
            "serve",
            jid=_SERVICE,
            secret=secret,
            port=xmpp.component_port,
            store=f"sqlite:{folder / 'queue.sqlite'}",
        )
        users = folder / "users.txt"
        self._write(users)
        await service.do(
            self._command, port=port, users=str(users), owner=_USER, node=_NODE
        )
        return service

    def _write(self, users: Path) -> None:
        """Write the file of the users, which only its owner may read."""
        users.touch(mode=0o600)
        users.write_text(f"{_USER}:{hashed(self._password)}\n", encoding="utf-8")

    def _options(self, folder: Path) -> dict[str, Any]:
        return {"user": _USER, "password": self._password}

    async def stop(self) -> None:
        """See Contender."""
        await super().stop()
        await self._stack.aclose()


class AmqpGateway(Gateway):
    """See Gateway; an item ends when the service settles its delivery.

    Args:
        client: one of CLIENTS.
        receives: see Brokered.

    Attributes:
        client: the same.
    """

    def __init__(self, client: str, *, receives: bool = True) -> None:
        super().__init__(
            f"AMQP gateway, {client}",
            program=CLIENTS[client],
            command="serve_amqp",
            needs=("proton", "amqp"),
            receives=receives,
        )
        self.client = client

    def _options(self, folder: Path) -> dict[str, Any]:
        return {**super()._options(folder), "confirmed": True}


class HttpGateway(Gateway):
    """See Gateway; an item takes three requests: post, take, acknowledge.

    Args:
        once: it is posted by a one-off link.
        receives: see Brokered.
    """

    def __init__(self, *, once: bool = False, receives: bool = True) -> None:
        super().__init__(
            "HTTP gateway, one-off" if once else "HTTP gateway",
            program=_HTTP_CLIENT,
            command="serve_http",
            needs=("aiohttp", "rest"),
            receives=receives,
        )
        self._once = once

    def _options(self, folder: Path) -> dict[str, Any]:
        return {**super()._options(folder), "once": self._once}


class PlainHttp(Brokered):
    """The floor of HTTP: an application of aiohttp that reads a post, and answers 200."""

    _confirms = True

    def __init__(self) -> None:
        super().__init__(
            "aiohttp alone",
            "reads what is posted, and keeps nothing of it",
            program=_HTTP_CLIENT,
            receives=False,
        )

    async def _start_server(self, folder: Path, port: int) -> Process:
        need_modules("aiohttp", extra="rest")
        server = self._keep(
            await Child.start("benchmarks.http_floor", name="floor", folder=folder)
        )
        await server.do("serve", port=port)
        return server

    def _options(self, folder: Path) -> dict[str, Any]:
        return {"user": _USER, "password": "", "once": False}
