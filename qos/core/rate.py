"""How often a source may be written about in our log."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["RateLimit"]

#: Sources remembered at a time; beyond it the oldest is forgotten, so that a
#: flood of names costs memory no more than a flood from one.
SOURCES_MAX = 1_000


class RateLimit:
    """One event per source and interval; those left out are counted."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._sources: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def admit(self, source: str, now: float) -> int | None:
        """None: leave this one out. Else how many were left out before it."""
        since, left_out = self._sources.get(source, (None, 0))
        if since is not None and now - since < self.interval_s:
            self._sources[source] = (since, left_out + 1)
            return None
        self._sources[source] = (now, 0)
        self._sources.move_to_end(source)
        if len(self._sources) > SOURCES_MAX:
            self._sources.popitem(last=False)
        return left_out
