"""Attacks of an account by AMQP."""

from __future__ import annotations

import asyncio
import itertools
import os

from amqp_frames import selecting, transfer
from doors.hostile import Counts, again, amqp
from doors.place import DEAR, HEAP, HOSTILE, LAIR, Place
from qos.core.amqp import values

__all__ = ["dear", "heap", "nowhere", "own", "selectors", "unread"]

_SMALL_TRANSFERS_BYTES = 18 * 1024 * 1024

#: Transfers of one write.
_BLOCK = 1000

#: The sections of a message.
_TEXT = b"\x00\x53\x77\xa1\x01x"
_PROPERTIES, _DATA = b"\x00\x53\x74", b"\x00\x53\x75"

_HEAP_BYTES, _HEAP_ITEMS = 140_000, 150

_DEAR_ITEMS = 200
_DEAR_PROPERTY = "a" * 7_500

#: Within the bound of a selector, and each `%` tries each place.
_DEAR_SELECTOR = " OR ".join(["note LIKE '%" + "a_" * 115 + "b'"] * 4)

#: Seconds for which a reader does not read, and a worker with a selector waits.
_UNREAD_S, _SELECTS_S = 2.0, 5.0

#: Seconds in which the last messages of a queue are on disk.
_STORED_S = 2.0


async def nowhere(where: Place, counts: Counts) -> None:
    """Small transfers to a node that is not there, 18 MB of them in each connection."""
    each = len(transfer(_BLOCK * 10, _TEXT))

    async def once() -> None:
        async with amqp(where, HOSTILE[0]) as peer:
            peer.listen()
            peer.link.attach_sender("out", "nowhere")
            for first in range(0, _SMALL_TRANSFERS_BYTES // each, _BLOCK):
                if peer.ended.is_set():
                    return
                numbers = range(first, first + _BLOCK)
                frames = (transfer(number, _TEXT) for number in numbers)
                peer.link.write(b"".join(frames))
                counts["transfers"] += _BLOCK
                await peer.link.drain()
            await peer.ended.wait()

    await again(once, counts, "connections", times=2)


async def own(where: Place, counts: Counts) -> None:
    """Transfers to one's own queue, as many as there is credit for."""

    async def once() -> None:
        async with amqp(where, HOSTILE[0]) as peer:
            peer.listen()
            peer.link.attach_sender("out", LAIR)
            for number in itertools.count():
                if not await peer.until_credit():
                    return
                peer.transfer(number, _TEXT)
                counts["transfers"] += 1
                if number % 100 == 99:
                    await peer.link.drain()

    await again(once, counts, "connections", times=4)


async def unread(where: Place, counts: Counts) -> None:
    """Credit of 1,000 for items of 140 kB, and a reader that does not read."""

    async def once() -> None:
        async with amqp(where, HOSTILE[0], limit=1024) as peer:
            peer.link.attach_receiver("in", HEAP, credit=1000)
            await asyncio.sleep(_UNREAD_S)

    await again(once, counts, "connections", times=4)


async def selectors(where: Place, counts: Counts) -> None:
    """Eight workers with dear selectors at a queue whose items have long properties."""

    async def once() -> None:
        async with amqp(where, HOSTILE[0]) as peer:
            peer.listen()
            for handle in range(2):
                peer.link.attach_receiver(
                    *(f"in-{handle}", DEAR),
                    credit=10,
                    handle=handle,
                    filters=selecting(_DEAR_SELECTOR),
                )
            await asyncio.wait_for(peer.ended.wait(), _SELECTS_S)

    await again(once, counts, "connections", times=4)


# -- what is there before --------------------------------------------------


async def heap(where: Place) -> None:
    """Fill the queue with large items."""
    body = _DATA + values.binary(os.urandom(_HEAP_BYTES))
    await _fill(where, HEAP, [body] * _HEAP_ITEMS)


async def dear(where: Place) -> None:
    """Fill the queue with items that have a long property."""
    pairs = [values.string("note"), values.string(_DEAR_PROPERTY)]
    body = _PROPERTIES + values.pack_map(pairs) + _TEXT
    await _fill(where, DEAR, [body] * _DEAR_ITEMS)


async def _fill(where: Place, node: str, bodies: list[bytes]) -> None:
    """Publish, and give the store time for the last ones."""
    async with amqp(where, HOSTILE[0]) as peer:
        peer.listen()
        peer.link.attach_sender("out", node)
        for number, body in enumerate(bodies):
            if not await peer.until_credit():
                raise ConnectionError(f"{node} cannot be filled")
            peer.transfer(number, body)
            await peer.link.drain()
        await asyncio.sleep(_STORED_S)
