"""How many commands a worker can start, and what it lacks for more.

A command that cannot be started says something of this machine, and nothing of the others
that run. So the worker takes only as many items as commands run, and tries one more after
a while: the delays grow, until as many run as were wanted.
"""

from __future__ import annotations

import asyncio
import errno
from typing import Final

from qos.cli.listening import files_max
from qos.cli.output import note
from qos.core.backoff import Backoff
from qos.engine.retry import Retry
from qos.worker import Worker

__all__ = ["Starts", "commands_max"]

#: The delay before the next attempt to start a command.
_RETRY: Final = Backoff(first_s=1.0, max_s=60.0)

#: Descriptors that one command takes while it runs, and that everything else takes.
_FILES_EACH: Final = 2
_FILES_KEPT: Final = 64

_LACKS: Final = {
    errno.EMFILE: "too few files may be open (ulimit -n)",
    errno.ENFILE: "the machine has too many files open",
    errno.EAGAIN: "too few processes may run (ulimit -u, or TasksMax= of systemd)",
    errno.ENOMEM: "there is too little memory",
}


def commands_max(count: int) -> int:
    """How many commands this process may run at a time; says if fewer than wanted."""
    files = files_max(count * _FILES_EACH + _FILES_KEPT)
    most = max(1, min(count, (files - _FILES_KEPT) // _FILES_EACH))
    if most < count:
        note(
            f"warning: this process may have {files} files open (ulimit -n), so only "
            f"{most} commands run at a time, and not {count}"
        )
    return most


class Starts:
    """The commands of a worker that run, and how many may.

    Args:
        worker: takes as many items.
        command: the name of the command, for people.
        parallel: how many are wanted at a time.
    """

    def __init__(self, worker: Worker, command: str, parallel: int) -> None:
        self._worker = worker
        self._command = command
        self._parallel = self._most = parallel
        self._running = 0
        self._retry = Retry(_RETRY)
        self._waiting: asyncio.TimerHandle | None = None

    @property
    def paused(self) -> bool:
        """Whether a command could not be started, and the next attempt is to come."""
        return self._waiting is not None

    def begin(self) -> bool:
        """Count a command that is about to be started; False: there is no room for it."""
        if self._running >= self._most:
            return False
        self._running += 1
        return True

    def end(self) -> None:
        """A command that was begun has ended, or was never started."""
        self._running -= 1

    def started(self) -> None:
        """A command has been started: perhaps another one can be."""
        if self._most < self._parallel and not self.paused:
            self._take(self._most + 1)
        if self._most == self._parallel:
            self._retry.succeeded()

    def failed(self, error: OSError) -> None:
        """The command of an item could not be started, and its item is given back."""
        if self.paused:
            self._take(min(self._most, self._running - 1))
            return
        delay_s = self._retry.failed()
        lack = _LACKS.get(error.errno or 0) or error.strerror or str(error)
        # The one that has failed is counted still.
        self._take(self._running - 1)
        note(
            f"{self._command} cannot be started: {lack}; its item is given back, "
            f"{self._most} run; again in {delay_s:.1f} s"
        )
        loop = asyncio.get_running_loop()
        self._waiting = loop.call_later(delay_s, self._try_again)

    def close(self) -> None:
        """Try no more."""
        if self._waiting is not None:
            self._waiting.cancel()

    def _try_again(self) -> None:
        self._waiting = None
        self._take(min(self._parallel, self._running + 1))

    def _take(self, count: int) -> None:
        self._most = count
        self._worker.take_at_most(count)
