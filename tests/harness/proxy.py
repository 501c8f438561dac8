"""A TCP proxy that is a bad network: it cuts, stalls, trickles, reorders and injects.

It is between the clients and one port of a server. It handles bytes, with or without
TLS. It changes none, and adds those of an attacker if asked to. A seed decides which
connections a fault concerns; the caller decides when. It knows nothing of XMPP.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import random
import re
import socket
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from qos.testing.ports import ADDRESS, free_ports

__all__ = ["Injection", "LinkFault", "Proxy", "Shape"]

_READ_BYTES = 65_536

#: A trickle has pieces of at most this many bytes, each followed by a pause: some 10
#: kB/s, so that a TLS handshake gets through in half a second.
_PIECE_BYTES = 40
_PIECE_PAUSE_S = 0.002

#: What each connection carries over a slow link, in each direction; and the seconds that
#: a far one takes.
_SLOW_BYTES_PER_S = (3_000.0, 30_000.0)
_FAR_S = 5.0

#: A shaped link carries a piece in so many seconds, and so holds hardly more than that.
_SHAPED_PIECE_S = 0.02

#: The receive buffer of the system at a shaped link, in bytes: what a sender has written
#: is to wait at the sender, as before a slow radio.
_SHAPED_BUFFER_BYTES = 4_096

#: Time for the last bytes of a connection.
_LINGER_S = 1.0

#: The part of the connections that a fault concerns, on average; at least one.
_PART = 0.6


class LinkFault(enum.Enum):
    """The faults of connections.

    ::

        CUT        both ends are told at once, and data in flight is lost
        STALL      nothing flows for a while, in neither direction
        ONE_WAY    nothing flows for a while, in one direction
        TRICKLE    a few bytes at a time, for a while
        SLOW       some kB/s, for a while: nothing is lost
        FAR        everything comes five seconds late, for a while, in order
        REORDER    the clients' ends are cut, and the server's stay open: it sees the new
                   connections first, the last of them first; then the data in flight of
                   the old ones, and their end
    """

    CUT = "cut"
    STALL = "stall"
    ONE_WAY = "stall one way"
    TRICKLE = "trickle"
    SLOW = "slow link"
    FAR = "far link"
    REORDER = "reorder"


@dataclass(frozen=True, slots=True)
class Injection:
    """Data that an attacker on the network path writes to a client once.

    It is written in one piece with the server's bytes that match the pattern, so these
    must come in one read. He cannot break TLS: within it nothing matches.

    Attributes:
        pattern: the place in the server's data.
        content: the bytes to add.
        behind: add them after the match; False: before it.
    """

    pattern: re.Pattern[bytes]
    content: bytes
    behind: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """A link as it is: nothing is lost, and it takes its time.

    Attributes:
        bytes_per_s: what each connection carries in each direction.
        delay_s: from the end of a piece at one end until it comes at the other.
    """

    bytes_per_s: float = 1e9
    delay_s: float = 0.0


class Proxy:
    """A proxy, used as an async context manager; it listens within.

    Args:
        to_port: of the server, on loopback.
        seed: decides the connections of a fault, and its direction.
        shape: of each connection; None: as fast as possible.

    Attributes:
        port: where clients connect.
        shape: as above, for the connections that are made from now on.
        carried: the bytes by direction, `up` to the server and `down`.
        injections: for the connections that are made from now on.
        injected: how often one of them was written.
    """

    def __init__(
        self, to_port: int, *, seed: int | str = 0, shape: Shape | None = None
    ) -> None:
        (self.port,) = free_ports(1)
        self.shape = shape
        self.carried = {"up": 0, "down": 0}
        self.injections: tuple[Injection, ...] = ()
        self.injected = 0
        self._to_port = to_port
        self._random = random.Random(seed)
        self._connections: dict[_Connection, asyncio.Task[None]] = {}
        #: While there is a list, new connections wait in it.
        self._waiting: list[asyncio.Event] | None = None
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        # With the protocol: else asyncio leaves Nagle's algorithm on.
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, self.port))
        if self.shape is not None:
            listener.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, _SHAPED_BUFFER_BYTES
            )
        self._server = await asyncio.start_server(
            self._accept, sock=listener, limit=self.buffer_bytes
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._connections.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def buffer_bytes(self) -> int:
        """The bytes that a connection holds in each direction, or up to twice that."""
        return _READ_BYTES if self.shape is None else _SHAPED_BUFFER_BYTES

    @property
    def connections(self) -> int:
        """The number of connections, including those of which only the server's end is
        left.
        """
        return len(self._connections)

    async def inflict(self, fault: LinkFault, seconds: float) -> int:
        """Inject a fault, and return when it is over.

        Args:
            fault: the fault.
            seconds: how long; a cut takes no time.

        Returns:
            The number of connections concerned; 0: there was none.
        """
        chosen = self._chosen()
        if not chosen:
            return 0
        if fault is LinkFault.CUT:
            for connection in chosen:
                connection.abort()
        elif fault is LinkFault.REORDER:
            await self._reorder(chosen, seconds)
        else:
            one_way = self._random.choice(("up", "down"))
            rate = self._random.uniform(*_SLOW_BYTES_PER_S)
            for connection in chosen:
                if fault is LinkFault.TRICKLE:
                    connection.trickles = True
                elif fault is LinkFault.SLOW:
                    connection.bytes_per_s = rate
                elif fault is LinkFault.FAR:
                    connection.delay_s = _FAR_S
                elif fault is LinkFault.STALL:
                    connection.stall("up", "down")
                else:
                    connection.stall(one_way)
            try:
                await asyncio.sleep(seconds)
            finally:
                for connection in chosen:
                    connection.flow()
        return len(chosen)

    def _chosen(self) -> list[_Connection]:
        there = [each for each in self._connections if not each.orphaned]
        chosen = [each for each in there if self._random.random() < _PART]
        return chosen or there[:1]

    async def _reorder(self, chosen: list[_Connection], seconds: float) -> None:
        try:
            # So that there is data in flight.
            for connection in chosen:
                connection.stall("up")
            await asyncio.sleep(seconds / 4)
            self._waiting = []
            for connection in chosen:
                connection.orphan()
            await asyncio.sleep(seconds / 2)
        finally:
            waiting, self._waiting = self._waiting or [], None
            for event in reversed(waiting):
                event.set()
                # It reaches the server before the next one does.
                await asyncio.sleep(0)
        try:
            await asyncio.sleep(seconds / 4)
        finally:
            for connection in chosen:
                connection.flow()

    async def _accept(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = _Connection(reader, writer, self)
        self._connections[connection] = task
        try:
            if self._waiting is not None:
                turn = asyncio.Event()
                self._waiting.append(turn)
                await turn.wait()
            await connection.run(self._to_port)
        # asyncio would log it as an error.
        except asyncio.CancelledError:
            return
        finally:
            connection.abort()
            del self._connections[connection]


class _Late:
    """Data on its way, in order, each with the time at which it comes."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._on_way = 0

    def any(self) -> bool:
        """Whether there is some, so that nothing may come before it."""
        return self._on_way > 0

    def put(self, delay_s: float, data: bytes) -> None:
        """Send it; empty data is the end."""
        self._on_way += 1
        self._queue.put_nowait((asyncio.get_running_loop().time() + delay_s, data))

    async def get(self) -> tuple[float, bytes]:
        """The next one, and its time."""
        return await self._queue.get()

    def came(self) -> None:
        """Note that the one of `get` has come."""
        self._on_way -= 1


class _Connection:
    """A client's connection, and the one to the server that belongs to it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, proxy: Proxy
    ) -> None:
        self._proxy = proxy
        self._injections = list(proxy.injections)
        self._shape = proxy.shape
        self.trickles = False
        self.bytes_per_s: float | None = None
        self.delay_s = 0.0
        self.orphaned = False
        self._client = (reader, writer)
        self._server: asyncio.StreamWriter | None = None
        self._flows = {"up": asyncio.Event(), "down": asyncio.Event()}
        self.flow()

    async def run(self, port: int) -> None:
        """Carry data until an end has closed."""
        from_client, to_client = self._client
        try:
            from_server, to_server = await asyncio.open_connection(
                ADDRESS, port, limit=self._proxy.buffer_bytes
            )
        except OSError:
            return
        self._server = to_server
        carry = self._carry if self._shape is None else self._carry_shaped
        up = asyncio.ensure_future(carry("up", from_client, to_server))
        down = asyncio.ensure_future(carry("down", from_server, to_client))
        try:
            await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
            if not down.done() and not self.orphaned:
                # The server closes in turn, after its last data.
                with contextlib.suppress(OSError):
                    to_server.write_eof()
                await asyncio.wait((down,), timeout=_LINGER_S)
            await _close(to_server, to_client)
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.wait((up, down))

    def stall(self, *directions: str) -> None:
        """Stop the flow in this direction."""
        for direction in directions:
            self._flows[direction].clear()

    def flow(self) -> None:
        """Let data flow again, as fast as possible."""
        self.trickles = False
        self.bytes_per_s = None
        self.delay_s = 0.0
        for event in self._flows.values():
            event.set()

    def orphan(self) -> None:
        """Cut only the client's end."""
        self.orphaned = True
        self._client[1].transport.abort()

    def abort(self) -> None:
        """Cut both ends."""
        for writer in (self._client[1], self._server):
            if writer is not None:
                writer.transport.abort()

    async def _carry(
        self,
        direction: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        flows, late = self._flows[direction], _Late()
        arriving = asyncio.ensure_future(self._arrive(direction, late, writer))
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(_READ_BYTES):
                    if direction == "down":
                        data = self._with_injections(data)
                    while data:
                        await flows.wait()
                        size, pause_s = self._piece(len(data))
                        if self.delay_s or late.any():
                            late.put(self.delay_s, data[:size])
                        else:
                            await self._put(direction, writer, data[:size])
                        data = data[size:]
                        if pause_s:
                            await asyncio.sleep(pause_s)
            # The end of a connection is delayed like everything else.
            await flows.wait()
            late.put(self.delay_s, b"")
            await arriving
        finally:
            arriving.cancel()

    def _piece(self, size: int) -> tuple[int, float]:
        """The bytes of the next piece, of so many, and the seconds that it takes."""
        if self.trickles:
            return _PIECE_BYTES, _PIECE_PAUSE_S
        if self.bytes_per_s is None:
            return size, 0.0
        size = min(size, max(1, int(self.bytes_per_s * _SHAPED_PIECE_S)))
        return size, size / self.bytes_per_s

    async def _arrive(
        self, direction: str, late: _Late, writer: asyncio.StreamWriter
    ) -> None:
        """Let what is late come in its time, up to its end."""
        loop, flows = asyncio.get_running_loop(), self._flows[direction]
        with contextlib.suppress(OSError):
            while True:
                at, data = await late.get()
                await asyncio.sleep(at - loop.time())
                await flows.wait()
                if not data:
                    return
                await self._put(direction, writer, data)
                late.came()

    async def _carry_shaped(
        self,
        direction: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """As fast as the link is, and no faster."""
        assert self._shape is not None
        rate, delay_s = self._shape.bytes_per_s, self._shape.delay_s
        piece = max(1, min(_READ_BYTES, int(rate * _SHAPED_PIECE_S)))
        loop, flows = asyncio.get_running_loop(), self._flows[direction]
        late = _Late()
        arriving = asyncio.ensure_future(self._arrive(direction, late, writer))
        free_at = loop.time()
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(piece):
                    free_at = max(free_at, loop.time()) + len(data) / rate
                    late.put(free_at - loop.time() + delay_s, data)
                    await asyncio.sleep(free_at - loop.time())
                    await flows.wait()
            late.put(delay_s, b"")
            await arriving
        finally:
            arriving.cancel()

    def _with_injections(self, data: bytes) -> bytes:
        for injection in tuple(self._injections):
            match = injection.pattern.search(data)
            if match is not None:
                at = match.end() if injection.behind else match.start()
                data = data[:at] + injection.content + data[at:]
                self._injections.remove(injection)
                self._proxy.injected += 1
        return data

    async def _put(
        self, direction: str, writer: asyncio.StreamWriter, data: bytes
    ) -> None:
        try:
            if not (self.orphaned and direction == "down"):
                writer.write(data)
                self._proxy.carried[direction] += len(data)
                await writer.drain()
        except OSError:
            # The server may still send data for a client that is gone.
            if not self.orphaned:
                raise


async def _close(*writers: asyncio.StreamWriter) -> None:
    """Close both when the data has left, or soon in any case."""
    for writer in writers:
        writer.close()
    for writer in writers:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                await writer.wait_closed()
