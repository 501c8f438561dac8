"""An AMQP client of a flood: frames by TLS, from any address of loopback."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

from amqp_frames import FLOW, TRANSFER, Frames, transfer
from doors.place import SECRET, Place
from qos.core.amqp.values import NULL
from qos.testing.ports import ADDRESS

__all__ = ["AmqpPeer"]

#: The bytes of the header of a protocol.
_HEADER = 8


class AmqpPeer:
    """One connection with one session.

    Attributes:
        link: what it says.
        credit: of its sender, by the last flow.
        transfers: the frames of messages that have come.
        more: something has changed.
        ended: the gateway has closed the connection.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.link = Frames(reader, writer)
        self.credit = 0
        self.transfers = 0
        self.more = asyncio.Event()
        self.ended = asyncio.Event()
        self._sent = 0
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def connect(
        cls, where: Place, *, source: str = ADDRESS, limit: int = 1 << 16
    ) -> Self:
        """Connect by TLS, and nothing else.

        Args:
            where: the place.
            source: the address of the client.
            limit: bytes that are read before anybody wants them.
        """
        reader, writer = await asyncio.open_connection(
            *(ADDRESS, where.amqp),
            ssl=where.tls,
            server_hostname="localhost",
            local_addr=(source, 0),
            limit=limit,
        )
        return cls(reader, writer)

    async def log_in(self, user: str, password: str = SECRET) -> bool:
        """Log in, open the connection and begin a session; False: refused."""
        if not await self.link.log_in(user, password):
            return False
        self.link.open("flood")
        return True

    async def opened(self) -> None:
        """Wait for the gateway's own header and the head of its first frame."""
        await self.link.read(2 * _HEADER)

    def listen(self) -> None:
        """Read all that comes from now on."""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(OSError):
            async for frame in self.link.frames():
                if frame.code == FLOW and frame.field(6) != NULL:
                    self.credit = frame.number(5) + frame.number(6) - self._sent
                    self.more.set()
                elif frame.code == TRANSFER:
                    self.transfers += 1
        self.ended.set()
        self.more.set()

    async def until_credit(self) -> bool:
        """Wait for credit; False: the connection has ended."""
        while self.credit <= 0 and not self.ended.is_set():
            self.more.clear()
            await self.more.wait()
        return not self.ended.is_set()

    def transfer(self, number: int, message: bytes) -> None:
        """Send a message by the link with the handle 0."""
        self.link.write(transfer(number, message))
        self._sent += 1
        self.credit -= 1

    def abort(self) -> None:
        """Go without a word."""
        if self._reading is not None:
            self._reading.cancel()
        self.link.abort()
