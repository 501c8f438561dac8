"""Faults of the installed commands and around them: signals, stdout, their peers.

As in `faults`, a seed decides the order, but not the exact moments. A fault is counted
if it really happened: for example, the pipe was full, and not only unread.
"""

from __future__ import annotations

import asyncio
import random
import re
import signal
from collections.abc import Callable, Coroutine
from functools import partial

from campaign.commands import Home
from campaign.disk import SmallDisk
from campaign.faults import Ways
from campaign.member import Kind, Member
from campaign.pipe import PipeReader
from campaign.printed import (
    CROWD,
    FORGED,
    GREEDY_REFUSED,
    LINE_TORN,
    SQUATTED,
)
from campaign.supervisor import Supervisor
from proxy import Injection, LinkFault, Proxy
from qos.cli.status import Status
from qos.core.message.model import NAMESPACES

__all__ = ["EDGES", "Edges"]

_COMMANDS: tuple[Kind, ...] = ("listen", "desk", "errand")

_FREEZES: tuple[Kind, ...] = (*_COMMANDS, "hub")

_SIGNALS = {
    "kill -9": signal.SIGKILL,
    "SIGTERM": signal.SIGTERM,
    "SIGHUP": signal.SIGHUP,
}

#: The kinds of faults, in the order in which they are shown.
EDGES = (
    *(f"{name} {kind}" for kind in _COMMANDS for name in _SIGNALS),
    *(f"SIGSTOP {kind}" for kind in _FREEZES),
    *("kill -9 hub", "stdout full", "reader stops", LINE_TORN),
    *("queue back in another order", "bytes before TLS", GREEDY_REFUSED, SQUATTED),
    CROWD,
)

_QOS = NAMESPACES[0]
_HUB = "from='hub@localhost/1'"

#: Stanzas that would be printed, held or released if they were believed; with a trusted
#: sender.
_FORGED = (
    f"<message {_HUB}><body>{FORGED} 0</body></message>"
    f"<iq type='set' id='f1' {_HUB}><acknowledged xmlns='{_QOS}'>"
    f"<message xmlns='jabber:client'><body>{FORGED} 1</body></message>"
    f"</acknowledged></iq><iq type='set' id='f2' {_HUB}>"
    f"<assured xmlns='{_QOS}' msgId='f2'><message xmlns='jabber:client'>"
    f"<body>{FORGED} 2</body></message></assured></iq>"
    f"<iq type='set' id='f3' {_HUB}><deliver xmlns='{_QOS}' msgId='f2'/></iq>"
).encode()

#: An attacker on the network path, who cannot break TLS.
_INJECTIONS = (
    Injection(re.compile(b"<stream:features"), _FORGED),
    Injection(re.compile(b"<proceed[^>]*/>"), _FORGED, behind=True),
)

#: The time for a line to fail, or for a pipe to fill up.
_WAITS_S_MAX = 4.0

#: Seconds for which a pipe stays full.
_FULL_S = (0.0, 1.5)

#: Seconds for which a process is stopped.
_FROZEN_S = (0.3, 5.0)

#: Seconds for which an attacker is there.
_FORGES_S = (1.0, 4.0)

#: Seconds between two members that come back.
_APART_S_MAX = 0.7

_LOOK_S = 0.05


class Edges:
    """The faults of this module.

    Args:
        supervisor: all members.
        home: the commands.
        output: the disk of their output.
        reader: of the pipe.
        clients: the proxy between the server and its clients.
        seed: decides the victims.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        home: Home,
        output: SmallDisk,
        reader: PipeReader,
        clients: Proxy,
        *,
        seed: str,
    ) -> None:
        self._supervisor = supervisor
        self._home = home
        self._output = output
        self._reader = reader
        self._clients = clients
        self._random = random.Random(seed)
        self._listening = asyncio.Lock()
        self._ordering = asyncio.Lock()

    @property
    def ways(self) -> Ways:
        """All faults, by kind."""
        ways: dict[str, Callable[[], Coroutine[None, None, bool]]] = {
            f"{name} {kind}": partial(self._signal, kind, number)
            for kind in _COMMANDS
            for name, number in _SIGNALS.items()
        }
        for kind in _FREEZES:
            ways[f"SIGSTOP {kind}"] = partial(self._freeze, kind)
        ways["kill -9 hub"] = partial(self._signal, "hub", signal.SIGKILL)
        ways["reader stops"] = self._stop_reader
        ways["queue back in another order"] = self._reorder
        ways["bytes before TLS"] = self._forge
        if self._output.can_be_full:
            ways["stdout full"] = self._fill_output
        return ways

    async def _signal(self, kind: Kind, number: signal.Signals) -> bool:
        (member,) = self._supervisor.of(kind)
        return member.send_signal(number)

    async def _freeze(self, kind: Kind) -> bool:
        (member,) = self._supervisor.of(kind)
        return await member.freeze(self._random.uniform(*_FROZEN_S))

    async def _fill_output(self) -> bool:
        """Until a command has found it full, and some time longer."""
        members = self._supervisor.of(*_COMMANDS)

        def ended() -> int:
            return sum(member.deaths[Status.OUTPUT] for member in members)

        async with self._listening:
            before = ended()
            if not await self._has(into_pipe=False):
                return False
            self._output.fill()
            try:
                return await _within(_WAITS_S_MAX, lambda: ended() > before)
            finally:
                self._output.empty()

    async def _stop_reader(self) -> bool:
        """Until the pipe is full; in most cases the writer is then ended."""
        async with self._listening:
            if not await self._has(into_pipe=True):
                return False
            self._reader.stop()
            try:
                if not await _within(_WAITS_S_MAX, lambda: self._reader.full):
                    return False
                await asyncio.sleep(self._random.uniform(*_FULL_S))
                number = self._random.choice((None, *_SIGNALS.values()))
                if number is not None:
                    self._home.listen.send_signal(number)
                    await asyncio.sleep(self._random.uniform(*_FULL_S))
            finally:
                self._reader.go_on()
        return True

    async def _has(self, *, into_pipe: bool) -> bool:
        """Wait until `listen` writes there, in a later life if needed."""
        listen = self._home.listen

        def does() -> bool:
            if self._home.into_pipe is into_pipe:
                return listen.process is not None
            listen.send_signal(signal.SIGKILL)
            return False

        return await _within(_WAITS_S_MAX, does)

    async def _forge(self) -> bool:
        """Inject stanzas into new connections for a while, and let some members connect
        again.
        """
        before = self._clients.injected
        self._clients.injections = _INJECTIONS
        try:
            await self._clients.inflict(LinkFault.CUT, 0)
            await asyncio.sleep(self._random.uniform(*_FORGES_S))
        finally:
            self._clients.injections = ()
        return self._clients.injected > before

    async def _reorder(self) -> bool:
        """Disconnect the service and all workers at once.

        They come back in some order.
        """
        members: list[Member] = self._supervisor.of("service", "worker", "errand")
        async with self._ordering:
            for member in members:
                member.may_run.clear()
            try:
                gone = [member.send_signal(signal.SIGKILL) for member in members]
                self._random.shuffle(members)
                for member in members:
                    member.may_run.set()
                    await asyncio.sleep(self._random.uniform(0, _APART_S_MAX))
            finally:
                for member in members:
                    member.may_run.set()
        return all(gone)


async def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Wait until it holds; returns whether it did so in time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while not condition():
        if loop.time() > until:
            return False
        await asyncio.sleep(_LOOK_S)
    return True
