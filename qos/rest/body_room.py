"""Room for the bodies of requests, which are in memory: taken as their bytes come.

Each account may hold half of it. If there is no more, the account that holds most gives
up a body that is still coming. So nobody can keep others from posting.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from qos.rest import bounds
from qos.rest.shares import NoRoom

__all__ = ["Body", "Room"]


class Body:
    """The body of one request.

    Attributes:
        account: of its user.
        size: the bytes that have come.
        given_up: others have needed its room.
        limit: the time in which it has to come; None: it does not come, or has come.
    """

    __slots__ = ("_room", "account", "given_up", "limit", "size")

    def __init__(self, room: Room, account: str) -> None:
        self.account = account
        self.size = 0
        self.given_up = False
        self.limit: asyncio.Timeout | None = None
        self._room = room

    @property
    def is_coming(self) -> bool:
        """Whether it can still be given up."""
        return self.limit is not None and not self.limit.expired()

    def add(self, size: int) -> None:
        """Take room for bytes that have come.

        Raises:
            NoRoom: there is none.
        """
        self._room.add(self, size)


class Room:
    """The bodies of all requests."""

    def __init__(self) -> None:
        self._total = 0
        self._bytes: Counter[str] = Counter()
        self._bodies: dict[str, set[Body]] = {}

    @contextmanager
    def taken(self, account: str) -> Iterator[Body]:
        """Count a request of an account, and the bytes of its body, until its end.

        Raises:
            NoRoom: the account has too many requests already.
        """
        bodies = self._bodies.setdefault(account, set())
        if len(bodies) >= bounds.REQUESTS_PER_ACCOUNT_MAX:
            raise NoRoom(429, "there are too many requests of this user")
        body = Body(self, account)
        bodies.add(body)
        try:
            yield body
        finally:
            self._release(body)
            bodies.discard(body)
            if not bodies:
                self._bodies.pop(account, None)
                del self._bytes[account]

    def add(self, body: Body, size: int) -> None:
        """See Body.add."""
        account_bytes = self._bytes[body.account] + size
        if account_bytes > bounds.BODIES_BYTES_MAX // 2:
            raise NoRoom(429, "this user posts too much at a time")
        while self._total + size > bounds.BODIES_BYTES_MAX:
            self._give_up(account_bytes)
        body.size += size
        self._bytes[body.account] = account_bytes
        self._total += size

    def _give_up(self, account_bytes: int) -> None:
        """End the largest of the coming bodies of the account that holds most.

        Args:
            account_bytes: those of the account that needs room; another has to hold more.

        Raises:
            NoRoom: no other account has such a body.
        """
        coming = {
            account: [body for body in bodies if body.size and body.is_coming]
            for account, bodies in self._bodies.items()
            if self._bytes[account] > account_bytes
        }
        most = max(
            (account for account in coming if coming[account]),
            key=lambda account: self._bytes[account],
            default=None,
        )
        if most is None:
            raise NoRoom(503, "too much is being posted at this moment")
        body = max(coming[most], key=lambda body: body.size)
        assert body.limit is not None
        body.given_up = True
        body.limit.reschedule(0)
        body.limit = None
        self._release(body)

    def _release(self, body: Body) -> None:
        self._total -= body.size
        self._bytes[body.account] -= body.size
        body.size = 0
