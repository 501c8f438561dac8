"""The queued messages: on disk, counted here, read a few at a time."""

from __future__ import annotations

from collections import deque

from qos.core.model import Outgoing
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
        if not chunk:
            after = self._taken.get(flow, 0)
            chunk.extend(self._store.queued(flow, after=after, limit=_CHUNK))
        return chunk[0] if chunk else None

    def take(self, record: Outgoing) -> None:
        """The head goes under way."""
        self.pass_over(record)
        self.remove(record.flow)

    def pass_over(self, record: Outgoing) -> None:
        """The head does not wait any more: it was discarded, and is still on disk."""
        self._chunks[record.flow].popleft()
        self.passed(record)

    def passed(self, record: Outgoing) -> None:
        """A message went under way, and none before it waits."""
        self._taken[record.flow] = record.seq

    def discard(self, record: Outgoing) -> None:
        """A waiting message ends without having had its turn."""
        chunk = self._chunks.get(record.flow)
        if chunk and record in chunk:
            chunk.remove(record)
        self.remove(record.flow)
