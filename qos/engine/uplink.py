"""The bytes on their way to our server, and the messages that may be sent next.

A stream is read in order. So the answer to one request proves that the server has read
all that was written before it, and so does the answer to a ping. Until then a repeat
would only wait behind its first copy; and until then the bytes count against a window,
so that nothing waits behind more than some seconds of other messages.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from qos.core.message.effects import Transmit
from qos.core.message.flow import SMALL_BYTES, ByteWindow
from qos.core.message.model import OutgoingState
from qos.core.suspects import Suspects
from qos.engine.clock import Clock
from qos.engine.outbox_message import (
    OVERHEAD_BYTES,
    AccountFlow,
    Copy,
    Message,
    Stanzas,
)

__all__ = ["Uplink"]

#: The last part of the time for an answer, in which a ping asks whether the server has
#: read the request; and the part that is left for the answer then, at least.
_ASKING, _REST = 1 / 4, 1 / 8


#: Of the answers to an account, one in so many seconds is taken for the round trip.
_SAMPLE_S = 0.05

#: A server that answers no pings, against RFC 6120 §8.4, has read everything by then, for
#: all that is known.
_NO_ANSWER_S = 300.0


class Uplink:
    """The requests of one stream on their way.

    Args:
        clock: the time.
        first_s: the shortest time to wait for an answer, in seconds.
        send: writes a request; False: nothing of it was written, nor will be.
        ping: asks the server for an answer behind all that was written; it comes to
            `answered_ping`.
        stanzas: those of the stream, by their size.
        has_other_work: whether a message that is not held here has still to be sent or answered.
    """

    def __init__(
        self,
        clock: Clock,
        first_s: float,
        send: Callable[[Transmit], bool],
        ping: Callable[[], bool],
        stanzas: Stanzas,
        has_other_work: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._send = send
        self._ping = ping
        self._sizes = stanzas.sizes
        self._measure = stanzas.measure
        self._has_other_work = has_other_work
        #: The requests that may have ended a stream, and the one of them on its way.
        self._suspects: Suspects[tuple[Message, Copy]] = Suspects()
        self._suspect: Copy | None = None
        self._window = ByteWindow()
        self._look_s = first_s * (1 - _ASKING)
        #: Written, in this order, and not known to be read.
        self._unread: deque[Copy] = deque()
        #: By account, the messages that wait for room; the accounts take turns.
        self._waiting: dict[AccountFlow, deque[tuple[Message, Copy]]] = {}
        #: When the ping was sent that has not been answered, and the last copy before.
        self._pinged_at: float | None = None
        self._pinged_behind: Copy | None = None

    # -- requests ----------------------------------------------------------

    def transmit(self, message: Message, transmit: Transmit, now: float) -> bool:
        """Send a request now, or when there is room; see Port.transmit."""
        if message.copy is not None:
            self.forget(message)
        size, flow = 0, message.flow
        if transmit.step == "offer":
            if self._sizes.careful and self._hold(message, transmit, now):
                return True
            size = message.record.size + OVERHEAD_BYTES
            flow.unanswered += size
        message.copy = copy = Copy(size, flow.unanswered, now + self._look_s)
        alone = self._suspects.alone
        if size and (alone or self._waiting or not self._window.admits(size)):
            copy.transmit = transmit
            queue = self._waiting.setdefault(flow, deque())
            queue.append((message, copy))
            self._ask()
        elif self._send(transmit):
            copy.written_at = now
            self._window.used += size
            self._unread.append(copy)
        else:
            self.forget(message)
            return False
        return True

    def answered(self, message: Message, now: float) -> None:
        """Take an answer to the latest request of a message."""
        copy = message.copy
        if copy is None or copy.written_at == math.inf:
            return
        message.copy = None
        flow, record = message.flow, message.record
        flow.unanswered -= copy.size
        deliver = record.state is OutgoingState.RELEASING
        # Karn: an answer to one of several copies says nothing about the time.
        is_only = (record.delivers if deliver else record.attempts) == 1
        if is_only and now >= flow.samples_at:
            flow.samples_at = now + _SAMPLE_S
            self.heard(flow, now - copy.written_at, copy.ahead)
        if copy.read_at == math.inf:
            waits = self._waiting or self._suspect or self._suspects.held
            if not waits and copy is self._unread[0]:
                # As nearly always: nothing else follows from it.
                self._unread.popleft()
                copy.read_at = now
                self._window.used -= copy.size
            else:
                self._read(copy, now)

    def heard(self, flow: AccountFlow, took_s: float, size: int) -> None:
        """Take the round trip of a request with so many bytes."""
        flow.pace.answered(took_s, size)
        self._window.answered(took_s)

    def forget(self, message: Message) -> None:
        """Forget the copy of a message: it needs no answer, or may be repeated."""
        if message.copy is not None:
            message.flow.unanswered -= message.copy.size
            message.copy = None

    # -- what the server has read ------------------------------------------

    def _read(self, last: Copy, now: float) -> None:
        """Note that the server has read all up to this copy."""
        size = 0
        while self._unread:
            copy = self._unread.popleft()
            copy.read_at = now
            size += copy.size
            if copy is self._suspect:
                self._suspect = None
                self._sizes.went_through(self._suspects.read(now))
            if copy is last:
                break
        if size:
            self._window.read(size)
        self.go_on(now)

    def go_on(self, now: float) -> None:
        """Write what there is room for, one message of each account at a time."""
        if self._suspects.held:
            self._clear_suspects()
        while self._waiting and not self._suspects.alone:
            flow, queue = next(iter(self._waiting.items()))
            message, copy = queue[0]
            if message.copy is copy:
                if not self._window.admits(copy.size):
                    self._ask()
                    return
                self._write(message, copy, now)
            queue.popleft()
            del self._waiting[flow]
            if queue:
                self._waiting[flow] = queue
        if self._suspects.held:
            self._try_suspect(now)

    # -- suspects ----------------------------------------------------------

    def _hold(self, message: Message, transmit: Transmit, now: float) -> bool:
        """Whether a request may have ended a stream; then it is sent last, and alone."""
        size = self._measure(transmit)
        if not self._sizes.suspects(size):
            return False
        message.copy = copy = Copy(0, 0, math.inf, transmit)
        self._suspects.add(size, (message, copy), now)
        self.go_on(now)
        return True

    def holds(self, message: Message) -> bool:
        """Whether a message is a suspect that waits."""
        copy = message.copy
        return copy is not None and copy.transmit is not None and not copy.size

    def _clear_suspects(self) -> None:
        """Let those go on as usual that are no suspects any more."""
        for message, copy in self._suspects.cleared(self._sizes.suspects):
            if message.copy is copy:
                _weigh(message, copy)
                queue = self._waiting.setdefault(message.flow, deque())
                queue.append((message, copy))

    def _try_suspect(self, now: float) -> None:
        """Send a suspect if everything else has been answered."""
        while self._suspects.held:
            other_work = bool(self._waiting) or self._has_other_work()
            unread = bool(self._unread)
            suspect = self._suspects.next(now, unread=unread, other_work=other_work)
            if suspect is None:
                break
            message, copy = suspect
            if message.copy is copy:
                self._suspect = copy
                _weigh(message, copy)
                self._write(message, copy, now)
                if message.copy is copy:
                    break
                self._suspect = None
            self._suspects.read(now)
        if self._suspects.alone:
            self._ask()

    def _write(self, message: Message, copy: Copy, now: float) -> None:
        transmit, copy.transmit = copy.transmit, None
        assert transmit is not None
        if self._send(transmit):
            copy.written_at = now
            self._window.used += copy.size
            self._unread.append(copy)
        else:
            self.forget(message)

    def _ask(self) -> None:
        """Ask for an answer to a ping, unless one is awaited."""
        now = self._clock.now()
        if self._pinged_at is not None and now - self._pinged_at > _NO_ANSWER_S:
            self.answered_ping()
        if self._pinged_at is None:
            self._pinged_at = now
            self._pinged_behind = self._unread[-1] if self._unread else None
            if not self._ping():
                self._pinged_at = self._pinged_behind = None

    def answered_ping(self) -> None:
        """Take the answer: the server has read all that was written before the ping."""
        if self._pinged_at is None:
            return
        took_s = self._clock.now() - self._pinged_at
        behind, self._pinged_at, self._pinged_behind = self._pinged_behind, None, None
        self._window.asked(took_s)
        if behind is not None and behind.read_at == math.inf:
            self._read(behind, self._clock.now())
        else:
            self.go_on(self._clock.now())

    # -- when to repeat ----------------------------------------------------

    def not_before(self, message: Message) -> float | None:
        """When a request that is due may be repeated; None: now.

        Never while a copy of it waits here, or is not known to be read. And not before
        its peer has had the time for an answer.
        """
        copy, now = message.copy, self._clock.now()
        if copy is None:
            return None
        flow = message.flow
        patience_s = flow.pace.patience_s(message.record.tries, copy.ahead)
        if copy.read_at == math.inf:
            self._ask()
        if copy.read_at == math.inf:
            return now + patience_s * _ASKING
        slow = copy.read_at - copy.written_at > patience_s
        rest_s = patience_s if slow else patience_s * _REST
        at = max(copy.written_at + patience_s, copy.read_at + rest_s)
        if now < at:
            return at
        if copy.size > SMALL_BYTES and now >= flow.slows_at:
            flow.slows_at = now + patience_s
            flow.pace.repeated()
        return None

    def may_be_repeated(self, message: Message) -> None:
        """Let the next attempt repeat what the server has read: the peer has come."""
        if message.copy is not None and message.copy.read_at < math.inf:
            self.forget(message)

    def waits(self, message: Message) -> bool:
        """Whether the latest request of a message has not been written yet."""
        return message.copy is not None and message.copy.transmit is not None

    # -- the connection ----------------------------------------------------

    def started(self) -> None:
        """Take the start of a new session: nothing is on its way."""
        self._window.lost()
        self._unread.clear()
        self._waiting.clear()
        self._suspects.started()
        self._suspect = None
        self._pinged_at = self._pinged_behind = None

    def resumed(self) -> None:
        """Take the resumption of the session (XEP-0198 §5).

        The stream has written again what the server had not acknowledged.
        """
        now = self._clock.now()
        for copy in self._unread:
            copy.written_at = now
        self._pinged_at = self._pinged_behind = None
        if self._unread:
            self._ask()
        self.go_on(now)

    def not_written(self, message: Message) -> None:
        """Note that the latest request was lost before the stream had written it."""
        copy = message.copy
        self.forget(message)
        if copy is not None and copy in self._unread:
            self._unread.remove(copy)
            self._window.read(copy.size)


def _weigh(message: Message, copy: Copy) -> None:
    """Count the bytes of a suspect, which is to be written now."""
    copy.size = message.record.size + OVERHEAD_BYTES
    message.flow.unanswered += copy.size
    copy.ahead = message.flow.unanswered
