"""The members of a run, and the traffic that they make."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from campaign.files import Files
from campaign.member import Kind, Member
from campaign.mutants import NO_SELECTOR
from message_roles import End
from proxy import Proxy
from qos.cli.status import CommandError, Status
from qos.testing.xmpp_server import XmppServer, mutual
from queue_roles import Listening, PublisherRole, Service, WorkerRole
from role import Connect
from role_processes import Processes

__all__ = [
    "BATCH",
    "LOCK_S",
    "NODE",
    "Supervisor",
    "Traffic",
    "accounts",
    "queue_jid",
    "rosters",
]

NODE = "orders"

LOCK_S = 3.0
WORKERS = ("bee-0", "bee-1")

BATCH = 4

# Enough for a machine under load.
_READY_S_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """The amount of traffic.

    Attributes:
        message_every_s: by store: the pause of a sender before each message.
        batch_every_s: likewise, of the publisher before some items.
        remembers_s: how long ended messages are remembered; 0: the default.
    """

    message_every_s: Mapping[str, float]
    batch_every_s: float
    remembers_s: float = 0.0

    @classmethod
    def some(cls, stores: tuple[str, ...]) -> Traffic:
        """Little enough for half a core: some hundred messages a minute."""
        return cls(dict.fromkeys(stores, 0.12), 0.4)


def accounts(stores: tuple[str, ...]) -> dict[str, str]:
    """The passwords of all accounts."""
    pairs = [f"{role}-{store}" for store in stores for role in ("sender", "receiver")]
    names = ("publisher", "boss", *WORKERS, *pairs)
    return {name: f"secret of {name}" for name in names}


def rosters(stores: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """A sender and its receiver have each other."""
    return mutual(*((f"sender-{store}", f"receiver-{store}") for store in stores))


def queue_jid(server: str) -> str:
    """The component of the queue service, a different one on each server.

    So one audit can have the journals of all.
    """
    return f"queue-{server}.localhost"


class Supervisor:
    """All members, each of which is kept running.

    Args:
        server: their server.
        clients: the proxy between the server and the clients.
        components: the proxy between the server and the service.
        files: their files.
        traffic: the amount.
        more: further members.
        mutant: a mistake that the service makes; see `mutants`.
        listening: where the service listens for clients of other protocols.

    Attributes:
        members: all of them.
        traffic: of each life that begins.
    """

    def __init__(
        self,
        server: XmppServer,
        clients: Proxy,
        components: Proxy,
        files: Files,
        traffic: Traffic,
        more: Sequence[Member] = (),
        *,
        mutant: str = "",
        listening: Listening | None = None,
    ) -> None:
        self.traffic = traffic
        self._listening = listening
        self._server = server
        self._clients = clients
        self._components = components
        self._files = files
        self._mutant = mutant
        self._queue = queue_jid(server.name)
        self._keeping: list[asyncio.Task[None]] = []
        self.members = [self._service(), *map(self._worker, WORKERS), self._publisher()]
        for store in files.stores:
            self.members += [self._end("receiver", store), self._end("sender", store)]
        self.members += more

    def of(self, *kinds: Kind) -> list[Member]:
        """All members of these kinds."""
        return [member for member in self.members if member.kind in kinds]

    async def start(self, processes: Processes, *kinds: Kind) -> None:
        """Keep these running from now on; returns when each has been ready once."""
        members = self.of(*kinds)
        for member in members:
            self._keeping.append(asyncio.create_task(member.keep(processes)))
        try:
            async with asyncio.timeout(_READY_S_MAX):
                await asyncio.gather(*(member.ready() for member in members))
        except TimeoutError:
            text = f"not at work within {_READY_S_MAX:g} s: {', '.join(kinds)}"
            raise CommandError(text, Status.INTERNAL) from None

    async def end(self, *kinds: Kind) -> None:
        """Let these end normally."""
        await asyncio.gather(*(member.end() for member in self.of(*kinds)))

    async def change(self, traffic: Traffic) -> None:
        """Restart the members that make traffic, with this amount."""
        self.traffic = traffic
        makers = self.of("sender", "publisher")
        await asyncio.gather(*(member.begin_anew() for member in makers))

    async def drop(self) -> None:
        """Stop keeping members running."""
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)

    def check(self) -> None:
        """Raise an error of `keep`, if there was one."""
        for task in self._keeping:
            if task.done():
                task.result()

    @property
    def strange_deaths(self) -> dict[str, Counter[int]]:
        """The members that ended without a known cause.

        Not by us, a full disk or a missing server.
        """
        found = {}
        for member in self.members:
            strange = {
                status: count
                for status, count in member.deaths.items()
                if status not in member.usual
            }
            if strange:
                found[member.name] = Counter(strange)
        return found

    # -- who they are ------------------------------------------------------

    def _connect(self, name: str) -> Connect:
        return Connect.of_account(
            self._server, f"{name}/1", port=self._clients.port, tls=True
        )

    def _journal(self, name: str) -> str:
        return str(self._files.journals / name)

    def _service(self) -> Member:
        port = self._components.port
        role = Service(
            connect=Connect.of_component(self._server, self._queue, port=port),
            store=str(self._files.queue_store),
            qos_journal=self._journal("service"),
            remembers_s=self.traffic.remembers_s,
            mutant=self._mutant,
            listening=self._listening,
        )
        url = f"sqlite:{role.store}"
        return Member("service", "service", lambda life: role, url)

    def _worker(self, name: str) -> Member:
        # The first one takes everything, and the second one chooses. Where a service
        # gives items away without looking, no worker may want every item: else the
        # wrong ones might all go to that one.
        takes_all = name == WORKERS[0] and self._mutant != NO_SELECTOR
        role = WorkerRole(
            connect=self._connect(name),
            service=self._queue,
            node=NODE,
            log=str(self._files.work_records),
            lock_s=LOCK_S,
            work_s=0.05,
            parity=None if takes_all else 1,
            qos_journal=self._journal(name),
            effects=str(self._files.effects(name)),
            resubscribe_s=5.0,
            timeout_s=3.0,
        )
        return Member(name, "worker", lambda life: role)

    def _publisher(self) -> Member:
        def new_life(_life: int) -> PublisherRole:
            return PublisherRole(
                connect=self._connect("publisher"),
                service=self._queue,
                node=NODE,
                log=str(self._files.published),
                count=None,
                batch=BATCH,
                pause_s=self.traffic.batch_every_s,
            )

        return Member("publisher", "publisher", new_life)

    def _end(self, role: Literal["sender", "receiver"], store: str) -> Member:
        name = f"{role}-{store}"
        receiver = f"receiver-{store}@{self._server.domain}/1"

        def new_life(life: int) -> End:
            return End(
                connect=self._connect(name),
                role=role,
                number=life,
                store=self._files.store(role, store),
                log=str(self._files.log(role, store)),
                smacks=life % 2 == 0,
                to=(receiver, receiver.partition("/")[0]),
                pause_s=self.traffic.message_every_s[store],
                fickle=True,
                journal=self._journal(name),
                remembers_s=self.traffic.remembers_s,
                consumes=role == "receiver" and self._files.consumes(store),
            )

        return Member(name, role, new_life, self._files.store(role, store))
