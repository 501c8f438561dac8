"""The processes of a benchmark: servers, and children that do what they are told.

    server = await Process.start("mosquitto", "-c", str(config), folder=folder)
    child = await Child.start("qos.bench.mqtt_paho", name="sender", folder=folder)
    answer = await child.do("send", window=64, payload_bytes=200, seconds=3.0)
    await child.end()

A child is a module that is run with `python -m`: see qos.bench.child. All of them die
with the process that has started them, even when that is killed.

Knows nothing of what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from qos.bench.sample import BenchFailed, NotHere
from qos.testing.ports import ADDRESS

__all__ = [
    "LINE_BYTES_MAX",
    "PATIENCE_S",
    "Child",
    "Process",
    "find_program",
    "need_modules",
]

#: Where Debian has its servers; not in the PATH of everybody.
SBIN = ("/usr/local/sbin", "/usr/sbin")

_END_S_MAX = 10.0

#: For a machine under load; a measurement takes its own time beyond that.
PATIENCE_S = 60.0

#: Of a line. The times of a million messages take some 22 MB.
LINE_BYTES_MAX = 2**30

# Of a log, in an error.
_LAST_LINES = 3


class Process:
    """A program that was started, such as a server.

    Attributes:
        name: for people, and of its log.
        log_file: what it writes to stderr, and to stdout unless that is a pipe.
    """

    def __init__(
        self, name: str, log_file: Path, process: asyncio.subprocess.Process
    ) -> None:
        self.name = name
        self.log_file = log_file
        self._process = process

    @classmethod
    async def start(
        cls,
        program: str | Path,
        *arguments: str,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        name: str = "",
    ) -> Self:
        """Start it in this folder, where its log goes; returns at once.

        Args:
            program: its name or path.
            arguments: for it.
            folder: its working directory.
            environment: what is set for it, beyond what this process has.
            name: for people; as the program if it is empty.
        """
        command = (str(program), *arguments)
        name = name or Path(program).name
        return await cls._start(name, command, folder, environment or {}, pipes=False)

    @classmethod
    async def _start(
        cls,
        name: str,
        command: tuple[str, ...],
        folder: Path,
        environment: Mapping[str, str],
        *,
        pipes: bool,
    ) -> Self:
        log_file = folder / f"{name}.log"
        pipe = asyncio.subprocess.PIPE
        with log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(find_program("setpriv", "util-linux"), "--pdeathsig", "KILL"),
                *command,
                stdin=pipe if pipes else asyncio.subprocess.DEVNULL,
                stdout=pipe if pipes else log,
                stderr=log,
                cwd=folder,
                env={**os.environ, **environment},
                # A Control-C is for us: we end them, in order.
                start_new_session=True,
                limit=LINE_BYTES_MAX,
            )
        return cls(name, log_file, process)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    @property
    def log(self) -> str:
        """What it has written to its log."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def error(self, problem: str) -> BenchFailed:
        """A problem of it, and the end of its log, in one line."""
        lines = list(filter(None, map(str.strip, self.log.splitlines())))
        last = " | ".join(lines[-_LAST_LINES:])
        return BenchFailed(f"{self.name} {problem}{last and f': {last}'}")

    async def until_listening(self, port: int, *, seconds: float = PATIENCE_S) -> None:
        """Wait until it takes connections on this port.

        Raises:
            BenchFailed: it has ended, or the time is over.
        """
        try:
            async with asyncio.timeout(seconds):
                while True:
                    listens = await _listens(port)
                    # If so, somebody else does.
                    if not self.running:
                        status = self._process.returncode
                        raise self.error(f"ended with status {status}")
                    if listens:
                        return
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise self.error(f"was not ready within {seconds:g} s") from None

    async def end(self) -> None:
        """End it by SIGTERM, or by force when that takes too long; wait for it."""
        self._signal(signal.SIGTERM)
        await self._ended()

    async def kill(self) -> None:
        """End it by SIGKILL, and wait for it. No harm if it has ended."""
        self._signal(signal.SIGKILL)
        await self._ended()

    async def _ended(self) -> None:
        try:
            async with asyncio.timeout(_END_S_MAX):
                await self._process.wait()
        # Also when we are cancelled meanwhile.
        finally:
            if self.running:
                self._signal(signal.SIGKILL)
                await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        # Process.kill() would first look whether it has ended, and so take its status
        # away from the thread of asyncio that waits for it: it would become 255.
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Child(Process):
    """A module of ours that was started, and does what it is told."""

    @classmethod
    async def start(
        cls,
        program: str | Path,
        *arguments: str,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        name: str = "",
    ) -> Self:
        """Start `python -m` in this folder; returns at once.

        Args:
            program: the dotted name of the module.
            arguments: for it.
            folder: its working directory, where its log goes.
            environment: what is set for it, beyond what this process has.
            name: for people; as the module if it is empty.
        """
        command = (sys.executable, "-P", "-m", str(program), *arguments)
        name = name or str(program)
        return await cls._start(name, command, folder, environment or {}, pipes=True)

    async def do(
        self, command: str, *, patience_s: float = PATIENCE_S, **options: object
    ) -> dict[str, Any]:
        """Let it do something; returns what it answers.

        Args:
            command: one of those that it obeys.
            patience_s: how long to wait for the answer; then it has failed.
            options: for the command; JSON.

        Raises:
            BenchFailed: it failed, or has ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        line = b""
        try:
            async with asyncio.timeout(patience_s):
                stdin.write(json.dumps([command, options]).encode() + b"\n")
                await stdin.drain()
                line = await stdout.readline()
        except ConnectionError:
            pass
        except TimeoutError:
            problem = f"did not {command} within {patience_s:g} s"
            raise self.error(problem) from None
        if not line:
            await self._ended()
            raise self.error(f"ended with status {self._process.returncode}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            text = f"{self.name}: {answer['error']}"
            raise BenchFailed(text, unreachable=answer["unreachable"])
        return answer

    async def end(self) -> None:
        """Let it end by closing its stdin, or by force; wait for it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._ended()


def find_program(name: str, package: str) -> str:
    """Return the path of a program.

    Args:
        name: of the program.
        package: the Debian package that has it.

    Raises:
        NotHere: there is none.
    """
    folders = os.pathsep.join((os.environ.get("PATH", os.defpath), *SBIN))
    path = shutil.which(name, path=folders)
    if path is None:
        raise NotHere(f"{name} is not installed (Debian package: {package})")
    return path


def need_modules(*modules: str) -> None:
    """Check that these can be imported, without importing them.

    Raises:
        NotHere: one cannot.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise NotHere(
                f"there is no Python module {module}: pip install 'xmpp-qos[bench]'"
            )


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(ADDRESS, port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
