"""A flow: the window of messages in flight to one account, and their order.

A receiver counts held messages by the sender's account, so there is one window for each
receiving account. It starts at the number that the strictest receivers accept. A peer
of ours grants a credit with each `received`, and the window opens to it. Without a
credit it doubles with each window delivered. At the first refusal for lack of room it is
halved, and from then on it grows by one per window.
"""

from __future__ import annotations

import bisect

from qos.core.message.model import Level, Outgoing, OutgoingState

__all__ = ["WINDOW_FIRST", "Flow"]

#: A limit of five held messages is common among foreign receivers.
WINDOW_FIRST = 5

_UNHELD = frozenset({OutgoingState.QUEUED, OutgoingState.OFFERED})


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
        """Note the new state of a message in flight."""
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
