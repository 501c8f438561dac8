"""A Spark driver as a process of its own, with the processes that it starts."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PROGRAM = Path(__file__).parents[1] / "spark" / "queue_driver.py"

# Enough for a machine under load.
ANSWER_S_MAX = 120.0
END_S_MAX = 60.0


class Driver:
    """A driver, used as a context; all its processes end with it."""

    def __init__(self, folder: Path) -> None:
        self._stderr = folder / "driver.stderr"
        self._process: asyncio.subprocess.Process | None = None
        self._all: set[int] = set()

    async def __aenter__(self) -> Self:
        environment = {k: v for k, v in os.environ.items() if "COVERAGE" not in k}
        with self._stderr.open("ab") as stderr:
            self._process = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL", sys.executable, PROGRAM),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=environment,
                limit=1024 * 1024,
            )
        await self._answer()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._all |= set(descendants(self._process.pid))
        if exc is None and self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            async with asyncio.timeout(END_S_MAX):
                await self._process.wait()
        else:
            await self.kill()
        for pid in self._all:
            await _gone(pid)
        if exc is not None:
            print(self._stderr.read_text()[-20_000:], file=sys.stderr)

    async def do(self, what: str, **options: object) -> dict[str, Any]:
        """Let the driver do something; see queue_driver.py."""
        assert self._process is not None
        assert self._process.stdin is not None
        line = json.dumps({"do": what, **options})
        self._process.stdin.write(line.encode() + b"\n")
        return await self._answer()

    async def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(ANSWER_S_MAX):
            while line := await self._process.stdout.readline():
                if line.startswith(b"{"):
                    return dict(json.loads(line))
        raise ChildProcessError(self._stderr.read_text()[-5000:])

    async def kill(self) -> None:
        """Kill the driver, its JVM first; its Python processes get no signal."""
        assert self._process is not None
        self._all |= set(descendants(self._process.pid))
        for pid, command in descendants(self._process.pid).items():
            if "java" in command.split("\0")[0]:
                # One process may be a launcher that has just ended by itself.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    def python(self, module: str) -> list[int]:
        """The Python processes of the driver that run a module of pyspark."""
        assert self._process is not None
        found = descendants(self._process.pid).items()
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
