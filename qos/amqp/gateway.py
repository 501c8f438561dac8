"""The gateway: it listens, and is a port of the queue engine for its consumers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import NoReturn

from proton import Condition

from qos.amqp import conditions
from qos.amqp.attached import LinksByName
from qos.amqp.connection import AmqpConnection
from qos.amqp.ports import ConsumerLink
from qos.amqp.termini import KeptTermini
from qos.amqp.unsettled import Unsettled
from qos.core.queue.requests import CloseLink, Refusal
from qos.core.queue.results import Result
from qos.core.registry import register
from qos.engine.doors import Door
from qos.engine.gateway import ConsumersPort
from qos.engine.queue_engine import QueueEngine
from qos.tls_files import Tls
from qos.users import Users

__all__ = ["Gateway"]

#: Seconds in which connections are closed in order at the end.
_CLOSE_S = 3.0


#: What the resource of our full JIDs begins with. Others may have that too: it only
#: saves a search.
_RESOURCE = "/amqp-"


class Gateway(ConsumersPort[ConsumerLink]):
    """Lets AMQP 1.0 clients publish to the nodes of a queue service, and consume.

    It is the `Hub` of its connections, where its attributes are described.
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
        self._doors: list[Door] = []
        self._watching: asyncio.Task[NoReturn] | None = None
        self._connections: set[AmqpConnection] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.termini = KeptTermini()
        self.unsettled = Unsettled()
        self.links = LinksByName()

    async def listen(self, host: str, port: int, *, tls: Tls | None = None) -> int:
        """Listen for clients.

        Args:
            host: a name or address.
            port: 0: a free one.
            tls: returns the context for each handshake; None: without.

        Returns:
            The port, if `port` was 0.

        Raises:
            OSError: the port is taken, or is not ours to take.
        """
        door = await self.engine.doors.listen(
            host, port, lambda arrival: AmqpConnection(self, arrival), tls=tls
        )
        self._doors.append(door)
        if self._watching is None and self.users is not None:
            watch = self.users.watch(self._users_changed)
            self._watching = asyncio.get_running_loop().create_task(watch)
        return door.port

    async def aclose(self) -> None:
        """Close the connections in order; what their consumers hold is released."""
        if self._watching is not None:
            self._watching.cancel()
        for door in self._doors:
            door.close()
        for connection in list(self._connections):
            connection.guarded(connection.close)(
                Condition(conditions.FORCED, "the service stops")
            )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._empty.wait()

    def _users_changed(self) -> None:
        """End the connections of users that were removed, or have another password.

        Of an account that has no user any more, suspended links end too.
        """
        assert self.users is not None
        text = "this user was removed, or has another password now"
        reason = Condition(conditions.UNAUTHORIZED, text)
        for connection in list(self._connections):
            grant = connection.grant
            # A grant without a name is everybody's.
            if grant is not None and grant.name and not self.users.stands(grant):
                connection.guarded(connection.close)(reason)
        for key, terminus in list(self.termini.items()):
            account = key[0]
            if account != self.anonymous and not self.users.has_account(account):
                del self.termini[key]
                self.unsettled.sent(terminus.jid)
                self.engine.request(CloseLink(terminus.node), terminus.jid, _ignore)
                self.engine.departed(terminus.jid)

    # -- see ConnectionHub ---------------------------------------------------

    def joins(self, connection: AmqpConnection) -> None:
        """See ConnectionHub."""
        self._connections.add(connection)
        self._empty.clear()

    def leaves(self, connection: AmqpConnection) -> None:
        """See ConnectionHub."""
        self._connections.discard(connection)
        if not self._connections:
            self._empty.set()

    def joined(self, jid: str, link: ConsumerLink) -> None:
        """See ConnectionHub."""
        register(self.consumers, jid, link)

    def left(self, jid: str) -> None:
        """See ConnectionHub."""
        self.consumers.pop(jid, None)

    # -- see GatewayPort ---------------------------------------------------

    def has_room(self, to: str) -> bool:
        """See QueuePort."""
        link = self.consumers.get(to)
        return link is None or link.has_room()

    def claims(self, jid: str) -> bool:
        """See GatewayPort."""
        return super().claims(jid) or self._is_kept(jid)

    def _is_kept(self, jid: str) -> bool:
        return _RESOURCE in jid and (
            self.engine.keeps(jid)
            or any(terminus.jid == jid for terminus in self.termini.values())
        )

    def restarted(self) -> None:
        """See QueuePort: what clients were told may be untrue now, so they are disconnected."""
        self.termini.clear()
        self.unsettled.clear()
        for connection in list(self._connections):
            condition = Condition(conditions.INTERNAL_ERROR, "the store has failed")
            connection.guarded(connection.close)(condition)


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """The node may be gone by now."""
