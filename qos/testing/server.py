"""An XMPP server inside the process, for demos and tests; not a server for real use.

It always listens on 127.0.0.1. Passwords are in the clear, nothing is encrypted, and
nothing is kept. It follows RFC 6120, RFC 6121 and XEP-0114, with the choices of
Prosody, as far as the clients of a test see it. Missing are TLS, XEP-0198, offline
messages, other servers, and ``xml:lang`` on stanzas that have none.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Final, Self

from qos import arguments
from qos.core.strings import bare
from qos.testing.link import Link
from qos.testing.routing import Router
from qos.testing.session import ClientSession, ComponentSession
from qos.testing.stream import STANZA_BYTES_MAX


class LoopbackServer:
    """An embedded XMPP server on loopback, to be used as ``async with``.

    Args:
        accounts: Passwords by username.
        rosters: For each username, ``{contact: "none" | "to" | "from" | "both"}``. A
            contact at this server gets the counterpart, unless it has an entry of its
            own.
        components: Secrets by domain (XEP-0114).
        link: What happens to each message and iq between two clients or components; not
            to the login, presence, or the server's own answers. None: a perfect link.
        port: For clients; 0: any free port. It stays the same over ``restart``.
        component_port: For components, likewise.
        stanza_bytes_max: A larger stanza ends the stream with ``policy-violation``.

    Attributes:
        port: For clients: the one in use, once started.
        component_port: For components, likewise.

    Raises:
        ValueError: The rosters name an unknown account or subscription.
    """

    host: Final = "127.0.0.1"
    domain: Final = "localhost"

    def __init__(
        self,
        *,
        accounts: Mapping[str, str],
        rosters: Mapping[str, Mapping[str, str]] | None = None,
        components: Mapping[str, str] | None = None,
        link: Link | None = None,
        port: int = 0,
        component_port: int = 0,
        stanza_bytes_max: int = STANZA_BYTES_MAX,
    ) -> None:
        arguments.text_by_text("accounts", accounts)
        for roster in arguments.mapping(
            "rosters", {} if rosters is None else rosters
        ).values():
            arguments.text_by_text("rosters", roster)
        arguments.text_by_text("components", {} if components is None else components)
        if link is not None:
            arguments.instance(Link, "link", link, "a Link")
        arguments.whole("port", port, least=0, most=65535)
        arguments.whole("component_port", component_port, least=0, most=65535)
        arguments.whole("stanza_bytes_max", stanza_bytes_max, least=1)
        self.port = port
        self.component_port = component_port
        self._stanza_bytes_max = stanza_bytes_max
        self._listeners: list[asyncio.Server] = []
        self._router = Router(
            self.domain,
            {name.lower(): password for name, password in accounts.items()},
            {name.lower(): roster for name, roster in (rosters or {}).items()},
            {name.lower(): secret for name, secret in (components or {}).items()},
            link,
        )

    @property
    def link(self) -> Link | None:
        """The link; it can be exchanged at any time."""
        return self._router.link

    @link.setter
    def link(self, link: Link | None) -> None:
        self._router.link = link

    @property
    def counts(self) -> Counter[str]:
        """Stanzas passed on so far: ``message``, ``iq``, ``presence``, and ``refused``.

        Each message and iq from one client or component to another counts once,
        whatever the link then does to it. Presence counts once for each receiver.
        ``refused`` are the stanzas that the server answered with a stanza error.
        """
        return self._router.counts

    @property
    def online(self) -> frozenset[str]:
        """Full JIDs of the clients that are bound, and domains of the components."""
        return frozenset(self._router.sessions) | frozenset(self._router.components)

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: A requested port is taken.
            RuntimeError: The server has been started already.
        """
        if self._listeners:
            raise RuntimeError("the server has been started already")
        loop = asyncio.get_running_loop()
        self._router.stopped = False
        try:
            for kind, port in (
                (ClientSession, self.port),
                (ComponentSession, self.component_port),
            ):
                connection = partial(
                    kind, self._router, stanza_bytes_max=self._stanza_bytes_max
                )
                listener = await loop.create_server(connection, self.host, port)
                self._listeners.append(listener)
        except OSError:
            await self.stop()
            raise
        self.port, self.component_port = (
            listener.sockets[0].getsockname()[1] for listener in self._listeners
        )

    async def stop(self) -> None:
        """Send ``system-shutdown`` to all, and return when all sockets are closed.

        Stanzas that the link holds back are lost; accounts and rosters stay for the
        next start.
        """
        self._router.stop()
        for listener in self._listeners:
            listener.close()
        connections = list(self._router.connections)
        for connection in connections:
            connection.end("system-shutdown", linger=False)
        if connections:
            await asyncio.wait([connection.gone for connection in connections])
        for listener in self._listeners:
            await listener.wait_closed()
        self._listeners.clear()

    async def restart(self) -> None:
        """Stop, and start on the same ports."""
        await self.stop()
        await self.start()

    def disconnect(self, jid: str) -> int:
        """Cut TCP connections without closing the stream; return how many there were.

        Args:
            jid: A full JID; a bare JID for all its resources; or a component's domain.
        """
        router = self._router
        cut = [
            *(s for full, s in router.sessions.items() if _addresses(jid, full)),
            *(c for domain, c in router.components.items() if domain == jid),
        ]
        for connection in cut:
            connection.flush()
            connection.abort()
        return len(cut)

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()


def _addresses(jid: str, full: str) -> bool:
    return jid in (full, bare(full))
