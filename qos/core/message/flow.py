"""A flow: the window of messages in flight to one account, and their order.

The receiver counts what it holds by the sender's account, so the window is per
account that is sent to. It starts at what the strictest receivers take, and opens to the room
that a receiver of ours says it has. Otherwise it doubles with each window delivered until
the first refusal for want of room, halves there, and grows by one per window from then on.
"""

from __future__ import annotations

import bisect

from qos.core.message.model import Level, Outgoing, OutgoingState

__all__ = ["WINDOW_FIRST", "Flow"]

#: A limit of five held messages is common among receivers that are not ours.
WINDOW_FIRST = 5

_UNHELD = frozenset({OutgoingState.QUEUED, OutgoingState.OFFERED})


class Flow:
    """The messages under way to one account.

    A message is under way from its first attempt until it has ended.
    """

    def __init__(self, window_max: int) -> None:
        self._max = float(window_max)
        self._window = min(float(WINDOW_FIRST), self._max)
        self._doubling = True
        # After a refusal the other messages of the same window are likely to be
        # refused as well: they do not halve it again.
        self._settling = 0
        self._in_flight: set[str] = set()
        self._ordered: list[int] = []
        # Those of them that the peer does not hold yet.
        self._unheld: set[int] = set()

    @property
    def window(self) -> int:
        """How many messages may be under way."""
        return int(self._window)

    @property
    def in_flight(self) -> int:
        """How many messages are."""
        return len(self._in_flight)

    @property
    def room(self) -> int:
        """How many more may be."""
        return max(0, self.window - len(self._in_flight))

    def admits(self, record: Outgoing) -> bool:
        """Whether a queued message may be offered now.

        Messages of one flow are to be asked about by seq. An ordered one at
        level acknowledged is handed over by its very first step, so it waits
        for all before it to end. One at level assured waits until the peer
        holds all before it: were it held first, it could take the room that
        they need, and wait for them for ever.
        """
        if self.room == 0:
            return False
        if not record.ordered:
            return True
        before = self._ordered if record.level is Level.ACKNOWLEDGED else self._unheld
        return not before

    def begin(self, record: Outgoing) -> None:
        """Count a message as under way."""
        self._in_flight.add(record.msg_id)
        if record.ordered:
            bisect.insort(self._ordered, record.seq)
            self.update(record)

    def update(self, record: Outgoing) -> None:
        """A message under way has come into another state."""
        if record.ordered and record.state in _UNHELD:
            self._unheld.add(record.seq)
        else:
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

    def credit(self, room: int) -> None:
        """Open the window to what the peer says that it takes, as AMQP's link credit.

        Not after a refusal: others may fill the same room (a quota of a domain, say), and
        what each of them is told is too much for all.
        """
        if self._doubling:
            self._window = min(self._max, max(self._window, float(room)))

    def constrained(self) -> None:
        """Narrow the window: the peer has no room (resource-constraint)."""
        if self._settling:
            self._settling -= 1
            return
        self._doubling = False
        self._window = max(1.0, self._window / 2)
        self._settling = max(0, len(self._in_flight) - 1)
