"""The gateway: it listens, and is a port of the queue engine for waiting requests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Protocol

from qos.core.queue.requests import Refusal
from qos.core.rest.one_off import OneOffLinks
from qos.core.rest.push_targets import PushRules
from qos.core.token_bucket import TokenBuckets
from qos.engine.gateway import Consumer, ConsumersPort
from qos.engine.queue_engine import QueueEngine
from qos.rest import bounds
from qos.rest.hornetq.registry import PullConsumers
from qos.rest.login import Login
from qos.rest.push.client import PushClient
from qos.rest.push.pushers import Client, Pushers
from qos.rest.server import HttpServer
from qos.rest.shares import Rates
from qos.rest.targets import Targets
from qos.users import Users
from xep_qos.relay import Relay

__all__ = ["Gateway"]

#: Seconds in which requests are answered at the end.
_CLOSE_S = 3.0


class HttpConsumer(Consumer, Protocol):
    """A subscriber of this gateway."""

    def fail(self, refusal: Refusal) -> None:
        """End the wait: the service has ended the subscription."""


class Gateway(ConsumersPort[HttpConsumer]):
    """Lets HTTP clients publish to the nodes of a queue service, and consume.

    Attributes:
        engine: of the queues.
        closing: it stops, and takes no more requests.
        readers: an event of each request that waits for a message of a topic; each is set
            when the gateway closes.
        link_headers: of HornetQ's dialect; see the constructor.
        relay: sends assured messages; None: nobody may send any.
        targets: who may be sent to.
        sends: the rate of all messages that are sent.
        pull_consumers: of HornetQ's dialect.
        pushers: the push subscribers.
    """

    def __init__(
        self,
        engine: QueueEngine,
        *,
        users: Users,
        own_domain: str = "",
        link_headers: bool = False,
        relay: Relay | None = None,
        targets: Targets | None = None,
        rates: Rates | None = None,
        push: Client | None = None,
    ) -> None:
        """Begin without listening.

        The caller makes it known to the engine's ports.

        Args:
            engine: of the queues.
            users: may send requests; nobody else.
            own_domain: see ConsumersPort.
            link_headers: HornetQ's dialect has its links in the header Link, and not
                each in a header of its own.
            relay: for assured messages; None: none are sent.
            targets: who may be sent to; None: nobody.
            rates: what one user may use a second; None: the defaults.
            push: makes the requests of push, and is closed with the gateway; None: one
                that pushes to public hosts by https.
        """
        super().__init__(engine, own_domain=own_domain)
        self.closing = False
        self.readers: set[asyncio.Event] = set()
        self.link_headers = link_headers
        self.relay = relay
        self.sends = TokenBuckets(bounds.SENDS_PER_S, bounds.BURST_S)
        self.targets = targets
        client = push or PushClient(PushRules())
        self.pushers = Pushers(engine, self.consumers, client)
        self._rates = rates or Rates()
        self.pull_consumers = PullConsumers(self)
        self._login = Login(users)
        self._one_off: OneOffLinks | None = None
        self._http: HttpServer | None = None
        self._servers: list[asyncio.Server] = []

    @property
    def one_off(self) -> OneOffLinks:
        """The one-off links of this store."""
        assert self._one_off is not None
        return self._one_off

    async def listen(
        self, host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> int:
        """Listen for clients.

        Passwords and tokens come with each request, so without TLS the address should
        be one that only this machine can reach.

        Returns:
            The port, if `port` was 0.

        Raises:
            OSError: the port is taken, or is not ours to take.
            StoreError: the store cannot be read.
        """
        if self._http is None:
            self._one_off = OneOffLinks(await self.engine.store.link_key())
            self._http = HttpServer(self, self._login, self._rates)
            self.pushers.start()
        server = await self._http.listen(host, port, tls=tls)
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def aclose(self) -> None:
        """Answer the requests that wait, and close all connections."""
        self.closing = True
        for server in self._servers:
            server.close()
        await self.pushers.aclose()
        self._fail_all("the service stops")
        for reader in self.readers:
            reader.set()
        if self.relay is not None:
            self.relay.stop()
        self.pull_consumers.stop()
        if self._http is not None:
            await self._http.aclose(_CLOSE_S)

    def deleted(self, node: str) -> None:
        """See QueuePort: its push subscribers are gone with it."""
        self.pushers.deleted(node)

    def counts(self, node: str) -> Mapping[str, int]:
        """See QueuePort: push subscribers, and their attempts."""
        return self.pushers.counts(node)

    def restarted(self) -> None:
        """See QueuePort: a request that waits is not subscribed any more."""
        self._fail_all("the store has failed")

    def _fail_all(self, why: str) -> None:
        for each in list(self.consumers.values()):
            each.fail(Refusal(why, condition="internal-server-error", type="wait"))
