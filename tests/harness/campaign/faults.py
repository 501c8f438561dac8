"""Faults of the processes of a run, in an order that a seed decides.

The seed does not decide the exact moments: a failure may need several runs to appear
again.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from campaign.disk import SmallDisk
from campaign.member import Kind, Member
from campaign.supervisor import Supervisor
from proxy import LinkFault, Proxy
from qos.testing.xmpp_server import XmppServer
from role_processes import Processes
from slow.servers import limited
from store_roles import Intruder

__all__ = ["DELAYS", "KINDS", "Faults", "Ways"]

#: For each kind a function that injects the fault, and returns whether it happened.
Ways: TypeAlias = Mapping[str, Callable[[], Coroutine[None, None, bool]]]

#: Seconds that a lasting fault takes.
_LASTS_S = (0.3, 3.0)

#: Longer than LOCK_S: locks end, and others get the items of a frozen worker.
_FROZEN_S_MAX = 5.0

#: Seconds for which a link is slow or far: longer than what is far takes.
_SLOW_S = (3.0, 12.0)

#: Seconds for which a server is away.
_AWAY_S_MAX = 1.5

_PEOPLE: tuple[Kind, ...] = ("sender", "receiver", "service", "worker", "publisher")
_FREEZES = (*_PEOPLE, "server")

#: The kinds of faults, in the order in which they are shown.
KINDS = (
    *(f"kill -9 {kind}" for kind in (*_PEOPLE, "server")),
    "restart of the server",
    *(f"SIGSTOP {kind}" for kind in _FREEZES),
    *(fault.value for fault in LinkFault),
    *("disk full", "slow disk", "wrong clock", "server with limits"),
    "second process on a store",
)

#: They delay everything for so long that a soak, which measures how long messages take,
#: does without them.
DELAYS = frozenset(
    {
        *(LinkFault.SLOW.value, LinkFault.FAR.value),
        *("slow disk", "wrong clock", "server with limits"),
    }
)

#: Seconds that each write to a slow disk takes longer. Some are longer than LOCK_S.
_WRITE_S = (0.2, 5.0)

#: By how much a clock may be ahead, in seconds: it shows a year long ago, one that has not come
#: yet, or the hour before.
_AHEAD_S = (-20 * 365 * 86_400.0, 50 * 365 * 86_400.0, -3_600.0)

#: These are more frequent: they are cheap, and each hits another moment.
_TWICE = ("kill -9 sender", "kill -9 receiver", "kill -9 service", "kill -9 worker")


class Faults:
    """Injects faults until it is told to stop.

    Args:
        supervisor: the possible victims.
        server: likewise.
        proxies: likewise.
        disk: of the stores.
        processes: starts a second process on a store.
        seed: decides the next fault and its victim.
        pause_s_max: between two faults, on average half of it; one may begin while
            another lasts.
        elders: names of members that are never killed.
        more: further faults, by kind.

    Attributes:
        counts: the injected faults, by kind; without those that found no victim.
        let_in: the stores that two processes had open.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        server: XmppServer,
        proxies: Sequence[Proxy],
        disk: SmallDisk,
        processes: Processes,
        *,
        seed: str,
        pause_s_max: float,
        elders: frozenset[str],
        more: Ways,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.let_in: list[str] = []
        self._supervisor = supervisor
        self._server = server
        self._proxies = proxies
        self._disk = disk
        self._processes = processes
        self._random = random.Random(seed)
        self._pause_s_max = pause_s_max
        self._elders = elders
        self._more = more
        self._server_busy = asyncio.Lock()
        self._disk_busy = asyncio.Lock()
        self._disk_slow = asyncio.Lock()
        self._clock_busy = asyncio.Lock()

    async def inflict(self, seconds: float) -> None:
        """Inject faults for this long; on return all of them are over."""
        deck = self._deck()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        async with asyncio.TaskGroup() as group:
            while loop.time() < until:
                kind = next(deck)
                group.create_task(self._inflict(kind, self._ways[kind]()))
                await asyncio.sleep(self._random.uniform(0, self._pause_s_max))

    async def _inflict(self, kind: str, fault: Coroutine[None, None, bool]) -> None:
        if await fault:
            self.counts[kind] += 1

    def _deck(self) -> Iterator[str]:
        """Each kind once or twice, shuffled; then again."""
        kinds = list(self._ways)
        while True:
            cards = [*kinds, *(kind for kind in _TWICE if kind in kinds)]
            self._random.shuffle(cards)
            yield from cards

    @property
    def _ways(self) -> Ways:
        ways: dict[str, Callable[[], Coroutine[None, None, bool]]] = {
            "kill -9 server": self._kill_server,
            "restart of the server": self._restart_server,
            "SIGSTOP server": self._freeze_server,
            "server with limits": self._limit_server,
            "slow disk": self._slow_disk,
            "wrong clock": self._set_clock,
            "second process on a store": self._intrude,
        }
        for kind in _PEOPLE:
            ways[f"kill -9 {kind}"] = partial(self._kill, kind)
            ways[f"SIGSTOP {kind}"] = partial(self._freeze, kind)
        for fault in LinkFault:
            ways[fault.value] = partial(self._hurt_link, fault)
        if self._disk.can_be_full:
            ways["disk full"] = self._fill_disk
        return {
            kind: way for kind, way in ways.items() if self._is_possible(kind)
        } | dict(self._more)

    def _is_possible(self, kind: str) -> bool:
        """Whether it can be here: the member that it needs may be missing, for example."""
        if self._elders and kind in DELAYS:
            return False
        people = {each for each in _PEOPLE if kind.endswith(f" {each}")}
        return all(self._supervisor.of(each) for each in people)

    def _one(self, kind: Kind) -> Member:
        return self._random.choice(self._supervisor.of(kind))

    def _while(self, longest_s: float = _LASTS_S[1]) -> float:
        return self._random.uniform(_LASTS_S[0], longest_s)

    # -- the kinds ---------------------------------------------------------

    async def _kill(self, kind: Kind) -> bool:
        mortals = self._mortals(kind)
        return bool(mortals) and self._random.choice(mortals).send_signal(
            signal.SIGKILL
        )

    def _mortals(self, *kinds: Kind) -> list[Member]:
        members = self._supervisor.of(*kinds)
        return [member for member in members if member.name not in self._elders]

    async def _set_clock(self) -> bool:
        """Let a process start with a wrong clock, and the next one with the right one."""
        ahead_s, seconds = self._random.choice(_AHEAD_S), self._while(_FROZEN_S_MAX)
        async with self._clock_busy:
            mortals = self._mortals("sender", "receiver", "service")
            if not mortals:
                return False
            member = self._random.choice(mortals)
            before = member.lives
            try:
                jid = member.role.connect.jid
                with self._processes.machine.wrong_clock(jid, ahead_s):
                    if not member.send_signal(signal.SIGKILL):
                        return False
                    await asyncio.sleep(seconds)
            finally:
                member.send_signal(signal.SIGKILL)
        return member.lives > before

    async def _slow_disk(self) -> bool:
        seconds = self._random.uniform(*_SLOW_S)
        async with self._disk_slow:
            with self._processes.machine.slow_disk(self._random.uniform(*_WRITE_S)):
                await asyncio.sleep(seconds)
        return True

    async def _freeze(self, kind: Kind) -> bool:
        return await self._one(kind).freeze(self._while(_FROZEN_S_MAX))

    async def _kill_server(self) -> bool:
        seconds = self._random.uniform(0, _AWAY_S_MAX)
        async with self._server_busy:
            await self._server.kill()
            await asyncio.sleep(seconds)
            await self._server.start()
        return True

    async def _restart_server(self) -> bool:
        """Stop it in order: it says of everybody that it is unavailable."""
        seconds = self._random.uniform(0, _AWAY_S_MAX)
        async with self._server_busy:
            await self._server.stop()
            await asyncio.sleep(seconds)
            await self._server.start()
        return True

    async def _limit_server(self) -> bool:
        """Let it have the limits for a while that distributions ship."""
        seconds = self._random.uniform(*_SLOW_S)
        async with self._server_busy:
            await self._server.kill()
            with limited(self._server):
                await self._server.start()
                await asyncio.sleep(seconds)
                await self._server.kill()
            await self._server.start()
        return True

    async def _freeze_server(self) -> bool:
        seconds = self._while()
        async with self._server_busy:
            self._server.send_signal(signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                self._server.send_signal(signal.SIGCONT)
        return True

    async def _hurt_link(self, fault: LinkFault) -> bool:
        proxy, seconds = self._random.choice(self._proxies), self._while()
        if fault in {LinkFault.SLOW, LinkFault.FAR}:
            seconds = self._random.uniform(*_SLOW_S)
        return await proxy.inflict(fault, seconds) > 0

    async def _fill_disk(self) -> bool:
        seconds = self._while()
        async with self._disk_busy:
            self._disk.fill()
            try:
                await asyncio.sleep(seconds)
            finally:
                self._disk.empty()
        return True

    async def _intrude(self) -> bool:
        kind: Kind = self._random.choice(("sender", "receiver", "service"))
        if not self._supervisor.of(kind):
            return False
        owner = self._one(kind)
        process = owner.process
        # Before it is ready it may not have the store yet.
        if process is None or not process.event("ready").is_set():
            return False
        intruder = await self._processes.start(
            Intruder(
                connect=owner.role.connect, url=owner.store, of_queue=kind == "service"
            )
        )
        await intruder.wait()
        if intruder.event("let in").is_set() and owner.process is process:
            self.let_in.append(owner.store)
        return intruder.event("refused").is_set()
