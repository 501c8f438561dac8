"""Tombstones: the ended messages that are still remembered, within limits."""

from __future__ import annotations

from collections import OrderedDict

from qos.core.message.model import Incoming
from qos.core.strings import bare

__all__ = ["Tombstones"]

#: One account may fill this part of the total, so that an account that sends a lot does
#: not make us forget the messages of others.
_ACCOUNT_SHARE = 2


class Tombstones:
    """The tombstones, limited in number and in time.

    A tombstone that is forgotten too early makes its sender's message *in doubt*, never
    a false *delivered*.
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
        """The tombstone under a key."""
        return self._all.get(key)

    def add(self, record: Incoming) -> list[Incoming]:
        """Remember a record that has just ended.

        Returns the records to be forgotten.
        """
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
        """Forget, and return, all tombstones whose time is over."""
        old = []
        for record in self._all.values():
            if record.changed_at + self._ttl_s > now:
                break
            old.append(record)
        for record in old:
            self.discard(record)
        return old

    def next_at(self) -> float | None:
        """The time at which the next one is over."""
        oldest = next(iter(self._all.values()), None)
        return None if oldest is None else oldest.changed_at + self._ttl_s
