"""Senders, queue services, workers and others as processes, to be killed and replaced.

    async with Processes(folder) as processes:
        service = await processes.start(Service(…)) await service.kill()

They are forks of one process that has everything imported. A fork takes milliseconds, a
new interpreter a second of a busy machine, and a test kills dozens of them. All of them
die with the test run, even when that is killed.

As a program this file is that one process. It reads the roles to start from its stdin,
a JSON array a line. It and its children report on its stdout, a line each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import traceback
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import ClassVar, NoReturn, Self

from command_roles import Shipped
from hostile_roles import Greedy, Squatter
from message_roles import End
from parents import die_with_parent
from qos.cli.status import CommandError, Status
from qos.errors import CannotConnect
from qos.worker.job import unrecoverable
from queue_roles import Hand, Poison, Press, Service
from role import Connect, Role
from store_roles import Intruder

__all__ = ["Process", "Processes"]

# Enough for a machine under load.
_START_S_MAX = 30.0
_END_S_MAX = 15.0

#: The event with the number of its tasks.
_TELLS_EVERY_S = 1.0


# -- the side of the test --------------------------------------------------


class Process:
    """A process that was started.

    Attributes:
        pid: its process id.
        tasks: its number of asyncio tasks, by its last report.
        ended: its exit status, or minus the signal that ended it.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.tasks: int | None = None
        self.ended: asyncio.Future[int] = loop.create_future()
        self._events: dict[str, asyncio.Event] = {}

    async def until(self, event: str) -> None:
        """Wait until it reports `ready` or `armed`.

        Raises:
            ChildProcessError: it has ended before.
        """
        waiting = asyncio.ensure_future(self.event(event).wait())
        try:
            async with asyncio.timeout(_START_S_MAX):
                await asyncio.wait(
                    (waiting, self.ended), return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            waiting.cancel()
        if not self.event(event).is_set():
            raise ChildProcessError(f"not {event}, but ended: {self.ended.result()}")

    def event(self, name: str) -> asyncio.Event:
        """An event that is set by this report."""
        return self._events.setdefault(name, asyncio.Event())

    async def arm(self, at: signal.Signals) -> None:
        """Let a service die before or after its next commit (BEFORE_COMMIT,
        AFTER_COMMIT).
        """
        os.kill(self.pid, at)
        await self.until("armed")

    async def kill(self) -> None:
        """Kill it by SIGKILL, unless it has ended, and wait for its end."""
        if not self.ended.done():
            os.kill(self.pid, signal.SIGKILL)
        await self.wait()

    async def end(self) -> None:
        """Let a service or a worker end normally."""
        os.kill(self.pid, signal.SIGTERM)
        assert await self.wait() == 0

    async def wait(self) -> int:
        """Wait for its end; returns the status."""
        async with asyncio.timeout(_END_S_MAX):
            return await asyncio.shield(self.ended)


class Processes:
    """Starts roles as processes, which end with this context.

    Args:
        folder: for their stderr, in a file `stderr`.
        shown: whether that is printed when the context ends in an error.
    """

    def __init__(self, folder: Path, *, shown: bool = True) -> None:
        self._shown = shown
        self._stderr = folder / "stderr"
        self._all: list[Process] = []
        self._parent: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def stderr(self) -> str:
        """The stderr of all of them."""
        return self._stderr.read_text()

    async def start(self, role: Role) -> Process:
        """Start it; returns at once, see `Process.until`."""
        assert self._parent is not None
        assert self._parent.stdin is not None
        process = Process()
        self._all.append(process)
        order = [len(self._all) - 1, type(role).__name__, asdict(role)]
        self._parent.stdin.write(json.dumps(order).encode() + b"\n")
        await process.until("started")
        return process

    async def __aenter__(self) -> Self:
        # Killed processes cannot save coverage data, and measuring would slow all of
        # them down.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("COVERAGE_")
        }
        with self._stderr.open("ab") as stderr:
            self._parent = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL"),
                *(sys.executable, "-P", "-m", "role_processes"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=environment,
                # Ctrl-C is for this process, which then ends the others.
                start_new_session=True,
            )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._parent is not None
        assert self._reading is not None
        # Its children die with it.
        with contextlib.suppress(ProcessLookupError):
            self._parent.kill()
        await self._parent.wait()
        await self._reading
        if exc is not None and self._shown:
            print(self.stderr[-20_000:], file=sys.stderr)

    async def _read(self) -> None:
        assert self._parent is not None
        assert self._parent.stdout is not None
        async for line in self._parent.stdout:
            key, event, value = json.loads(line)
            process = self._all[key]
            if event == "tasks":
                process.tasks = value
            elif event == "started":
                process.pid = value
            elif event == "ended":
                process.ended.set_result(value)
            process.event(event).set()


# -- the side of the processes ---------------------------------------------


class _Nursery:
    """Forks processes, and reports their ends."""

    roles: ClassVar[dict[str, type[Role]]] = {
        role.__name__: role
        for role in (
            *(Service, Hand, Press, End, Intruder),
            *(Shipped, Greedy, Squatter),
        )
    }

    def __init__(self) -> None:
        self._keys: dict[int, int] = {}

    def run(self) -> None:
        """Follow the orders on stdin, to its end."""
        signal.signal(signal.SIGCHLD, self._reap)
        for line in sys.stdin:
            key, name, options = json.loads(line)
            connect = Connect(**options.pop("connect"))
            role = self.roles[name](connect=connect, **options)
            # The end of a child must not be reported before the child is known.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            pid = os.fork()
            if pid == 0:
                _run(key, role)
            self._keys[pid] = key
            _write(key, "started", pid)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def _reap(self, _number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                _write(self._keys.pop(pid), "ended", os.waitstatus_to_exitcode(status))


def _run(key: int, role: Role) -> NoReturn:
    """Run a child."""
    status = int(Status.INTERNAL)
    try:
        die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        if isinstance(role, Shipped):
            status = role.run(partial(_say, key))
        else:
            form = f"{role.connect.jid} %(asctime)s %(levelname)s %(name)s %(message)s"
            logging.basicConfig(level=logging.WARNING, format=form)
            logging.getLogger("qos.worker.worker").addFilter(_unexpected)
            asyncio.run(_live(key, role))
            status = 0
    except CommandError as error:
        print(error, file=sys.stderr)
        status = error.status
    except CannotConnect as error:
        print(error, file=sys.stderr)
        status = Status.UNREACHABLE
    except BaseException as error:  # noqa: BLE001 - whatever it is, it must not fork on
        if unrecoverable(error):
            print(error, file=sys.stderr)
            status = Status.STORE
        else:
            traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


async def _live(key: int, role: Role) -> None:
    telling = asyncio.create_task(_tell_tasks(key))
    try:
        await role.live(partial(_say, key))
    finally:
        telling.cancel()


async def _tell_tasks(key: int) -> None:
    while True:
        _write(key, "tasks", len(asyncio.all_tasks()))
        await asyncio.sleep(_TELLS_EVERY_S)


def _unexpected(record: logging.LogRecord) -> bool:
    """Leave out expected errors."""
    return not (record.exc_info and record.exc_info[0] is Poison)


def _say(key: int, event: str) -> None:
    _write(key, event, os.getpid())


def _write(key: int, event: str, value: int) -> None:
    # One write for a line: all of them share this pipe.
    os.write(1, json.dumps([key, event, value]).encode() + b"\n")


if __name__ == "__main__":
    _Nursery().run()
