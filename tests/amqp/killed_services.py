"""Services as processes, to be killed and started again: each is a fork.

    async with services("gateway_process") as start:
        process = await start(folder, port, "orders")
        await process.kill()

A new interpreter with its imports would take a second of the processor for each of them.
"""

import asyncio
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, NoReturn, Protocol

from parents import die_with_parent
from waiting import limit

__all__ = ["Service", "Start", "services"]


class _Forks:
    """A process that has imported a program, and forks it as often as it is asked to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        # What it says is the answer to one question at a time.
        self._lock = asyncio.Lock()

    async def ask(self, *words: object) -> bytes:
        """Let it do something; returns the first line that is written then."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        async with self._lock, limit():
            stdin.write(json.dumps([str(each) for each in words]).encode() + b"\n")
            return await stdout.readline()


class Service:
    """A process that serves until it is killed."""

    def __init__(self, forks: _Forks, pid: int) -> None:
        self._forks = forks
        self._pid = pid
        self._killed = False

    async def kill(self) -> None:
        """Kill it by SIGKILL, unless that was done, and wait for its end."""
        if not self._killed:
            self._killed = True
            ended = await self._forks.ask("kill", self._pid)
            assert ended == b"ended by -9\n", ended


class Start(Protocol):
    """Starts a service; returns when it listens."""

    async def __call__(self, folder: Path, port: int, *words: str) -> Service: ...


@contextlib.asynccontextmanager
async def services(program: str) -> AsyncIterator[Start]:
    """Services of a program; all of them end with this context.

    Args:
        program: the name of its module, whose `main` gets the folder, the port and words.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, program),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    forks = _Forks(process)

    async def start(folder: Path, port: int, *words: str) -> Service:
        said = await forks.ask("start", folder, port, *words)
        name, _, pid = said.partition(b" ")
        assert name == b"listens", said
        return Service(forks, int(pid))

    try:
        yield start
    finally:
        # Its forks die with it.
        process.kill()
        await process.wait()


# -- the side of the processes ---------------------------------------------

Program = Callable[..., Coroutine[Any, Any, NoReturn]]


def _fork(program: Program, folder: str, port: str, *words: str) -> None:
    if os.fork():
        return
    try:
        die_with_parent()
        asyncio.run(program(Path(folder), int(port), *words))
    except BaseException:  # noqa: BLE001 - whatever it is, it must not fork on
        traceback.print_exc()
    finally:
        os._exit(1)


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    sys.stdout.write(f"ended by {status}\n")
    sys.stdout.flush()


def main(name: str) -> None:
    """Do what the lines of stdin ask for."""
    die_with_parent()
    program: Program = importlib.import_module(name).main
    for line in sys.stdin:
        what, *words = json.loads(line)
        if what == "start":
            _fork(program, *words)
        else:
            _kill(int(words[0]))


if __name__ == "__main__":
    main(sys.argv[1])
