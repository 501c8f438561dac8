"""The subscriptions of one node, and which of them are dormant.

A subscription is for a full JID, or for a bare one that stands for all resources of its
account; `Subscription.via` is the resource by which it came.
"""

from __future__ import annotations

from collections.abc import Iterable

from qos.core.queue.effects import (
    NotifySubscription,
    QueueEffect,
    RemoveSubscription,
    SaveSubscription,
)
from qos.core.queue.holders import Holders, Present, resources
from qos.core.queue.item import Subscription
from qos.core.queue.ready_items import ReadyItems
from qos.core.quota import Tally
from qos.core.record import replace
from qos.core.strings import bare

__all__ = ["SubscriptionIndex"]

#: Seconds after which a dormant subscription ends; see `SubscriptionIndex.absent`.
_DORMANT_S = 24 * 3600.0


class SubscriptionIndex(dict[str, Subscription]):
    """The subscriptions of one node by JID; changed by `keep` and `end` only."""

    def __init__(
        self,
        node: str,
        subscriptions: Iterable[Subscription],
        *,
        holders: Holders,
        ready: ReadyItems,
        subscribers: Tally,
    ) -> None:
        """Start with the contents of the store.

        Args:
            node: its name.
            subscriptions: its subscriptions.
            holders: the holders of its items, which have their turns.
            ready: its items that can be delivered, which are chosen by selectors.
            subscribers: counts the subscriptions of all nodes that are not dormant.
        """
        super().__init__()
        self._node = node
        self._holders = holders
        self._ready = ready
        self._subscribers = subscribers
        #: The time at which the first dormant subscription ends.
        self.dormant_end: float | None = None
        for subscription in subscriptions:
            self.keep(subscription)

    def has_room_for(self, selector: str, jid: str, *, owner: bool) -> bool:
        """Whether this JID, perhaps of an owner, may subscribe with this selector."""
        before = self.get(jid)
        return self._ready.has_room_for(
            selector, before.selector if before else "", bare(jid), owner=owner
        )

    def keep(self, subscription: Subscription) -> list[QueueEffect]:
        """Store the subscription, replacing the one of this JID."""
        before = self.get(subscription.jid)
        # Before the other: the selector may be the same.
        self._ready.want(subscription.selector, bare(subscription.jid))
        if before is not None:
            self._count(before, -1)
            self._ready.unwant(before.selector, bare(before.jid))
        self[subscription.jid] = subscription
        self._count(subscription, 1)
        return [SaveSubscription(subscription)]

    def end(self, jid: str) -> list[RemoveSubscription]:
        """End the subscription: no new items; its locks stay (XEP-0254 §4)."""
        subscription = self.pop(jid)
        self._count(subscription, -1)
        self._ready.unwant(subscription.selector, bare(jid))
        self._holders.forget_turn(jid)
        return [RemoveSubscription(self._node, jid)]

    def end_all(self) -> None:
        """Stop counting the subscriptions.

        The node is deleted, and they end with it.
        """
        for jid in list(self):
            self.end(jid)

    def _count(self, subscription: Subscription, more: int) -> None:
        if subscription.dormant_since is None:
            self._subscribers.add(bare(subscription.jid), more)
        elif more > 0:
            self._expect_end(subscription.dormant_since + _DORMANT_S)

    def _expect_end(self, at: float) -> None:
        self.dormant_end = min(at, self.dormant_end or at)

    def of(self, jid: str) -> list[Subscription]:
        """The subscriptions by which this full JID may get items."""
        candidates = map(self.get, dict.fromkeys((jid, bare(jid))))
        return [subscription for subscription in candidates if subscription is not None]

    def is_classifying(self, jid: str) -> bool:
        """Whether items that are there may still be offered to this full JID.

        Its selector is new, and is still to be evaluated for some.
        """
        return any(
            self._ready.is_classifying(subscription.selector)
            for subscription in self.of(jid)
        )

    def absent(self, jid: str, present: Present, now: float) -> list[QueueEffect]:
        """Mark the subscriptions of this full JID as dormant.

        A probe of it failed, and it has not been heard of since a start of the service.
        A dormant subscription does not count, and ends after a day. The failed probe
        does not prove that the worker has left: when it is heard of again, the
        subscription is as before.
        """
        effects: list[QueueEffect] = []
        for subscription in self.of(jid):
            probed = (
                jid in {subscription.jid, subscription.via}
                and subscription.dormant_since is None
            )
            if probed and not resources(subscription, present):
                effects += self.keep(replace(subscription, dormant_since=now))
        return effects

    def awake(self, jid: str, present: Present) -> list[QueueEffect]:
        """End dormancy of the subscriptions of this full JID, which was heard of."""
        effects: list[QueueEffect] = []
        for subscription in self.of(jid):
            if subscription.dormant_since is not None and jid in resources(
                subscription, present
            ):
                effects += self.keep(replace(subscription, dormant_since=None))
        return effects

    def end_dormant(self, now: float) -> list[RemoveSubscription]:
        """End the subscriptions that have been dormant for a day."""
        if self.dormant_end is None or self.dormant_end > now:
            return []
        self.dormant_end = None
        effects: list[RemoveSubscription] = []
        for subscription in list(self.values()):
            if subscription.dormant_since is None:
                continue
            if subscription.dormant_since + _DORMANT_S <= now:
                effects += self.end(subscription.jid)
            else:
                self._expect_end(subscription.dormant_since + _DORMANT_S)
        return effects

    def active(self) -> list[Subscription]:
        """The subscriptions that are not dormant."""
        return [
            subscription
            for subscription in self.values()
            if subscription.dormant_since is None
        ]

    def departed(self, jid: str, connected: Present) -> list[QueueEffect]:
        """End the subscription of a full JID that has left, or pass it on.

        The subscription of its bare JID, if this resource stood for it, gets another
        resource, or ends. This is the only way in which the service ends such a
        subscription: most resources of an account are no workers, and after a start it
        is not known which of them are there.

        Args:
            jid: the full JID that left.
            connected: the full JIDs that have not left, though they may be silent.
        """
        effects: list[QueueEffect] = []
        if jid in self:
            effects += self.end(jid)
        of_all = self.get(bare(jid))
        if of_all is not None and of_all.via == jid:
            heirs = resources(of_all, connected)
            if heirs:
                effects += self.keep(replace(of_all, via=heirs[0]))
            else:
                effects += self.end(of_all.jid)
                effects.append(
                    NotifySubscription(of_all.jid, self._node, of_all.jid, of_all.subid)
                )
        self._holders.forget_turn(jid)
        return effects
