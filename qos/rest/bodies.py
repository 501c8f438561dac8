"""The body of a request: read after the rights are known, and for as long as it comes.

A body that nobody wants is not read. Its client gets the answer at once, and a bounded
rest is thrown away, so that a client which only sends can read the answer too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from aiohttp import web

from qos.rest import bounds
from qos.rest.body_room import Body
from qos.rest.route import Route
from qos.rest.shares import NoRoom

__all__ = ["BodyError", "drained", "is_unread", "read_body"]

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


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
