"""The queued messages: stored on disk, counted here, and read a few at a time."""

from __future__ import annotations

from bisect import bisect
from collections import deque

from qos.core.message.model import Outgoing
from qos.stores.base import Store

__all__ = ["Backlog"]

#: The number of messages of one flow that are read from the store at a time.
_CHUNK = 64


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
