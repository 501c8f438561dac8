"""Attacks before a login, by AMQP and HTTP."""

from __future__ import annotations

import asyncio
import itertools

from doors.amqp_peer import AmqpPeer
from doors.hostile import GUESSER, HALF, Counts, again, guessed, head, web
from doors.place import Place
from qos.testing.ports import ADDRESS

__all__ = ["half_logins", "half_tls", "passwords"]

#: The begin of a TLS record with a ClientHello.
_HELLO = b"\x16\x03\x01\x02\x00\x01"

_HOLDS_S = 60.0

#: Connections at each door at a time.
_HALF_TLS, _HALF_LOGINS, _GUESSES = 1500, 500, 50


async def half_tls(where: Place, counts: Counts) -> None:
    """TCP connections whose handshake never ends."""
    numbers = itertools.count()

    async def hold(port: int) -> None:
        reader, writer = await asyncio.open_connection(
            ADDRESS, port, local_addr=(HALF, 0)
        )
        try:
            writer.write(_HELLO[: next(numbers) % len(_HELLO)])
            await asyncio.wait_for(reader.read(), _HOLDS_S)
        finally:
            writer.transport.abort()

    await asyncio.gather(
        again(lambda: hold(where.amqp), counts, "AMQP", times=_HALF_TLS),
        again(lambda: hold(where.http), counts, "HTTP", times=_HALF_TLS),
    )


async def half_logins(where: Place, counts: Counts) -> None:
    """Connections with TLS, and half a login or half a head."""

    async def amqp() -> None:
        peer = await AmqpPeer.connect(where, source=HALF)
        try:
            peer.link.write(b"AMQP\x03\x01\x00\x00")
            peer.listen()
            await asyncio.wait_for(peer.ended.wait(), _HOLDS_S)
        finally:
            peer.abort()

    async def http() -> None:
        async with web(where, HALF) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
            await asyncio.wait_for(reader.read(), _HOLDS_S)

    await asyncio.gather(
        again(amqp, counts, "AMQP", times=_HALF_LOGINS),
        again(http, counts, "HTTP", times=_HALF_LOGINS),
    )


async def passwords(where: Place, counts: Counts) -> None:
    """Wrong passwords of the honest account and of nobody."""

    async def amqp() -> None:
        peer = await AmqpPeer.connect(where, source=GUESSER)
        try:
            await peer.log_in(guessed(), "wrong")
        finally:
            peer.abort()

    async def http() -> None:
        async with web(where, GUESSER) as (reader, writer):
            writer.write(head("GET", "/", user=guessed(), password="wrong"))  # noqa: S106
            await reader.readuntil(b"\r\n\r\n")

    await asyncio.gather(
        again(amqp, counts, "AMQP", times=_GUESSES),
        again(http, counts, "HTTP", times=_GUESSES),
    )
