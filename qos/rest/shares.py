"""What requests in progress hold, in total and by account: nobody takes all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from qos.rest import bounds

__all__ = ["NoRoom", "Shares"]


class NoRoom(Exception):
    """There is no room for a request at this moment.

    Attributes:
        status: that says so: 429 if the account itself has too much.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Shares:
    """Counts requests, and the bytes of their bodies."""

    def __init__(self) -> None:
        self._total = 0
        self._bytes: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()

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
