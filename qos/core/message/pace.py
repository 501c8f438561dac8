"""How long an answer takes, and how much may be on its way (RFC 6298, RFC 5681).

A repeat that comes before the first copy can have been answered only fills the link.
`Pace` is what is known of one peer, and `ByteWindow` of the way to our own server.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = ["SMALL_BYTES", "WINDOW_BYTES_MAX", "ByteWindow", "Pace"]

#: The weights of a new round trip in the mean and in the deviation, and the number of
#: deviations to wait: RFC 6298 §2.
_MEAN, _DEVIATION, _DEVIATIONS = 1 / 8, 1 / 4, 4.0

_DOUBLINGS_MAX: Final = 32

#: Bytes per second that are assumed of a link until it has carried more: some servers
#: give a client no more than 3 kB/s.
_SLOWEST: Final = 2_500.0

#: So many bytes to a peer are given no more time than one small message. And the repeat
#: of a message that is not larger says nothing about the rate of the link.
SMALL_BYTES: Final = 16 * 1024

#: Of a repeat, the known rate halves, but not below this.
_SLOWEST_SEEN: Final = 1_000.0

#: The bytes on their way at first, at least and at most.
_FIRST, _LEAST, WINDOW_BYTES_MAX = 64 * 1024, 16 * 1024, 1024 * 1024

#: A byte should reach the server within so many seconds beyond the time of an idle link:
#: whatever is written next waits for it.
_LATE_S: Final = 2.0


class Pace:
    """The round trips to one peer, from messages that were sent once (Karn).

    Args:
        first_s: the shortest time to wait for an answer, in seconds.
        max_s: the longest.
    """

    __slots__ = ("_deviation_s", "_first_s", "_max_s", "_mean_s", "_rate")

    def __init__(self, first_s: float, max_s: float) -> None:
        self._first_s, self._max_s = first_s, max_s
        self._mean_s = self._deviation_s = 0.0
        self._rate = _SLOWEST

    def answered(self, took_s: float, size: int) -> None:
        """Take the round trip of a message; `size`: with all that was ahead of it."""
        if not self._mean_s:
            self._mean_s, self._deviation_s = took_s, took_s / 2
        else:
            off = abs(self._mean_s - took_s)
            self._deviation_s += _DEVIATION * (off - self._deviation_s)
            self._mean_s += _MEAN * (took_s - self._mean_s)
        if took_s > 0:
            self._rate = max(self._rate, size / took_s)

    def repeated(self) -> None:
        """Note the repeat of a large message: the link may have become slower."""
        self._rate = max(_SLOWEST_SEEN, self._rate / 2)

    def patience_s(self, tries: int, ahead: int) -> float:
        """The time to wait for an answer, in seconds.

        Args:
            tries: how often the message was sent without progress.
            ahead: the bytes to this peer up to the message that were not answered.
        """
        usual_s = self._mean_s + _DEVIATIONS * self._deviation_s
        if usual_s > self._first_s:
            usual_s *= 2.0 ** max(0, min(tries - 1, _DOUBLINGS_MAX))
        else:
            # The delays between attempts grow by themselves, and spread.
            usual_s = self._first_s
        return min(self._max_s, usual_s) + max(0, ahead - SMALL_BYTES) / self._rate


class ByteWindow:
    """The bytes on their way to our server: written, and not known to be read.

    One message may be larger than the window: it goes alone.

    Attributes:
        used: the bytes on their way; the caller adds to it what it writes.
        limit: how many there should be.
    """

    def __init__(self) -> None:
        self.used = 0
        self.limit = _FIRST
        self._idle_s = math.inf

    def admits(self, size: int) -> bool:
        """Whether so many bytes more may be written now."""
        return self.used == 0 or self.used + size <= self.limit

    def read(self, size: int) -> None:
        """Note that the server has read so many of them: there may be more."""
        self.used -= size
        self.limit = min(WINDOW_BYTES_MAX, self.limit + size)

    def answered(self, took_s: float) -> None:
        """Take the time until a peer answered: on an idle link it is no longer."""
        self._idle_s = min(self._idle_s, took_s)

    def asked(self, took_s: float) -> None:
        """Take the time until the server answered a ping behind all that was written."""
        self.answered(took_s)
        if took_s - self._idle_s > _LATE_S:
            self.limit = max(_LEAST, self.limit // 2)

    def lost(self) -> None:
        """Begin again over a new connection."""
        self.used, self._idle_s = 0, math.inf
