"""Connects to the first address of a server that answers as one.

slixmpp tries one address after the other, each until the system gives it up: one that
swallows what it gets hides a good one behind it for minutes. Here the next address is
tried a moment after the one before, beside it (RFC 8305 §5), over all targets that DNS
names (RFC 2782). The first that answers the header of our stream wins, over TLS if TLS
comes first. slixmpp goes on from there.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Sequence
from typing import Final

from slixmpp.basexmpp import BaseXMPP
from slixmpp.xmlstream.resolver import default_resolver, get_SRV

from qos.core.addresses import ADDRESSES_MAX, Address, AddressBook, interleaved
from qos.stream.internals import replace_connect

__all__ = ["Dialer"]

#: What lacks where the other end of TLS has chosen no protocol of those offered (ALPN).
_NOT_CHOSEN: Final = ": the server has not chosen XMPP (ALPN xmpp-client); is this its port for direct TLS?"

#: The time until the second address is tried beside the first, in seconds; RFC 8305 §5
#: recommends it. It doubles with each further one: on a slow link all need seconds.
_BESIDE_S: Final = 0.25


class Dialer:
    """The connections of one stream; `xmpp.connect` goes this way from now on."""

    def __init__(self, xmpp: BaseXMPP) -> None:
        self._xmpp = xmpp
        self._book = AddressBook()
        self._tried: Sequence[Address] = ()
        self._address: Address | None = None
        replace_connect(xmpp, self._dial)

    @property
    def share(self) -> float:
        """The part of the time for an attempt that the present address may take.

        The others that have not failed get as much.
        """
        return 1 / max(1, self._book.good(self._tried))

    def ended(self, *, well: bool) -> None:
        """Note whether the present address has brought a session."""
        address, self._address = self._address, None
        if address is not None and well:
            self._book.worked(address)
        elif address is not None:
            self._book.failed(address, self._xmpp.loop.time())

    async def _dial(self) -> None:
        """Connect; in place of slixmpp's own method.

        Raises:
            OSError: no address is known, or none of them answers. A failure of TLS
                counts for more than others, and the last one for more than those before.
        """
        addresses = await self._addresses()
        self._tried = self._book.order(addresses, self._xmpp.loop.time())
        first = await self._race(self._tried)
        self._address = first.address
        first.hand_over()

    async def _addresses(self) -> list[Address]:
        targets = await self._targets()
        look_up = self._xmpp.loop.getaddrinfo
        results = await asyncio.gather(
            *(look_up(host, port, type=socket.SOCK_STREAM) for host, port in targets),
            return_exceptions=True,
        )
        addresses: list[Address] = []
        problem: BaseException | None = None
        for result in results:
            if isinstance(result, BaseException):
                problem = result
            else:
                addresses += interleaved((str(at[0]), int(at[1])) for *_, at in result)
        if not addresses and problem is not None:
            raise problem
        return addresses

    async def _targets(self) -> list[tuple[str, int]]:
        """The names and ports at which to look for the server."""
        xmpp = self._xmpp
        if xmpp.custom_address:
            host, port = xmpp.custom_address
            return [(host, port)]
        direct = xmpp.enable_direct_tls
        services = xmpp.tls_services if direct else xmpp.starttls_services
        host, port = xmpp.default_domain, xmpp.default_port
        records = await get_SRV(
            host, port, list(services), resolver=default_resolver(xmpp.loop)
        )
        return [record[1:] for record in records][:ADDRESSES_MAX] or [(host, port)]

    async def _race(self, addresses: Sequence[Address]) -> _Attempt:
        """The first attempt that is answered; the others are given up.

        Those that began before it have failed: the next time they are tried after it.
        """
        running: dict[asyncio.Task[None], _Attempt] = {}
        waiting = list(addresses)
        problem: BaseException = socket.gaierror("it has no address")
        beside_s = _BESIDE_S
        try:
            while waiting or running:
                if waiting:
                    attempt = _Attempt(self._xmpp, waiting.pop(0))
                    running[asyncio.create_task(attempt.run())] = attempt
                finished, _ = await asyncio.wait(
                    running,
                    timeout=beside_s if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                beside_s *= 1 if finished else 2
                for task in [task for task in running if task in finished]:
                    error = task.exception()
                    if error is None:
                        return self._won(task, running)
                    self._lost(running.pop(task))
                    if not isinstance(problem, ssl.SSLError):
                        problem = error
            raise problem
        except asyncio.CancelledError:
            for attempt in running.values():
                self._lost(attempt)
            raise
        finally:
            for task, attempt in running.items():
                if not task.cancel():
                    task.exception()  # it has failed meanwhile: nobody asks why
                attempt.hang_up()

    def _won(
        self, winner: asyncio.Task[None], running: dict[asyncio.Task[None], _Attempt]
    ) -> _Attempt:
        for task in list(running):
            if task is winner:
                break
            self._lost(running[task])
        return running.pop(winner)

    def _lost(self, attempt: _Attempt) -> None:
        self._book.failed(attempt.address, self._xmpp.loop.time())


class _Attempt(asyncio.Protocol):
    """One connection, until it has answered the header of our stream.

    Attributes:
        address: the one that is tried.
    """

    def __init__(self, xmpp: BaseXMPP, address: Address) -> None:
        self.address = address
        self._xmpp = xmpp
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[None] = xmpp.loop.create_future()
        self._came = b""
        self._is_handed_over = self._is_lost = False

    async def run(self) -> None:
        """Connect, and send the header.

        Raises:
            OSError: nothing listens there, or it ends the connection without an answer.
        """
        context: ssl.SSLContext | None = None
        if self._xmpp.enable_direct_tls:
            context = self._xmpp.get_ssl_context()
        name = self._xmpp.default_domain if context else None
        await self._xmpp.loop.create_connection(
            lambda: self, *self.address, ssl=context, server_hostname=name
        )
        await self._answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._answered.done():
            transport.abort()  # it was given up meanwhile
        else:
            transport.write(self._xmpp.stream_header.encode())

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        self._came += data
        if not self._answered.done():
            self._answered.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if self._is_handed_over:
            self._xmpp.connection_lost(error)
        elif not self._answered.done():
            self._answered.set_exception(self._problem(error))
        self._is_lost = True

    def _problem(self, error: Exception | None) -> Exception:
        """The reason for the end of a connection that has brought nothing."""
        tls: ssl.SSLObject | None = None
        if self._transport is not None:
            tls = self._transport.get_extra_info("ssl_object")
        if tls is None or isinstance(error, ssl.SSLError):
            return error or ConnectionResetError(errno.ECONNRESET, "closed")
        no_xmpp = "" if tls.selected_alpn_protocol() else _NOT_CHOSEN
        return ConnectionError(f"the connection was closed after TLS{no_xmpp}")

    def hang_up(self) -> None:
        """Give it up."""
        self._answered.cancel()
        if self._transport is not None:
            self._transport.abort()

    def hand_over(self) -> None:
        """Let slixmpp go on, as if it had sent the header itself."""
        xmpp, transport = self._xmpp, self._transport
        assert transport is not None
        self._is_handed_over = True
        transport.set_protocol(xmpp)
        xmpp.event_when_connected = "connected"
        header, xmpp.stream_header = xmpp.stream_header, ""
        try:
            xmpp.connection_made(transport)
        finally:
            xmpp.stream_header = header
        transport.resume_reading()
        xmpp.data_received(self._came)
        if self._is_lost:
            xmpp.connection_lost(None)
