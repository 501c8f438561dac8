"""A rate limit on log lines about one source."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["RateLimit"]

#: The number of sources remembered at a time. Sources beyond it share one entry, so a
#: flood of names costs no more memory and no more log lines than a flood from one
#: source.
SOURCES_MAX = 1_000


class RateLimit:
    """One event per source and interval; suppressed events are counted."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        # For each source: the time of its last event, and the number of events
        # suppressed since; in the order of the events. The key None stands for all
        # sources beyond SOURCES_MAX.
        self._sources: OrderedDict[str | None, tuple[float, int]] = OrderedDict()

    def admit(self, source: str, now: float) -> int | None:
        """How many events were suppressed before this one; None: suppress it too."""
        key = source if source in self._sources or self._has_room(now) else None
        since, left_out = self._sources.get(key, (None, 0))
        if since is not None and now - since < self.interval_s:
            self._sources[key] = (since, left_out + 1)
            return None
        self._sources[key] = (now, 0)
        self._sources.move_to_end(key)
        return left_out

    def _has_room(self, now: float) -> bool:
        """Whether one more source fits.

        The oldest makes room when its interval is over.
        """
        if len(self._sources) < SOURCES_MAX:
            return True
        oldest, (since, _) = next(iter(self._sources.items()))
        if now - since < self.interval_s:
            return False
        del self._sources[oldest]
        return True
