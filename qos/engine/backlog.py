"""The queued messages: on disk, counted here, read a few at a time."""

from __future__ import annotations

from bisect import bisect
from collections import deque

from qos.core.message.model import Outgoing
from qos.stores.base import Store

__all__ = ["Backlog"]

#: Messages of one flow read from the store at a time.
_CHUNK = 64


class Backlog:
    """Which flows have messages waiting in the store, and the next of each."""

    def __init__(self, store: Store, queued: dict[str, int]) -> None:
        self._store = store
        self._counts = dict(queued)
        self._chunks: dict[str, deque[Outgoing]] = {}
        self._taken: dict[str, int] = {}
        # Discarded, and their end has still to be written.
        self._ending: set[int] = set()

    @property
    def flows(self) -> list[str]:
        """The flows that have a message waiting."""
        return list(self._counts)

    def waiting(self, flow: str) -> int:
        """How many messages of a flow wait; those being written count as well."""
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
            self.passed(chunk.popleft())

    def take(self, record: Outgoing) -> None:
        """The head goes under way."""
        self._chunks[record.flow].popleft()
        self.passed(record)
        self.remove(record.flow)

    def passed(self, record: Outgoing) -> None:
        """A message went under way, and none before it is still to be read.

        It may be one that was put back, behind which others have been taken.
        """
        self._taken[record.flow] = max(self._taken.get(record.flow, 0), record.seq)

    def discard(self, record: Outgoing) -> None:
        """A waiting message ends without having its turn; see left and put_back."""
        self._ending.add(record.seq)
        self.remove(record.flow)

    def left(self, record: Outgoing) -> None:
        """A message has ended; until then a discarded one is on disk as queued."""
        if record.seq not in self._ending:
            return
        self._ending.remove(record.seq)
        chunk = self._chunks.get(record.flow, deque())
        for waiting in [each for each in chunk if each.seq == record.seq]:
            chunk.remove(waiting)

    def put_back(self, record: Outgoing) -> None:
        """A discarded message does not end after all: it waits again, at its place."""
        self._ending.remove(record.seq)
        self.add(record.flow)
        if record.seq > self._taken.get(record.flow, 0):
            return  # it is in the chunk, or still to be read
        # Nothing is read again: of those behind it, which have been taken, some are on
        # disk as queued until their first step is written.
        chunk = self._chunks.setdefault(record.flow, deque())
        seqs = [waiting.seq for waiting in chunk]
        if record.seq not in seqs:
            chunk.insert(bisect(seqs, record.seq), record)

    def forget(self, flow: str) -> None:
        """None of its messages is on disk as queued any more, nor waits to be."""
        self._taken.pop(flow, None)
        self._chunks.pop(flow, None)
