"""The gateway: it listens, and is a port of the queue engine for its consumers."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Collection, Sequence

from proton import Condition

from qos.amqp import bounds, conditions
from qos.amqp.connection import AmqpConnection
from qos.amqp.outgoing import OutgoingLink
from qos.amqp.termini import KeptTermini
from qos.amqp.users import Users
from qos.core.queue.effects import Notification
from qos.core.queue.item import Item
from qos.core.quota import domain_of
from qos.core.strings import bare
from qos.engine.queue_engine import QueueEngine
from qos.engine.queue_outputs import Payloads
from qos.engine.queue_ports import GatewayPort
from qos.ids import new_id

__all__ = ["Gateway"]

#: Seconds in which connections are closed in order at the end.
_CLOSE_S = 3.0


#: What the resource of our full JIDs begins with. Others may have that too: it only
#: saves a search.
_RESOURCE = "/amqp-"


class Gateway(GatewayPort):
    """Lets AMQP 1.0 clients publish to the nodes of a queue service, and consume.

    Attributes:
        engine: of the queues.
        users: may log in with a password or a certificate; None: nobody.
        anonymous: the account of everybody who logs in as ANONYMOUS; None: nobody may.
        name: the container-id.
        termini: those that are suspended.
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
            own_domain: a domain whose accounts are AMQP users only, since XMPP clients
                have no accounts there: that of a component; or ''.
        """
        self.engine = engine
        self.users = users
        self.anonymous = anonymous
        self.name = name
        self._own_domain = own_domain
        self._servers: list[asyncio.Server] = []
        self._connections: set[AmqpConnection] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._consumers: dict[str, OutgoingLink] = {}
        self.termini = KeptTermini()

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
        """This full JID is a consumer of ours."""
        self._consumers[jid] = link

    def left(self, jid: str) -> None:
        """And is no more."""
        self._consumers.pop(jid, None)

    # -- see GatewayPort ---------------------------------------------------

    def attached(self) -> Collection[str]:
        """See QueuePort."""
        return self._consumers.keys()

    def claims(self, jid: str) -> bool:
        """See GatewayPort."""
        return jid in self._consumers or self._is_own(jid) or self._is_kept(jid)

    def _is_own(self, jid: str) -> bool:
        """Whether this can only be an AMQP user, perhaps of an earlier process."""
        return bool(self._own_domain) and domain_of(bare(jid)) == self._own_domain

    def _is_kept(self, jid: str) -> bool:
        return _RESOURCE in jid and any(
            each.jid == jid for each in self.termini.values()
        )

    def restarted(self) -> None:
        """See QueuePort: all that clients were told may be untrue now."""
        self.termini.clear()
        for each in list(self._connections):
            condition = Condition(conditions.INTERNAL_ERROR, "the store has failed")
            each.guarded(each.close)(condition)

    def dropped(self, to: str, item: Item) -> None:
        """See QueuePort."""
        link = self._consumers.get(to)
        if link is not None:
            link.guarded(link.dropped)(item)

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """See QueuePort."""
        link = self._consumers.get(to)
        if link is not None:
            link.guarded(link.items)(items)
        return []

    def notify(self, notification: Notification) -> None:
        """See QueuePort."""
        link = self._consumers.get(notification.to)
        if link is not None:
            link.guarded(link.notify)(notification)

    def probe(self, jid: str) -> None:
        """See QueuePort."""
        if jid not in self._consumers:
            # A link of an earlier process, which took its connection with it.
            asyncio.get_running_loop().call_soon(self.engine.departed, jid)

    def new_id(self) -> str:
        """See QueuePort."""
        return new_id()
