"""The processes of a run, each of which is kept running.

This module does not know why a process has ended; only how, and whether that is an
error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from campaign.disk import SmallDisk
from message_roles import End
from proxy import Proxy
from qos.cli.status import CommandError, Status
from qos.testing.xmpp_server import XmppServer, mutual
from queue_roles import Listening, PublisherRole, Service, WorkerRole
from role import Connect, Role
from role_processes import Processes, RoleProcess

__all__ = [
    "BATCH",
    "GATEWAY_KINDS",
    "GATEWAY_PUBLISHERS",
    "GATEWAY_WORKERS",
    "LOCK_S",
    "NODE",
    "Files",
    "Member",
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

_STARTS_AGAIN_S = 0.3

# Enough for a machine under load.
_READY_S_MAX = 120.0

_LOOK_S = 0.05

#: The last six are those of `commands`, and the four before them those of `gateways`.
Kind = Literal[
    "sender",
    "receiver",
    "service",
    "worker",
    "publisher",
    "http-publisher",
    "http-worker",
    "amqp-publisher",
    "amqp-worker",
    "hub",
    "listen",
    "desk",
    "errand",
    "greedy",
    "squatter",
]

GATEWAY_PUBLISHERS: tuple[Kind, ...] = ("http-publisher", "amqp-publisher")
GATEWAY_WORKERS: tuple[Kind, ...] = ("http-worker", "amqp-worker")
GATEWAY_KINDS = (*GATEWAY_PUBLISHERS, *GATEWAY_WORKERS)


@dataclass(frozen=True)
class Files:
    """The files of the processes of a run.

    Attributes:
        folder: for logs and journals.
        disk: for stores.
        stores: the kinds of stores, each with a sender and a receiver.
        elders: names of members whose stores are outside that disk, which is full at
            times: otherwise they would not live long.
    """

    folder: Path
    disk: SmallDisk
    stores: tuple[str, ...]
    elders: frozenset[str] = frozenset()

    @property
    def queue_store(self) -> Path:
        """The store of the service."""
        return self._home("service") / "queue.sqlite"

    @property
    def published(self) -> Path:
        """The ids of the items that the publisher was told are published."""
        return self.folder / "published.log"

    def published_by(self, kind: Kind) -> Path:
        """Likewise, of a publisher of `gateways`."""
        return self.folder / f"{kind}.log"

    def notebook(self, kind: Kind) -> Path:
        """The notebook of a worker of `gateways`."""
        return self.folder / f"{kind}.log"

    @property
    def all_published(self) -> set[str]:
        """The ids of all items that somebody was told are published."""
        paths = [self.published, *map(self.published_by, GATEWAY_PUBLISHERS)]
        return {
            name for path in paths if path.exists() for name in path.read_text().split()
        }

    @property
    def notebooks(self) -> list[Path]:
        """Those of all workers of `gateways`."""
        return [self.notebook(kind) for kind in GATEWAY_WORKERS]

    @property
    def work_records(self) -> Path:
        """The work of the workers; see WorkRecord."""
        return self.folder / "work.log"

    @property
    def journals(self) -> Path:
        """The folder with a journal of each member."""
        return self.folder / "journals"

    def log(self, role: str, store: str) -> Path:
        """The log of a sender or a receiver."""
        return self.folder / f"{role}-{store}.log"

    def store(self, role: str, store: str) -> str:
        """The URL of the store of a sender or a receiver."""
        return f"{store}:{self._home(f'{role}-{store}') / f'{role}.{store}'}"

    def consumes(self, store: str) -> bool:
        """Whether a receiver has a consumer, with tables in its store.

        Elders have none: the application's tables grow all the time.
        """
        return store == "sqlite" and f"receiver-{store}" not in self.elders

    def effects(self, worker: str) -> Path:
        """The database of a worker's application."""
        return self._home(worker) / f"{worker}.db"

    def _home(self, name: str) -> Path:
        return self.folder if name in self.elders else self.disk.folder


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


#: The allowed causes of death: by us, by a full disk, or without a server.
_USUAL = frozenset({-signal.SIGKILL, -signal.SIGTERM, Status.STORE, Status.UNREACHABLE})


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class Member:
    """A program that takes part, with its present process.

    Attributes:
        name: for people.
        kind: of the member.
        new_life: makes the role of its n-th life.
        store: the URL of the store that only it may have open, or ''.
        usual: the statuses with which its processes may end; others are reported.
        ends_with: the statuses of a normal end.
        restarts: it is started again even after a normal end, until `end` is called.
        finishes: a life that begins after `end` was called ends by itself.
        may_run: while this is not set, nothing is started.
        deaths: how its processes have ended, except normally.
        done: it has ended for good.
        ending: `end` was called.
        lives: how many processes it has been.
    """

    name: str
    kind: Kind
    new_life: Callable[[int], Role]
    store: str = ""
    usual: frozenset[int] = _USUAL
    ends_with: frozenset[int] = frozenset({Status.DONE})
    restarts: bool = False
    finishes: bool = False
    may_run: asyncio.Event = field(default_factory=_set_event)
    deaths: Counter[int] = field(default_factory=Counter)
    done: bool = False
    ending: bool = False
    lives: int = 0
    _process: RoleProcess | None = None

    @property
    def process(self) -> RoleProcess | None:
        """The present process, if there is one."""
        process = self._process
        return None if process is None or process.ended.done() else process

    @property
    def role(self) -> Role:
        """The role in its present life."""
        return self.new_life(self.lives)

    def send_signal(self, number: signal.Signals) -> bool:
        """Send a signal; returns whether there was a process."""
        process = self.process
        if process is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
            return True
        return False

    async def keep(self, processes: Processes) -> None:
        """Start it, and again whenever it has ended, until it is done."""
        while not self.done:
            await self.may_run.wait()
            self.lives += 1
            last = self.ending or not self.restarts
            self._process = process = await processes.start(self.role)
            status = await asyncio.shield(process.ended)
            if last and status in self.ends_with:
                self.done = True
            else:
                self.deaths[status] += 1
                await asyncio.sleep(random.uniform(0, _STARTS_AGAIN_S))

    async def ready(self) -> RoleProcess:
        """Wait until it works; returns its process.

        Raises:
            ChildProcessError: it has ended for good.
        """
        while not self.done:
            process = self.process
            if process is not None:
                with contextlib.suppress(ChildProcessError, TimeoutError):
                    await process.until("ready")
                    return process
            await asyncio.sleep(_LOOK_S)
        raise ChildProcessError(f"{self.name} has ended")

    async def begin_anew(self) -> None:
        """Kill it, and wait for its next life."""
        process = await self.ready()
        self.send_signal(signal.SIGKILL)
        await asyncio.shield(process.ended)
        await self.ready()

    async def end(self) -> None:
        """Let it end normally, which may take more than one life."""
        before, self.ending = self.lives, True
        while not self.done:
            try:
                process = await self.ready()
            except ChildProcessError:
                return  # before it was seen to work
            if self.lives == before or not self.finishes:
                self.send_signal(signal.SIGTERM)
            await asyncio.shield(process.ended)
            # Later, so that `keep` sees it first.
            await asyncio.sleep(_LOOK_S)


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
        role = WorkerRole(
            connect=self._connect(name),
            service=self._queue,
            node=NODE,
            log=str(self._files.work_records),
            lock_s=LOCK_S,
            work_s=0.05,
            # The first one takes everything, and the second one chooses.
            parity=None if name == WORKERS[0] else 1,
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
