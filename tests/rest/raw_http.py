"""A client of HTTP that writes what it likes, for what no library does."""

import asyncio

from rest_bench import RestBench, basic
from waiting import limit

__all__ = ["AUTH", "Raw"]

#: The headers of a request of alice.
AUTH = f"Host: x\r\nAuthorization: {basic('alice')}\r\n"


class Raw:
    """A client that writes what it likes."""

    def __init__(self, bench: RestBench) -> None:
        self._port = bench.web

    async def __aenter__(self) -> "Raw":
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self._port
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    async def rest(self) -> bytes:
        """All until the server has closed."""
        async with limit():
            try:
                return await self.reader.read(1_000_000)
            except ConnectionError:
                return b""

    async def head(self) -> bytes:
        """The status line and the headers of the next answer."""
        async with limit():
            return await self.reader.readuntil(b"\r\n\r\n")

    async def status(self) -> int:
        """The status of the next answer, whose body is read and thrown away."""
        head = await self.head()
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        async with limit():
            await self.reader.readexactly(int(length or b"0"))
        return int(head[9:12])
