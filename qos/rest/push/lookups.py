"""Looking up the names of push targets, in threads that accounts share.

The operating system waits for a name that is not answered for half a minute, and nothing
can stop it. So an account has half of the threads that the others have left, and the rest
of its names wait. That wait is ours: no attempt fails by it.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

from qos.core.counting import uncount
from qos.core.queue.shares import has_room
from qos.rest import bounds

__all__ = ["Found", "Lookups"]

#: One of what socket.getaddrinfo returns.
Found: TypeAlias = "tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]"


class Lookups:
    """The threads, and who waits for one."""

    def __init__(self) -> None:
        """Begin without a look-up."""
        # Not asyncio's own: names that are not answered would hold up all else there.
        self._threads = ThreadPoolExecutor(
            bounds.PUSH_LOOKUPS_MAX, thread_name_prefix="qos-push-dns"
        )
        self._running: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    async def find(
        self,
        account: str,
        look: Callable[[], Sequence[Found]],
        begins: Callable[[], None],
    ) -> Sequence[Found]:
        """Look up a name.

        Args:
            account: whose target it is.
            look: asks the operating system, in a thread.
            begins: is called when a thread is free.

        Raises:
            OSError: the name is not known.
        """
        loop = asyncio.get_running_loop()
        if not self._may_begin(account):
            turn = loop.create_future()
            self._waiting.append((account, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._ended(account)
                raise
        else:
            self._running[account] += 1
        begins()
        work = self._threads.submit(look)

        def done(_work: Future[Sequence[Found]]) -> None:
            # When the thread is free, even if nobody waits for the name any more.
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._ended, account)

        work.add_done_callback(done)
        return await asyncio.wrap_future(work)

    def _may_begin(self, account: str) -> bool:
        own, total = self._running[account], self._running.total()
        return has_room(own, total, bounds.PUSH_LOOKUPS_MAX)

    def _ended(self, account: str) -> None:
        """Let those begin who have room now, whoever has waited longest first."""
        uncount(self._running, account)
        waiting, self._waiting = self._waiting, deque()
        for waits, turn in waiting:
            if turn.done():
                continue
            if self._may_begin(waits):
                self._running[waits] += 1
                turn.set_result(None)
            else:
                self._waiting.append((waits, turn))

    def close(self) -> None:
        """Begin no more look-ups."""
        self._threads.shutdown(wait=False, cancel_futures=True)
