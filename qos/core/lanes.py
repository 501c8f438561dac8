"""Whose turn it is, where things go on one after another in lanes."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

__all__ = ["Lanes"]

_T = TypeVar("_T")


class Lanes(Generic[_T]):
    """In each lane the first goes on, and the others wait in the order they came."""

    def __init__(self) -> None:
        self._lanes: dict[str, deque[_T]] = {}

    def enter(self, lane: str, one: _T) -> bool:
        """Whether this one goes on now; it does if it is the first already."""
        waiting = self._lanes.setdefault(lane, deque())
        if one not in waiting:
            waiting.append(one)
        return waiting[0] == one

    def leave(self, lane: str) -> _T | None:
        """The first of the lane has ended; returns the one that goes on now."""
        waiting = self._lanes[lane]
        waiting.popleft()
        if waiting:
            return waiting[0]
        del self._lanes[lane]
        return None
