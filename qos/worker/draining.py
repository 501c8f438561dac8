"""Whether a worker has drained: it asked, and there was nothing.

Silence alone says nothing: the connection may be away, or the server stand still. So the
service must have answered in the same session, before and after the time without work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from slixmpp import ClientXMPP, ComponentXMPP

from qos.worker.worker import Worker

__all__ = ["Draining"]


class Draining:
    """Watches a worker; its owner says when there is work.

    Args:
        client: the client of the worker.
        worker: the worker.
        drain_s: how long there must be nothing to do, in seconds.
        is_busy: whether there is something to do now.
    """

    def __init__(
        self,
        client: ClientXMPP | ComponentXMPP,
        worker: Worker,
        drain_s: float,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._worker = worker
        self._drain_s = drain_s
        self._is_busy = is_busy
        self._sessions = 0
        self._loop = asyncio.get_running_loop()
        self._idle_since = self._loop.time()

    def active(self) -> None:
        """There was something to do just now."""
        self._idle_since = self._loop.time()

    async def until_drained(self) -> None:
        """Return when the service has answered, and had nothing for so long."""
        self._client.add_event_handler("session_start", self._session_began)
        try:
            self.active()
            while not await self._is_drained():
                pass
        finally:
            self._client.del_event_handler("session_start", self._session_began)

    def _session_began(self, _event: object) -> None:
        self._sessions += 1

    async def _is_drained(self) -> bool:
        left_s = self._idle_since + self._drain_s - self._loop.time()
        if self._is_busy():
            left_s = self._drain_s
        if left_s > 0:
            await asyncio.sleep(left_s)
            return False
        idle_since, sessions = self._idle_since, self._sessions
        await self._worker.ask()
        if self._is_busy() or self._idle_since != idle_since:
            return False
        if self._sessions != sessions:
            # Items that the old session has lost come again in this one.
            self.active()
            return False
        return True
