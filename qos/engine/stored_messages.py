"""The messages of an outbox that only its store has: they wait for their turn, or have ended.

Queued messages are stored on disk, counted here, and read a few at a time. Of messages that
have ended the outcomes are kept, until they are old.
"""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Callable

from qos.core.message.model import Ended, Outgoing
from qos.engine.clock import Clock, Timers
from qos.stores.base import ForgetEnded, Store

__all__ = ["Backlog", "KeptOutcomes"]

#: The number of messages of one flow that are read from the store at a time.
_CHUNK = 64

#: How often outcomes that are not to be kept any more are looked for, in seconds. They
#: are looked for earlier after _KEPT_MIN ended messages, or a quarter of those to be
#: kept if that is more.
_FORGET_EVERY_S = 600.0
_KEPT_MIN = 256


class Backlog:
    """The flows with messages waiting in the store, and the next of each."""

    def __init__(self, store: Store, queued: dict[str, int]) -> None:
        self._store = store
        self._counts = dict(queued)
        self._chunks: dict[str, deque[Outgoing]] = {}
        self._taken: dict[str, int] = {}
        # Discarded, but their end has still to be written.
        self._ending: set[int] = set()

    @property
    def flows(self) -> list[str]:
        """The flows that have a waiting message."""
        return list(self._counts)

    def waiting(self, flow: str) -> int:
        """The number of waiting messages of a flow, including those being written."""
        return self._counts.get(flow, 0)

    def add(self, flow: str) -> None:
        """Count a message that is being written."""
        self._counts[flow] = self._counts.get(flow, 0) + 1

    def remove(self, flow: str) -> None:
        """Stop counting a message."""
        self._counts[flow] -= 1
        if not self._counts[flow]:
            del self._counts[flow]
            self._chunks.pop(flow, None)

    def head(self, flow: str) -> Outgoing | None:
        """The next message of a flow, or None if none is on disk yet."""
        chunk = self._chunks.setdefault(flow, deque())
        while True:
            if not chunk:
                after = self._taken.get(flow, 0)
                chunk.extend(self._store.queued(flow, after=after, limit=_CHUNK))
            if not chunk:
                return None
            if chunk[0].seq not in self._ending:
                return chunk[0]
            self.passed(flow, chunk.popleft().seq)

    def take(self, record: Outgoing) -> None:
        """Take the head of a flow, which is now in flight."""
        self._chunks[record.flow].popleft()
        self.passed(record.flow, record.seq)
        self.remove(record.flow)

    def passed(self, flow: str, seq: int) -> None:
        """Note that a message is in flight, and all messages before it have been read.

        It may be a message that was put back, after later ones had been taken.
        """
        self._taken[flow] = max(self._taken.get(flow, 0), seq)

    def discard(self, record: Outgoing) -> None:
        """Remove a waiting message that ends before its turn. See ended and put_back."""
        self._ending.add(record.seq)
        self.remove(record.flow)

    def ended(self, record: Outgoing) -> None:
        """Note that a message has ended.

        Until then, a discarded one is on disk as queued.
        """
        if record.seq not in self._ending:
            return
        self._ending.remove(record.seq)
        chunk = self._chunks.get(record.flow, deque())
        for waiting in [entry for entry in chunk if entry.seq == record.seq]:
            chunk.remove(waiting)

    def put_back(self, record: Outgoing) -> None:
        """Let a discarded message wait again, at its place, if it does not end."""
        self._ending.remove(record.seq)
        self.add(record.flow)
        if record.seq > self._taken.get(record.flow, 0):
            return  # it is in the chunk, or has still to be read
        # Nothing is read again: some of the messages after it have been taken, and are
        # on disk as queued until their first step is written.
        chunk = self._chunks.setdefault(record.flow, deque())
        seqs = [waiting.seq for waiting in chunk]
        if record.seq not in seqs:
            chunk.insert(bisect(seqs, record.seq), record)

    def forget(self, flow: str) -> None:
        """Forget a flow without messages that are queued on disk or about to be."""
        self._taken.pop(flow, None)
        self._chunks.pop(flow, None)


class KeptOutcomes:
    """The outcomes in a store."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        messages: int,
        ttl_s: float,
        next_seq: Callable[[], int],
    ) -> None:
        """Begin with the outcomes that earlier processes have left.

        Args:
            store: of the outbox.
            clock: the time.
            messages: the number of messages, of those accepted last, whose outcomes are
                kept; 0: none.
            ttl_s: how long outcomes are kept.
            next_seq: the number of the next message.
        """
        self._store = store
        self._clock = clock
        self._messages = messages
        self._ttl_s = ttl_s
        self._next_seq = next_seq
        self._timers: Timers[None] = Timers(clock, self._forget)
        self._stopped = False
        # The first message that ends also removes what earlier processes have left:
        # perhaps none of them ran for long enough.
        self._kept = self._kept_max = max(_KEPT_MIN, messages // 4)

    def last(self, msg_id: str) -> Ended | None:
        """The end of a message; None: it is not known.

        Of several messages with this id, the one accepted last.
        """
        since = self._clock.now() - self._ttl_s
        ends = [end for end in self._store.ended(msg_id) if end.ended_at > since]
        return ends[-1] if ends else None

    def find(self, msg_id: str) -> Ended | None:
        """The end of a message that was accepted with a digest; None: it is not known."""
        end = self._store.find_ended(msg_id)
        since = self._clock.now() - self._ttl_s
        return end if end is not None and end.ended_at > since else None

    def add(self) -> None:
        """Count an ended message.

        Outcomes that are too old or too many go in batches.
        """
        self._kept += 1
        if self._kept > self._kept_max:
            self._forget(None)
            self._kept = 1
        if self._kept == 1:
            self._timers.set(None, self._clock.now() + _FORGET_EVERY_S)

    def stop(self) -> None:
        """Forget nothing more."""
        self._stopped = True
        self._timers.stop()

    def _forget(self, _key: None) -> None:
        """Remove the outcomes that are too old, or too many."""
        self._kept = 0
        self._timers.clear(None)
        if self._stopped:
            return
        before = self._clock.now() - self._ttl_s
        below = self._next_seq() - self._messages
        write = self._store.write((ForgetEnded(before=before, below=below),))
        if write is not None:
            # It is tried again with the next ended message.
            write.add_done_callback(lambda future: future.exception())
