"""The gateway: it listens, and is a port of the queue engine for waiting requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NoReturn

from qos.core.payers import BURST_S, Rates, TokenBuckets
from qos.core.queue.requests import Refusal
from qos.core.rest.hornetq.names import check_header
from qos.core.rest.one_off import OneOffLinks
from qos.core.rest.origins import prefix_of
from qos.core.rest.push_targets import PushRules
from qos.engine.doors import Door
from qos.engine.gateway import ConsumersPort
from qos.engine.queue_engine import QueueEngine
from qos.rest import bounds
from qos.rest.login import Login
from qos.rest.pull.registry import PullConsumers
from qos.rest.push.client import PushClient
from qos.rest.push.ports import Client
from qos.rest.push.pushers import Pushers
from qos.rest.server import HttpServer
from qos.rest.targets import Targets
from qos.rest.waiting import HttpConsumer, taken_away
from qos.tls_files import Tls
from qos.users import Users
from xep_qos.relay import Relay

__all__ = ["Gateway"]

#: Seconds in which requests are answered at the end.
_CLOSE_S = 3.0


class Gateway(ConsumersPort[HttpConsumer]):
    """Lets HTTP clients publish to the nodes of a queue service, and consume.

    It is the `Services` of its requests.
    """

    def __init__(
        self,
        engine: QueueEngine,
        *,
        users: Users,
        own_domain: str = "",
        link_headers: bool = False,
        property_headers: Iterable[str] = (),
        base: str = "",
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
            property_headers: of a message in HornetQ's dialect, which become properties;
                those about its content do in any case.
            base: the URL that clients have for the service, maybe with a path; all links
                begin with it. '': as each request says.
            relay: for assured messages; None: none are sent.
            targets: who may be sent to; None: nobody.
            rates: what one user may use a second, by all doors; None: as it is.
            push: makes the requests of push, and is closed with the gateway; None: one
                that pushes to public hosts by https.
        """
        super().__init__(engine, own_domain=own_domain)
        self.closing = False
        self.readers: set[asyncio.Event] = set()
        self.link_headers = link_headers
        self.property_headers = frozenset(map(check_header, property_headers))
        self.base = base
        self.prefix = prefix_of(base)
        self.relay = relay
        self.sends = TokenBuckets(bounds.SENDS_PER_S, BURST_S)
        self.sends_of_accounts = TokenBuckets(bounds.SENDS_PER_S / 2, BURST_S)
        self.targets = targets
        client = push or PushClient(PushRules())
        self.pushers = Pushers(
            engine, self.consumers, client, is_user=users.has_account
        )
        if rates is not None:
            engine.payers.limit(rates)
        self.pull_consumers = PullConsumers(self)
        self.users = users
        self._one_off: OneOffLinks | None = None
        self._http: HttpServer | None = None
        self._doors: list[Door] = []
        self._watching: asyncio.Task[NoReturn] | None = None

    @property
    def one_off(self) -> OneOffLinks:
        """The one-off links of this store."""
        assert self._one_off is not None
        return self._one_off

    async def listen(self, host: str, port: int, *, tls: Tls | None = None) -> int:
        """Listen for clients.

        Passwords and tokens come with each request, so without TLS the address should
        be one that only this machine can reach.

        Args:
            host: a name or address.
            port: 0: a free one.
            tls: returns the context for each handshake; None: without.

        Returns:
            The port, if `port` was 0.

        Raises:
            OSError: the port is taken, or is not ours to take.
            StoreError: the store cannot be read.
        """
        if self._http is None:
            store = self.engine.store
            self._one_off = OneOffLinks(await store.link_key(), store.clock.moved_s)
            self._http = HttpServer(self, Login(self.users))
            self.pushers.start()
            watch = self.users.watch(self._users_changed)
            self._watching = asyncio.get_running_loop().create_task(watch)
        door = await self._http.listen(host, port, tls=tls)
        self._doors.append(door)
        return door.port

    async def aclose(self) -> None:
        """Answer the requests that wait, and close all connections."""
        self.closing = True
        if self._watching is not None:
            self._watching.cancel()
        for door in self._doors:
            door.close()
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

    def _users_changed(self) -> None:
        """End what waits for users that were removed, or have another password."""
        for consumer in list(self.consumers.values()):
            if consumer.grant is not None and not self.users.stands(consumer.grant):
                consumer.fail(taken_away())
        for reader in self.readers:
            # Each looks for itself whether it may go on.
            reader.set()
        self.pull_consumers.revoke(self.users.has_account)
        self.pushers.revoke()

    def _fail_all(self, why: str) -> None:
        for consumer in list(self.consumers.values()):
            consumer.fail(Refusal(why, condition="internal-server-error", type="wait"))
