"""Processes that a command has started, and their ends.

The end of a process is learnt from SIGCHLD, which takes neither a descriptor nor a thread,
so that a process that has begun can always be waited for, whatever is scarce.

As process 1 of a container the command also gets the orphans: processes whose parents have
ended. It reaps them, or each would stay as a zombie.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

__all__ = ["Child", "Children", "is_init"]

#: The process that gets the orphans of a container.
_INIT = 1


def is_init() -> bool:
    """Whether this is process 1 of a container."""
    return os.getpid() == _INIT


class Child:
    """A process that was started here.

    Attributes:
        pid: its number, and that of its group.
        ended: done, with its return code, when it has ended and was reaped.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._process = process

    def kill(self) -> None:
        """Kill it with all processes of its group.

        A process of another user (started by sudo) may not be killed: it goes on.
        """
        # After its end the number may belong to another process.
        if not self.ended.done():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def look(self) -> bool:
        """Whether it has ended; a first yes reaps it."""
        if not self.ended.done():
            code = self._process.poll()
            if code is None:
                return False
            self.ended.set_result(code)
        return True


class Children:
    """The children of the event loop that runs now; there is one object for a loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._children: dict[int, Child] = {}
        self._loop.add_signal_handler(signal.SIGCHLD, self._look)

    @classmethod
    def of_loop(cls) -> Children:
        """The children of this loop; with the first call the reaping begins."""
        global _present
        if _present is None or _present._loop is not asyncio.get_running_loop():
            _present = cls()
        return _present

    def start(
        self,
        command: Sequence[str],
        *,
        stdin: IO[bytes],
        stdout: int,
        stderr: int,
        environment: Mapping[bytes, bytes],
    ) -> Child:
        """Start a process, as the leader of a new group.

        Raises:
            OSError: it cannot be started.
        """
        process = subprocess.Popen(  # noqa: S603 - the user's own command
            command,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=environment,
            # Ctrl-C on our terminal must not reach it, and its own children must be
            # killed with it.
            process_group=0,
        )
        child = self._children[process.pid] = Child(process)
        return child

    def _look(self) -> None:
        """Reap what has ended; one signal may stand for several ends."""
        for pid, child in tuple(self._children.items()):
            if child.look():
                del self._children[pid]
        if is_init():
            self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Reap processes that nobody here has started, and that are ours by adoption."""
        with suppress(ChildProcessError):
            # Left in its state, as it may be a child whose end is not known yet.
            while info := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                child = self._children.pop(info.si_pid, None)
                if child is not None:
                    child.look()
                else:
                    os.waitpid(info.si_pid, 0)


_present: Children | None = None
