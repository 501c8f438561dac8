"""The processes of a benchmark: servers, and children that do what they are told.

    server = await Process.start("mosquitto", "-c", str(config), folder=folder)
    child = await Child.start("qos.bench.mqtt_paho", "sender", folder=folder)
    answer = await child.do("measure", window=64)
    await child.end()

A child is a module that is run with `python -m`; it calls `obey` with what it can do.
Each command and each answer is one line of JSON, on its stdin and its stdout. All of
them die with the process that has started them, even when that is killed.

Knows nothing of what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import random
import shutil
import socket
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Self

from qos.bench.sample import NotHere

__all__ = [
    "ADDRESS",
    "PATIENCE_S",
    "Child",
    "Process",
    "ProcessError",
    "find_program",
    "free_ports",
    "need_modules",
    "obey",
]

ADDRESS = "127.0.0.1"

#: Where Debian has its servers; not in the PATH of everybody.
SBIN = ("/usr/local/sbin", "/usr/sbin")

# Below the kernel's range for outgoing connections, so that no client takes a port
# before the server has it.
_PORTS = range(10_000, 32_768)

_END_S_MAX = 10.0

#: For a machine under load; a measurement takes its own time beyond that.
PATIENCE_S = 60.0

# Of a line. The times of a million messages take some 11 MB.
_LINE_BYTES_MAX = 2**30

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessError(Exception):
    """A process did not start, has ended, or could not do what it was told."""


class Process:
    """A program that was started, such as a server.

    Attributes:
        name: of the program or the module, and of its log.
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
    ) -> Self:
        """Start it in this folder, where its log goes; returns at once.

        Args:
            program: its name or path.
            arguments: for it.
            folder: its working directory.
            environment: what is set for it, beyond what this process has.
        """
        name = Path(program).name
        command = (str(program), *arguments)
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
        log_file = folder / f"{name}-{time.monotonic_ns()}.log"
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
                limit=_LINE_BYTES_MAX,
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
    def cpu_s(self) -> float:
        """The processor time of all its threads; not of its children."""
        # clock_getcpuclockid(3) computes this number of any process's clock. /proc
        # has the same in hundredths of a second only.
        return time.clock_gettime((~self.pid << 3) | 2)

    @property
    def rss_bytes(self) -> int:
        """What it has in memory."""
        pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * _PAGE_BYTES

    @property
    def log(self) -> str:
        """What it has written to its log."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def error(self, problem: str) -> ProcessError:
        """A problem of it, and the end of its log."""
        lines = self.log.splitlines()[-20:]
        return ProcessError("\n".join([f"{self.name}: {problem}", *lines]))

    async def until_listening(self, port: int, *, seconds: float = PATIENCE_S) -> None:
        """Wait until it takes connections on this port.

        Raises:
            ProcessError: it has ended, or the time is over.
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
            raise self.error(f"not ready within {seconds} s") from None

    async def end(self) -> None:
        """End it by SIGTERM, or by force when that takes too long; wait for it."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        await self._ended()

    async def kill(self) -> None:
        """End it by SIGKILL, and wait for it. No harm if it has ended."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._ended()

    async def _ended(self) -> None:
        try:
            async with asyncio.timeout(_END_S_MAX):
                await self._process.wait()
        # Also when we are cancelled meanwhile.
        finally:
            if self.running:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                await self._process.wait()


class Child(Process):
    """A module of ours that was started, and does what it is told: see `obey`."""

    @classmethod
    async def start(
        cls,
        module: str | Path,
        *arguments: str,
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Start `python -m module` in this folder; returns at once.

        Args:
            module: its dotted name.
            arguments: for it.
            folder: its working directory, where its log goes.
            environment: what is set for it, beyond what this process has.
        """
        command = (sys.executable, "-m", str(module), *arguments)
        return await cls._start(
            str(module), command, folder, environment or {}, pipes=True
        )

    async def do(
        self, command: str, *, patience_s: float = PATIENCE_S, **options: object
    ) -> dict[str, Any]:
        """Let it do something; returns what it answers.

        Args:
            command: one of those that it obeys.
            patience_s: how long to wait for the answer; then it has failed.
            options: for the command; JSON.

        Raises:
            ProcessError: it failed, or has ended.
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
            raise self.error(
                f"no answer to {command!r} within {patience_s} s"
            ) from None
        if not line:
            await self._ended()
            status = self._process.returncode
            raise self.error(f"ended with status {status} at {command!r}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self.error(f"{command!r}: {answer['error']}")
        return answer


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


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on, each another one."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.choice(_PORTS)  # noqa: S311 - it keeps no secret
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((ADDRESS, port))
            ports.add(port)
    return list(ports)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(ADDRESS, port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


# -- the side of a child ---------------------------------------------------

#: Takes the options of a command; returns the answer, JSON, or nothing.
Command = Callable[..., Awaitable[Mapping[str, object] | None]]


async def obey(commands: Collection[Command]) -> None:
    """Do what is asked for, one after the other, until the parent wants no more.

    Args:
        commands: what can be done, called by the names of the functions.
    """
    by_name = {command.__name__: command for command in commands}
    # Nobody but us writes to stdout: what a library prints goes to the log.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    with answers:
        while line := await reader.readline():
            name, options = json.loads(line)
            try:
                answer = dict(await by_name[name](**options) or {})
            except Exception as error:  # noqa: BLE001 - the parent raises it
                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {error}"}
            _write(answers.fileno(), json.dumps(answer).encode() + b"\n")


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
