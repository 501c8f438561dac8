"""A relay between a client and a server that delays all bytes, and counts turns."""

from __future__ import annotations

import asyncio
import math
import time
from types import TracebackType
from typing import Self

from qos.testing.ports import ADDRESS

__all__ = ["SlowLink"]

_CHUNK_BYTES = 65_536


class SlowLink:
    """Relays connections to a port on loopback; an async context manager.

    A turn is a round trip that the client has waited for. It begins with the client's
    bytes, and ends with the server's first bytes that can be an answer to them: those
    that come a delay later. All that the client sends before these arrive belongs to the
    same turn.

    Args:
        port: that of the server.
        round_trip_s: half of it is the delay of each direction, in seconds.

    Attributes:
        port: where a client connects.
        turns: the number of ended turns.
        first_at: the time of the first byte, by time.monotonic(); None: there was none.
    """

    def __init__(self, port: int, round_trip_s: float) -> None:
        self._server_port = port
        self._delay_s = round_trip_s / 2
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self.turns = 0
        self.first_at: float | None = None
        # The beginning of the turn, while it is not ended; and the end of the last one.
        self._began_at: float | None = None
        self._ended_at = -math.inf

    async def __aenter__(self) -> Self:
        """Begin to accept connections."""
        self._server = await asyncio.start_server(self._relay, ADDRESS, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End all connections."""
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        for writer in self._writers:
            writer.close()
        closing = (writer.wait_closed() for writer in self._writers)
        await asyncio.gather(*self._pumps, *closing, return_exceptions=True)

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        server_reader, server_writer = await asyncio.open_connection(
            ADDRESS, self._server_port
        )
        self._writers += (writer, server_writer)
        for source, target, is_client in (
            (reader, server_writer, True),
            (server_reader, writer, False),
        ):
            pump = asyncio.create_task(self._pump(source, target, is_client=is_client))
            self._pumps.add(pump)
            pump.add_done_callback(self._pumps.discard)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        *,
        is_client: bool,
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await source.read(_CHUNK_BYTES):
                self._count(is_client=is_client)
                # Calls with the same delay are made in the order of the bytes.
                loop.call_later(self._delay_s, target.write, data)
        finally:
            loop.call_later(self._delay_s, target.close)

    def _count(self, *, is_client: bool) -> None:
        now = time.monotonic()
        if self.first_at is None:
            self.first_at = now
        if is_client:
            if self._began_at is None and now >= self._ended_at + self._delay_s:
                self._began_at = now
        elif self._began_at is not None and now >= self._began_at + self._delay_s:
            self.turns += 1
            self._began_at, self._ended_at = None, now
