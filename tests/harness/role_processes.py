"""Senders, queue services, workers and others as processes, to be killed and replaced.

    async with Processes(folder) as processes:
        service = await processes.start(Service(…))
        await service.kill()

They are forks (see `forked`): a fork takes milliseconds, and a test kills dozens of them.
Each reports on its stdout, a JSON array a line.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from command_roles import Shipped
from forked import Forked
from qos.cli.status import CommandError, Status
from qos.errors import CannotConnect
from qos.worker.job import unrecoverable
from queue_roles import Poison
from role import Role, open_log
from rough_machine import RoughMachine

__all__ = ["Processes", "RoleProcess"]

# Enough for a machine under load.
_START_S_MAX = 30.0
_END_S_MAX = 15.0

#: The event with the number of its tasks.
_TELLS_EVERY_S = 1.0


# -- the side of the test --------------------------------------------------


class RoleProcess:
    """A process that was started.

    Attributes:
        pid: its process id.
        tasks: its number of asyncio tasks, by its last report.
        ended: its exit status, or minus the signal that ended it.
    """

    def __init__(self, forked: Forked) -> None:
        self.pid = forked.pid
        self.tasks: int | None = None
        self.ended = asyncio.ensure_future(self._read(forked))
        self._events: dict[str, asyncio.Event] = {}

    async def _read(self, forked: Forked) -> int:
        """Read all its reports; returns its status when it has ended."""
        async for line in forked.stdout:
            event, value = json.loads(line)
            if event == "tasks":
                self.tasks = value
            else:
                self.event(event).set()
        return await forked.wait()

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

    Attributes:
        machine: where they run.
    """

    def __init__(self, folder: Path, *, shown: bool = True) -> None:
        self.machine = RoughMachine(folder)
        self._shown = shown
        self._stderr = folder / "stderr"
        self._all: list[RoleProcess] = []

    @property
    def stderr(self) -> str:
        """The stderr of all of them."""
        return self._stderr.read_text()

    async def start(self, role: Role) -> RoleProcess:
        """Start it; returns at once, see `RoleProcess.until`."""
        process = RoleProcess(
            await Forked.start(_be, role, str(self._stderr), self.machine)
        )
        self._all.append(process)
        return process

    async def __aenter__(self) -> Self:
        self._stderr.touch()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.gather(*(process.kill() for process in self._all))
        if exc is not None and self._shown:
            print(self.stderr[-20_000:], file=sys.stderr)


# -- the side of the processes ---------------------------------------------


def _be(role: Role, stderr: str, machine: RoughMachine) -> NoReturn:
    """Run a child, and never return into the process that it is a fork of."""
    status = int(Status.INTERNAL)
    try:
        # Ctrl-C is for the process that has started this one.
        os.setsid()
        os.dup2(open_log(stderr), sys.stderr.fileno())
        machine.install(role.connect.jid)
        if isinstance(role, Shipped):
            status = role.run(_say)
        else:
            form = f"{role.connect.jid} %(asctime)s %(levelname)s %(name)s %(message)s"
            logging.basicConfig(level=logging.WARNING, format=form)
            logging.getLogger("qos.worker.worker").addFilter(_unexpected)
            asyncio.run(_live(role))
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


async def _live(role: Role) -> None:
    telling = asyncio.create_task(_tell_tasks())
    try:
        await role.live(_say)
    finally:
        telling.cancel()


async def _tell_tasks() -> None:
    while True:
        _write("tasks", len(asyncio.all_tasks()))
        await asyncio.sleep(_TELLS_EVERY_S)


def _unexpected(record: logging.LogRecord) -> bool:
    """Leave out expected errors."""
    return not (record.exc_info and record.exc_info[0] is Poison)


def _say(event: str) -> None:
    _write(event, os.getpid())


def _write(event: str, value: int) -> None:
    os.write(1, json.dumps([event, value]).encode() + b"\n")
