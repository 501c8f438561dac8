"""A rate limit on log lines about one source."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["RateLimit"]

#: Sources remembered at a time. A flood of names costs memory no more than a flood
#: from one, nor more of the log: those for which there is no room are one source.
SOURCES_MAX = 1_000


class RateLimit:
    """One event per source and interval; those left out are counted."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        # Of each source: when there was an event, and how many were left out since.
        # None: all for which there is no room. In the order of the events.
        self._sources: OrderedDict[str | None, tuple[float, int]] = OrderedDict()

    def admit(self, source: str, now: float) -> int | None:
        """None: leave this one out. Else how many were left out before it."""
        known = source if source in self._sources or self._has_room(now) else None
        since, left_out = self._sources.get(known, (None, 0))
        if since is not None and now - since < self.interval_s:
            self._sources[known] = (since, left_out + 1)
            return None
        self._sources[known] = (now, 0)
        self._sources.move_to_end(known)
        return left_out

    def _has_room(self, now: float) -> bool:
        """Whether one more can be remembered; the oldest makes room if it is time."""
        if len(self._sources) < SOURCES_MAX:
            return True
        oldest, (since, _) = next(iter(self._sources.items()))
        if now - since < self.interval_s:
            return False
        del self._sources[oldest]
        return True
