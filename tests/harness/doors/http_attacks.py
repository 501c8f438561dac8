"""Attacks of accounts by HTTP, and of a stranger beside them."""

from __future__ import annotations

import asyncio
import itertools

from doors.hostile import ACCOUNTS, STRANGER, Counts, again, head, web
from doors.place import HONEST_QUEUES, HOSTILE, LAIR, Place

__all__ = ["bomb", "bombs", "feeds", "no_bodies", "requests", "slow_bodies"]

_MULTIPART = "multipart/mixed; boundary=x"

#: The length of a body that does not come.
_LENGTH = "8388608"

_BOMB_BYTES = 100_000

#: A feed of Atom: entries of the smallest elements.
_FEED_BYTES, _ENTRY_ELEMENTS = 4_000_000, 10_000

#: Requests of one write.
_PIPELINED = 50

_ANSWER_S = 60.0

_END = b"\r\n\r\n"


async def requests(where: Place, counts: Counts) -> None:
    """Requests one behind the other, of an account and of a stranger."""

    async def ask(request: bytes, source: str, name: str) -> None:
        async with web(where, source) as (reader, writer):
            while True:
                writer.write(request * _PIPELINED)
                await writer.drain()
                for _ in range(_PIPELINED):
                    answer = await reader.readuntil(_END)
                    size = answer.lower().partition(b"content-length: ")[2]
                    await reader.readexactly(int(size.partition(b"\r\n")[0] or b"0"))
                    counts[name] += 1

    his = head("GET", f"/queues/{LAIR}", user=HOSTILE[0])
    nobodys = head("GET", f"/queues/{LAIR}")

    async def account() -> None:
        await ask(his, ACCOUNTS, "answers to the account")

    async def stranger() -> None:
        await ask(nobodys, STRANGER, "answers to the stranger")

    await asyncio.gather(
        again(account, counts, "connections", times=10),
        again(stranger, counts, "connections", times=10),
    )


async def no_bodies(where: Place, counts: Counts) -> None:
    """Requests of accounts without a right that tell of 8 MiB, and send nothing of it."""
    users = itertools.cycle(HOSTILE)

    async def once() -> None:
        async with web(where, ACCOUNTS) as (reader, writer):
            writer.write(_batch(HONEST_QUEUES["http"], next(users)))
            await asyncio.wait_for(reader.readuntil(_END), _ANSWER_S)

    await again(once, counts, "requests", times=16)


async def slow_bodies(where: Place, counts: Counts) -> None:
    """Bodies that come a byte a second, to one's own queue."""
    users = itertools.cycle(HOSTILE)

    async def once() -> None:
        async with web(where, ACCOUNTS) as (reader, writer):
            writer.write(_batch(LAIR, next(users)))
            answer = asyncio.ensure_future(reader.read())
            try:
                while not answer.done():
                    writer.write(b"-")
                    await asyncio.wait((answer,), timeout=1.0)
            finally:
                answer.cancel()

    await again(once, counts, "requests", times=60)


def _batch(node: str, user: str) -> bytes:
    return head(
        *("POST", f"/queues/{node}/batches"),
        user=user,
        Content_Length=_LENGTH,
        Content_Type=_MULTIPART,
    )


async def bombs(where: Place, counts: Counts) -> None:
    """XML that would become large, with a right and without one."""
    body = bomb(_BOMB_BYTES).encode()
    nodes = itertools.cycle((LAIR, HONEST_QUEUES["http"]))

    async def once() -> None:
        async with web(where, ACCOUNTS) as (reader, writer):
            request = head(
                *("POST", f"/queues/{next(nodes)}/messages"),
                user=HOSTILE[0],
                Content_Length=str(len(body)),
                Content_Type="application/xml",
            )
            writer.write(request + body)
            await asyncio.wait_for(reader.readuntil(_END), _ANSWER_S)

    await again(once, counts, "requests", times=4)


async def feeds(where: Place, counts: Counts) -> None:
    """Batches to one's own queue that are small in bytes, and dear to parse."""
    inside = b"<a>" + b"<b/>" * _ENTRY_ELEMENTS + b"</a>"
    entry = (
        b"<entry><content type='application/x+xml'>" + inside + b"</content></entry>"
    )
    entries = entry * (_FEED_BYTES // len(entry))
    body = b"<feed xmlns='http://www.w3.org/2005/Atom'>" + entries + b"</feed>"
    users = itertools.cycle(HOSTILE)

    async def once() -> None:
        async with web(where, ACCOUNTS) as (reader, writer):
            request = head(
                *("POST", f"/queues/{LAIR}/batches"),
                user=next(users),
                Content_Length=str(len(body)),
                Content_Type="application/atom+xml",
            )
            writer.write(request + body)
            await asyncio.wait_for(reader.readuntil(_END), _ANSWER_S)

    await again(once, counts, "requests", times=4)


def bomb(size: int) -> str:
    """XML of so many bytes whose namespace has to be written out for each element.

    Half of it is the namespace, so the output would grow with the square of the size.
    """
    name, elements = "u" * (size // 2), "<q:b/>" * (size // 12)
    return f"<p:a xmlns:p='urn:p' xmlns:q='{name}'>{elements}</p:a>"
