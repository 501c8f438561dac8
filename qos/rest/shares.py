"""The share of the gateway that each account may use, at a time and per second."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from qos.core.rate import RateLimit
from qos.core.token_bucket import TokenBuckets
from qos.rest import bounds

__all__ = ["NoRoom", "Rates", "Shares"]

log = logging.getLogger(__name__)

#: Seconds between two lines of the log about one account that is too fast.
_LOG_S = 60.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The most that one account may use a second, on average; 0: no limit.

    Attributes:
        requests: of any kind.
        bytes: of bodies.
    """

    requests: int = bounds.REQUESTS_PER_S
    bytes: int = bounds.BYTES_PER_S


class NoRoom(Exception):
    """There is no room for a request at this moment.

    Attributes:
        status: that says so: 429 if the account itself has too much.
        retry_after_s: when there is room, in whole seconds; None: it is not known.
    """

    def __init__(self, status: int, why: str, retry_after_s: int | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.retry_after_s = retry_after_s


class Shares:
    """Counts requests, and the bytes of their bodies."""

    def __init__(self, rates: Rates) -> None:
        self._total = 0
        self._bytes: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._rates = rates
        self._request_rate = TokenBuckets(rates.requests, bounds.BURST_S)
        self._byte_rate = TokenBuckets(rates.bytes, bounds.BURST_S)
        self._logged = RateLimit(_LOG_S)

    def admit(self, account: str, now: float) -> None:
        """Count a request of an account.

        Args:
            account: that has sent it.
            now: the time, of a clock that is never set back.

        Raises:
            NoRoom: it sends too many requests or bytes a second.
        """
        requests_s = self._request_rate.wait_s(account, now)
        bytes_s = self._byte_rate.wait_s(account, now)
        if not requests_s and not bytes_s:
            self._request_rate.take(account, 1, now)
            return
        much = f"{self._rates.bytes} bytes"
        if requests_s:
            much = f"{self._rates.requests} requests"
        if self._logged.admit(account, now) is not None:
            log.warning("%s sends more than %s a second", account, much)
        raise NoRoom(
            429,
            f"at most {much} a second are taken of a user",
            math.ceil(max(requests_s, bytes_s)),
        )

    def received(self, account: str, size: int, now: float) -> None:
        """Count bytes of a body of an account."""
        self._byte_rate.take(account, size, now)

    @contextmanager
    def taken(self, account: str, size: int) -> Iterator[None]:
        """Count a request of an account with a body of this size, until its end.

        Raises:
            NoRoom: there is too much already.
        """
        if self._requests[account] >= bounds.REQUESTS_PER_ACCOUNT_MAX:
            raise NoRoom(429, "there are too many requests of this user")
        if self._bytes[account] + size > bounds.BODIES_BYTES_MAX // 2:
            raise NoRoom(429, "this user posts too much at a time")
        if self._total + size > bounds.BODIES_BYTES_MAX:
            raise NoRoom(503, "too much is being posted at this moment")
        self._add(account, 1, size)
        try:
            yield
        finally:
            self._add(account, -1, -size)

    def _add(self, account: str, requests: int, size: int) -> None:
        self._total += size
        self._bytes[account] += size
        self._requests[account] += requests
        if not self._requests[account]:
            del self._requests[account], self._bytes[account]
