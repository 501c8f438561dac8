"""The time that the XMPP connection of the service has lost.

A lock is the promise of a worker to speak within its time-out. While the connection of the
service is away, or carries nothing, no XMPP worker can be heard. That time is the
service's, and counts against none of them.

A consumer of a gateway has a connection of its own to the service. It can extend, settle
and give back meanwhile, and so its lock runs on. The form of its full JID tells which it
is (`qos.core.queue.consumer_jids`).

That nothing comes may also mean that nobody has said anything. So the lock of an XMPP
worker ends only when something has come after its deadline. Until then there is a doubt,
and the engine asks the server for a sign of life.
"""

from __future__ import annotations

import math
from typing import Final

from qos.core.queue.consumer_jids import is_consumer_jid
from qos.core.queue.item import Item

__all__ = ["LOOK_S", "LinkTime", "needs_link"]

#: Seconds until a lock in doubt is looked at again.
LOOK_S: Final = 1.0

#: Seconds that the server has for its sign of life: twice as long as the last one took,
#: within these bounds. Later than that, the connection has carried nothing, as if it had
#: been away.
_ANSWER_S_MIN: Final = 2.0
_ANSWER_S_MAX: Final = 20.0


def needs_link(holder: str) -> bool:
    """Whether this full JID is heard by the XMPP connection, and by nothing else."""
    return not is_consumer_jid(holder)


class LinkTime:
    """When something was heard by the XMPP connection of the service.

    Attributes:
        lost_at: since when no XMPP worker can be heard; None: they can be.
        in_doubt: a lock of an XMPP worker would have ended, if the connection is there.
            An attribute: it is looked at on the way of each item.
    """

    def __init__(self) -> None:
        """Begin with a connection that is there, and always heard."""
        self.lost_at: float | None = None
        self._back_at = -math.inf
        self._heard_at = math.inf
        self._doubted_at = math.inf
        self._answer_s = _ANSWER_S_MIN
        self.in_doubt = False
        self._stalls = False

    def lost(self, since: float) -> None:
        """Note that the connection is away; harmless if that is known.

        Args:
            since: when something has come last.
        """
        if self.lost_at is None:
            self.lost_at = self._heard_at = since
        self._stalls = False

    def back(self, now: float) -> None:
        """Note that XMPP workers can be heard again, from now on."""
        self.lost_at, self._back_at = None, now
        self._heard_at = self._doubted_at = math.inf
        self.in_doubt = self._stalls = False

    def heard_at(self, at: float) -> float:
        """When XMPP workers could be heard last, for the process after this one.

        That one gives back what was lost since then, and so nothing that this one has
        given back already.

        Args:
            at: when something has come last; without effect while the connection is
                away.
        """
        return max(at, self._back_at) if self.lost_at is None else self.lost_at

    def heard(self, at: float, now: float) -> bool:
        """Note when something has come last; without effect while the connection is away.

        Returns:
            Whether it has carried nothing for too long, and does so again: what was lost
            meanwhile is to be given back now.
        """
        if self.lost_at is not None and not self._stalls:
            return False
        if at > self._doubted_at:
            answer_s = 2 * (at - self._doubted_at)
            self._answer_s = min(max(answer_s, _ANSWER_S_MIN), _ANSWER_S_MAX)
            if self._stalls:
                return True
            self._doubted_at = math.inf
            self.in_doubt = False
        elif now - self._doubted_at > self._answer_s and not self._stalls:
            self.lost(at)
            self._stalls = True
        if not self._stalls:
            self._heard_at = at
        return False

    def is_over(self, item: Item, now: float) -> bool:
        """Whether the time of this lock is over; if that is in doubt, it is noted.

        Args:
            item: locked; its deadline has passed.
            now: the time.
        """
        if not needs_link(item.holder) or item.deadline <= self._heard_at:
            return True
        if self.lost_at is None:
            self._doubted_at = min(self._doubted_at, now)
            self.in_doubt = True
        return False
