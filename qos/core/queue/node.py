"""One queue: its items, its subscriptions, and their deliveries.

A node holds all items that are available or locked, without their payloads. Items that
have ended are in the store. Every method that changes something returns the effects, in
order. A node knows no other node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from qos.core.queue import item_lifecycle
from qos.core.queue.access import is_owner
from qos.core.queue.backlog import Backlog
from qos.core.queue.deliveries import Deliveries
from qos.core.queue.effects import (
    NotifyNode,
    NotifyRetract,
    NotifyUnlock,
    PurgeNode,
    QueueEffect,
    RemoveItem,
    SaveEnded,
    SaveItem,
    SaveNode,
)
from qos.core.queue.holders import Present
from qos.core.queue.item import (
    EndedItem,
    Item,
    ItemOutcome,
    ItemState,
    Node,
    PurgedItems,
    Subscription,
)
from qos.core.queue.item_index import ItemIndex
from qos.core.queue.item_lifecycle import ItemInput
from qos.core.queue.letters import Letters
from qos.core.queue.lifetime import Lifetime, NodeLinks
from qos.core.queue.link_time import LOOK_S, LinkTime
from qos.core.queue.node_options import NodeOptions, node_options
from qos.core.queue.publishing import has_room, new_items
from qos.core.queue.requests import PublishedItem, Settlement
from qos.core.queue.selector_time import SelectorTime
from qos.core.queue.subscription_index import SubscriptionIndex
from qos.core.quota import Tally
from qos.core.record import replace
from qos.core.strings import bare

__all__ = ["SEQ_CHARS", "QueueNode"]

#: The length of the suffix that `QueueNode.free_id` may add to an id.
SEQ_CHARS = 20


class QueueNode:
    """The items of a node and their subscribers.

    Attributes:
        node: as it is set up.
        options: its configuration, as values.
        subscriptions: its subscriptions, by JID.
        live: its items that are available or locked.
        dead: how many items are kept here as dead.
        repeated: how many published items were there already, or had been, since the
            service has read the store: they are not stored again.
        links: of gateways, to it or from it.
        deliveries: of its items.
    """

    def __init__(
        self,
        node: Node,
        *,
        backlog: Backlog,
        letters: Letters,
        items: Iterable[Item] = (),
        subscriptions: Iterable[Subscription] = (),
        dead: int = 0,
        next_order: Callable[[], int],
        subscribers: Tally,
        selector_time: SelectorTime,
        now: float,
    ) -> None:
        """Start with the contents of the store.

        Args:
            node: as it is set up.
            backlog: its items that are available and on disk only.
            letters: its dead letters.
            items: the others that are available or locked.
            subscriptions: its subscriptions.
            dead: how many items are kept here as dead.
            next_order: numbers redeliveries, for all nodes.
            subscribers: counts the subscriptions of all nodes that are not dormant.
            selector_time: of the selectors of all nodes.
            now: the time.
        """
        self.node = node
        self.options: NodeOptions = node_options(node.config)
        self.live = ItemIndex(backlog, letters, selector_time)
        self.live.load(items, now)
        if self.keeps_all:
            self.live.keep_all(now)
        # After the items: their selectors are evaluated in slices.
        self.subscriptions = SubscriptionIndex(
            node.name,
            subscriptions,
            holders=self.live.holders,
            ready=self.live.ready,
            subscribers=subscribers,
        )
        self.dead = dead
        self.repeated = 0
        self.links = NodeLinks()
        self.deliveries = Deliveries(
            node.name, self.live, self.subscriptions, self.options, next_order
        )

    #: All its items are in memory, however many.
    keeps_all = False

    def has_room(self, size: int) -> bool:
        """Whether one more item of this many bytes is within the limits."""
        return has_room(self.live, self.options, size)

    # -- what there is -----------------------------------------------------

    @property
    def items(self) -> dict[str, Item]:
        """The items that are available or locked, and in memory, by id."""
        return self.live.items

    def is_live(self, item: Item) -> bool:
        """Whether the delivery that this item value describes has not ended yet."""
        present = self.items.get(item.item_id)
        return present is not None and present.token == item.token != ""

    def is_over(self) -> bool:
        """Whether its lifetime has ended."""
        return bool(self.node.lifetime) and self.links.is_over(
            Lifetime(self.node.lifetime),
            subscriptions=len(self.subscriptions),
            messages=self.live.count,
        )

    def set_up(self, node: Node) -> None:
        """Apply a changed configuration or affiliation.

        Running deadlines do not change.
        """
        self.node = node
        self.options = self.deliveries.options = node_options(node.config)

    # -- publishers --------------------------------------------------------

    def publish(
        self,
        entries: Sequence[PublishedItem],
        publisher: str,
        *,
        present: Mapping[str, Item],
        ended_items: Mapping[str, Sequence[EndedItem]],
        next_seq: Callable[[], int],
        bytes_left: int,
        issued_at: float | None = None,
        now: float,
    ) -> list[QueueEffect]:
        """Take the items, all or none.

        Args:
            entries: of different ids.
            publisher: the bare JID; it may publish.
            present: the items with these ids that are available or locked, by id.
            ended_items: the remembered ends, by id.
            next_seq: gives the next item number of the store.
            bytes_left: see `Queues`.
            issued_at: see `Publish`.
            now: the time.

        Raises:
            Refusal: an id is taken, or there is no room.
        """
        new = new_items(
            self.live,
            entries,
            publisher,
            node=self.node,
            options=self.options,
            present=present,
            ended_items=ended_items,
            next_seq=next_seq,
            payload_names=self.live.ready.payload_names,
            bytes_left=bytes_left,
            issued_at=issued_at,
            now=now,
        )
        for item, _ in new:
            self.live.put(item, now)
        return [SaveItem(item, payload) for item, payload in new]

    def take_in(self, item: Item, before: Item, now: float) -> list[QueueEffect]:
        """Take a dead letter, or a requeued item of this node.

        Neither is ever refused.

        Args:
            item: as it is here.
            before: as it was where it comes from.
            now: the time.
        """
        self.live.put(item, now)
        return [SaveItem(item, before=before)]

    def free_id(self, item_id: str, seq: int) -> str:
        """An id for an item from another node.

        Its own id gets a suffix if that is taken.
        """
        while self.live.takes(item_id):
            item_id = f"{item_id}#{seq}"
        return item_id

    # -- workers -----------------------------------------------------------

    def settle(
        self,
        settlements: Sequence[Settlement],
        requester: str,
        *,
        ended_items: Mapping[str, EndedItem],
        notify: bool = True,
        now: float,
    ) -> list[QueueEffect]:
        """Retract or unlock items, all or none; see `item_lifecycle.check_settlement`.

        Args:
            settlements: of different items.
            requester: the full JID that asks.
            ended_items: the remembered ends with these tokens, by id.
            notify: send the requester an event for what it held; see `Retract`.
            now: the time.

        Raises:
            Refusal: of the first item that is refused.
        """
        effects: list[QueueEffect] = []
        notices: dict[tuple[str, bool], list[str]] = {}
        accepted = 0
        for item, settlement in self._permitted(settlements, requester, ended_items):
            if item.state is ItemState.AVAILABLE:
                effects += self._remove(item, now)
                continue
            effects += self.deliveries.settled(item, settlement, requester, now)
            retracts = settlement.outcome is ItemOutcome.ACCEPTED
            accepted += retracts
            if notify or item.holder != requester:
                notices.setdefault((item.holder, retracts), []).append(item.item_id)
        if accepted:
            self.node = replace(self.node, accepted=self.node.accepted + accepted)
            effects.append(SaveNode(self.node))
        for (to, retracts), item_ids in notices.items():
            event = NotifyRetract if retracts else NotifyUnlock
            effects.append(event(to, self.node.name, tuple(item_ids)))
        return effects

    def _permitted(
        self,
        settlements: Sequence[Settlement],
        requester: str,
        ended_items: Mapping[str, EndedItem],
    ) -> list[tuple[Item, Settlement]]:
        """The settlements that are still to be done, with their items."""
        assert len({settlement.item_id for settlement in settlements}) == len(
            settlements
        )
        account = bare(requester)
        owns = is_owner(self.node, account)
        to_do = []
        for settlement in settlements:
            item = self.live.get(settlement.item_id)
            retracts = settlement.outcome is ItemOutcome.ACCEPTED
            published = item is not None and item.publisher == account
            if item_lifecycle.check_settlement(
                item,
                ended_items.get(settlement.item_id),
                settlement,
                requester=requester,
                may_withdraw=retracts and (owns or published),
            ):
                assert item is not None
                to_do.append((item, settlement))
        return to_do

    def _remove(self, item: Item, now: float) -> list[QueueEffect]:
        """Remove an item that its publisher or an owner withdraws."""
        self.live.drop(item)
        return [RemoveItem(item.seq, item), SaveEnded(self.deliveries.ended(item, now))]

    def subscribe(
        self,
        subscription: Subscription,
        requester: str,
        *,
        new_worker: bool = False,
        new_token: Callable[[], str],
        now: float,
    ) -> list[QueueEffect]:
        """Add the subscription, replacing the one of this JID.

        The items that this JID holds are sent again.

        A receiver that comes back learns what is unsettled (AMQP 1.0 messaging). A
        worker that knows the token ignores the event.

        Args:
            subscription: the subscription.
            requester: the full JID that subscribes.
            new_worker: it is none that comes back; see `Deliveries.replaced`.
            new_token: makes a random token that was never used before.
            now: the time.
        """
        effects = self.subscriptions.keep(subscription)
        if new_worker:
            effects += self.deliveries.replaced(requester, now)
        self.live.holders.taken_on(requester)
        if subscription.durable_locks:
            room = subscription.queue_requests - self.live.holders.own(requester)
            effects += self.deliveries.take_over(
                requester, subscription.selector, room, new_token, now
            )
        return [*effects, *self.deliveries.resend(requester)]

    def came(self, jid: str, *, available: bool) -> list[QueueEffect]:
        """Send again what this full JID holds, which has come, perhaps back.

        Args:
            jid: the full JID.
            available: by available presence. A worker that begins, or has come back,
                sends that and subscribes. Until then it is not known to be the one that
                has the resumable locks of this JID: a new one would begin in vain.
        """
        holders = self.live.holders
        resumable = [
            item_id for item_id in holders.held(jid) if self.items[item_id].resumable
        ]
        holders.came(resumable)
        effects = self.deliveries.resend(jid)
        if available or not self.subscriptions.of(jid):
            effects = [each for each in effects if not each.item.resumable]
        return [*effects]

    def departed(
        self,
        jid: str,
        connected: Present,
        *,
        defaults: Sequence[Settlement] = (),
        input_: ItemInput = ItemInput.FAIL,
        now: float,
    ) -> list[QueueEffect]:
        """Unlock and unsubscribe after unavailable presence (XEP-0254 §4).

        Resumable locks stay: a connection that is lost is not a worker that died. One
        that leaves for good gives its items back first.

        Args:
            jid: the full JID that left.
            connected: the full JIDs that have not left, though they may be silent.
            defaults: the outcomes of some deliveries that it may hold; see `Suspend`.
            input_: of the other deliveries that it holds.
            now: the time.
        """
        tokens = {self.items[item_id].token for item_id in self.live.holders.held(jid)}
        settlements = [
            settlement for settlement in defaults if settlement.token in tokens
        ]
        effects = self.settle(settlements, jid, ended_items={}, notify=False, now=now)
        for item_id in self.live.holders.held(jid):
            item = self.items[item_id]
            if not item.resumable:
                effects += self.deliveries.give_back(item, input_, now, reason="gone")
        self.live.holders.departed(jid)
        return effects + self.subscriptions.departed(jid, connected)

    def release_all(self, account: str, now: float) -> list[QueueEffect]:
        """Release every lock of an account that may no longer work here."""
        effects: list[QueueEffect] = []
        for item_id in self.live.holders.of_account(account):
            item = self.items[item_id]
            effects += self.deliveries.give_back(item, ItemInput.RELEASE, now)
            effects.append(NotifyUnlock(item.holder, self.node.name, (item_id,)))
        return effects

    def purge(self, now: float) -> list[QueueEffect]:
        """Remove every item that is available, locked or dead, however many there are."""
        if not self.live.count and not self.dead:
            return []
        purged = PurgedItems(
            node=self.node.name,
            gen=self.node.gen,
            purged_at=now,
            forget_at=item_lifecycle.forget_at(now, self.options.dedupe_window),
        )
        self.dead = 0
        self.node = replace(self.node, gen=self.node.gen + 1)
        items = self.live.clear(self.node.gen)
        return [PurgeNode(purged, items), SaveNode(self.node)]

    def notify_workers(self, action: str) -> list[QueueEffect]:
        """Tell everybody who works here: `purge` or `delete`."""
        jids = {*self.subscriptions, *self.holders()}
        return [NotifyNode(jid, self.node.name, action) for jid in sorted(jids)]

    def holders(self) -> set[str]:
        """The full JIDs that have items."""
        return {item.holder for item in self.items.values() if item.holder}

    def listens_to(self, jid: str) -> bool:
        """Whether the presence of this full JID matters to this node."""
        account = bare(jid)
        return (
            jid in self.subscriptions
            or account in self.subscriptions
            or self.live.holders.holds(jid)
            or any(
                self.items[item_id].holder == jid
                for item_id in self.live.holders.durable(account)
            )
        )

    def knows(self, account: str) -> bool:
        """Whether the account has a subscription or holds an item."""
        return bool(self.live.holders.of_account(account)) or any(
            bare(jid) == account for jid in self.subscriptions
        )

    def withdraw(self, item: Item) -> None:
        """Remove a dead letter that is requeued where it came from."""
        self.live.drop(item)

    # -- time --------------------------------------------------------------

    def next_at(self) -> float | None:
        """The time of the next timed event; None: there is none."""
        at, end = self.live.next_at(), self.subscriptions.dormant_end
        if at is None or end is None:
            return end if at is None else at
        return min(at, end)

    def _time_out(self, item: Item, now: float, link: LinkTime) -> list[QueueEffect]:
        """End a lock whose deadline has passed; or look again, if that is in doubt."""
        if link.is_over(item, now):
            return self.deliveries.time_out(item, now)
        self.live.timers.look_again(item, now + LOOK_S)
        return []

    def due(self, now: float, link: LinkTime) -> list[QueueEffect]:
        """Handle what is due: locks time out, delays end, and items expire.

        Of what is on disk a slice.

        Args:
            now: the time.
            link: what was heard by the XMPP connection.
        """
        effects: list[QueueEffect] = []
        for item in self.live.timers.due(now):
            if item.state is ItemState.ACQUIRED:
                if item.deadline <= now:
                    effects += self._time_out(item, now, link)
            elif not item.is_held_back(now):
                self.live.delay_over(item, now)
        self.live.read_due(now)
        for item in self.live.expired(now):
            dead = item_lifecycle.expired(item, now=now)
            effects += self.deliveries.die(item, dead, now)
        return effects
