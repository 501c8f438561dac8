"""Doors: the addresses where a service listens, for clients of any protocol.

A connection is counted before anything else is done for it, TLS included, and until its
file descriptor is closed; see `qos.core.connection_shares`. All doors share the limits, so
that what comes in at one of them cannot use up the file descriptors of the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from qos.core.connection_shares import (
    ConnectionLimits,
    ConnectionShares,
    Place,
    TooMany,
    payer_of,
)
from qos.core.rate import RateLimit
from qos.engine.payers import Payers
from qos.tls_files import Tls

__all__ = ["Arrival", "Door", "Doors"]

log = logging.getLogger(__name__)

#: Seconds in which the handshake of TLS has to be complete, and seconds until a connection
#: has to be logged in.
HANDSHAKE_S = 10.0
LOGIN_S = 10.0

#: Seconds of work that a handshake of TLS is taken for: asyncio does it in pieces, which
#: nobody measures.
_HANDSHAKE_WORK_S = 0.002

#: Seconds for which a peer may answer the end of TLS.
_TLS_END_S = 2.0

#: Seconds until accepting is tried again when there is no file descriptor.
_AGAIN_S = 0.2

#: Connections that the kernel keeps until they are accepted, if it may keep as many. It
#: drops others, and their clients try again after a second, then after two more.
_BACKLOG = 4096

#: Seconds for which connections are accepted at a door before everybody else has a turn.
#: The kernel keeps them in one row, whoever they are: one of many addresses waits behind
#: all those that a flood of one address is refused.
_ACCEPT_S = 0.001

#: Characters of a line of the log that a stranger has caused.
_LOG_CHARS_MAX = 300

#: Seconds between two lines of the log about the same address, or the same error.
_LOG_S = 60.0


class Arrival:
    """A connection that has come in at a door.

    It is ended if it is not logged in in time.

    Attributes:
        address: the IP address of the peer.
        payer: the address, or the network of it, that pays before the login.
        transport: of the connection, after the handshake.
        before_end: is called before we end it, and may write a last word.
        when_left: is called when it is gone.
    """

    def __init__(
        self, doors: Doors, place: Place, accepted: socket.socket, address: str
    ) -> None:
        self.address = address
        self.payer = payer_of(self.address)
        self.transport: asyncio.BaseTransport | None = None
        self.before_end: Callable[[], object] = _nothing
        self.when_left: Callable[[], object] = _nothing
        self._doors = doors
        self._place = place
        self._socket = _CountedSocket(accepted, self._left)
        self._timer: asyncio.TimerHandle | None = None
        self._expect_login()

    def log_in(self, account: str) -> None:
        """Count it for this account from now on.

        Raises:
            TooMany: the account has as many connections as it may have.
        """
        self._doors.shares.log_in(self._place, account)
        self._stop_timer()

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """Stop the time for its login: it waits for us."""
        self._stop_timer()
        try:
            yield
        finally:
            if not self._place.account:
                self._expect_login()

    def warn(self, text: str) -> None:
        """Log this about the peer; see `Doors.warn`."""
        self._doors.warn(self.payer, f"{self.address}: {text}")

    def end(self) -> None:
        """End the connection at once."""
        self.before_end()
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()
        else:
            # In the middle of the handshake, which fails by that.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def drop(self) -> None:
        """Close the connection, which has not begun."""
        self._socket.close()

    async def begin(self, factory: Factory, tls: Tls | None) -> None:
        """Make the protocol, after the handshake of TLS.

        It waits for its turn: a crowd of handshakes would hold up the loop, and who comes
        from one address alone pays for them.
        """
        timeouts = {}
        if tls is not None:
            timeouts = {
                "ssl_handshake_timeout": HANDSHAKE_S,
                "ssl_shutdown_timeout": _TLS_END_S,
            }
        work_s = 0.0 if tls is None else _HANDSHAKE_WORK_S
        loop = asyncio.get_running_loop()
        try:
            with self.checked():
                await self._doors.payers.turn(self.payer, work_s)
            self.transport, _ = await loop.connect_accepted_socket(
                lambda: factory(self), self._socket, ssl=tls and tls(), **timeouts
            )
        except OSError as error:
            # No TLS, or not in time: strangers send anything.
            log.debug("%s: no connection: %s", self.address, error)
            self._socket.close()
        except BaseException:
            self._socket.close()
            raise

    def _expect_login(self) -> None:
        self._stop_timer()
        if self._place.payer:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOGIN_S, self.end)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _left(self) -> None:
        self._stop_timer()
        self._doors.left(self._place)
        when_left, self.when_left = self.when_left, _nothing
        when_left()


#: Makes the protocol of a connection.
Factory: TypeAlias = "Callable[[Arrival], asyncio.BaseProtocol]"


class Doors:
    """All doors of a service.

    Attributes:
        shares: the connections by address and account.
        payers: of all work; an address pays for a handshake.
    """

    def __init__(
        self, limits: ConnectionLimits | None = None, *, payers: Payers | None = None
    ) -> None:
        self.shares = ConnectionShares(limits or ConnectionLimits())
        self.payers = payers or Payers(time.monotonic)
        self._logged = RateLimit(_LOG_S)
        self._arrivals: dict[Place, Arrival] = {}

    async def listen(
        self, host: str, port: int, factory: Factory, *, tls: Tls | None
    ) -> Door:
        """Listen at an address.

        Args:
            host: a name or address; all addresses of a name are listened at.
            port: 0: a free one.
            factory: makes the protocol of each connection, after the handshake of TLS.
            tls: returns the context for each handshake; None: without.

        Raises:
            OSError: the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        # asyncio finds the addresses and binds them; its own accepting counts nothing.
        server = await loop.create_server(
            asyncio.Protocol, host, port, start_serving=False
        )
        sockets = [listener.dup() for listener in server.sockets]
        server.close()
        for listener in sockets:
            listener.setblocking(False)
            listener.listen(_BACKLOG)
        return Door(self, sockets, factory, tls)

    def count(self, accepted: socket.socket, address: str) -> Arrival | None:
        """Count an accepted connection; None: there is no room, and it is closed."""
        try:
            place, evicted = self.shares.arrive(address)
        except TooMany as error:
            accepted.close()
            self.warn(payer_of(address), f"a connection is refused: {error}")
            return None
        try:
            arrival = Arrival(self, place, accepted, address)
        except BaseException:
            self.shares.leave(place)
            raise
        self._arrivals[place] = arrival
        if evicted is not None:
            self._arrivals[evicted].end()
        return arrival

    def left(self, place: Place) -> None:
        """Count a connection no more."""
        self.shares.leave(place)
        self._arrivals.pop(place, None)

    def warn(self, source: str, text: str) -> None:
        """Log this, once a minute for each source: a stranger sends what it likes."""
        left_out = self._logged.admit(source, asyncio.get_running_loop().time())
        if left_out is not None:
            more = f" (and {left_out} times before)" if left_out else ""
            log.warning("%s%s", text[:_LOG_CHARS_MAX], more)


class _CountedSocket(socket.socket):
    """A socket that counts until it is closed, by whomever."""

    def __init__(self, accepted: socket.socket, on_close: Callable[[], None]) -> None:
        super().__init__(
            accepted.family, accepted.type, accepted.proto, fileno=accepted.detach()
        )
        self.setblocking(False)
        self._on_close = on_close

    def close(self) -> None:
        """See socket.socket."""
        super().close()
        self._on_close()


class Door:
    """One address where clients come in."""

    def __init__(
        self,
        doors: Doors,
        sockets: list[socket.socket],
        factory: Factory,
        tls: Tls | None,
    ) -> None:
        """Accept clients; see `Doors.listen`."""
        self._doors = doors
        self._sockets = sockets
        self._factory = factory
        self._tls = tls
        loop = asyncio.get_running_loop()
        self._accepting = [
            loop.create_task(self._accept(listener)) for listener in sockets
        ]
        self._beginning: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Of the first address."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Take no more connections; those that are there stay."""
        for task in (*self._accepting, *self._beginning):
            task.cancel()
        for listener in self._sockets:
            listener.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        until = 0.0
        while True:
            if loop.time() >= until:
                await asyncio.sleep(0)
                until = loop.time() + _ACCEPT_S
            try:
                accepted, peer = await _accepted(listening)
            except ConnectionError:
                # The peer has gone meanwhile.
                continue
            except Exception as error:  # noqa: BLE001 - or nobody would come in any more
                # There is no file descriptor, or no memory. It waits in the backlog.
                why = str(getattr(error, "strerror", None) or repr(error))
                text = f"no connection can be accepted: {why}"
                self._doors.warn(text, text)
                await asyncio.sleep(_AGAIN_S)
                continue
            try:
                self._begin(accepted, str(peer[0]))
            except Exception:
                log.exception("a connection cannot be served")
                accepted.close()
                await asyncio.sleep(_AGAIN_S)

    def _begin(self, accepted: socket.socket, address: str) -> None:
        arrival = self._doors.count(accepted, address)
        if arrival is not None:
            loop = asyncio.get_running_loop()
            try:
                task = loop.create_task(arrival.begin(self._factory, self._tls))
            except BaseException:
                arrival.drop()
                raise
            self._beginning.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._beginning.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a connection cannot be served", exc_info=error)


async def _accepted(listening: socket.socket) -> tuple[socket.socket, tuple[Any, ...]]:
    """A connection and the address of its peer; waits for one if there is none.

    Those of a flood are accepted without asyncio, which takes twice the time.
    """
    try:
        return listening.accept()
    except BlockingIOError:
        return await asyncio.get_running_loop().sock_accept(listening)


def _nothing() -> None:
    """Nobody wants to know."""
