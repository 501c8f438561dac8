"""The time of a queue service: a clock that stands still while nothing can be answered.

A commit may take long on a slow disk, and until the queues have been read again after a
failed one, every request is refused. In both cases a worker that extends its lock in time
gets no answer. That time is not the worker's: of each such period only the first seconds
count.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from qos.engine.clock import GAIN, Clock, Handle

__all__ = ["ServiceClock"]

#: Seconds that count of a period in which nothing can be answered.
_UNANSWERED_S: Final = 2.0

#: The least seconds until a timer within such a period: its time may not come before the
#: end, and it would fire without end. And those until a timer while the clock gains, when
#: rounding may let it fire too early.
_TIMER_S: Final = 1.0
_ROUNDED_S: Final = 0.001


class ServiceClock:
    """A clock that its service can pause; see Clock.

    What it has lost it gains again, slowly.
    """

    def __init__(self, clock: Clock) -> None:
        """Begin with the time of this clock."""
        self._clock = clock
        self._seen = self._now = clock.now()
        self._lost_s = 0.0
        #: The seconds that still count; infinite while the service answers.
        self._left_s = math.inf

    def now(self) -> float:
        """See Clock."""
        seen = self._clock.now()
        if self._lost_s or self._left_s < math.inf:
            self._count(seen - self._seen)
        self._seen = seen
        # Rounding must not set it back.
        self._now = max(self._now, seen - self._lost_s)
        return self._now

    def _count(self, passed_s: float) -> None:
        if self._left_s == math.inf:
            self._lost_s -= min(self._lost_s, passed_s * GAIN)
        else:
            counted_s = min(passed_s, self._left_s)
            self._left_s -= counted_s
            self._lost_s += passed_s - counted_s

    def call_at(self, when: float, callback: Callable[[], object]) -> Handle:
        """See Clock; the call may come too early, if the clock is paused meanwhile."""
        if not self._lost_s and self._left_s == math.inf:
            return self._clock.call_at(when, callback)
        delay_s = when - self.now()
        if self._left_s < math.inf:
            delay_s = max(delay_s, _TIMER_S)
        else:
            delay_s = max(delay_s / (1 + GAIN), _ROUNDED_S)
        return self._clock.call_at(self._seen + delay_s, callback)

    def pause(self) -> None:
        """Note that nothing can be answered from now on; harmless when it is so."""
        if self._left_s == math.inf:
            self.now()
            self._left_s = _UNANSWERED_S

    def go_on(self) -> None:
        """Note that requests are answered again."""
        if self._left_s < math.inf:
            self.now()
            self._left_s = math.inf
