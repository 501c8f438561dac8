"""The holders of locked items, and the workers that can take another item.

Ordinary and resumable locks are counted by full JID, even after its subscription has
ended. Durable locks are counted by account, since the next worker of that account takes
them over. A subscription without durable locks counts only the locks of its own JID.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from qos.core.queue.dispatch import Candidate
from qos.core.queue.item import Item, Subscription
from qos.core.queue.link_time import needs_link
from qos.core.strings import bare

__all__ = ["Holders", "Present", "resources"]

#: For each account, its full JIDs that were heard of; True: by available presence.
Present: TypeAlias = Mapping[str, Mapping[str, bool]]


@dataclass(slots=True)
class _Credit:
    """How many deliveries a full JID may have, and how many it has had."""

    limit: int
    served: int = 0


class Holders:
    """The locks of one node, by holder."""

    def __init__(self) -> None:
        # Item ids in the order of locking, by account and full JID.
        self._held: dict[str, dict[str, dict[str, None]]] = {}
        # By account, the holder of each durable lock.
        self._durable: dict[str, dict[str, str]] = {}
        # The ids of the durable locks whose holder has left.
        self._of_departed: set[str] = set()
        # The ids of the locks that a full JID had when it came back, and of which it has
        # not spoken since.
        self._left_behind: set[str] = set()
        self._turns: dict[str, int] = {}
        self._turn = 0
        # By full JID. Without an entry, nothing but its subscription is a limit.
        self._credit: dict[str, _Credit] = {}

    def add(self, item: Item) -> None:
        """Count an item that has been locked."""
        account = bare(item.holder)
        if item.durable:
            self._durable.setdefault(account, {})[item.item_id] = item.holder
        else:
            ids_by_holder = self._held.setdefault(account, {})
            ids_by_holder.setdefault(item.holder, {})[item.item_id] = None

    def discard(self, item: Item) -> None:
        """Stop counting an item, given as it was while it was locked."""
        account = bare(item.holder)
        # A new holder, by settling or extending, has it.
        self._of_departed.discard(item.item_id)
        self._left_behind.discard(item.item_id)
        if item.durable:
            del self._durable[account][item.item_id]
            if not self._durable[account]:
                del self._durable[account]
            return
        ids_by_holder = self._held[account]
        del ids_by_holder[item.holder][item.item_id]
        if not ids_by_holder[item.holder]:
            del ids_by_holder[item.holder]
            if not ids_by_holder:
                del self._held[account]

    def clear(self) -> None:
        """Stop counting all items; the workers keep their turns and their credit."""
        self._held.clear()
        self._durable.clear()
        self._of_departed.clear()
        self._left_behind.clear()

    def held(self, jid: str) -> list[str]:
        """The ids of the items that this full JID holds, but for durable locks."""
        return list(self._held.get(bare(jid), {}).get(jid, ()))

    def holds(self, jid: str) -> bool:
        """Whether this full JID holds an item, but for durable locks."""
        return jid in self._held.get(bare(jid), ())

    def durable(self, account: str) -> list[str]:
        """The ids of the items that this account holds with durable locks."""
        return list(self._durable.get(account, ()))

    def by_link(self) -> list[str]:
        """The ids of all items whose holders the XMPP connection of the service serves."""
        ids = [
            item_id
            for ids_by_holder in self._held.values()
            for holder, held in ids_by_holder.items()
            if needs_link(holder)
            for item_id in held
        ]
        durable = self._durable.values()
        return ids + [
            item_id
            for holders in durable
            for item_id, holder in holders.items()
            if needs_link(holder)
        ]

    def own(self, jid: str) -> int:
        """How many items this full JID holds, with either kind of lock."""
        return self._own(bare(jid), jid)

    def _own(self, account: str, jid: str) -> int:
        durable = self._durable.get(account, {}).values()
        item_ids = self._held.get(account, {}).get(jid, ())
        return len(item_ids) + list(durable).count(jid)

    # -- departed holders --------------------------------------------------

    def departed(self, jid: str) -> None:
        """Note that the full JID has left.

        Its durable locks stay for the next worker of its account.
        """
        self._of_departed |= self._durable_of(jid)

    def returned(self, jid: str) -> None:
        """Note that the full JID is back: its durable locks are its own again."""
        self._of_departed -= self._durable_of(jid)

    def forget_departed(self) -> None:
        """Forget which holders have left.

        Some may be back without having been heard of.
        """
        self._of_departed.clear()

    def of_departed(self, account: str) -> list[str]:
        """The ids of this account's durable locks whose holder has left."""
        ids = self._durable.get(account, ())
        return [item_id for item_id in ids if item_id in self._of_departed]

    # -- resumable locks ---------------------------------------------------

    def came(self, resumable: Iterable[str]) -> None:
        """Note that a full JID is there, and has these resumable locks from before."""
        self._left_behind.update(resumable)

    def left_behind(self, jid: str) -> list[str]:
        """The ids of the resumable locks that the full JID had when it came.

        Unless it has spoken of them since, or has subscribed as the same worker.
        """
        return [item_id for item_id in self.held(jid) if item_id in self._left_behind]

    def taken_on(self, jid: str) -> None:
        """Note that the locks of this full JID are its own: it is the same worker."""
        self._left_behind.difference_update(self.held(jid))

    def _durable_of(self, jid: str) -> set[str]:
        durable = self._durable.get(bare(jid), {})
        return {item_id for item_id, holder in durable.items() if holder == jid}

    def of_account(self, account: str) -> list[str]:
        """The ids of all items that the account holds, through any of its full JIDs."""
        ids_by_holder = self._held.get(account, {})
        return [
            *self.durable(account),
            *(item_id for ids in ids_by_holder.values() for item_id in ids),
        ]

    # -- who is next -------------------------------------------------------

    def candidates(
        self, subscription: Subscription, present: Present
    ) -> Iterator[Candidate]:
        """The workers of a subscription that can take an item.

        There are none if it has enough.
        """
        for holder in resources(subscription, present):
            candidate = self.candidate(subscription, holder)
            if candidate is not None:
                yield candidate

    def candidate(self, subscription: Subscription, holder: str) -> Candidate | None:
        """This full JID as a candidate.

        None: the subscription has enough, or the full JID has no credit.
        """
        credit = self._credit.get(holder)
        if credit is not None and credit.served >= credit.limit:
            return None
        load = self._load(subscription, holder)
        if load >= subscription.queue_requests:
            return None
        return Candidate(subscription, holder, load, self._turns.get(holder, 0))

    def _load(self, subscription: Subscription, holder: str) -> int:
        account = bare(subscription.jid)
        ids_by_holder = self._held.get(account, {})
        durable = self._durable.get(account, {})
        if subscription.jid == account:
            return len(durable) + sum(map(len, ids_by_holder.values()))
        if subscription.durable_locks:
            return len(ids_by_holder.get(holder, ())) + len(durable)
        # Without durable locks, it never takes over the items of its account's other
        # workers.
        return self._own(account, holder)

    def served(self, holder: str) -> None:
        """Put the full JID last in turn, and use up one of its credit."""
        self._turn += 1
        self._turns[holder] = self._turn
        credit = self._credit.get(holder)
        if credit is not None:
            credit.served += 1

    def forget_turn(self, holder: str) -> None:
        """Forget the turn and the credit of a full JID whose subscription has ended."""
        self._turns.pop(holder, None)
        self._credit.pop(holder, None)

    def set_credit(self, holder: str, limit: int) -> int:
        """Limit the deliveries to a full JID.

        Args:
            holder: the full JID.
            limit: how many there may be since the first call.

        Returns:
            How many there have been.
        """
        credit = self._credit.setdefault(holder, _Credit(limit))
        credit.limit = limit
        return credit.served


def resources(subscription: Subscription, present: Present) -> list[str]:
    """The full JIDs to which the events of a subscription can go."""
    jid, account = subscription.jid, bare(subscription.jid)
    full_jids = present.get(account, {})
    if jid != account:
        return [jid] if jid in full_jids else []
    # A resource that never sent available presence may not handle events: it may only
    # publish.
    return [
        full_jid
        for full_jid in full_jids
        if full_jids[full_jid] or full_jid == subscription.via
    ]
