"""The deliveries of a node: from the lock of an item to its outcome.

Every method that changes something returns the effects, in order. Dead items are left in
`died`, for `qos.core.queue.service` to place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from qos.core.queue import item_lifecycle
from qos.core.queue.dispatch import Candidate, Candidates
from qos.core.queue.effects import (
    NotifyItem,
    NotifyUnlock,
    QueueEffect,
    RemoveItem,
    SaveEnded,
    SaveItem,
    SaveLock,
)
from qos.core.queue.holders import Present
from qos.core.queue.item import EndedItem, Item, ItemOutcome, ItemState
from qos.core.queue.item_index import ItemIndex
from qos.core.queue.item_lifecycle import ItemInput
from qos.core.queue.node_options import NodeOptions
from qos.core.queue.requests import Settlement
from qos.core.queue.selector_time import SLICE_S
from qos.core.queue.subscription_index import SubscriptionIndex
from qos.core.queue.timers import LOOKED_MAX
from qos.core.record import replace
from qos.core.strings import bare

__all__ = ["Deliveries"]

_INPUTS = {
    ItemOutcome.RELEASED: ItemInput.RELEASE,
    ItemOutcome.MODIFIED: ItemInput.MODIFY,
    ItemOutcome.REJECTED: ItemInput.REJECT,
}


class Deliveries:
    """The deliveries of one node.

    Attributes:
        options: of the node.
        died: the items that have died since this list was last emptied: each as it was,
            and as it is.
        suspended: the full JIDs whose lock timed out or whose event bounced since this
            list was last emptied.
    """

    def __init__(
        self,
        node: str,
        live: ItemIndex,
        subscriptions: SubscriptionIndex,
        options: NodeOptions,
        next_order: Callable[[], int],
    ) -> None:
        """Start with the items that are locked.

        Args:
            node: the name of the node.
            live: its items.
            subscriptions: its subscriptions.
            options: its configuration.
            next_order: numbers redeliveries, for all nodes.
        """
        self._node = node
        self._live = live
        self._subscriptions = subscriptions
        self.options = options
        self.died: list[tuple[Item, Item]] = []
        self.suspended: list[str] = []
        self._next_order = next_order

    @property
    def classifying(self) -> bool:
        """Whether `classify` is to be called again at once."""
        return self._live.ready.classifying

    @property
    def goes_on(self) -> bool:
        """Whether the next step follows at once: what is next was not found in this one."""
        return self._live.backlog.passes or self._live.ready.classifying

    def classify(self, now: float) -> None:
        """See ItemIndex; call it before `dispatch`."""
        self._live.classify(now)

    def dispatch(
        self, present: Present, *, new_token: Callable[[], str], now: float
    ) -> list[QueueEffect]:
        """Lock the items that can be delivered, and send them; call `due` first.

        Args:
            present: by account, the full JIDs that were heard of.
            new_token: makes a random token that was never used before.
            now: the time.
        """
        effects: list[QueueEffect] = []
        ready, holders = self._live.ready, self._live.holders
        backlog = self._live.backlog
        backlog.passes = False
        if not (ready.any() or backlog.is_unread):
            return effects
        free = Candidates(
            (
                candidate
                for subscription in self._subscriptions.values()
                for candidate in holders.candidates(subscription, present)
            ),
            ready,
        )
        expired = 0
        while free and (item := self._live.pop(free.kinds(), now)) is not None:
            if item.expires_at is not None and item.expires_at <= now:
                # It is never given: it ends with its slice; see ItemTimers.expired.
                expired += 1
                if expired == LOOKED_MAX:
                    break
                continue
            chosen = free.take(item)
            subscription = chosen.subscription
            fresh = holders.candidate(subscription, chosen.holder)
            if fresh != chosen:
                # Outdated: another worker of its account has been served meanwhile.
                self._live.mark_ready(item)
                if fresh is not None:
                    free.put(fresh)
                continue
            effects += self._lock(item, chosen, new_token(), now)
            again = holders.candidate(subscription, chosen.holder)
            if again is not None:
                free.put(again)
        return effects

    def _lock(
        self, item: Item, by: Candidate, token: str, now: float
    ) -> tuple[SaveLock, NotifyItem]:
        subscription = by.subscription
        self._live.drop(item)
        after = item_lifecycle.acquired(
            item,
            holder=by.holder,
            token=token,
            durable=subscription.durable_locks,
            resumable=subscription.resumable_locks,
            now=now,
            timeout_s=self.options.lock_timeout,
        )
        self._live.put(after, now)
        self._live.holders.served(after.holder)
        return SaveLock(after, before=item), self._notify(after, after.holder)

    def _notify(self, item: Item, to: str) -> NotifyItem:
        subscription = self._subscriptions.get(to) or self._subscriptions.get(bare(to))
        if subscription is None:
            return NotifyItem(to, item)
        return NotifyItem(to, item, subscription.batch, subscription.acknowledged)

    def resend(self, jid: str) -> list[NotifyItem]:
        """Send again what this full JID holds; it is present."""
        self._live.holders.returned(jid)
        return [
            self._notify(item, jid)
            for item in self._live.locks(jid)
            if item.holder == jid
        ]

    def extend(
        self,
        tokens: Sequence[tuple[str, str]],
        requester: str,
        *,
        seconds: float,
        now: float,
    ) -> tuple[list[QueueEffect], float]:
        """Move the deadlines of locks, all or none.

        Resumable ones move to the requester as well.

        Returns:
            The effects, and the number of seconds from now until the first lock ends.

        Raises:
            Refusal: of the first item that is refused.
        """
        items = []
        for item_id, token in tokens:
            item = self._live.items.get(item_id)
            if item is not None and token != item.token:
                # Even if the requester holds the item again, under another token, this
                # delivery has ended. An empty token would match any delivery, so it is
                # replaced.
                token = token or "-"
            settlement = Settlement(item_id=item_id, token=token)
            item_lifecycle.check_settlement(
                item, None, settlement, requester=requester, may_withdraw=False
            )
            assert item is not None
            items.append(item)
        effects: list[QueueEffect] = []
        left_s = math.inf
        for item in items:
            after = item_lifecycle.extended(
                item,
                by=requester,
                seconds=seconds,
                now=now,
                timeout_s=self.options.lock_timeout,
            )
            self._live.drop(item)
            self._live.put(after, now)
            left_s = min(left_s, after.deadline - now)
            effects.append(SaveLock(after, before=item))
        return effects, left_s

    def take_over(
        self,
        jid: str,
        selector: str,
        room: int,
        new_token: Callable[[], str],
        now: float,
    ) -> list[QueueEffect]:
        """Give a worker the durable locks of its account whose holder has left.

        Only a holder that sent unavailable presence has left. One that is silent, or
        has not been heard of since a start, may still be working on the item until the
        deadline. Those for which the selector takes too long wait for that too.
        """
        effects: list[QueueEffect] = []
        until = self._live.ready.selector_seconds + SLICE_S
        for item_id in self._live.holders.of_departed(bare(jid)):
            if self._live.ready.selector_seconds > until:
                break
            item = self._live.items[item_id]
            if self._live.ready.excludes(item, jid) or len(effects) >= room:
                continue
            if not self._live.ready.matches(selector, item):
                continue
            after = item_lifecycle.taken_over(
                item, holder=jid, token=new_token(), order=self._next_order()
            )
            self._live.drop(item)
            self._live.put(after, now)
            effects.append(SaveItem(after, before=item))
        return effects

    def unheard(self, since: float, now: float) -> list[QueueEffect]:
        """Move the locks of XMPP workers by a time in which none could be heard."""
        effects: list[QueueEffect] = []
        for item_id in self._live.holders.by_link():
            item = self._live.items[item_id]
            after = item_lifecycle.unheard(item, since=since, now=now)
            self._live.drop(item)
            self._live.put(after, now)
            effects.append(SaveLock(after, before=item))
        return effects

    def replaced(self, jid: str, now: float) -> list[QueueEffect]:
        """End the resumable locks that this full JID left behind: it is a new worker.

        The worker that had them would have come back with their tokens. An item that
        kills its worker must end, also where a supervisor starts that worker again.
        """
        effects: list[QueueEffect] = []
        for item_id in self._live.holders.left_behind(jid):
            item = self._live.items[item_id]
            effects += self.give_back(item, ItemInput.FAIL, now, reason="gone")
        return effects

    # -- ends --------------------------------------------------------------

    def settled(
        self, item: Item, settlement: Settlement, by: str, now: float
    ) -> list[QueueEffect]:
        """End the delivery of this item as the settlement says.

        Args:
            item: locked.
            settlement: permitted; see `item_lifecycle.check_settlement`.
            by: the full JID that settles.
            now: the time.
        """
        outcome = settlement.outcome
        if outcome is ItemOutcome.ACCEPTED:
            return self._accept(item, by, now)
        input_ = _INPUTS[outcome]
        reason = "rejected"
        if settlement.delivery_failed:
            input_, reason = ItemInput.FAIL, "failed"
        if settlement.reason:
            reason = f"{reason}: {settlement.reason}"
        return self.give_back(
            item,
            input_,
            now,
            reason=reason,
            excluded=settlement.undeliverable_here,
            annotations=settlement.annotations,
            by=by,
            outcome=outcome,
        )

    def _accept(self, item: Item, by: str, now: float) -> list[QueueEffect]:
        self._live.drop(item)
        end: QueueEffect = RemoveItem(item.seq, item)
        if keep_s := self.options.keep_accepted:
            accepted = item_lifecycle.accepted(item, now=now, keep_s=keep_s)
            end = SaveItem(accepted, before=item)
        ended_item = self.ended(item, now, by, ItemOutcome.ACCEPTED)
        return [end, SaveEnded(ended_item)]

    def give_back(
        self,
        item: Item,
        input_: ItemInput,
        now: float,
        *,
        reason: str = "",
        excluded: bool = False,
        annotations: str = "",
        by: str = "",
        outcome: ItemOutcome | None = None,
    ) -> list[QueueEffect]:
        """End the delivery of this item without success: it is available again, or dies.

        Args:
            item: locked.
            input_: of the life of the item.
            now: the time.
            reason: why, if it dies.
            excluded: do not deliver it to its holder again.
            annotations: its new ones; '': it keeps those that it has.
            by: the full JID that settles; or ''.
            outcome: that it has asked for.
        """
        after = item_lifecycle.given_back(
            replace(item, annotations=annotations) if annotations else item,
            input_,
            now=now,
            order=self._next_order(),
            options=self.options,
            reason=reason,
            excluded=excluded,
        )
        if after.state is ItemState.ARCHIVED:
            return self.die(item, after, now, by, outcome)
        self._live.drop(item)
        self._live.put(after, now)
        return [SaveItem(after, before=item)]

    def die(
        self,
        item: Item,
        after: Item,
        now: float,
        by: str = "",
        outcome: ItemOutcome | None = None,
    ) -> list[QueueEffect]:
        """Note that this item has died; `after` is the item as it is then."""
        self._live.drop(item)
        self.died.append((item, after))
        return [SaveEnded(self.ended(item, now, by, outcome))]

    def ended(
        self, item: Item, now: float, by: str = "", outcome: ItemOutcome | None = None
    ) -> EndedItem:
        """The record of the end of this item."""
        return item_lifecycle.ended(
            item,
            now=now,
            dedupe_s=self.options.dedupe_window,
            by=by,
            outcome=outcome,
        )

    def bounced(
        self, jid: str, tokens: Collection[str], now: float
    ) -> list[QueueEffect]:
        """Release the items of an event that bounced.

        The worker has not received them.
        """
        effects: list[QueueEffect] = []
        for item in self._live.locks(jid):
            if item.token in tokens:
                effects += self.give_back(item, ItemInput.RELEASE, now)
                self.suspended.append(jid)
        return effects

    def unsendable(
        self, jid: str, tokens: Collection[str], why: str, now: float
    ) -> list[QueueEffect]:
        """Release the items of an event that can be sent to no XMPP worker.

        They wait for a consumer of a gateway, as any item without a worker waits. One
        that has been given to an XMPP worker all the same dies: it would go round for
        ever. Nobody but a client with the resource of a consumer gets one.

        Args:
            jid: the full JID that has not received them.
            tokens: of their deliveries.
            why: the reason, for the history of what dies.
            now: the time.
        """
        effects: list[QueueEffect] = []
        for item in self._live.locks(jid):
            if item.token not in tokens:
                continue
            if self._live.ready.is_oversized(item):
                reason = f"rejected: {why}"
                effects += self.give_back(item, ItemInput.REJECT, now, reason=reason)
            else:
                after = item_lifecycle.unsent(item, order=self._next_order())
                self._live.ready.oversize(item)
                self._live.drop(item)
                self._live.put(after, now)
                effects.append(SaveItem(after, before=item))
        return effects

    def time_out(self, item: Item, now: float) -> list[QueueEffect]:
        """End the delivery of this item: the time of its lock is over."""
        self.suspended.append(item.holder)
        notice = NotifyUnlock(item.holder, self._node, (item.item_id,))
        return [*self.give_back(item, ItemInput.FAIL, now, reason="timed out"), notice]
