"""Moves bytes between a TCP transport of asyncio and proton, which is without I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from proton import Collector, Connection, Endpoint, Event, Transport

from qos.amqp import bounds
from qos.amqp.deliveries import Delivery, next_delivery

__all__ = ["Pump"]

#: A frame without a body (AMQP 1.0, transport §2.4.5): it says that we are there.
_EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"

_OPEN: Final = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_ACTIVE


class Pump:
    """The AMQP layer of one connection.

    Proton is C code that calls back: what a handler of events raises comes out of
    `push`, `write` and `tick`, and its caller ends the connection.

    Attributes:
        connection: of proton.
    """

    def __init__(
        self,
        tcp: asyncio.Transport,
        amqp: Transport,
        handle: Callable[[Event], None],
        deliver: Callable[[Delivery], None],
        rewrite: Callable[[bytes], bytes] | None = None,
    ) -> None:
        """Begin; nothing is written yet.

        Args:
            tcp: the TCP transport.
            amqp: proton's.
            handle: is called for each event that is not about a delivery.
            deliver: is called for each that is.
            rewrite: what proton sends, in order, into what is written; None: as it is.
        """
        self.connection = Connection()
        self.may_write = True
        self._tcp = tcp
        self._amqp = amqp
        self._handle = handle
        self._deliver = deliver
        self._rewrite = rewrite
        self._collector = Collector()
        self._handling = False
        self._beats_at = 0.0
        self.connection.collect(self._collector)

    def bind(self) -> None:
        """Start the AMQP layer with the connection as it is set up now."""
        self._amqp.bind(self.connection)

    def push(self, data: bytes) -> None:
        """Take bytes of the peer; what they bring about is written by `write`."""
        while data:
            capacity = self._amqp.capacity()
            if capacity <= 0:
                break
            chunk, data = data[:capacity], data[capacity:]
            self._amqp.push(chunk)
            self._events()

    def write(self) -> None:
        """Write what proton wants to send; closes the TCP transport at the end."""
        if self._tcp.is_closing():
            return
        self._events()
        while self.may_write and (size := self._amqp.pending()) > 0:
            data = bytes(self._amqp.peek(size) or b"")
            self._amqp.pop(size)
            self._put(data)
        self._events()
        if self._amqp.pending() < 0:
            self._tcp.close()

    def tick(self, now: float) -> float:
        """Send heartbeats, and notice when the peer sends none; returns when to call again.

        Proton sends as many as the peer asks for. A proxy in between cannot ask, and
        counts the silence of each end by itself; so there is a heartbeat in any case.
        """
        at: float = self._amqp.tick(now)
        self.write()
        if now >= self._beats_at:
            self._beats_at = now + bounds.BEAT_S
            self._beat()
        return min(at, self._beats_at) if at else self._beats_at

    def _beat(self) -> None:
        """Send an empty frame, if frames may be sent, and this is the end of one."""
        is_open = self.connection.state & _OPEN == _OPEN
        is_written = self.may_write and self._amqp.pending() == 0
        if is_open and is_written and not self._tcp.is_closing():
            self._put(_EMPTY_FRAME)

    def _put(self, data: bytes) -> None:
        self._tcp.write(data if self._rewrite is None else self._rewrite(data))

    def release(self) -> None:
        """Break the circle between proton's objects."""
        self._amqp.unbind()
        self._collector.release()

    def _events(self) -> None:
        if self._handling:
            return  # a handler writes: what this brings about is handled after it
        self._handling = True
        try:
            while True:
                delivery = next_delivery(self._collector)
                if delivery is not None:
                    self._deliver(delivery)
                elif (event := self._collector.peek()) is not None:
                    self._handle(event)
                else:
                    return
                self._collector.pop()
        finally:
            self._handling = False
