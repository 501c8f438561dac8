"""Programs of the demo in processes of their own, which are started again when killed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import qos
from qos.testing import LoopbackServer
from qos.testing.processes import Child

__all__ = ["READY", "Program", "connect", "running"]

#: The word by which a program reports that it has a session.
READY: Final = "ready"


class Program:
    """A program that is killed, and goes on in a new process.

    The next process is started early. So a restart takes the time of a login, without
    the time that Python needs to start.

    Args:
        name: of the program, and of its account.
        module: calls `qos.testing.child.run_task`, and reports words.
        task: what each process gets; also `name`, and `life`: 0, 1, …
        folder: for the log.
        kills: how often it is killed, at most.

    Attributes:
        reports: how often its processes have reported each word.
        kills: how often it was started again.
        ready: whether there is a process with a session.
    """

    def __init__(
        self, name: str, module: str, task: Mapping[str, Any], folder: Path, kills: int
    ) -> None:
        self.reports: Counter[str] = Counter()
        self.kills = 0
        self.ready = asyncio.Event()
        self._name, self._module, self._task = name, module, task
        self._folder, self._kills_max = folder, kills
        self._stopping = False
        self._child: Child

    async def run(self) -> None:
        """Start a process, and another one after each kill, until `stop`."""
        async with contextlib.AsyncExitStack() as stack:
            spare = await self._start(stack)
            for life in range(self._kills_max + 1):
                child = self._child = spare
                child.tell({**self._task, "name": self._name, "life": life})
                self.kills = life
                if life < self._kills_max:
                    spare = await self._start(stack)
                async for word in child.messages():
                    self.reports[word] += 1
                    if word == READY:
                        self.ready.set()
                self.ready.clear()
                status = await child.wait()
                if self._stopping and status == 0:
                    return
                if status != -signal.SIGKILL:
                    break
            raise child.error(f"has ended with status {status}")

    async def stop(self) -> None:
        """Let the process log out and end; then `run` returns."""
        self._stopping = True
        await self._child.end()

    async def _start(self, stack: contextlib.AsyncExitStack) -> Child:
        child = await Child.start(self._module, folder=self._folder, name=self._name)
        stack.push_async_callback(child.kill)
        return child


@contextlib.asynccontextmanager
async def running(*programs: Program) -> AsyncIterator[None]:
    """Run programs: the block begins when all are ready, and at its end they stop.

    Raises:
        ProcessFailed: a program has ended by itself; the block is cancelled.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for program in programs:
                group.create_task(program.run())
            await asyncio.gather(*(program.ready.wait() for program in programs))
            yield
            await asyncio.gather(*(program.stop() for program in programs))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


def connect(task: Mapping[str, Any], **options: Any) -> qos.Device:
    """The account of a program, in its own process; see `qos.connect`."""
    jid = f"{task['name']}@{LoopbackServer.domain}/1"
    place = {"host": LoopbackServer.host, "port": task["port"], "tls": "off"}
    return qos.connect(jid, "secret", **place, **options)
