"""The times of a stop: when running jobs must have ended, and when everything must.

The grace time is all that a stop takes. The last part of it is for giving back what has
not ended. No single request may use up the rest.
"""

from __future__ import annotations

import asyncio
from typing import Final

__all__ = ["STOP_S", "StopTimes"]

#: Seconds that one answer is waited for; also all that a stop takes which does not wait
#: for running jobs.
STOP_S: Final = 5.0

#: The shortest stop, in seconds: a healthy service answers in this time.
_STOP_S_MIN: Final = 1.0

#: The shortest time for an answer, in seconds; an event loop needs it to end its tasks.
_ANSWER_S_MIN: Final = 0.05

#: Seconds at the end of the grace time for giving jobs back: at most, and as a part of it.
_GIVE_BACK_S: Final = 1.0
_GIVE_BACK_PART: Final = 0.25


class StopTimes:
    """The times of one stop, by the clock of the event loop.

    Args:
        grace_s: all that the stop may take, in seconds.

    Attributes:
        hurry: set when running jobs are not waited for.
    """

    def __init__(self, grace_s: float) -> None:
        self.hurry = asyncio.Event()
        self._grace_s = grace_s
        self._jobs_end_at = self._ends_at = float("inf")

    def begin(self) -> None:
        """Begin to count; the stop has begun."""
        if self.hurry.is_set():
            self._ends_at = _now() + STOP_S
            return
        reserve_s = min(_GIVE_BACK_S, self._grace_s * _GIVE_BACK_PART)
        self._jobs_end_at = _now() + self._grace_s - reserve_s
        self._ends_at = _now() + max(self._grace_s, _STOP_S_MIN)

    def hasten(self) -> None:
        """Wait for running jobs no more."""
        if not self.hurry.is_set():
            self.hurry.set()
            self._ends_at = min(self._ends_at, _now() + STOP_S)

    def answer_s(self) -> float:
        """How long to wait for an answer that others follow.

        Until running jobs must end, or half of what is left.
        """
        half_s = self.last_answer_s() / 2
        if self.hurry.is_set():
            return half_s
        return min(STOP_S, max(half_s, self.grace_s()))

    def last_answer_s(self) -> float:
        """How long to wait for the last answers."""
        return max(_ANSWER_S_MIN, min(STOP_S, self._ends_at - _now()))

    def grace_s(self) -> float:
        """How long running jobs still have."""
        return max(0.0, self._jobs_end_at - _now())


def _now() -> float:
    return asyncio.get_running_loop().time()
