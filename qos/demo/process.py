"""The processes of the demo, as their parent sees them.

Started, killed and replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from qos.testing.processes import Child

__all__ = ["ProcessDied", "SpareProcess", "Supervisor", "told_path"]

#: A kill waits for a word of the process, but no longer than this, in seconds.
_KILL_WITHIN_S = 0.3

#: How long a process may take to log out and close its stores.
_STOP_S_MAX = 5.0


class ProcessDied(Exception):
    """A process has ended unexpectedly."""


class SpareProcess:
    """One process that has loaded everything and waits for its task.

    So a restart takes only as long as a login, without the time that Python needs to
    start.

    Args:
        folder: for the stderr of the processes.
        module: the module that they run, see `qos.testing.child.run_task`.

    Attributes:
        name: the name of their role.
    """

    def __init__(self, folder: Path, module: str) -> None:
        self.name = module.rpartition(".")[2]
        self._module = module
        self._folder = folder
        self._one_at_a_time = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Start the first one."""
        self._spare = await self._spawn()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the last one."""
        await self._spare.kill()

    async def take(self) -> Child:
        """The spare process; another one is started for the next time."""
        async with self._one_at_a_time:
            process = self._spare
            self._spare = await self._spawn()
        return process

    async def _spawn(self) -> Child:
        return await Child.start(self._module, folder=self._folder, name=self.name)


class Supervisor:
    """Keeps a process running, and kills it on request.

    Args:
        spare: the source of its processes.
        task: the task that each process gets.

    Attributes:
        said: how many times they have reported each word so far.
        kills: how many of them were killed.
    """

    def __init__(self, spare: SpareProcess, task: dict[str, Any]) -> None:
        self.said: Counter[str] = Counter()
        self.kills = 0
        self._spare = spare
        self._task = task
        self._process: Child | None = None
        self._stopping = False
        self._one_at_a_time = asyncio.Lock()
        self._has_spoken = asyncio.Event()
        self._has_started = asyncio.Event()

    async def run(self) -> None:
        """Start a process, and another one after each kill, until `stop`.

        Raises:
            ProcessDied: a process has ended by itself, or has not ended on request.
        """
        while True:
            process = await self._start()
            try:
                await self._listen(process)
                status = await process.wait()
            finally:
                await process.kill()
            if self._stopping and status == 0:
                return
            if self._stopping or status != -signal.SIGKILL:
                words = process.log.splitlines() or ["no word"]
                raise ProcessDied(
                    f"the {process.name} ended with status {status}: {words[-1]}"
                )
            self.kills += 1

    async def hear(self, word: str, times: int) -> None:
        """Wait until all processes together have reported this word so many times."""
        while self.said[word] < times:
            self._has_spoken.clear()
            await self._has_spoken.wait()

    async def kill_soon(self, word: str) -> None:
        """Kill the process, and return when another one has replaced it.

        It is killed just after it has reported this word once more, or after a short
        time.
        """
        async with self._one_at_a_time:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILL_WITHIN_S):
                    await self.hear(word, self.said[word] + 1)
            self._has_started.clear()
            assert self._process is not None
            self._process.send_signal(signal.SIGKILL)
            await self._has_started.wait()

    async def stop(self) -> None:
        """Let the process log out and end; then `run` returns."""
        self._stopping = True
        assert self._process is not None
        await self._process.end(seconds=_STOP_S_MAX)

    async def _start(self) -> Child:
        process = self._process = await self._spare.take()
        process.tell(self._task)
        self._has_started.set()
        return process

    async def _listen(self, process: Child) -> None:
        async for word in process.messages():
            self.said[word] += 1
            self._has_spoken.set()


def told_path(path: Path | None) -> str | None:
    """A path in the form for a process, which has another working directory."""
    return None if path is None else str(path.absolute())
