"""FIFO lanes: in a lane only the first entry is active, the others wait in order."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["FifoLanes"]

_T = TypeVar("_T", bound=Hashable)


class FifoLanes(Generic[_T]):
    """In each lane the first goes on, and the others wait in the order they came."""

    def __init__(self) -> None:
        # In the order in which they came; not a list, or the more wait the longer each
        # that comes would be looked for.
        self._lanes: dict[str, dict[_T, None]] = {}

    def enter(self, lane: str, one: _T) -> bool:
        """Whether this one goes on now; it does if it is the first already."""
        waiting = self._lanes.setdefault(lane, {})
        waiting.setdefault(one)
        return next(iter(waiting)) == one

    def leave(self, lane: str) -> _T | None:
        """The first of the lane has ended; returns the one that goes on now."""
        waiting = self._lanes[lane]
        del waiting[next(iter(waiting))]
        if not waiting:
            del self._lanes[lane]
        return next(iter(waiting), None)
