"""Who pays for the work of a service: the rates of each payer, and a fair order among them.

A payer is an account (a bare JID), whatever door it comes by; before a login it is the
address of the peer. An address has no `@`, so it is never taken for an account.

Requests and bytes have rates. Seconds of work have none, since one who is alone may use
all there is: work is done for the payer that has used least first (start-time fair
queueing).
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass

__all__ = [
    "BURST_S",
    "BYTES_PER_S",
    "REQUESTS_PER_S",
    "FairOrder",
    "Rates",
    "TokenBuckets",
]

#: Of one payer, a second. So many requests of HTTP are half of what a processor does.
REQUESTS_PER_S = 500
BYTES_PER_S = 16 * 1024 * 1024

#: A payer that was silent can send the requests and bytes of so many seconds at once.
BURST_S = 2.0

#: The payers whose used time is remembered. One that is forgotten has used nothing.
_REMEMBERED_MAX = 10_000

#: The number of accounts whose buckets are looked at, for full ones, with each taking.
_LOOKED_AT = 2

#: Seconds that a payer may have used more than the one that is served now. What it has
#: used beyond, by work that could not be cut, is forgotten: it shall not wait for ever.
_AHEAD_S_MAX = 0.25


@dataclass(frozen=True, slots=True)
class Rates:
    """The most that one payer may send a second, on average; 0: no limit.

    Attributes:
        requests: of any kind.
        bytes: of what comes from it.
    """

    requests: int = REQUESTS_PER_S
    bytes: int = BYTES_PER_S


class FairOrder:
    """The payers that wait for work to be done: who has used least time is first.

    One that comes anew counts as one that has used as much as the one that is served
    now: it is next, and pays for no time before it came, nor is it paid for that.
    """

    def __init__(self) -> None:
        # What the payer that was taken last had used before.
        self._now_s = 0.0
        self._waiting: list[tuple[float, int, str]] = []
        self._number = 0
        # Those that have used more than that; the one that was charged longest ago first.
        self._used_s: OrderedDict[str, float] = OrderedDict()

    @property
    def first(self) -> str:
        """The payer that `take` would return."""
        return self._waiting[0][2]

    def add(self, payer: str) -> None:
        """Let a payer wait, which does not wait yet."""
        used_s = max(self._now_s, self._used_s.get(payer, 0.0))
        self._number += 1
        heapq.heappush(self._waiting, (used_s, self._number, payer))

    def take(self) -> str:
        """The payer that has used least, and waits no more; there is one.

        Among equals it is the one that was added first.
        """
        self._now_s, _, payer = heapq.heappop(self._waiting)
        return payer

    def charge(self, payer: str, seconds: float) -> None:
        """Count time that was used for a payer, which does not wait now."""
        used_s = max(self._now_s, self._used_s.pop(payer, 0.0)) + seconds
        self._used_s[payer] = min(used_s, self._now_s + _AHEAD_S_MAX)
        for oldest in list(self._used_s)[:2]:
            full = len(self._used_s) > _REMEMBERED_MAX
            if full or self._used_s[oldest] <= self._now_s:
                del self._used_s[oldest]

    def rest(self) -> None:
        """Forget what was used: nobody waits, so nobody has used it up for another."""
        self._used_s.clear()


class TokenBuckets:
    """How much each account may use a second, and at a time: a bucket for each.

    A bucket holds the tokens of `burst_s` seconds at most, and gets `rate` of them a
    second. What is taken may be more than there is: then the account waits until the debt
    is paid. So one request can be larger than the bucket, and its size need not be known
    before. A bucket that is full takes no memory.
    """

    def __init__(self, rate: float, burst_s: float) -> None:
        """Begin with full buckets.

        Args:
            rate: tokens a second; 0: no limit.
            burst_s: the seconds in which an empty bucket gets full.
        """
        self._rate = rate
        self._burst_s = burst_s
        # By account: when its bucket will be full. Those used longest ago are first.
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """The number of buckets that are not full, as far as it is known."""
        return len(self._full_at)

    def wait_s(self, account: str, now: float) -> float:
        """The seconds until there is a token; 0: there is one."""
        wait_s = self._full_at.get(account, now) - now - self._burst_s
        return max(0.0, wait_s)

    def take(self, account: str, tokens: float, now: float) -> None:
        """Take tokens, or give some back if there are less than 0."""
        if not self._rate:
            return
        for oldest in list(self._full_at)[:_LOOKED_AT]:
            if self._full_at[oldest] <= now:
                del self._full_at[oldest]
        full_at = max(now, self._full_at.pop(account, now)) + tokens / self._rate
        self._full_at[account] = full_at
