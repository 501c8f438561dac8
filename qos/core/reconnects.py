"""The delays between the sessions with one server.

When a server restarts, all that were connected come back. Each draws its first delay
from the whole range, so that they do not come together; and a server that falls under
the load of their logins is asked less and less often, though each gets a session first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from qos.core.backoff import Backoff

__all__ = ["LASTING_S", "Reconnects"]

#: A session that has lasted so many seconds was a success. After a shorter one the
#: delays go on growing, but no further than this: a device on a link that breaks twice
#: a minute is online half of the time.
LASTING_S: Final = 60.0


class Reconnects:
    """Consecutive failures to stay connected, and the delay after each.

    Args:
        first: the delays before the first session, for which a user is waiting.
        later: the delays after it.
        jitter: draws a number in [0, 1) for each delay.
    """

    def __init__(
        self, first: Backoff, later: Backoff, jitter: Callable[[], float]
    ) -> None:
        self._first, self._later = first, later
        self._jitter = jitter
        self._failures = 0
        self._met = False

    def refused(self) -> float:
        """The delay in seconds after an attempt that brought no session."""
        return self._delay_s(math.inf)

    def lost(self, lasted_s: float) -> float:
        """The delay in seconds after a session that has lasted so many seconds."""
        if not self._met or lasted_s >= LASTING_S:
            self._failures = 0
        self._met = True
        return self._delay_s(LASTING_S)

    def _delay_s(self, longest_s: float) -> float:
        self._failures += 1
        backoff = self._later if self._met else self._first
        return self._jitter() * min(longest_s, backoff.ceiling_s(self._failures))
