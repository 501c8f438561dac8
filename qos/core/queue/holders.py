"""The holders of items, and the workers that can take another.

Locks are counted by holder, a full JID, whatever became of its subscription; durable
ones by account, since whoever of it comes next has them. But who wants no durable locks
has only those of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from qos.core.queue.dispatch import Candidate
from qos.core.queue.item import Item, Subscription
from qos.core.strings import bare

__all__ = ["Holders", "Present", "resources"]

#: By account, its full JIDs that were heard of, and whether by available presence.
Present: TypeAlias = Mapping[str, Mapping[str, bool]]


class Holders:
    """The locks of one node, by who has them."""

    def __init__(self) -> None:
        # Ids in the order in which they were locked.
        self._held: dict[str, dict[str, dict[str, None]]] = {}
        # By account, the holder of each.
        self._durable: dict[str, dict[str, str]] = {}
        # Ids of those among them whose holder has gone.
        self._left: set[str] = set()
        self._turns: dict[str, int] = {}
        self._turn = 0

    def add(self, item: Item) -> None:
        """It has been locked."""
        account = bare(item.holder)
        if item.durable:
            self._durable.setdefault(account, {})[item.item_id] = item.holder
        else:
            held = self._held.setdefault(account, {})
            held.setdefault(item.holder, {})[item.item_id] = None

    def discard(self, item: Item) -> None:
        """It is not locked any more; as it was then."""
        account = bare(item.holder)
        # Whoever settles or extends it has it.
        self._left.discard(item.item_id)
        if item.durable:
            del self._durable[account][item.item_id]
            if not self._durable[account]:
                del self._durable[account]
            return
        held = self._held[account]
        del held[item.holder][item.item_id]
        if not held[item.holder]:
            del held[item.holder]
            if not held:
                del self._held[account]

    def held(self, jid: str) -> list[str]:
        """The ids of what this full JID has by itself."""
        return list(self._held.get(bare(jid), {}).get(jid, ()))

    def holds(self, jid: str) -> bool:
        """Whether this full JID has something by itself."""
        return jid in self._held.get(bare(jid), ())

    def durable(self, account: str) -> list[str]:
        """The ids of what is locked for this account."""
        return list(self._durable.get(account, ()))

    def own(self, jid: str) -> int:
        """How many this full JID has, durable ones too."""
        account = bare(jid)
        durable = self._durable.get(account, {}).values()
        held = self._held.get(account, {}).get(jid, ())
        return len(held) + sum(holder == jid for holder in durable)

    # -- whose holder has gone ---------------------------------------------

    def went(self, jid: str) -> None:
        """This full JID has gone; its durable locks stay, for whoever comes next."""
        self._left |= self._durable_of(jid)

    def came_back(self, jid: str) -> None:
        """It was heard of: its locks are its own."""
        self._left -= self._durable_of(jid)

    def forget_who_went(self) -> None:
        """Who has gone may be back, and was not heard."""
        self._left.clear()

    def left(self, account: str) -> list[str]:
        """The ids of what is locked for this account, and nobody has."""
        return [each for each in self._durable.get(account, ()) if each in self._left]

    def _durable_of(self, jid: str) -> set[str]:
        durable = self._durable.get(bare(jid), {})
        return {item_id for item_id, holder in durable.items() if holder == jid}

    def of_account(self, account: str) -> list[str]:
        """The ids of all that the account has, by itself or through a resource."""
        held = self._held.get(account, {}).values()
        return [*self.durable(account), *(each for ids in held for each in ids)]

    # -- who is next -------------------------------------------------------

    def candidates(
        self, subscription: Subscription, present: Present
    ) -> Iterator[Candidate]:
        """Who of a subscriber would take an item; nobody, if it has enough."""
        for holder in resources(subscription, present):
            candidate = self.candidate(subscription, holder)
            if candidate is not None:
                yield candidate

    def candidate(self, subscription: Subscription, holder: str) -> Candidate | None:
        """This full JID of a subscriber; None: the subscriber has enough."""
        load = self._load(subscription, holder)
        if load >= subscription.queue_requests:
            return None
        return Candidate(subscription, holder, load, self._turns.get(holder, 0))

    def _load(self, subscription: Subscription, holder: str) -> int:
        account = bare(subscription.jid)
        held, durable = self._held.get(account, {}), self._durable.get(account, {})
        if subscription.jid == account:
            return len(durable) + sum(map(len, held.values()))
        if subscription.durable_locks:
            return len(held.get(holder, ())) + len(durable)
        # What another one of the account has will never be its own.
        return self.own(holder)

    def served(self, holder: str) -> None:
        """It is the last in turn now."""
        self._turn += 1
        self._turns[holder] = self._turn

    def forget_turn(self, holder: str) -> None:
        """It has gone."""
        self._turns.pop(holder, None)


def resources(subscription: Subscription, present: Present) -> list[str]:
    """The full JIDs of a subscriber that events can be sent to."""
    jid = subscription.jid
    heard = present.get(bare(jid), {})
    if jid != bare(jid):
        return [jid] if jid in heard else []
    # Not one that has said something else, as a publisher: it may be deaf.
    return [each for each in heard if heard[each] or each == subscription.via]
