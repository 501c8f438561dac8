"""A role whose client library blocks: it works in a thread, on one connection after another.

Whenever a connection is lost, or does not answer, there is a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from role import Role, Say

__all__ = ["BlockingRole", "Work"]

_AGAIN_S = 0.1

#: The work on a connection of the library; it returns whether the role may end.
Work = Callable[[Any], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockingRole(Role):
    """Works on one connection after the other, until SIGTERM.

    Attributes:
        node: the queue.
        errors: what calls of the library raise when a connection is lost.
        may_leave: whether it has nothing to finish: a worker, and no publisher.
    """

    errors: ClassVar[tuple[type[Exception], ...]]
    may_leave: ClassVar[bool]

    node: str

    async def live(self, say: Say) -> None:
        """See Role."""
        stop = threading.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        say("ready")
        await asyncio.to_thread(self._until_done, self.begin(stop), stop)

    def begin(self, stop: threading.Event) -> Work:
        """The work of one life."""
        raise NotImplementedError

    def open(self) -> Any:
        """A new connection, or a client that makes one; `close()` ends it."""
        raise NotImplementedError

    def _until_done(self, work: Work, stop: threading.Event) -> None:
        done = False
        while not done:
            connection = None
            try:
                connection = self.open()
                done = work(connection)
            except self.errors:
                time.sleep(_AGAIN_S)
                done = stop.is_set() and self.may_leave
            finally:
                if connection is not None:
                    with contextlib.suppress(*self.errors):
                        connection.close()
