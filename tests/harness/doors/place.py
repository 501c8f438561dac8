"""The servers of a flood of the doors: Prosody, and a queue service with both gateways."""

from __future__ import annotations

import contextlib
import resource
import ssl
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.usage import Usage, usage_of
from qos.core.queue.item import Affiliation
from qos.testing.ports import ADDRESS, free_ports
from qos.testing.processes import Process
from qos.testing.prosody import Prosody
from qos.users import hashed
from role import Connect
from xep_0254.queueing import XEP_0254

__all__ = [
    "DEAR",
    "FRESH",
    "HEAP",
    "HONEST",
    "HONEST_QUEUES",
    "HOSTILE",
    "LAIR",
    "SECRET",
    "Place",
    "Service",
    "place",
]

SECRET = "secret of the flood"  # noqa: S105 - of accounts inside a test

_SERVICE = "queue.localhost"
_FOREIGN = "evil.example"

#: The honest account, and the queues of its clients, by door.
HONEST = "alice@localhost"
HONEST_QUEUES = {"http": "calm-http", "amqp": "calm-amqp", "xmpp": "calm-xmpp"}

#: Honest accounts that log in for the first time during an attack.
FRESH = tuple(f"fresh{number}@localhost" for number in range(1000))

#: Hostile accounts, and the queues of the first one.
HOSTILE = ("mallory@localhost", "mallet@localhost")
LAIR, HEAP, DEAR = "lair", "heap", "dear"

#: Memory that the service may use, in bytes: before it takes the machine's.
_MEMORY_MAX = 6 * 1024**3

#: Files that it may have open, as most systems let it.
_FILES_MAX = 1024

_COMMAND = "import sys, qos.cli; sys.exit(qos.cli.main())"


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything is.

    Attributes:
        http: the port of the door by HTTP.
        amqp: the port of the door by AMQP.
        c2s: the port of the XMPP server for clients.
        components: its port for components.
        ca_file: the authority of the certificates of both.
        secrets: of the components.
        service: the JID of the queue service.
        foreign: the domain of a component that is hostile.
    """

    http: int
    amqp: int
    c2s: int
    components: int
    ca_file: str
    secrets: dict[str, str]
    service: str = _SERVICE
    foreign: str = _FOREIGN

    @property
    def tls(self) -> ssl.SSLContext:
        """For a client that checks the certificates."""
        context = ssl.create_default_context(cafile=self.ca_file)
        # Without tickets: each new connection is the work of a first one.
        context.options |= ssl.OP_NO_TICKET
        return context

    def connect(self, jid: str) -> Connect:
        """The connection of an account by XMPP."""
        return Connect(jid=jid, password=SECRET, host=ADDRESS, port=self.c2s)


class Service:
    """The process of the queue service.

    Attributes:
        process: the present one.
    """

    def __init__(self, where: Place, folder: Path) -> None:
        self.process: Process
        self._where = where
        self._folder = folder

    async def start(self) -> None:
        """Start it, and wait for its gateways."""
        where, folder = self._where, self._folder
        tls = (where.ca_file, str(Path(where.ca_file).with_suffix(".key")))
        users = str(folder / "users")
        self.process = await Process.start(
            *(sys.executable, "-P", "-c", _COMMAND, "queue", "serve"),
            *("--component", where.service, "--port", str(where.components)),
            *("--store", f"sqlite:{folder / 'queues.sqlite'}"),
            *("--amqp", f"{ADDRESS}:{where.amqp}", "--amqp-tls", *tls),
            *("--http", f"{ADDRESS}:{where.http}", "--http-tls", *tls),
            *("--amqp-users", users, "--http-users", users),
            folder=folder,
            environment={"XMPP_QOS_PASSWORD": where.secrets[where.service]},
            name="service",
        )
        for what, most in (
            (resource.RLIMIT_AS, _MEMORY_MAX),
            (resource.RLIMIT_NOFILE, _FILES_MAX),
        ):
            resource.prlimit(self.process.pid, what, (most, most))
        await self.process.until_listening(where.http)
        await self.process.until_listening(where.amqp)

    def usage(self) -> Usage:
        """The resources that it has used; none: it has ended."""
        return usage_of(self.process.pid) or Usage(cpu_s=0.0, rss_bytes=0)


@contextlib.asynccontextmanager
async def place(folder: Path) -> AsyncIterator[tuple[Place, Service]]:
    """Start the servers, with all files in this folder, and make the queues."""
    http, amqp = free_ports(2)
    secrets = {_SERVICE: "secret of queue", _FOREIGN: "secret of evil"}
    (folder / "server").mkdir()
    names = [jid.partition("@")[0] for jid in (HONEST, *HOSTILE)]
    server = Prosody(
        folder / "server",
        accounts=dict.fromkeys(names, SECRET),
        components=secrets,
        tls=True,
    )
    users = folder / "users"
    stored = hashed(SECRET)
    users.write_text("".join(f"{jid}:{stored}\n" for jid in (HONEST, *FRESH, *HOSTILE)))
    users.chmod(0o600)
    async with server:
        where = Place(
            *(http, amqp, server.c2s_port, server.component_port),
            *(str(server.ca_file), secrets),
        )
        service = Service(where, folder)
        await service.start()
        try:
            await _make_queues(where)
            yield where, service
        finally:
            await service.process.end()


async def _make_queues(where: Place) -> None:
    mine = dict.fromkeys(HONEST_QUEUES.values(), HONEST)
    his = dict.fromkeys((LAIR, HEAP, DEAR), HOSTILE[0])
    for owner in (HONEST, HOSTILE[0]):
        async with where.connect(f"{owner}/maker").as_account() as session:
            session.client.register_plugin("xep_0254", {"timeout_s": 10.0})
            session.start()
            plugin = XEP_0254.of(session.client)
            await session.online.wait()
            for node, of in {**mine, **his}.items():
                if of == owner:
                    await plugin.create(
                        where.service,
                        node,
                        {"queue#backoff": "0", "queue#max_deliveries": "100000"},
                    )
            if owner == HOSTILE[0]:
                both = {HOSTILE[1]: Affiliation.PUBLISHER}
                await plugin.set_affiliations(where.service, LAIR, both)
