"""The input of a connection: frames wait here for the turns of their account.

A step handles frames until its time is up. Nothing is read while much waits, or while
the account has sent more than its rate: then the peer has to wait, and is not cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from qos.amqp import bounds
from qos.core.amqp.frame_parts import Part
from qos.core.amqp.frame_shim import FrameShim
from qos.engine.payers import STEP_S, Job, Payers

__all__ = ["Intake"]

#: Bytes that are cut into frames at a time.
_CUT_BYTES = 64 * 1024

#: The most seconds of one wait of a payer that is over its rate: it is looked at again.
_WAIT_S_MAX = 5.0


class Intake:
    """The bytes of one connection after its login.

    Attributes:
        full: more is being written than there is room for, so nothing is read.
    """

    def __init__(
        self,
        tcp: asyncio.Transport,
        payers: Payers,
        account: str,
        shim: FrameShim,
        *,
        handle: Callable[[Part], None],
        flush: Callable[[], None],
    ) -> None:
        """Begin without bytes.

        Args:
            tcp: is read.
            payers: of all doors.
            account: that pays.
            shim: cuts the bytes.
            handle: takes each part; it does not raise.
            flush: is called at the end of each step; it does not raise.
        """
        self.full = False
        self._tcp = tcp
        self._payers = payers
        self._account = account
        self._shim = shim
        self._handle = handle
        self._flush = flush
        self._bytes = bytearray()
        self._parts: Iterator[Part] = iter(())
        self._job: Job | None = None
        # Goes on when the account may send again.
        self._timer: asyncio.TimerHandle | None = None
        # What the account has given to be written has to be written first.
        self._waits = False
        # The peer has made requests that count, since that was looked at.
        self._requested = False
        self._stopped = False
        self._when_done: Callable[[], object] | None = None

    def received(self, data: bytes) -> None:
        """Take bytes."""
        self._payers.take(self._account, size=len(data))
        if self._stopped:
            return
        self._bytes += data
        self._go_on()

    def requested(self) -> None:
        """Count a request, such as an attach."""
        self._payers.take(self._account, requests=1)
        self._requested = True

    @property
    def idle(self) -> bool:
        """Whether all that has come is handled."""
        return not self._goes_on and not self._bytes

    @property
    def _goes_on(self) -> bool:
        """Whether its turn, the time or a commit calls it again."""
        return self._job is not None or self._timer is not None or self._waits

    def stop(self) -> None:
        """Handle nothing more: what comes is read and dropped."""
        self._stopped = True
        self._bytes.clear()
        self._parts = iter(())
        self.update()

    def when_done(self, call: Callable[[], object]) -> None:
        """The peer is gone: call this when what it has sent before is handled."""
        self._when_done = call
        self._stop_timer()
        if self._job is None:
            self._job = self._payers.do(self._account, self._step)

    def update(self) -> None:
        """Read from the peer, or not."""
        if self._tcp.is_closing():
            return
        waits = self._timer is not None or len(self._bytes) >= bounds.READ_BYTES_MAX
        reads = self._stopped or not (self.full or waits)
        if reads and not self._tcp.is_reading():
            self._tcp.resume_reading()
        elif not reads and self._tcp.is_reading():
            self._tcp.pause_reading()

    def _go_on(self) -> None:
        if not self._goes_on:
            if not self._payers.may_write(self._account):
                self._waits = True
                self._payers.when_written(self._account, self._written)
                self.update()
                return
            over = self._payers.over(self._account, requests=self._requested)
            if over is None or self._when_done is not None:
                self._requested = False
                self._job = self._payers.do(self._account, self._step)
            else:
                loop = asyncio.get_running_loop()
                wait_s = min(over.wait_s, _WAIT_S_MAX)
                self._timer = loop.call_later(wait_s, self._again)
        self.update()

    def _written(self) -> None:
        self._waits = False
        self._go_on()

    def _again(self) -> None:
        self._timer = None
        self._go_on()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self) -> bool:
        payers = self._payers
        # Whoever is alone need not make way.
        until = payers.now() + STEP_S
        if payers.waiting == 1:
            until = max(until, payers.turn_until)
        more = True
        while more and payers.now() < until:
            more = self._part()
        self._flush()
        self._job = None
        if more:
            # Asked after each step: a peer that sends all the time is never without more.
            self._go_on()
        elif self._when_done is not None:
            self._when_done()
        else:
            self.update()
        return False

    def _part(self) -> bool:
        """Handle a part; False: there is none."""
        part = next(self._parts, None)
        if part is not None:
            self._handle(part)
            return True
        if not self._bytes:
            return False
        cut = bytes(self._bytes[:_CUT_BYTES])
        del self._bytes[:_CUT_BYTES]
        self._parts = self._shim.parts(cut)
        return True
