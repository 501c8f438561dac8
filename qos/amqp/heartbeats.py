"""The heartbeats of one connection (transport §2.4.5).

Proton sends an empty frame when the peer has to hear from us, and closes the connection
when we have heard nothing of the peer for too long; and the pump sends one for proxies. Both
only have to be called in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from qos.amqp import bounds

__all__ = ["TOLD_RATIO", "Heartbeats"]

#: A peer is told half of proton's idle time-out, so that a late frame ends nothing.
TOLD_RATIO = 2

#: The least seconds between two calls.
_STEP_S = 0.05


class Heartbeats:
    """Calls proton when it is due."""

    def __init__(self, tick: Callable[[float], float]) -> None:
        """Begin without a timer.

        Args:
            tick: gets the time, and returns when to call it again; 0: there is no need.
        """
        self._tick = tick
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None

    def begin(self) -> None:
        """Call in the next turn of the loop, and from then on when it is due.

        Once when the connection begins, and again when the peer has opened it: only
        then it is known how often the peer wants to hear from us.
        """
        self.stop()
        self._timer = self._loop.call_soon(self._due)

    def stop(self) -> None:
        """Call no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        now = self._loop.time()
        at = self._tick(now)
        delay = max(_STEP_S, at - now) if at else bounds.BEAT_S
        self._timer = self._loop.call_later(delay, self._due)
