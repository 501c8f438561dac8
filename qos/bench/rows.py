"""Measures our own rows, and those of the floor: two processes each, on one server."""

from __future__ import annotations

import asyncio
import os
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

from qos.bench.node import Task
from qos.bench.process import BenchFailed, Child
from qos.bench.sample import Sample, Work
from qos.bench.servers import Server
from qos.bench.settings import Settings
from qos.bench.usage import usage_of
from qos.cli.account import Login
from qos.core.model import Level

__all__ = ["Row"]

#: How long the messages that are under way at the end of a sample may take.
_END_S_MAX = 60.0

_ANSWER_S_MAX = 10.0

#: For as many messages, and as long ones, as somebody may want to have under way.
_NO_LIMITS = {
    "quota_messages": 10**9,
    "quota_total_messages": 10**9,
    "quota_bytes": 10**15,
    "quota_total_bytes": 10**15,
}


class Row:
    """A `Contender` of ours.

    Args:
        settings: what it is.
        server: where; it is running.
        window_max: of all that is to be measured.
        pause_s: between the end of a message and the next.
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
        """See Contender.

        Raises:
            BenchFailed: there is no login, for example.
        """
        ends = ("sender", "receiver")
        pipe: tuple[int | None, int | None] = (None, None)
        if self._settings.level == Level.UNACKNOWLEDGED.value:
            pipe = os.pipe()
        try:
            for end in ends:
                name = f"{self.name}: the {end}"
                log = folder / f"{end}.log"
                self._children[end] = Child("qos.bench.node", log=log, name=name)
            tasks = [
                self._task(folder, arrivals, sends=end == "sender")
                for end, arrivals in zip(ends, pipe, strict=True)
            ]
            # When one fails, the other is waited for, or it could not be stopped.
            jids = await asyncio.gather(
                *map(self._begin, ends, tasks), return_exceptions=True
            )
            for jid in jids:
                if isinstance(jid, BaseException):
                    raise jid
            for end, peer in zip(ends, reversed(jids), strict=True):
                await self._children[end].ask({"peer": peer}, within_s=_ANSWER_S_MAX)
        finally:
            for descriptor in pipe:
                if descriptor is not None:
                    os.close(descriptor)

    async def measure(self, work: Work) -> Sample:
        """See Contender.

        Raises:
            BenchFailed: it came to nothing, or to something else.
        """
        before = self._usage()
        answer = await self._children["sender"].ask(
            {
                "window": work.window,
                "payload_bytes": work.payload_bytes,
                "seconds": work.seconds,
            },
            within_s=work.seconds + _END_S_MAX,
        )
        after = self._usage()
        sample = Sample(
            **answer,
            cpu_s={
                name: used.cpu_s - before[name].cpu_s for name, used in after.items()
            },
            rss_bytes={name: used.rss_bytes for name, used in after.items()},
        )
        await self._check(sample.messages)
        return sample

    async def stop(self) -> None:
        """See Contender."""
        children, self._children = self._children, {}
        await asyncio.gather(*(each.stop() for each in children.values()))

    async def _begin(self, end: str, task: Task) -> str:
        shared = () if task.arrivals is None else (task.arrivals,)
        answer = await self._children[end].start(task.to_json(), pass_fds=shared)
        return str(answer["jid"])

    async def _check(self, sent: int) -> None:
        """It is easy to be fast and to leave something out."""
        answer = await self._children["receiver"].ask({}, within_s=_ANSWER_S_MAX)
        taken = answer["taken"]
        if taken is None:
            return
        came, self._taken = taken - self._taken, taken
        # At level acknowledged one may come twice.
        exactly = self._settings.level != Level.ACKNOWLEDGED.value
        if came < sent or (exactly and came > sent):
            raise BenchFailed(
                f"{self.name}: {sent} messages were sent, and {came} handed over"
            )

    def _usage(self) -> dict[str, Any]:
        pids = {name: each.pid for name, each in self._children.items()}
        if self._server.pid is not None:
            pids["server"] = self._server.pid
        used = {name: usage_of(pid) for name, pid in pids.items()}
        return {name: each for name, each in used.items() if each is not None}

    def _task(self, folder: Path, arrivals: int | None, *, sends: bool) -> Task:
        settings, server = self._settings, self._server
        login = _with_resource(server.sender if sends else server.receiver)
        plugins: dict[str, dict[str, Any]] = {}
        if settings.managed:
            plugins["xep_0198"] = {}
        if settings.way == "plugin":
            plugins["xep_qos"] = {
                "store": _store(settings.store, folder / ("out" if sends else "in")),
                "window_max": self._window_max,
                # It works at any server, whether or not they have met before.
                "trust": [server.sender.jid],
                **_NO_LIMITS,
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
        )


def _with_resource(login: Login) -> Login:
    """Each row has sessions of its own, and none that anybody else has."""
    return replace(login, jid=f"{login.jid}/bench-{secrets.token_hex(4)}")


def _store(kind: str, path: Path) -> str:
    return "memory:" if kind == "memory" else f"{kind}:{path}"
