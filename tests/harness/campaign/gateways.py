"""Publishers and workers that speak HTTP and AMQP to the queue of the other workers.

They are made with aiohttp and httpx, Qpid Proton and Microsoft's pyamqp; and there are two
that attach one name twice. Like all members they are killed and stopped. Their connections go through a proxy for each
protocol, and the service dies between two steps of theirs: before and after a commit.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

from amqp_roles import AmqpPublisher, AmqpWorker
from campaign.faults import Ways
from campaign.files import Files
from campaign.member import GATEWAY_KINDS, GATEWAY_WORKERS, Kind, Member
from campaign.supervisor import NODE, Supervisor
from http_roles import HttpPublisher, HttpWorker, Library
from proxy import LinkFault, Proxy
from pyamqp_roles import PyamqpPublisher, PyamqpWorker
from qos.testing.ports import ADDRESS, free_ports
from qos.users import hashed
from queue_roles import AFTER_COMMIT, BEFORE_COMMIT, Listening
from role import Connect, Role
from twin_roles import TwinPublisher, TwinWorker

__all__ = ["GATEWAY_FAULTS", "Gateways"]

_SECRET = "secret of the gateways"  # noqa: S105 - of accounts inside a test

_DEATHS = {
    "death before a commit": BEFORE_COMMIT,
    "death after a commit": AFTER_COMMIT,
}

#: The kinds of faults, in the order in which they are shown.
GATEWAY_FAULTS = (
    *(f"kill -9 {kind}" for kind in GATEWAY_KINDS),
    *(f"SIGSTOP {kind}" for kind in GATEWAY_KINDS),
    *_DEATHS,
    *(f"{fault.value}, gateways" for fault in LinkFault),
)

#: The publisher and the worker of each AMQP client.
_AMQP = {
    "amqp": (AmqpPublisher, AmqpWorker),
    "pyamqp": (PyamqpPublisher, PyamqpWorker),
    "twin": (TwinPublisher, TwinWorker),
}

_WORK_S = 0.05

_PAUSE_S = 0.3

#: Seconds for which a fault lasts. Some are longer than the lock time-out.
_LASTS_S = (0.3, 5.0)


class Gateways:
    """The members, and their faults.

    Args:
        folder: for the file with the users.
        files: of the run.
        seed: decides the victims.

    Attributes:
        listening: where the service listens.
        http: the proxy between it and the members that speak HTTP; it is to be entered.
        amqp: likewise.
    """

    def __init__(self, folder: Path, files: Files, *, seed: str) -> None:
        http, amqp = free_ports(2)
        users = folder / "gateway-users"
        users.write_text(
            "".join(f"{kind}:{hashed(_SECRET)}\n" for kind in GATEWAY_KINDS)
        )
        users.chmod(0o600)
        self.listening = Listening(users=str(users), http=http, amqp=amqp)
        self.http = Proxy(http, seed=f"{seed} http")
        self.amqp = Proxy(amqp, seed=f"{seed} amqp")
        self._files = files
        self._random = random.Random(f"{seed} gateways")
        self.members = [Member(kind, kind, self._life(kind)) for kind in GATEWAY_KINDS]

    def _life(self, kind: Kind) -> Callable[[int], Role]:
        role = self._role(kind)
        return lambda _life: role

    def _role(self, kind: Kind) -> Role:
        port = (self.http if kind.startswith("http") else self.amqp).port
        connect = Connect(jid=kind, password=_SECRET, host=ADDRESS, port=port)
        published = str(self._files.published_by(kind))
        notebook = str(self._files.notebook(kind))
        if kind.startswith("http"):
            library: Library = "httpx" if kind.startswith("httpx") else "aiohttp"
            if kind in GATEWAY_WORKERS:
                return HttpWorker(
                    connect=connect,
                    node=NODE,
                    notebook=notebook,
                    work_s=_WORK_S,
                    library=library,
                )
            return HttpPublisher(
                connect=connect,
                node=NODE,
                links=str(self._files.folder / f"{library}-links.log"),
                published=published,
                pause_s=_PAUSE_S,
                library=library,
            )
        publisher, worker = _AMQP[kind.partition("-")[0]]
        if kind in GATEWAY_WORKERS:
            return worker(connect=connect, node=NODE, notebook=notebook, work_s=_WORK_S)
        return publisher(
            connect=connect, node=NODE, published=published, pause_s=_PAUSE_S
        )

    # -- faults ------------------------------------------------------------

    def ways(self, supervisor: Supervisor) -> Ways:
        """The faults of this module, by kind."""
        ways: dict[str, Callable[[], Coroutine[None, None, bool]]] = {}
        for member in self.members:
            ways[f"kill -9 {member.kind}"] = partial(self._kill, member)
            ways[f"SIGSTOP {member.kind}"] = partial(self._freeze, member)
        (service,) = supervisor.of("service")
        for name, number in _DEATHS.items():
            ways[name] = partial(self._let_die, service, number)
        for fault in LinkFault:
            ways[f"{fault.value}, gateways"] = partial(self._hurt, fault)
        return ways

    async def _kill(self, member: Member) -> bool:
        return member.send_signal(signal.SIGKILL)

    async def _freeze(self, member: Member) -> bool:
        return await member.freeze(self._random.uniform(*_LASTS_S))

    async def _let_die(self, service: Member, number: signal.Signals) -> bool:
        process = service.process
        # Before it is ready it does not know this signal, which would end it strangely.
        if process is None or not process.event("ready").is_set():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
            return True
        return False

    async def _hurt(self, fault: LinkFault) -> bool:
        proxy = self._random.choice((self.http, self.amqp))
        return await proxy.inflict(fault, self._random.uniform(*_LASTS_S)) > 0
