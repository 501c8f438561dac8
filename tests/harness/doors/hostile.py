"""Helpers of all attacks: addresses, refusals, and repetition."""

from __future__ import annotations

import asyncio
import contextlib
import random
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from doors.amqp_peer import AmqpPeer
from doors.place import HONEST, SECRET, Place
from qos.testing.ports import ADDRESS

__all__ = [
    "ACCOUNTS",
    "GUESSER",
    "HALF",
    "STRANGER",
    "Attack",
    "Counts",
    "again",
    "amqp",
    "guessed",
    "head",
    "web",
]

#: What an attacker has done, by kind: told when it ends.
Counts = Counter[str]

#: Goes on until it is cancelled.
Attack = Callable[[Place, Counts], Awaitable[None]]

#: Where the hostile come from; honest clients come from ADDRESS.
ACCOUNTS, STRANGER, HALF, GUESSER = (f"127.0.0.{last}" for last in (2, 3, 4, 5))

_REFUSED = (OSError, EOFError, asyncio.TimeoutError)

#: Seconds before an attacker tries again what was refused.
_AGAIN_S = 0.02

_NOBODIES = 1000


async def again(
    each: Callable[[], Awaitable[None]], counts: Counts, name: str, *, times: int
) -> None:
    """Do the same again and again, this many at a time."""

    async def forever() -> None:
        while True:
            counts[name] += 1
            try:
                await each()
            except _REFUSED as error:
                counts[f"{type(error).__name__} of {name}"] += 1
                await asyncio.sleep(_AGAIN_S)

    await asyncio.gather(*(forever() for _ in range(times)))


@contextlib.asynccontextmanager
async def amqp(
    where: Place, user: str, *, limit: int = 1 << 16
) -> AsyncIterator[AmqpPeer]:
    """A connection by AMQP that is logged in."""
    peer = await AmqpPeer.connect(where, source=ACCOUNTS, limit=limit)
    try:
        if not await peer.log_in(user):
            raise ConnectionRefusedError("login")
        yield peer
    finally:
        peer.abort()


@contextlib.asynccontextmanager
async def web(
    where: Place, source: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection for HTTP."""
    reader, writer = await asyncio.open_connection(
        *(ADDRESS, where.http),
        ssl=where.tls,
        server_hostname="localhost",
        local_addr=(source, 0),
    )
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def head(
    method: str, path: str, *, user: str = "", password: str = SECRET, **headers: str
) -> bytes:
    """The head of a request; headers are named with underscores."""
    if user:
        login = b64encode(f"{user}:{password}".encode()).decode()
        headers["Authorization"] = f"Basic {login}"
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode()


def guessed() -> str:
    """The name of the honest account, or of nobody."""
    return random.choice((HONEST, f"nobody{random.randrange(_NOBODIES)}"))
