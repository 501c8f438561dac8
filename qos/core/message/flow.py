"""Flow control: the messages in flight to one account, round trips, and bytes on their way.

A `Flow` is the window of messages in flight to one account, and their order. A receiver
counts held messages by the sender's account, so there is one window for each receiving
account. It starts at the number that the strictest receivers accept. A peer of ours
grants a credit with each `received`, and the window opens to it. Without a credit it
doubles with each window delivered. At the first refusal for lack of room it is halved,
and from then on it grows by one per window.

How long an answer takes, and how much may be on its way, is by RFC 6298 and RFC 5681. A
repeat that comes before the first copy can have been answered only fills the link. `Pace`
is what is known of one peer, and `ByteWindow` of the way to our own server.
"""

from __future__ import annotations

import bisect
import math
from typing import Final

from qos.core.message.model import Level, Outgoing, OutgoingState

__all__ = [
    "SMALL_BYTES",
    "WINDOW_BYTES_MAX",
    "WINDOW_FIRST",
    "ByteWindow",
    "Flow",
    "Pace",
]

#: A limit of five held messages is common among foreign receivers.
WINDOW_FIRST = 5

_UNHELD = frozenset({OutgoingState.QUEUED, OutgoingState.OFFERED})

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


class Flow:
    """The messages in flight to one account.

    A message is in flight from its first attempt until it has ended.
    """

    def __init__(self, window_max: int) -> None:
        self._max = float(window_max)
        self._window = min(float(WINDOW_FIRST), self._max)
        self._doubling = True
        # After a refusal the other messages of the same window will probably be refused
        # as well: they must not halve it again.
        self._settling = 0
        self._in_flight: set[str] = set()
        self._ordered: list[int] = []
        # The ordered messages in flight that the peer does not hold yet.
        self._unheld: set[int] = set()

    @property
    def window(self) -> int:
        """How many messages may be in flight."""
        return int(self._window)

    @property
    def in_flight(self) -> int:
        """How many messages are in flight."""
        return len(self._in_flight)

    @property
    def room(self) -> int:
        """How many more may be in flight."""
        return max(0, int(self._window) - len(self._in_flight))

    def admits(self, record: Outgoing) -> bool:
        """Whether a queued message may be offered now.

        Ask about the messages of one flow in order of seq. An ordered message at level
        acknowledged is handed over by its very first step, so it waits for the end of
        all before it. One at level assured waits until the peer holds all before it. If
        it were held first, it could take their room, and then wait for them for ever.
        """
        if self.room == 0:
            return False
        if not record.ordered:
            return True
        before = self._ordered if record.level is Level.ACKNOWLEDGED else self._unheld
        return not before

    def begin(self, record: Outgoing) -> None:
        """Count a message as in flight."""
        self._in_flight.add(record.msg_id)
        if record.ordered:
            bisect.insort(self._ordered, record.seq)
            self.update(record)

    def update(self, record: Outgoing) -> None:
        """Note the new state of a message in flight.

        The peer does not hold one that ends without it, and that may come back: until
        `end`, its end is not on disk.
        """
        if record.ordered and record.state in _UNHELD:
            self._unheld.add(record.seq)
        elif not record.state.ended:
            self._unheld.discard(record.seq)

    def may_release(self, record: Outgoing) -> bool:
        """Whether a message that the peer holds may be released now."""
        return not record.ordered or self._ordered[0] == record.seq

    def end(self, record: Outgoing) -> None:
        """Stop counting a message, however it ended."""
        if record.msg_id not in self._in_flight:
            return
        self._in_flight.remove(record.msg_id)
        if record.ordered:
            self._ordered.remove(record.seq)
            self._unheld.discard(record.seq)

    def delivered(self) -> None:
        """Widen the window: a message has arrived."""
        self._settling = max(0, self._settling - 1)
        step = 1.0 if self._doubling else 1.0 / self._window
        self._window = min(self._max, self._window + step)

    def credited(self, credit: int) -> bool:
        """Open the window to the credit that the peer grants (AMQP 1.0, 2.6.7).

        Returns whether the window is wider now.

        After a refusal a credit is ignored: other senders may share one quota with us,
        such as that of a domain, and all of their credits together are more than it has.
        """
        before = self._window
        if self._doubling and credit > before:
            self._window = min(self._max, float(credit))
        return self._window > before

    def constrained(self) -> None:
        """Narrow the window: the peer has no room (resource-constraint)."""
        if self._settling:
            self._settling -= 1
            return
        self._doubling = False
        self._window = max(1.0, self._window / 2)
        self._settling = max(0, len(self._in_flight) - 1)


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
