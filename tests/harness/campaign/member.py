"""A member of a run: a program that is kept running.

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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from qos.cli.status import Status
from role import Role
from role_processes import Processes, RoleProcess

__all__ = ["GATEWAY_KINDS", "GATEWAY_PUBLISHERS", "GATEWAY_WORKERS", "Kind", "Member"]

_STARTS_AGAIN_S = 0.3

_LOOK_S = 0.05

#: The last six are those of `commands`, and the ten before them those of `gateways`.
Kind = Literal[
    "sender",
    "receiver",
    "service",
    "worker",
    "publisher",
    "http-publisher",
    "http-worker",
    "httpx-publisher",
    "httpx-worker",
    "amqp-publisher",
    "amqp-worker",
    "pyamqp-publisher",
    "pyamqp-worker",
    "twin-publisher",
    "twin-worker",
    "hub",
    "listen",
    "desk",
    "errand",
    "greedy",
    "squatter",
    "crowd",
]

GATEWAY_PUBLISHERS: tuple[Kind, ...] = (
    "http-publisher",
    "httpx-publisher",
    "amqp-publisher",
    "pyamqp-publisher",
    "twin-publisher",
)
GATEWAY_WORKERS: tuple[Kind, ...] = (
    "http-worker",
    "httpx-worker",
    "amqp-worker",
    "pyamqp-worker",
    "twin-worker",
)
GATEWAY_KINDS = (*GATEWAY_PUBLISHERS, *GATEWAY_WORKERS)

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

    async def freeze(self, seconds: float) -> bool:
        """Stop its process for a while; returns whether there was one."""
        process = self.process
        if not self.send_signal(signal.SIGSTOP):
            return False
        try:
            await asyncio.sleep(seconds)
        finally:
            # Another process may have taken its place, which must not be hurt.
            if self.process is process:
                self.send_signal(signal.SIGCONT)
        return True

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
