"""The time in which a queue service could answer nothing: stops, and slow commits.

Kept by the simulation beside the service, by the true time. A lock must last for as long
as the service has listened, whatever its clock says. XMPP workers have one of their own:
they are not heard either while the service has no session, or is down.
"""

from __future__ import annotations

import math

from qos.core.queue.item import Item
from qos.engine.clock import GAIN

__all__ = ["Unheard"]

#: Of each period without answers, so much may count.
_COUNTED_S = 2.0

#: What rounding may take.
_ROUNDED_S = 1e-3


class Unheard:
    """The periods without answers, and the locks that were given.

    Periods may overlap: a process is stopped during a commit.
    """

    def __init__(self) -> None:
        self._open = 0
        self._since_s = 0.0
        self._decided_at = 0.0
        self._lost_s = 0.0
        # When each lock ends at the earliest, in listened seconds, by its token.
        self._ends: dict[str, float] = {}
        # The last token of each lock, by its item and its time.
        self._tokens: dict[tuple[str, float | None], str] = {}
        # When each lock has timed out, in listened seconds, by its token.
        self._timed_out: dict[str, float] = {}

    def begins(self, now: float) -> None:
        """A period begins."""
        if not self._open:
            self._since_s = now
        self._open += 1

    def decides(self, now: float) -> None:
        """A commit is decided. A period begins, perhaps within another one."""
        self._decided_at = now
        self.begins(now)

    def ends(self, now: float) -> None:
        """A period ends; harmless if none is open."""
        if self._open:
            self._open -= 1
            if not self._open:
                self._lost_s += max(0.0, now - self._since_s - _COUNTED_S)

    def dies(self, now: float) -> None:
        """A period begins in which there is no process; it takes the place of others."""
        self._since_s = self._since_s if self._open else now
        self._open = 1

    def listened_s(self, now: float) -> float:
        """The seconds in which it has listened, of all until now."""
        since = self._since_s if self._open else now
        return now - self._lost_s - max(0.0, now - since - _COUNTED_S)

    def decided_s(self, now: float) -> float:
        """The same at the time when the commit was decided that is written now."""
        return self.listened_s(self._decided_at if self._open else now)

    def found(self, token: str) -> None:
        """A lock is from a process before: of its length nothing is promised."""
        self._ends.setdefault(token, -math.inf)

    def locked(self, item: Item, now: float, lock_s: float) -> None:
        """The commit that is written now has a lock: a new one, or one that goes on.

        A durable lock whose worker comes back under another full JID goes on, under
        another token.
        """
        lock = (item.item_id, item.locked_at)
        ends = self.decided_s(now) + lock_s / (1 + GAIN)
        if lock in self._tokens:
            ends = self._ends[self._tokens[lock]]
        self._ends.setdefault(item.token, ends)
        self._tokens[lock] = item.token

    def extended(self, token: str, listened_s: float, seconds: float) -> float:
        """An extension was granted that was asked for then.

        Returns:
            How much too early the lock has timed out, as this shows. The commit that has
            the extension may have that as well.
        """
        ends = listened_s + seconds / (1 + GAIN)
        self._ends[token] = max(self._ends.get(token, -math.inf), ends)
        timed_out = self._timed_out.get(token, math.inf)
        return max(0.0, ends - timed_out - _ROUNDED_S)

    def knows(self, token: str) -> bool:
        """Whether a lock with this token was given."""
        return token in self._ends

    def timed_out(self, token: str, now: float) -> float:
        """A lock has timed out by the commit that is written now.

        Returns:
            How much too early.
        """
        self._timed_out[token] = self.decided_s(now)
        ends = self._ends.get(token, -math.inf)
        return max(0.0, ends - self.decided_s(now) - _ROUNDED_S)
