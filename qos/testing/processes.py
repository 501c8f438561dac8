"""Child processes: programs, and modules of this project that execute commands.

    server = await Process.start("mosquitto", "-c", config, folder=folder)
    await server.until_listening(port)
    child = await Child.start("fleet.lamp", name="lamp", folder=folder)
    answer = await child.do("switch", on=True)
    await child.end()

The module of a child uses `qos.testing.child`. Every process dies with the process that
started it, even if that one is killed. Only processes that were started here are ever
ended here. Linux only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from qos.testing.ports import ADDRESS

__all__ = [
    "LINE_BYTES_MAX",
    "PATIENCE_S",
    "Child",
    "Completed",
    "NotInstalled",
    "Process",
    "ProcessFailed",
    "completed",
    "find_program",
]

#: The folders where Debian has its servers; not in every user's PATH.
SBIN = ("/usr/local/sbin", "/usr/sbin")

#: The options of setpriv: the program dies with the process that has started it.
_MORTAL = ("--pdeathsig", "KILL")

_END_S_MAX = 10.0

#: Long enough for a machine under load, in seconds. Work that takes long has its own
#: time in addition.
PATIENCE_S = 60.0

#: The size of a line. The times of a million messages of a benchmark take about 22 MB.
LINE_BYTES_MAX = 2**30

#: The number of lines of a log in an error.
_LAST_LINES = 3


class ProcessFailed(Exception):
    """A process has failed to do its work; the text gives the reason, in one line.

    Attributes:
        unreachable: the process has no session with a server, or has lost it.
    """

    def __init__(self, text: str, *, unreachable: bool = False) -> None:
        super().__init__(text)
        self.unreachable = unreachable


class NotInstalled(Exception):
    """A program or library is not installed; the text names it, in one line."""


class Process:
    """A program that was started, such as a server.

    Attributes:
        name: for people, and the name of its log.
        log_file: the file with its stderr, and with its stdout unless that is a pipe.
    """

    #: Whether its stdin and stdout are pipes to this process.
    _has_pipes = False

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
        *arguments: str | Path,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        name: str = "",
    ) -> Self:
        """Start a program; returns at once.

        Args:
            program: its name or path; for a `Child`, the dotted name of a module.
            arguments: for the program.
            folder: its working directory, and the place of its log.
            environment: variables in addition to those of this process.
            name: for people; the name of the program if it is empty.

        Raises:
            NotInstalled: `setpriv` is missing, which makes the program die with this
                process. A `Child` can do without it.
        """
        command = cls._command(str(program), *map(str, arguments))
        name = name or Path(program).name
        log_file = folder / f"{name}.log"
        pipe = asyncio.subprocess.PIPE
        with log_file.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=pipe if cls._has_pipes else asyncio.subprocess.DEVNULL,
                stdout=pipe if cls._has_pipes else log,
                stderr=log,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                # A Control-C is for this process, which ends its children in order.
                start_new_session=True,
                limit=LINE_BYTES_MAX,
            )
        return cls(name, log_file, process)

    @staticmethod
    def _command(program: str, *arguments: str) -> tuple[str, ...]:
        """The command line that starts the program."""
        setpriv = find_program("setpriv", "util-linux")
        return (setpriv, *_MORTAL, program, *arguments)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.status is None

    @property
    def status(self) -> int | None:
        """The exit status, or minus the signal that ended it; None: still running."""
        return self._process.returncode

    @property
    def log(self) -> str:
        """The contents of its log."""
        return self.log_file.read_text(encoding="utf-8", errors="replace")

    def error(self, problem: str) -> ProcessFailed:
        """An error with this problem and the end of the log, in one line."""
        lines = list(filter(None, map(str.strip, self.log.splitlines())))
        last = " | ".join(lines[-_LAST_LINES:])
        return ProcessFailed(f"{self.name} {problem}{last and f': {last}'}")

    async def until_listening(self, port: int, *, seconds: float = PATIENCE_S) -> None:
        """Wait until the process takes connections on this port.

        Raises:
            ProcessFailed: it has ended, or the time is over.
        """
        try:
            async with asyncio.timeout(seconds):
                while True:
                    listens = await _listens(port)
                    # If this process has ended, another one listens.
                    if not self.running:
                        raise self.error(f"ended with status {self.status}")
                    if listens:
                        return
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise self.error(f"was not ready within {seconds:g} s") from None

    async def wait(self) -> int:
        """Wait until the process has ended; returns its status."""
        return await self._process.wait()

    async def end(self, *, seconds: float = _END_S_MAX) -> None:
        """End it by SIGTERM, or by SIGKILL if that takes too long; wait for the end."""
        self.send_signal(signal.SIGTERM)
        await self._ended(seconds)

    async def kill(self) -> None:
        """End it by SIGKILL, and wait for the end. Harmless if it has ended."""
        self.send_signal(signal.SIGKILL)
        await self._ended(_END_S_MAX)

    async def _ended(self, seconds: float) -> None:
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.wait()
        # Also if we are cancelled meanwhile.
        finally:
            if self.running:
                self.send_signal(signal.SIGKILL)
                await self.wait()

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal. Harmless if it has ended."""
        # Process.kill() would first check whether the process has ended, and so take
        # its status away from the thread of asyncio that waits for it: the status would
        # become 255.
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Child(Process):
    """A module of this project, started by `python -m`, which executes commands."""

    _has_pipes = True

    @staticmethod
    def _command(program: str, *arguments: str) -> tuple[str, ...]:
        """The command line that starts the module."""
        return (*Child.mortal(), sys.executable, "-P", "-m", program, *arguments)

    @staticmethod
    def mortal() -> tuple[str, ...]:
        """The beginning of the command line of a child that dies with this process.

        Without setpriv it ends as soon as it reads the end of its stdin.
        """
        setpriv = _path_of("setpriv")
        return () if setpriv is None else (setpriv, *_MORTAL)

    def tell(self, message: object) -> None:
        """Write a message, which is JSON, to the child's stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def messages(self) -> AsyncIterator[Any]:
        """The JSON messages that the child writes to its stdout, until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield json.loads(line)

    async def do(
        self, command: str, *, patience_s: float = PATIENCE_S, **options: object
    ) -> dict[str, Any]:
        """Execute a command in the child; returns its answer.

        Args:
            command: the name of a function; see `qos.testing.child.run_commands`.
            patience_s: how long to wait for the answer, in seconds; then the command
                has failed.
            options: for the command; JSON.

        Raises:
            ProcessFailed: it failed, or has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = b""
        try:
            async with asyncio.timeout(patience_s):
                self.tell([command, options])
                await self._process.stdin.drain()
                line = await self._process.stdout.readline()
        except ConnectionError:
            pass
        except TimeoutError:
            problem = f"did not {command} within {patience_s:g} s"
            raise self.error(problem) from None
        if not line:
            await self._ended(_END_S_MAX)
            raise self.error(f"ended with status {self.status}")
        reply = json.loads(line)
        if "failed" in reply:
            text = f"{self.name}: {reply['failed']}"
            raise ProcessFailed(text, unreachable=reply["unreachable"])
        return dict(reply["done"])

    async def end(self, *, seconds: float = _END_S_MAX) -> None:
        """End the child by closing its stdin, or else by force; wait for the end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._ended(seconds)


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that has ended.

    Attributes:
        status: its exit status, or minus the signal that ended it.
        out: what it wrote to stdout.
        err: what it wrote to stderr.
    """

    status: int
    out: str
    err: str


async def completed(
    program: str | Path, *arguments: str | Path, seconds: float = PATIENCE_S
) -> Completed:
    """Run a program without any input, until it ends.

    Args:
        program: its name or path.
        arguments: for the program.
        seconds: how long it may take.

    Raises:
        NotInstalled: there is no `setpriv`; see `Process.start`.
        TimeoutError: it took longer, and was killed.
    """
    process = await asyncio.create_subprocess_exec(
        *(find_program("setpriv", "util-linux"), *_MORTAL),
        *(program, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Completed(
        process.returncode,
        out.decode(errors="replace"),
        err.decode(errors="replace"),
    )


def find_program(name: str, package: str) -> str:
    """Return the path of a program.

    Args:
        name: the name of the program.
        package: the Debian package that contains it.

    Raises:
        NotInstalled: the program is not installed.
    """
    path = _path_of(name)
    if path is None:
        raise NotInstalled(f"{name} is not installed (Debian package: {package})")
    return path


def _path_of(name: str) -> str | None:
    folders = os.pathsep.join((os.environ.get("PATH", os.defpath), *SBIN))
    return shutil.which(name, path=folders)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(ADDRESS, port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
