"""Which ended messages are still remembered, and which must go."""

from __future__ import annotations

from collections import OrderedDict

from qos.core.message.model import Incoming
from qos.core.strings import bare

__all__ = ["Tombstones"]

#: An account may fill this part of the whole, so that one that sends a lot does
#: not make us forget what others sent.
_ACCOUNT_SHARE = 2


class Tombstones:
    """The memory of ended messages, bounded in number and in time.

    What is forgotten too early makes its sender's message *in doubt*, never a
    false *delivered*.
    """

    def __init__(self, *, count_max: int, ttl_s: float) -> None:
        self._count_max = count_max
        self._account_max = max(1, count_max // _ACCOUNT_SHARE)
        self._ttl_s = ttl_s
        self._all: OrderedDict[str, Incoming] = OrderedDict()
        self._accounts: dict[str, OrderedDict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def get(self, key: str) -> Incoming | None:
        """The memory under a key."""
        return self._all.get(key)

    def add(self, record: Incoming) -> list[Incoming]:
        """Remember a record that has just ended; returns what must be forgotten."""
        account = self._accounts.setdefault(bare(record.source), OrderedDict())
        self._all[record.key] = record
        account[record.key] = None
        evicted = []
        if len(account) > self._account_max:
            evicted.append(self._all[next(iter(account))])
        elif len(self._all) > self._count_max:
            evicted.append(next(iter(self._all.values())))
        for old in evicted:
            self.discard(old)
        return evicted

    def discard(self, record: Incoming) -> None:
        """Forget a record, if it is remembered."""
        if self._all.pop(record.key, None) is None:
            return
        account = self._accounts[bare(record.source)]
        del account[record.key]
        if not account:
            del self._accounts[bare(record.source)]

    def outlived(self, now: float) -> list[Incoming]:
        """Forget, and return, all that have been remembered for their time."""
        old = []
        for record in self._all.values():
            if record.changed_at + self._ttl_s > now:
                break
            old.append(record)
        for record in old:
            self.discard(record)
        return old

    def next_at(self) -> float | None:
        """When the next one will have outlived its time."""
        oldest = next(iter(self._all.values()), None)
        return None if oldest is None else oldest.changed_at + self._ttl_s
