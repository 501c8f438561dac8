"""Token buckets: how much each account may use a second, and at a time.

A bucket holds the tokens of `burst_s` seconds at most, and gets `rate` of them a second.
What is taken may be more than there is: then the account waits until the debt is paid.
So one request can be larger than the bucket, and its size need not be known before.
"""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["TokenBuckets"]

#: The number of accounts whose buckets are looked at, for full ones, with each taking.
_LOOKED_AT = 2


class TokenBuckets:
    """A bucket for each account. One that is full takes no memory."""

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
