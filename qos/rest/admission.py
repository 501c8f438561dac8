"""The admission of requests: how many a client may send, and how their bodies are read.

Each request waits for the rate of its payer, and for its turn. Its body is read after the
rights are known. A body that nobody wants is not read: its client gets the answer at once,
and a bounded rest is thrown away, so that a client which only sends can read the answer
too.

Bodies are in memory, so they have a bounded room, which they take as their bytes come.
Each account may hold half of it. If there is no more, the account that holds most gives
up a body that is still coming. So nobody can keep others from posting.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Callable, Iterator

from aiohttp import web

from qos.engine.payers import Payers
from qos.rest import bounds
from qos.rest.route import Route

__all__ = [
    "DELAY_S_MAX",
    "Body",
    "BodyError",
    "NoRoom",
    "Room",
    "admit",
    "drained",
    "is_unread",
    "read_body",
]

#: The most seconds for which a request waits for the rate of its payer. The requests of as
#: many connections as a payer may have wait for less.
DELAY_S_MAX = 2.0

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class NoRoom(Exception):
    """There is no room for a request at this moment.

    Attributes:
        status: that says so: 429 if the account or address itself has too much.
        retry_after_s: when there is room, in whole seconds; None: it is not known.
    """

    def __init__(self, status: int, why: str, retry_after_s: int | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.retry_after_s = retry_after_s


async def admit(payers: Payers, payer: str) -> None:
    """Count a request, which waits for the rate of its payer, and for its turn.

    To refuse one costs as much as to answer one, and often a new connection more.

    Args:
        payers: have the rates of each account, over all doors.
        payer: an account; or an address, for a request that has no right.

    Raises:
        NoRoom: so many requests or bytes came that this one would wait too long.
    """
    over = payers.over(payer)
    if over is not None and over.wait_s > DELAY_S_MAX:
        text = f"at most {over.rate} a second are taken of {payer}"
        raise NoRoom(429, text, math.ceil(over.wait_s))
    payers.take(payer, requests=1)
    if over is not None:
        await asyncio.sleep(over.wait_s)
    await payers.turn(payer)


# -- the body of a request -----------------------------------------------------


class BodyError(Exception):
    """The body of a request cannot be read.

    Attributes:
        status: that says so.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


async def read_body(
    request: web.BaseRequest, route: Route, body: Body, count: Callable[[int], object]
) -> bytes:
    """Read the body of a request.

    Args:
        request: of a user that may send it.
        route: of the request.
        body: takes its room.
        count: called with the number of bytes that have come.

    Raises:
        BodyError: it is too large, too slow, or broken.
        NoRoom: there is no more room for it.
    """
    if not request.body_exists:
        return b""
    if (request.content_length or 0) > route.body_max:
        raise _too_large(route)
    if not request.content.is_eof():
        await _go_on(request)
    content = bytearray()
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    try:
        async with asyncio.timeout(_seconds(0)) as body.limit:
            while not request.content.at_eof():
                chunk = await request.content.readany()
                count(len(chunk))
                if len(content) + len(chunk) > route.body_max:
                    raise _too_large(route)
                body.add(len(chunk))
                content += chunk
                body.limit.reschedule(started_at + _seconds(len(content)))
    except TimeoutError:
        if body.given_up:
            raise NoRoom(503, "others need the room that this body takes") from None
        raise BodyError(408, "the body is not complete in time") from None
    except web.RequestPayloadError:
        raise BodyError(400, "the body is broken") from None
    finally:
        body.limit = None
    return bytes(content)


def _seconds(size: int) -> float:
    """The seconds in which a body has to be complete, or at least one byte longer."""
    slow_s = bounds.BODY_START_S + size / bounds.BODY_BYTES_PER_S_MIN
    return min(slow_s, bounds.BODY_S)


async def _go_on(request: web.BaseRequest) -> None:
    """Answer a client that asks whether it may send its body (RFC 9110 §10.1.1)."""
    expects = request.headers.get("Expect", "").lower() == "100-continue"
    if expects and request.version >= (1, 1):
        await request.writer.write(_CONTINUE)
        # aiohttp takes it for a part of the answer.
        request.writer.output_size = 0


def _too_large(route: Route) -> BodyError:
    if not route.body_max:
        return BodyError(400, route.nothing)
    return BodyError(413, f"at most {route.body_max} bytes are taken")


def is_unread(request: web.BaseRequest) -> bool:
    """Whether a part of the body has not come, and may be more than what is thrown away."""
    if request.content.is_eof():
        return False
    size = request.content_length
    expects = request.headers.get("Expect") is not None
    return expects or size is None or size > bounds.DRAIN_BYTES_MAX


async def drained(request: web.BaseRequest, count: Callable[[int], object]) -> bool:
    """Throw away the rest of a body; returns whether all of it has come.

    Args:
        request: that has been answered.
        count: called with the number of bytes that have come.
    """
    bytes_left = bounds.DRAIN_BYTES_MAX
    with contextlib.suppress(TimeoutError, web.RequestPayloadError):
        async with asyncio.timeout(bounds.DRAIN_S):
            while bytes_left > 0 and not request.content.at_eof():
                size = len(await request.content.readany())
                count(size)
                bytes_left -= size
    return request.content.at_eof()


# -- the room of bodies ------------------------------------------------------


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

    @contextlib.contextmanager
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
