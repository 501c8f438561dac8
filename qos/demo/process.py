"""The processes of the demo, as their parent sees them: started, killed, replaced."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["ProcessDied", "Spares", "Supervisor"]

#: A kill waits for a word of the process, and for no longer than this.
_KILL_WITHIN_S = 0.3

#: How long a process may take to log out and close its stores.
_STOP_S_MAX = 5.0


class ProcessDied(Exception):
    """A process has ended as it should not."""


class Spares:
    """One process that has loaded everything and waits to be told what to do.

    So a restart takes as long as a login, and not as long as Python takes to start.

    Args:
        folder: for what the processes write to stderr.
        module: what they run, see `qos.demo.child`.

    Attributes:
        name: of what they are.
    """

    def __init__(self, folder: Path, module: str) -> None:
        self.name = module.rpartition(".")[2]
        self._module = module
        self._log = folder / f"{self.name}.log"
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
        await _end(self._spare)

    async def take(self) -> Process:
        """The spare process; there will be another one soon."""
        async with self._one_at_a_time:
            process = self._spare
            self._spare = await self._spawn()
        return process

    def last_words(self) -> str:
        """What a process has said last, before it failed."""
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return lines[-1] if lines else "no word"

    async def _spawn(self) -> Process:
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                self._module,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                # Ctrl-C is for the demo, and the demo ends its processes.
                start_new_session=True,
            )


class Supervisor:
    """Keeps a process running, and kills it when asked to.

    Args:
        spares: where its processes come from.
        task: what each of them is told.

    Attributes:
        said: how many times they have said each word so far.
        kills: how many of them were killed.
    """

    def __init__(self, spares: Spares, task: dict[str, Any]) -> None:
        self.said: Counter[str] = Counter()
        self.kills = 0
        self._spares = spares
        self._task = task
        self._process: Process | None = None
        self._stopping = False
        self._one_at_a_time = asyncio.Lock()
        self._has_spoken = asyncio.Event()
        self._has_started = asyncio.Event()

    async def run(self) -> None:
        """Start a process, and another one after each kill, until `stop`.

        Raises:
            ProcessDied: one has ended by itself, or has not when asked to.
        """
        while True:
            process = await self._start()
            try:
                await self._listen(process)
                status = await process.wait()
            finally:
                await _end(process)
            if self._stopping and status == 0:
                return
            if self._stopping or status != -signal.SIGKILL:
                spares = self._spares
                raise ProcessDied(
                    f"the {spares.name} ended with status {status}: "
                    f"{spares.last_words()}"
                )
            self.kills += 1

    async def hear(self, word: str, times: int) -> None:
        """Return when this was said so many times, by all of them together."""
        while self.said[word] < times:
            self._has_spoken.clear()
            await self._has_spoken.wait()

    async def kill_soon(self, word: str) -> None:
        """Kill the process, and return when another one is in its place.

        The moment is just after it has said this word once more, if it soon does.
        """
        async with self._one_at_a_time:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILL_WITHIN_S):
                    await self.hear(word, self.said[word] + 1)
            self._has_started.clear()
            assert self._process is not None
            self._process.kill()
            await self._has_started.wait()

    async def stop(self) -> None:
        """Let the process log out and end; then `run` returns."""
        self._stopping = True
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_S_MAX):
                await process.wait()
        await _end(process)

    async def _start(self) -> Process:
        process = self._process = await self._spares.take()
        assert process.stdin is not None
        process.stdin.write(json.dumps(self._task).encode() + b"\n")
        self._has_started.set()
        return process

    async def _listen(self, process: Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            self.said[line.decode().strip()] += 1
            self._has_spoken.set()


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()
