"""A queue service as a component, in a process of its own; for the queues of a benchmark."""

from __future__ import annotations

import asyncio

from slixmpp import ComponentXMPP

from qos.core.queue.requests import Create, Refusal
from qos.core.queue.results import Result
from qos.testing.child import run_commands
from qos.testing.ports import ADDRESS
from qos.users import Users
from xep_0254.service import QueueService

__all__ = ["Serving"]

_LOGIN_S_MAX = 20.0


class Serving:
    """The commands of the process."""

    def __init__(self) -> None:
        self._service: QueueService
        self._jid = ""

    async def serve(self, *, jid: str, secret: str, port: int, store: str) -> None:
        """Serve; returns when the service can be used.

        Args:
            jid: the JID of the component.
            secret: its secret at the server.
            port: the port of the server for components.
            store: the store of the queues.
        """
        component = ComponentXMPP(jid, secret, ADDRESS, port)  # type: ignore[no-untyped-call]  # slixmpp
        self._service = QueueService(component, store)
        self._jid = jid
        component.connect(ADDRESS, port)
        await component.wait_until("session_start", timeout=_LOGIN_S_MAX)

    async def serve_amqp(self, *, port: int, users: str, owner: str, node: str) -> None:
        """Serve AMQP too, as `queue serve --amqp` does; `serve` comes before.

        Args:
            port: to listen on.
            users: the file of the users; see qos.users.
            owner: one of them, a bare JID; makes the node.
            node: a new node.
        """
        # It needs the extra `amqp`.
        from qos.amqp.gateway import Gateway

        engine = self._service.engine
        gateway = Gateway(engine, users=Users(users, self._jid), name=self._jid)
        self._service.add_gateway(gateway)
        await self._create(node, owner)
        await gateway.listen(ADDRESS, port)

    async def serve_http(self, *, port: int, users: str, owner: str, node: str) -> None:
        """Serve HTTP too, as `queue serve --http` does; see `serve_amqp`."""
        # It needs the extra `rest`.
        from qos.core.payers import Rates
        from qos.rest.gateway import Gateway

        gateway = Gateway(
            self._service.engine,
            users=Users(users, self._jid),
            own_domain=self._jid,
            # One user may use all that there is.
            rates=Rates(requests=0, bytes=0),
        )
        self._service.add_gateway(gateway)
        await self._create(node, owner)
        await gateway.listen(ADDRESS, port)

    async def _create(self, node: str, owner: str) -> None:
        made: asyncio.Future[Result | Refusal] = (
            asyncio.get_running_loop().create_future()
        )
        self._service.engine.request(
            Create(node), f"{owner}/bench", lambda result, _: made.set_result(result)
        )
        result = await made
        if isinstance(result, Refusal):
            raise result


async def _live() -> None:
    serving = Serving()
    await run_commands([serving.serve, serving.serve_amqp, serving.serve_http])


if __name__ == "__main__":
    asyncio.run(_live())
