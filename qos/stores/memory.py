"""The store without a disk.

For tests, and for data that need not survive its process.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from qos.core.message.effects import End, Forget, Save
from qos.core.message.model import Ended, Incoming, Outgoing, OutgoingState
from qos.errors import StoreError, StoreInUse
from qos.stores.base import (
    Change,
    Contents,
    ForgetEnded,
    Journal,
    is_kept,
    stored,
)

__all__ = ["MemoryStore", "QueueIndex"]


class QueueIndex:
    """The queued messages, by flow and by expiry; only their seq."""

    def __init__(self) -> None:
        self._queued: dict[int, tuple[str, float | None]] = {}
        self._flows: dict[str, list[int]] = {}
        self._expiring: list[tuple[float, int]] = []

    def update(self, record: Outgoing) -> None:
        """Note the present state of the message."""
        if record.seq in self._queued:
            self.discard(record.seq)
        if record.state is OutgoingState.QUEUED:
            self._queued[record.seq] = (record.flow, record.expires_at)
            insort(self._flows.setdefault(record.flow, []), record.seq)
            if record.expires_at is not None:
                insort(self._expiring, (record.expires_at, record.seq))

    def discard(self, seq: int) -> None:
        """Remove a message that is not queued any more; harmless if it was not."""
        if seq not in self._queued:
            return
        flow, expires_at = self._queued.pop(seq)
        seqs = self._flows[flow]
        del seqs[bisect_left(seqs, seq)]
        if not seqs:
            del self._flows[flow]
        if expires_at is not None:
            del self._expiring[bisect_left(self._expiring, (expires_at, seq))]

    def counts(self) -> dict[str, int]:
        """How many are queued for each flow."""
        return {flow: len(seqs) for flow, seqs in self._flows.items()}

    def after(self, flow: str, seq: int) -> Iterator[int]:
        """The seqs of a flow after this one, in order."""
        seqs = self._flows.get(flow, [])
        return islice(seqs, bisect_right(seqs, seq), None)

    def expiring(self, now: float) -> Iterator[int]:
        """The seqs of all that expire at or before now, earliest first."""
        for expires_at, seq in self._expiring:
            if expires_at > now:
                return
            yield seq

    def next_expiry(self) -> float | None:
        """The time at which the first one expires."""
        return self._expiring[0][0] if self._expiring else None


class MemoryStore:
    """`memory:`; its contents are gone when it is closed.

    Every write is done at once.
    """

    durable = False

    def __init__(self) -> None:
        self.url = "memory:"
        #: Never used: there is no commit.
        self.journal: Journal | None = None
        self.store_id = ""
        self._is_open = False
        self._ended: dict[int, Ended] = {}
        self._clear()

    def open(self, now: float | None = None) -> Contents:
        """See Store. There are no times of an earlier process."""
        if self._is_open:
            raise StoreInUse(self.url, "is open")
        self._is_open = True
        self.store_id = secrets.token_hex(16)
        return Contents()

    def write(self, changes: Sequence[Change]) -> None:
        """See Store."""
        if not self._is_open:
            self._need_open()
        for change in changes:
            if isinstance(change, Save):
                record = change.record
                if isinstance(record, Incoming):
                    self._incoming[record.key] = record
                else:
                    self._outgoing[record.seq] = record
                    self._seqs[record.msg_id] = record.seq
                    self._queue.update(record)
            elif isinstance(change, End):
                self._forget(change.ended.seq)
                self._ended[change.ended.seq] = change.ended
            elif isinstance(change, Forget):
                if isinstance(change.record, Incoming):
                    self._incoming.pop(change.record.key, None)
                else:
                    self._forget(change.record.seq)
            elif isinstance(change, ForgetEnded):
                self._ended = {
                    seq: end for seq, end in self._ended.items() if is_kept(end, change)
                }
            # Any other change is to be remembered for the next process: there is none.

    async def close(self) -> None:
        """See Store."""
        self._is_open = False
        self._clear()

    def transaction(self) -> None:
        """None: this store has no transactions. See Store."""

    def queued(self, flow: str, *, after: int, limit: int) -> list[Outgoing]:
        """See Store."""
        self._need_open()
        return self._records(islice(self._queue.after(flow, after), limit))

    def expiring(self, now: float, *, limit: int) -> list[Outgoing]:
        """See Store."""
        self._need_open()
        return self._records(islice(self._queue.expiring(now), limit))

    def next_expiry(self) -> float | None:
        """See Store."""
        self._need_open()
        return self._queue.next_expiry()

    def outgoing(self) -> Iterator[Outgoing]:
        """See Store."""
        self._need_open()
        records = map(self._outgoing.get, sorted(self._outgoing))
        return (stored(record) for record in records if record is not None)

    def find_outgoing(self, msg_id: str) -> Outgoing | None:
        """See Store."""
        self._need_open()
        seq = self._seqs.get(msg_id)
        return None if seq is None else stored(self._outgoing[seq])

    def ended(self, msg_id: str | None = None) -> Iterator[Ended]:
        """See Store."""
        self._need_open()
        ends = [self._ended[seq] for seq in sorted(self._ended)]
        return (end for end in ends if msg_id in {None, end.msg_id})

    def find_ended(self, msg_id: str) -> Ended | None:
        """See Store."""
        ends = [end for end in self.ended(msg_id) if end.digest]
        return ends[-1] if ends else None

    def incoming(self) -> Iterator[Incoming]:
        """See Store."""
        self._need_open()
        records = sorted(self._incoming.values(), key=lambda r: (r.changed_at, r.key))
        return map(stored, records)

    def _need_open(self) -> None:
        if not self._is_open:
            raise StoreError(self.url, "is not open")

    def _clear(self) -> None:
        self._outgoing: dict[int, Outgoing] = {}
        self._seqs: dict[str, int] = {}
        self._queue = QueueIndex()
        self._ended = {}
        self._incoming: dict[str, Incoming] = {}

    def _forget(self, seq: int) -> None:
        record = self._outgoing.pop(seq, None)
        if record is not None:
            self._seqs.pop(record.msg_id, None)
            self._queue.discard(seq)

    def _records(self, seqs: Iterable[int]) -> list[Outgoing]:
        return [stored(self._outgoing[seq]) for seq in seqs]
