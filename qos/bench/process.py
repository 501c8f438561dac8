"""The processes of the benchmark, as their parent sees them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qos.cli.status import CommandError, Status

__all__ = ["BenchFailed", "Child"]

#: For Python to start, and a login, on a machine under load.
_START_S_MAX = 30.0

#: To log out and close a store.
_STOP_S_MAX = 5.0


class BenchFailed(CommandError):
    """Nothing can be measured; the text says why, in one line."""

    def __init__(self, text: str, status: int = Status.INTERNAL) -> None:
        super().__init__(text, Status(status))


class Child:
    """One process, see `qos.bench.child`.

    Args:
        module: what it runs.
        log: a file for what it writes to stderr.
        name: of it, for people.
    """

    def __init__(self, module: str, *, log: Path, name: str) -> None:
        self._module = module
        self._log = log
        self._name = name
        self._process: Process | None = None

    @property
    def pid(self) -> int:
        """Its process id; only once it is started."""
        assert self._process is not None
        return self._process.pid

    async def start(
        self, task: Mapping[str, object], *, pass_fds: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Start it, and return its first answer.

        Args:
            task: what it is asked first.
            pass_fds: file descriptors that it shares.

        Raises:
            BenchFailed: it cannot do what is asked.
        """
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", self._module),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                pass_fds=pass_fds,
                # Ctrl-C is for the benchmark, and that ends its processes.
                start_new_session=True,
            )
        return await self.ask(task, within_s=_START_S_MAX)

    async def ask(
        self, question: Mapping[str, object], *, within_s: float
    ) -> dict[str, Any]:
        """Ask, and return the answer.

        Raises:
            BenchFailed: there is none, or it is an error.
        """
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        # To one that has died: it is found out when there is no answer.
        process.stdin.write(json.dumps(question).encode() + b"\n")
        try:
            async with asyncio.timeout(within_s):
                line = await process.stdout.readline()
        except TimeoutError:
            raise BenchFailed(f"{self._name}: no end after {within_s:g} s") from None
        if not line:
            raise BenchFailed(f"{self._name} has died: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchFailed(f"{self._name}: {answer['error']}", answer["status"])
        return answer

    async def stop(self) -> None:
        """Let it end, or end it. No harm if it was not started."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S_MAX):
                    await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _last_words(self) -> str:
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return lines[-1] if lines else "no word"
