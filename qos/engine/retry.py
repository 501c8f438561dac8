"""Repeated attempts: the delay before each, and the time to give up.

`Retry` counts consecutive failures and turns them into delays. `Retry.repeat` is the
whole loop for a request to a service.

This module knows no transport. Time, jitter and pauses are arguments, so that a test
needs only its own clock.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from qos.core.backoff import Backoff
from qos.errors import NoAnswer, RequestFailed

__all__ = ["Retry"]

T = TypeVar("T")


class Retry:
    """Consecutive failures, and the delay before each next attempt.

    Args:
        backoff: the delays.
        jitter: draws a number in [0, 1) for each delay.

    Attributes:
        backoff: as above; may be changed between two failures.
        failures: the number of failures since the last success.
    """

    def __init__(
        self, backoff: Backoff, *, jitter: Callable[[], float] = random.random
    ) -> None:
        self.backoff = backoff
        self.failures = 0
        self._jitter = jitter

    def failed(self) -> float:
        """Count a failure; returns the delay before the next attempt, in seconds."""
        self.failures += 1
        return self.backoff.delay_s(self.failures, self._jitter())

    def succeeded(self) -> None:
        """Start counting again."""
        self.failures = 0

    async def repeat(
        self,
        request: Callable[[], Awaitable[T]],
        *,
        is_temporary: Callable[[RequestFailed], bool] = lambda error: (
            error.is_temporary
        ),
        pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
        attempts_max: float = math.inf,
        give_up_at: float = math.inf,
        now: Callable[[], float] | None = None,
    ) -> T:
        """Make a request until it succeeds; returns its result.

        Args:
            request: makes one attempt.
            is_temporary: whether another attempt may succeed after this error.
            pause: waits for this number of seconds before the next attempt. A
                TimeoutError means that there is no time for another attempt.
            attempts_max: the most attempts.
            give_up_at: no attempt begins at or after this time.
            now: the clock of `give_up_at`; None: that of the event loop.

        Raises:
            RequestFailed: another attempt would not help, or none is left. In the
                second case, an attempt without an answer counts for more than a later
                refusal, because the request may have been done.
        """
        now = now or asyncio.get_running_loop().time
        unanswered: NoAnswer | None = None
        while True:
            try:
                result = await request()
            except RequestFailed as error:
                if not is_temporary(error):
                    raise
                if isinstance(error, NoAnswer):
                    unanswered = error
                delay_s = self.failed()
                last = unanswered or error
                if self.failures >= attempts_max or now() + delay_s >= give_up_at:
                    raise last from None
            else:
                self.succeeded()
                return result
            try:
                await pause(delay_s)
            except TimeoutError:
                raise last from None
