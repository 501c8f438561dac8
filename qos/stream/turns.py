"""Handles what a stream brings in short turns of the event loop.

slixmpp reads up to 256 kB at a time, and would handle all of it at once: every other task
would wait. This module knows slixmpp's protocol methods, but no stanzas.
"""

from __future__ import annotations

import asyncio
import math
import time

from slixmpp.basexmpp import BaseXMPP

from qos.stream.per_stream import one_per_stream

__all__ = ["Turns"]

#: Bytes that are handled between two looks at the clock: with the smallest elements about
#: a millisecond.
_SLICE_BYTES = 2 * 1024

#: Seconds after which a turn ends.
_TURN_S = 0.0015


class Turns:
    """The turns of one stream.

    What has come is handled in order, and before the end of its connection. Meanwhile the
    transport is not read, so only one read waits. When the stream begins anew (after
    STARTTLS above all), or is broken, what is left of the old one is dropped.

    Only this object pauses and resumes the transport: whoever has no room for more calls
    `hold`.

    Attributes:
        came_at: when something has come last, by the clock of the loop.
    """

    def __init__(self, xmpp: BaseXMPP) -> None:
        """Take over the incoming bytes of this stream."""
        self._xmpp = xmpp
        self._handle, self._lost = xmpp.data_received, xmpp.connection_lost
        self._left = memoryview(b"")
        self._parser: object = None
        self._next: asyncio.Handle | None = None
        self._held = False
        self.came_at = -math.inf
        xmpp.data_received = self.data_received  # type: ignore[method-assign]
        xmpp.connection_lost = self.connection_lost  # type: ignore[method-assign]

    @classmethod
    def of(cls, xmpp: BaseXMPP) -> Turns:
        """The turns of this stream."""
        return one_per_stream(cls, xmpp)

    @property
    def is_held(self) -> bool:
        """Whether nothing is read."""
        return self._held

    def hold(self) -> None:
        """Read nothing more, over new connections too; what was read is still handled."""
        self._held = True
        self._pause()

    def release(self) -> None:
        """Read on; harmless if nothing is held."""
        was_held, self._held = self._held, False
        if was_held and self._next is None:
            self._resume()

    def data_received(self, data: bytes | str) -> None:
        """Begin to handle what has come."""
        self.came_at = self._xmpp.loop.time()
        if self._held:
            # The connection is new, or has given what it had read before.
            self._pause()
        came = data.encode() if isinstance(data, str) else data
        if len(came) <= _SLICE_BYTES and not self._left and not self._is_broken():
            self._handle(came)
            return
        # A transport may have had more in its hands when it was paused.
        rest = self._left if self._xmpp.parser is self._parser else b""
        self._left = memoryview(bytes(rest) + came if rest else came)
        self._parser = self._xmpp.parser
        if self._next is None:
            self._turn()

    def connection_lost(self, exception: BaseException | None) -> None:
        """Handle the rest, and then the end of the connection."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        while self._left:
            self._slice()
        self._lost(exception)

    def _turn(self) -> None:
        waited, self._next = self._next is not None, None
        ends = time.perf_counter() + _TURN_S
        while self._left and time.perf_counter() < ends:
            self._slice()
        if self._left:
            self._next = self._xmpp.loop.call_soon(self._turn)
            if not waited:
                self._pause()
        elif waited and not self._held:
            self._resume()

    def _pause(self) -> None:
        if self._xmpp.transport is not None:
            self._xmpp.transport.pause_reading()

    def _resume(self) -> None:
        if self._xmpp.transport is not None:
            self._xmpp.transport.resume_reading()

    def _slice(self) -> None:
        if self._xmpp.parser is not self._parser or self._is_broken():
            self._left = memoryview(b"")
            return
        data, self._left = self._left[:_SLICE_BYTES], self._left[_SLICE_BYTES:]
        self._handle(bytes(data))

    def _is_broken(self) -> bool:
        return getattr(self._xmpp.parser, "is_broken", False)
