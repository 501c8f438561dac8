"""The gateway: it listens, and is a port of the queue engine for its consumers."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from proton import Condition

from qos.amqp import bounds, conditions
from qos.amqp.connection import AmqpConnection
from qos.amqp.links import Links
from qos.amqp.outgoing import OutgoingLink
from qos.amqp.termini import KeptTermini
from qos.amqp.unsettled import Unsettled
from qos.engine.gateway import ConsumersPort
from qos.engine.queue_engine import QueueEngine
from qos.users import Users

__all__ = ["Gateway"]

#: Seconds in which connections are closed in order at the end.
_CLOSE_S = 3.0


#: What the resource of our full JIDs begins with. Others may have that too: it only
#: saves a search.
_RESOURCE = "/amqp-"


class Gateway(ConsumersPort[OutgoingLink]):
    """Lets AMQP 1.0 clients publish to the nodes of a queue service, and consume.

    Attributes:
        engine: of the queues.
        users: may log in with a password or a certificate; None: nobody.
        anonymous: the account of everybody who logs in as ANONYMOUS; None: nobody may.
        name: the container-id.
        termini: those that are suspended.
        unsettled: the unsettled deliveries of their links.
        links: of all connections, by account, container-id, link name and whether we are
            the sender.
    """

    def __init__(
        self,
        engine: QueueEngine,
        *,
        users: Users | None,
        anonymous: str | None = None,
        name: str = "xmpp-qos",
        own_domain: str = "",
    ) -> None:
        """Begin without listening.

        The caller makes it known to the engine's ports.

        Args:
            engine: of the queues.
            users: see the class.
            anonymous: a bare JID, or None.
            name: the container-id.
            own_domain: see ConsumersPort.
        """
        super().__init__(engine, own_domain=own_domain)
        self.users = users
        self.anonymous = anonymous
        self.name = name
        self._servers: list[asyncio.Server] = []
        self._connections: set[AmqpConnection] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.termini = KeptTermini()
        self.unsettled = Unsettled()
        self.links: dict[tuple[str, str, str, bool], Links] = {}

    async def listen(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen for clients.

        Returns:
            The port, if `port` was 0.

        Raises:
            OSError: the port is taken, or is not ours to take.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: AmqpConnection(self), host, port, ssl=tls, backlog=100
        )
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def aclose(self) -> None:
        """Close the connections in order; what their consumers hold is released."""
        for server in self._servers:
            server.close()
        for each in list(self._connections):
            each.guarded(each.close)(Condition(conditions.FORCED, "the service stops"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._empty.wait()

    # -- for connections ---------------------------------------------------

    def joins(self, connection: AmqpConnection) -> bool:
        """Whether there is room for one more connection; if so, it is counted."""
        if len(self._connections) >= bounds.CONNECTIONS_MAX:
            return False
        self._connections.add(connection)
        self._empty.clear()
        return True

    def leaves(self, connection: AmqpConnection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def joined(self, jid: str, link: OutgoingLink) -> None:
        """Note that this full JID is a consumer of this gateway."""
        self.consumers[jid] = link

    def left(self, jid: str) -> None:
        """Note that this full JID is a consumer no more."""
        self.consumers.pop(jid, None)

    # -- see GatewayPort ---------------------------------------------------

    def claims(self, jid: str) -> bool:
        """See GatewayPort."""
        return super().claims(jid) or self._is_kept(jid)

    def _is_kept(self, jid: str) -> bool:
        return _RESOURCE in jid and (
            self.engine.keeps(jid)
            or any(each.jid == jid for each in self.termini.values())
        )

    def restarted(self) -> None:
        """See QueuePort: what clients were told may be untrue now, so they are disconnected."""
        self.termini.clear()
        self.unsettled.clear()
        for each in list(self._connections):
            condition = Condition(conditions.INTERNAL_ERROR, "the store has failed")
            each.guarded(each.close)(condition)
