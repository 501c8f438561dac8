"""FIFO lanes: in each lane only the first entry is active; the others wait in order."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["FifoLanes"]

_T = TypeVar("_T", bound=Hashable)


class FifoLanes(Generic[_T]):
    """A set of lanes.

    In each lane the first entry is active; the others wait in order.
    """

    def __init__(self) -> None:
        # A dict serves as an ordered set: a search in a list would take longer with
        # each entry that waits.
        self._lanes: dict[str, dict[_T, None]] = {}

    def enter(self, lane: str, entry: _T) -> bool:
        """Add an entry to the lane; returns whether the entry is now active.

        An entry that is already there keeps its place.
        """
        waiting = self._lanes.setdefault(lane, {})
        waiting.setdefault(entry)
        return next(iter(waiting)) == entry

    def leave(self, lane: str) -> _T | None:
        """Remove the active entry of the lane; returns the entry that is active now."""
        waiting = self._lanes[lane]
        del waiting[next(iter(waiting))]
        if not waiting:
            del self._lanes[lane]
        return next(iter(waiting), None)
