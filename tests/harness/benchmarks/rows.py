"""Measures our own rows, and those of the floor: two processes each, on one server."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.arrivals import Arrivals
from benchmarks.node import Task
from benchmarks.sample import BenchFailed, Sample, Work
from benchmarks.servers import Server
from benchmarks.settings import Settings
from benchmarks.times import sample_of, unpack
from benchmarks.usage import Watch
from qos.bench.messages import NO_LIMITS
from qos.core.message.model import Level
from qos.stream.server import Component, Login
from qos.testing.processes import PATIENCE_S, Child

__all__ = ["Row", "with_resource"]

_ENDS = ("sender", "receiver")

#: The time in which the next addresses are met, in seconds.
_MEET_S = 0.5


class Row:
    """A `Contender` of ours.

    Args:
        settings: the settings of the row.
        server: the running server.
        window_max: the largest window that will be measured.
        pause_s: the time between the end of a message and the next.
    """

    def __init__(
        self,
        settings: Settings,
        server: Server,
        *,
        window_max: int,
        pause_s: float = 0.0,
    ) -> None:
        self.name = settings.name
        self.caveat = settings.caveat
        self._settings = settings
        self._server = server
        self._window_max = window_max
        self._pause_s = pause_s
        self._children: dict[str, Child] = {}
        self._taken = 0

    async def start(self, folder: Path) -> None:
        """See Contender."""
        arrivals = None
        if self._settings.level == Level.UNACKNOWLEDGED.value:
            arrivals = Arrivals.make(folder / "arrivals")
        for end in _ENDS:
            child = await Child.start("benchmarks.node", name=end, folder=folder)
            self._children[end] = child
        tasks = [self._task(folder, arrivals, sends=end == "sender") for end in _ENDS]
        # If one fails, we wait for the other: otherwise it could not be stopped.
        answers = await asyncio.gather(
            *(
                self._children[end].do("connect", task=task.to_json())
                for end, task in zip(_ENDS, tasks, strict=True)
            ),
            return_exceptions=True,
        )
        jids = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            jids.append(answer["jid"])
        for end, peer in zip(_ENDS, reversed(jids), strict=True):
            await self._children[end].do("begin", peer=peer)
        await self._meet()

    async def _meet(self) -> None:
        """Send a message on each route: at first a peer is asked what it supports."""
        met = 0
        while met < max(self._settings.senders, self._settings.receivers):
            sample = await self.measure(Work(self._window_max, 1, _MEET_S))
            met += sample.messages

    async def measure(self, work: Work) -> Sample:
        """See Contender."""
        pids = {name: each.pid for name, each in self._children.items()}
        if self._server.pid is not None:
            pids["server"] = self._server.pid
        with Watch(pids) as used:
            answer = await self._children["sender"].do(
                "send", patience_s=work.seconds + PATIENCE_S, **asdict(work)
            )
        others = {name: answer[name] for name in ("wire_bytes", "stanzas")}
        given, ended = unpack(answer["given"]), unpack(answer["ended"])
        sample = sample_of(given, ended, used, others)
        await self._check(sample.messages)
        return sample

    async def stop(self) -> None:
        """See Contender."""
        children, self._children = self._children, {}
        await asyncio.gather(*(each.end() for each in children.values()))

    async def _check(self, sent: int) -> None:
        """Check that no message was lost or came twice.

        Leaving something out is fast.
        """
        answer = await self._children["receiver"].do("received")
        taken = answer["taken"]
        if taken is None:
            return
        came, self._taken = taken - self._taken, taken
        # At level acknowledged a message may come twice.
        exactly = self._settings.level != Level.ACKNOWLEDGED.value
        if came < sent or (exactly and came > sent):
            raise BenchFailed(f"{sent} messages were sent, and {came} handed over")

    def _task(self, folder: Path, arrivals: str | None, *, sends: bool) -> Task:
        settings, server = self._settings, self._server
        login: Login | Component
        if settings.senders if sends else settings.receivers:
            login = server.components[settings.component]
        else:
            login = with_resource(server.sender if sends else server.receiver)
        plugins: dict[str, dict[str, Any]] = {}
        if settings.managed:
            plugins["xep_0198"] = {}
        if settings.way == "plugin":
            plugins["xep_qos"] = {
                "store": _store(settings.store, folder / ("out" if sends else "in")),
                "window_max": self._window_max,
                # This works at any server, whether or not the two know each other.
                "trust": [server.sender.jid],
                "journal": str(folder / "journal") if settings.journal else None,
                **NO_LIMITS,
                **settings.options,
            }
        return Task(
            login=login,
            sends=sends,
            way=settings.way,
            level=settings.level,
            steps=settings.steps,
            plugins=plugins,
            arrivals=arrivals,
            pause_s=self._pause_s,
            senders=settings.senders,
            receivers=settings.receivers,
        )


def with_resource(login: Login) -> Login:
    """An account with a resource that no other client has."""
    return replace(login, jid=f"{login.jid}/bench-{secrets.token_hex(4)}")


def _store(kind: str, path: Path) -> str:
    return "memory:" if kind == "memory" else f"{kind}:{path}"
