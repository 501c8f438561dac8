"""A Spark driver as a process of its own, with the processes that it starts."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from qos.testing.processes import Child

MODULES = Path(__file__).parents[1] / "spark"

# Enough for a machine under load.
ANSWER_S_MAX = 120.0
END_S_MAX = 60.0


class Driver:
    """A driver, used as a context; all its processes end with it.

    Args:
        folder: its working directory.
        module: which driver it is, of those in tests/spark.
    """

    def __init__(self, folder: Path, module: str = "queue_driver") -> None:
        self._folder = folder
        self._module = module
        self._all: set[int] = set()

    async def __aenter__(self) -> Self:
        self._child = await Child.start(
            self._module,
            folder=self._folder,
            environment={"PYTHONPATH": str(MODULES)},
            name="driver",
        )
        # It answers when Spark is there.
        await self.do("failures")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._all |= set(descendants(self._child.pid))
        if exc is None:
            await self._child.end(seconds=END_S_MAX)
        else:
            await self.kill()
        for pid in self._all:
            await _gone(pid)
        if exc is not None:
            print(self._child.log[-20_000:], file=sys.stderr)

    async def do(self, what: str, **options: object) -> dict[str, Any]:
        """Let the driver do something; see its module."""
        return await self._child.do(what, patience_s=ANSWER_S_MAX, **options)

    async def kill(self) -> None:
        """Kill the driver, its JVM first; its Python processes get no signal."""
        self._all |= set(descendants(self._child.pid))
        for pid, command in descendants(self._child.pid).items():
            if "java" in command.split("\0")[0]:
                # One process may be a launcher that has just ended by itself.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        await self._child.kill()

    def python(self, module: str) -> list[int]:
        """The Python processes of the driver that run a module of pyspark."""
        found = descendants(self._child.pid).items()
        return sorted(pid for pid, command in found if module in command)


def descendants(pid: int) -> dict[int, str]:
    """The descendants of these processes, with their command lines."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text()
            except OSError:
                continue
            parent = int(status.rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(folder.name))
    found: dict[int, str] = {}
    waiting = list(parents.get(pid, ()))
    while waiting:
        each = waiting.pop()
        try:
            found[each] = Path(f"/proc/{each}/cmdline").read_text()
        except OSError:
            continue
        waiting += parents.get(each, ())
    return found


async def _gone(pid: int) -> None:
    async with asyncio.timeout(END_S_MAX):
        while _runs(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def _runs(pid: int) -> bool:
    """A zombie, which was not waited for, has no command line any more."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False
