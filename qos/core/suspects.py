"""The order of the stanzas that may have ended a stream: last, alone, the smallest first.

What one of them ends is then only itself. As soon as the smallest that ends a stream is
known, all that are larger are known as well.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from operator import itemgetter
from typing import Final, Generic, TypeVar

__all__ = ["PATIENCE_S", "Suspects"]

T = TypeVar("T")

#: The others go first for so many seconds: until then they have been answered, unless
#: their peers are away, or there is no end of them.
PATIENCE_S: Final = 10.0

_size = itemgetter(0)


class Suspects(Generic[T]):
    """The suspects of one session, from when they are to be sent until they have been read.

    Attributes:
        held: those that wait: the size and the suspect, the smallest first.
        alone: whether the others wait: a suspect is on its way, or it is its turn.
    """

    def __init__(self) -> None:
        self.held: list[tuple[int, T]] = []
        self.alone = False
        self._since = 0.0
        #: Of the suspect that is on its way.
        self._size: int | None = None

    def add(self, size: int, suspect: T, now: float) -> None:
        """Hold a suspect."""
        if not self.held:
            self._since = now
        insort(self.held, (size, suspect), key=_size)

    def next(self, now: float, *, unread: bool, other_work: bool) -> T | None:
        """The suspect to send now, if it is the turn of one.

        Args:
            now: the time.
            unread: whether something is on its way to the server that it may not have
                read.
            other_work: whether something that is no suspect is to be sent or answered.
        """
        if not self.held or self._size is not None:
            return None
        if other_work and now - self._since < PATIENCE_S:
            return None
        self.alone = True
        if unread:
            return None
        self._size, suspect = self.held.pop(0)
        return suspect

    def read(self, now: float) -> int:
        """Note that the server has read the one on its way; returns its size."""
        assert self._size is not None
        size, self._size = self._size, None
        self.alone, self._since = False, now
        return size

    def cleared(self, suspects: Callable[[int], bool]) -> list[T]:
        """Take out those whose size is not suspected any more."""
        cleared = [suspect for size, suspect in self.held if not suspects(size)]
        if cleared:
            self.held = [entry for entry in self.held if suspects(entry[0])]
            if not self.held and self._size is None:
                self.alone = False
        return cleared

    def started(self) -> None:
        """Take the start of a new session: nothing waits."""
        self.held, self.alone, self._size = [], False, None
