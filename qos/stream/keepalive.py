"""Whether a link is alive: what moves on it, in either direction, is life.

A ping finds out where nothing comes. Its answer may be long in coming behind a large
message on a slow link, in either direction; so the time-out counts only while nothing
at all moves.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import socket
import sys
import termios
from typing import Any, Final, Self

from slixmpp import JID
from slixmpp.basexmpp import BaseXMPP
from slixmpp.exceptions import IqError, IqTimeout

from qos.stream.turns import Turns

__all__ = ["Keepalive", "unsent_bytes", "unsent_s"]

#: How often to look whether something has moved, as a part of the time-out.
_LOOKS: Final = 20

#: Linux: the bytes of a socket that its peer has not acknowledged.
_OUTQ: Final = getattr(termios, "TIOCOUTQ", None)

#: Linux: what the system knows of a connection (`struct tcp_info` of linux/tcp.h), and
#: where in it are the milliseconds since data was sent last.
_INFO: Final = getattr(socket, "TCP_INFO", None)
_LAST_DATA_SENT: Final = 44
_INFO_BYTES: Final = _LAST_DATA_SENT + 4


class Keepalive:
    """Watches the link of one session.

    Args:
        xmpp: the stream.
        interval_s: a ping is sent when nothing has come, or nothing was written, for so
            many seconds.
        timeout_s: the link is dead when nothing has moved for so many seconds after it.
    """

    def __init__(self, xmpp: BaseXMPP, *, interval_s: float, timeout_s: float) -> None:
        self._xmpp = xmpp
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._turns = Turns.of(xmpp)

    async def until_dead(self, *, at_once: bool = False) -> None:
        """Return when the link is dead. With TCP alone that may take hours.

        Args:
            at_once: ask at once, whatever has come before.
        """
        now = self._xmpp.loop.time
        while True:
            # A proxy in between counts the silence of each end by itself.
            silent_s = max(now() - self._turns.came_at, unsent_s(self._xmpp.transport))
            wait_s = self._interval_s - silent_s
            if self._turns.is_held:
                wait_s = self._interval_s  # while nothing is read, nobody knows
            at_once, asks = False, at_once
            if wait_s > 0 and not asks:
                await asyncio.sleep(wait_s)
                continue
            ping = asyncio.create_task(self._ping())
            try:
                with _Sent(self._xmpp) as output:
                    if not await self._moves(output):
                        return
            finally:
                ping.cancel()

    async def _ping(self) -> None:
        xmpp, own = self._xmpp, self._xmpp.boundjid
        # A component pings itself: the server need not know any other address.
        sender = own if xmpp.is_component else None
        # Whoever answers, and what: it is there.
        with contextlib.suppress(IqError, IqTimeout):
            ping: Any = xmpp.plugin["xep_0199"]
            await ping.ping(JID(own.host), ifrom=sender)

    async def _moves(self, output: _Sent) -> bool:
        """Whether something comes; while bytes leave, there is more time for it.

        What counts is the time in which this process could have seen it: it may have
        been stopped, or the whole machine.
        """
        now = self._xmpp.loop.time
        step_s = self._timeout_s / _LOOKS
        asked_at, looked_at = self._turns.came_at, now()
        acked, silent_s = output.gone(), 0.0
        while silent_s < self._timeout_s:
            await asyncio.sleep(step_s)
            if self._turns.came_at > asked_at or self._turns.is_held:
                return True
            before, acked = acked, max(acked, output.gone())
            since_s, looked_at = now() - looked_at, now()
            silent_s = 0.0 if acked > before else silent_s + min(since_s, 2 * step_s)
        return False


class _Sent:
    """Counts what a stream writes, as a context; and what of it has left."""

    def __init__(self, xmpp: BaseXMPP) -> None:
        self._xmpp = xmpp
        self._written = 0
        self._write = xmpp.send_raw

    def __enter__(self) -> Self:
        self._xmpp.send_raw = self._count  # type: ignore[method-assign]
        return self

    def __exit__(self, *_error: object) -> None:
        if self._xmpp.send_raw == self._count:
            self._xmpp.send_raw = self._write  # type: ignore[method-assign]

    def _count(self, data: str | bytes) -> None:
        self._written += len(data)
        self._write(data)

    def gone(self) -> int:
        """The bytes that have left: the peer's system has acknowledged them.

        They begin below zero, and are right to some per cent: TLS makes them longer.
        """
        return self._written - unsent_bytes(self._xmpp.transport)


def unsent_bytes(transport: asyncio.Transport | None) -> int:
    """The bytes that were written and have not left, as far as the system tells.

    These are in the buffers of asyncio, of its TLS, and (on Linux) of the system.
    """
    if transport is None:
        return 0
    count = transport.get_write_buffer_size()
    # asyncio's TLS writes through another transport, with a buffer of its own.
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    if below is not None:
        count += below.get_write_buffer_size()
    beneath: socket.socket | None = transport.get_extra_info("socket")
    if beneath is not None and _OUTQ is not None:
        queued = array.array("i", [0])
        with contextlib.suppress(OSError):
            fcntl.ioctl(beneath.fileno(), _OUTQ, queued)
        count += queued[0]
    return count


def unsent_s(transport: asyncio.BaseTransport | None) -> float:
    """The seconds since data was sent last, as far as the system tells; else 0."""
    beneath: socket.socket | None = None
    if transport is not None:
        beneath = transport.get_extra_info("socket")
    if beneath is None or _INFO is None or sys.platform != "linux":
        return 0.0
    try:
        info = beneath.getsockopt(socket.IPPROTO_TCP, _INFO, _INFO_BYTES)
    except OSError:  # it is closed, or no TCP
        return 0.0
    return int.from_bytes(info[_LAST_DATA_SENT:_INFO_BYTES], sys.byteorder) / 1000
