"""Our queues by AMQP 1.0, as contenders of a benchmark: the gateway and its clients."""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from qos.bench.amqp_clients import CLIENTS
from qos.bench.brokered import Brokered, need_modules
from qos.testing.processes import Child, Process
from qos.testing.server import LoopbackServer
from qos.users import hashed

__all__ = ["Gateway", "gateway_rows"]

_SERVICE = "queue.localhost"
_USER = "bench@localhost"
_NODE = "bench"


def gateway_rows(*, receives: bool = True) -> list[Gateway]:
    """Return our rows; see Gateway."""
    return [Gateway(client, receives=receives) for client in CLIENTS]


class Gateway(Brokered):
    """The gateway of a queue service, with queues on disk: SQLite, as by default.

    See qos.bench.sample.Contender. An item ends when its consumer knows that it is
    accepted: the service has this on disk, and settles the delivery. The service is a
    component of an XMPP server that has nothing to do. The window is the publisher's:
    the number of unaccepted items.

    Args:
        client: one of CLIENTS.
        receives: see Brokered.

    Attributes:
        client: the same.
    """

    _confirms = True

    def __init__(self, client: str, *, receives: bool = True) -> None:
        super().__init__(
            f"AMQP gateway, {client}", "", program=CLIENTS[client], receives=receives
        )
        self.client = client
        self._password = secrets.token_hex(16)
        self._stack = AsyncExitStack()

    async def _start_server(self, folder: Path, port: int) -> Process:
        need_modules("proton", extra="amqp")
        secret = secrets.token_hex(16)
        xmpp = LoopbackServer(accounts={}, components={_SERVICE: secret})
        await self._stack.enter_async_context(xmpp)
        service = self._keep(
            await Child.start("qos.bench.queue_service", name="service", folder=folder)
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
            "serve_amqp", port=port, users=str(users), owner=_USER, node=_NODE
        )
        return service

    def _write(self, users: Path) -> None:
        """Write the file of the users, which only its owner may read."""
        users.touch(mode=0o600)
        users.write_text(f"{_USER}:{hashed(self._password)}\n", encoding="utf-8")

    def _options(self, folder: Path) -> dict[str, Any]:
        return {"user": _USER, "password": self._password, "confirmed": True}

    async def stop(self) -> None:
        """See Contender."""
        await super().stop()
        await self._stack.aclose()
