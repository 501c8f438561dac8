"""A queue service: its nodes, presence, dead letters, and timed events.

Requests are handled by `owner_requests`, `subscriber_requests`, `link_requests` and
`browsing`; see `handle`. Each ends with a result and the effects, in order, or with a
Refusal that has changed nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

from qos.core.queue.access import may_publish, may_subscribe, may_use
from qos.core.queue.backlog import Backlog
from qos.core.queue.bounds import QueueBounds
from qos.core.queue.contents import PlainItems, QueueContents, StoredItems
from qos.core.queue.dead_letters import place_dead
from qos.core.queue.effects import (
    NotifyItem,
    NotifySubscription,
    Probe,
    QueueEffect,
    RemoveNode,
)
from qos.core.queue.item import Item, Node, Subscription
from qos.core.queue.item_lifecycle import ItemInput
from qos.core.queue.letters import Letters, LettersFrom
from qos.core.queue.link_time import LinkTime
from qos.core.queue.node import QueueNode
from qos.core.queue.node_options import NODE_TYPE
from qos.core.queue.presence import Presence
from qos.core.queue.requests import Suspend, no_node
from qos.core.queue.selector_time import SelectorTime
from qos.core.queue.stats import stats
from qos.core.queue.termini import Termini
from qos.core.queue.timers import NodeTimers
from qos.core.queue.topic_node import TopicNode
from qos.core.queue.topics import Topics
from qos.core.strings import bare

__all__ = ["Queues", "too_dear"]

_OfNode = TypeVar("_OfNode", Item, Subscription)


class Queues:
    """All nodes of a service.

    Attributes:
        nodes: by name.
        presence: of the full JIDs that work here.
        ended_items: what is on disk only: items that have ended, and plain ones.
        creators: the accounts that may create nodes: bare JIDs, or `@` and a domain for
            all accounts of it; None: every account.
        nodes_created: counts nodes by the account that created them.
        subscribers: counts the subscriptions that are not dormant, by account.
        termini: of links of gateways.
        topics: which queues copy from which topic.
        selector_time: measures selectors.
        link: what was heard by the XMPP connection.
        new_id: makes an id of 128 random bits, as text, never given before.
        next_gen: the generation of a new node: later than that of each deleted one.
    """

    def __init__(
        self,
        start: QueueContents,
        ended_items: StoredItems,
        *,
        creators: Collection[str] | None,
        bounds: QueueBounds,
        new_id: Callable[[], str],
        selector_time: SelectorTime | None = None,
        link: LinkTime | None = None,
        now: float,
    ) -> None:
        self.selector_time = selector_time or SelectorTime()
        self.link = link or LinkTime()
        self.ended_items = ended_items
        self._is_paged = start.plain is not None
        self.creators = creators
        self.nodes_created = bounds.of_nodes()
        self._bytes_per_account = bounds.bytes_per_account
        # The names of the nodes that each account created.
        self._created: dict[str, set[str]] = {}
        self.subscribers = bounds.of_subscriptions()
        self.termini = Termini(start.termini, bounds.of_termini())
        self.topics = Topics()
        self.new_id = new_id
        self.nodes: dict[str, QueueNode] = {}
        self.presence = Presence()
        self.next_seq = itertools.count(start.next_seq).__next__
        self._next_order = itertools.count(start.next_order).__next__
        self.next_gen = start.next_gen
        # The nodes that have changed since the last dispatch.
        self._touched: set[str] = set()
        self._timers = NodeTimers()
        # The nodes with selectors that are to be evaluated, by turns.
        self._classifying: dict[str, None] = {}
        # When full JIDs that are suspended will have left.
        self._leaving: dict[str, float] = {}
        # Their default outcomes, until they have left or subscribe again.
        self._defaults: dict[str, Suspend] = {}
        items, subscriptions = _by_node(start.items), _by_node(start.subscriptions)
        plain = start.plain or {}
        for node in start.nodes:
            queue = self.add(
                node,
                items=items.get(node.name, ()),
                plain=plain.get(node.name),
                letters=start.letters.get(node.name),
                subscriptions=subscriptions.get(node.name, ()),
                dead=start.dead.get(node.name, 0),
                now=now,
            )
            for jid in (*queue.subscriptions, *queue.holders()):
                self.presence.works_at(bare(jid), node.name)

    # -- nodes -------------------------------------------------------------

    def queue(self, name: str) -> QueueNode:
        """The node of this name; it counts as changed.

        Raises:
            Refusal: there is none.
        """
        queue = self.nodes.get(name)
        if queue is None:
            raise no_node(name)
        self._touched.add(name)
        return queue

    def shown(self, name: str, account: str) -> QueueNode:
        """The node of this name, if the account may use it; it counts as changed.

        Raises:
            Refusal: there is no such node, or the account may not use it. The answer is
                the same.
        """
        queue = self.nodes.get(name)
        if queue is not None and may_use(queue.node, queue.options, account):
            return self.queue(name)
        raise no_node(name)

    def bytes_left(self, queue: QueueNode) -> int:
        """The bytes that there are for more items, of all nodes of its creator.

        Negative where a store has too many.
        """
        created = self._created[queue.node.creator]
        used_bytes = sum(self.nodes[name].live.size for name in created)
        return self._bytes_per_account - used_bytes

    def publishes(self, account: str) -> bool:
        """Whether there is a node that this account may publish to."""
        return any(
            may_publish(queue.node, queue.options, account)
            for queue in self.nodes.values()
        )

    def add(
        self,
        node: Node,
        *,
        items: Iterable[Item] = (),
        plain: PlainItems | None = None,
        letters: dict[str, int] | None = None,
        subscriptions: Iterable[Subscription] = (),
        dead: int = 0,
        now: float,
    ) -> QueueNode:
        """Add a node with its contents."""
        is_topic = node.config.get(NODE_TYPE) == "topic"
        store = self.ended_items if self._is_paged else None
        queue = self.nodes[node.name] = (TopicNode if is_topic else QueueNode)(
            node,
            backlog=Backlog(node, store, plain),
            letters=Letters(node, self.ended_items, letters),
            items=items,
            subscriptions=subscriptions,
            dead=dead,
            next_order=self._next_order,
            subscribers=self.subscribers,
            selector_time=self.selector_time,
            now=now,
        )
        self.topics.keep(queue)
        self.nodes_created.add(node.creator)
        self._created.setdefault(node.creator, set()).add(node.name)
        self._touched.add(node.name)
        return queue

    def drop(self, name: str) -> None:
        """Remove a node with its contents."""
        queue = self.nodes.pop(name)
        self.next_gen = max(self.next_gen, queue.node.gen + 1)
        queue.subscriptions.end_all()
        self.topics.drop(queue)
        self.termini.end_at(name)
        self._defaults = {
            jid: request
            for jid, request in self._defaults.items()
            if request.node != name
        }
        self.nodes_created.add(queue.node.creator, -1)
        created = self._created[queue.node.creator]
        created.discard(name)
        if not created:
            del self._created[queue.node.creator]
        self._touched.discard(name)
        self._classifying.pop(name, None)
        self._timers.stop(name)
        self.presence.deleted(name)

    def delete(self, name: str) -> list[QueueEffect]:
        """Delete a node with its locked items, and tell everybody who works there.

        The queues that copy from it are deleted too. Its dead letters stay where they
        are, and are those of no other node, whatever name that has.
        """
        effects: list[QueueEffect] = [
            RemoveNode(name, self.nodes[name].node.gen),
            *self.nodes[name].notify_workers("delete"),
        ]
        copying = list(self.topics.of(name))
        self.drop(name)
        for queue_name in copying:
            effects += self.delete(queue_name)
        return effects

    def stats(
        self, name: str, requester: str, now: float
    ) -> dict[str, int | float | None]:
        """The counts of a node; its dead items include those in its dead-letter node.

        Raises:
            Refusal: there is no such node, or the requester may not use it.
        """
        queue = self.shown(name, bare(requester))
        letters = sum(letters.count for _, letters in self.letters(name))
        copying = len(self.topics.of(name))
        present = self.presence.present
        return stats(queue, present, letters=letters, copying=copying, now=now)

    # -- who is there ------------------------------------------------------

    def tokens(self, name: str, jid: str) -> list[str]:
        """The tokens of the deliveries that this full JID holds at a node."""
        live = self.nodes[name].live
        return [live.items[item_id].token for item_id in live.holders.held(jid)]

    def start(self, now: float) -> list[QueueEffect]:
        """Note that no link of a gateway has outlived the start; call it once.

        A link without a durable terminus has left. Not its consumer has lost it, but this
        service: that kills no item. The others have their time to come back.
        """
        links = {
            subscription.jid
            for queue in self.nodes.values()
            for subscription in queue.subscriptions.values()
            if subscription.link
        }
        effects: list[QueueEffect] = []
        for jid in sorted(links - self.termini.keys()):
            effects += self.departed(jid, now, input_=ItemInput.LOSE)
        effects += self.termini.start(now)
        for terminus in self.termini.values():
            if terminus.until is not None:
                self._leaving[terminus.jid] = terminus.until
        return effects

    def heard(self, jid: str, *, available: bool = False) -> list[QueueEffect]:
        """Note that this full JID is there: it sent a stanza or answered a probe.

        Args:
            jid: the full JID.
            available: the stanza was available presence.
        """
        account = bare(jid)
        effects: list[QueueEffect] = []
        if self._leaving.pop(jid, None) is not None:
            effects += self.termini.time(jid, None)
        present = self.presence.present
        before = present.get(account, {}).get(jid)
        if before or (before is not None and not available):
            return effects
        names = self.presence.nodes_of(account)
        if not names:
            return effects
        by_presence, available = available, self.presence.speaks(jid) or available
        for name in names:
            if not self.nodes[name].listens_to(jid):
                continue
            self.presence.heard(jid, available=available)
            if before is None:
                effects += self.nodes[name].came(jid, available=by_presence)
            effects += self.nodes[name].subscriptions.awake(jid, present)
            self._touched.add(name)
        return effects

    def absent(self, jid: str, now: float) -> list[QueueEffect]:
        """A probe of this full JID has failed."""
        if self.presence.is_known(jid):
            return []
        effects: list[QueueEffect] = []
        present = self.presence.present
        for name in self.presence.nodes_of(bare(jid)):
            effects += self.queue(name).subscriptions.absent(jid, present, now)
        return effects

    def works_at(self, jid: str, name: str) -> list[QueueEffect]:
        """Note that this full JID has subscribed to a node.

        Its presence matters now.
        """
        self.presence.works_at(bare(jid), name)
        self._defaults.pop(jid, None)
        return self.heard(jid)

    def suspend(
        self, jid: str, until: float | None, request: Suspend
    ) -> list[QueueEffect]:
        """Note that this full JID is away, and may come back; see `requests.Suspend`.

        Args:
            jid: the full JID.
            until: when it will have left; None: never.
            request: of its gateway.
        """
        if request.defaults:
            self._defaults[jid] = request
        self.presence.departed(jid)
        if until is None:
            return []
        self._leaving[jid] = until
        return self.termini.time(jid, until)

    def departed(
        self, jid: str, now: float, *, input_: ItemInput = ItemInput.FAIL
    ) -> list[QueueEffect]:
        """Handle unavailable presence from a full JID (XEP-0254 §4).

        Args:
            jid: the full JID that left.
            now: the time.
            input_: see `QueueNode.departed`.
        """
        account = bare(jid)
        self._leaving.pop(jid, None)
        self.presence.departed(jid)
        connected = self.presence.of(account)
        effects = self.termini.end(jid)
        request = self._defaults.pop(jid, None)
        for name in list(self.presence.nodes_of(account)):
            defaults = request.defaults if request and request.node == name else ()
            effects += self.queue(name).departed(
                jid, connected, defaults=defaults, input_=input_, now=now
            )
            effects += self.place_dead(name, now)
            self.forget(account, name)
        return effects

    def bounced(
        self, jid: str, name: str, tokens: Collection[str], now: float
    ) -> list[QueueEffect]:
        """Handle an event with these deliveries that bounced from this full JID."""
        if name not in self.nodes:
            return []
        queue = self.queue(name)
        effects = queue.deliveries.bounced(jid, tokens, now)
        self._silence(queue)
        return effects + self.place_dead(name, now)

    def unsendable(
        self, jid: str, name: str, tokens: Collection[str], why: str, now: float
    ) -> list[QueueEffect]:
        """End these deliveries to this full JID; see `Deliveries.unsendable`."""
        if name not in self.nodes:
            return []
        effects = self.queue(name).deliveries.unsendable(jid, tokens, why, now)
        return effects + self.place_dead(name, now)

    def fit_again(self) -> list[QueueEffect]:
        """Note that XMPP workers may get items that were too large before."""
        for name, queue in self.nodes.items():
            if queue.live.fit_again():
                self._touched.add(name)
        return []

    def probes(self) -> list[QueueEffect]:
        """Probe every subscriber; called after a start.

        The links of gateways are known without that.
        """
        via = {
            subscription.via
            if subscription.jid == bare(subscription.jid)
            else subscription.jid
            for queue in self.nodes.values()
            for subscription in queue.subscriptions.values()
            if not subscription.link
        }
        return [Probe(jid) for jid in sorted(via)]

    def forget(self, account: str, name: str) -> None:
        """Forget the presence of an account that no longer uses the node.

        The account stays known for the other nodes that it uses.
        """
        queue = self.nodes.get(name)
        if queue is None or not queue.knows(account):
            self.presence.left(account, name)

    def forget_presence(self, keep: Collection[str] = ()) -> None:
        """Forget presence after a lost session: it is not known who is there.

        Args:
            keep: the full JIDs that are known to be there, since they do not depend on
                the session.
        """
        self.presence.forget(keep)
        for queue in self.nodes.values():
            queue.live.holders.forget_departed()

    def link_back(self, now: float) -> list[QueueEffect]:
        """Note that XMPP workers can be heard again.

        Their locks move by the time that the connection was lost; see `LinkTime`.
        """
        since = self.link.lost_at
        self.link.back(now)
        effects: list[QueueEffect] = []
        if since is not None:
            for name, queue in self.nodes.items():
                moved = queue.deliveries.unheard(since, now)
                if moved:
                    self._touched.add(name)
                effects += moved
        return effects

    def enforce_access(self, name: str, now: float) -> list[QueueEffect]:
        """Take subscriptions and locks from accounts that may no longer have them.

        Of a topic, the queues that they have made to copy from it are deleted.
        """
        queue = self.queue(name)
        effects: list[QueueEffect] = []
        workers = (*queue.subscriptions, *queue.holders())
        for account in {bare(jid) for jid in workers}:
            if may_subscribe(queue.node, queue.options, account):
                continue
            for subscription in list(queue.subscriptions.values()):
                if bare(subscription.jid) == account:
                    effects += self._end_subscription(queue, subscription)
            effects += queue.release_all(account, now)
            self.forget(account, name)
        for copying in list(self.topics.of(name)):
            creator = self.nodes[copying].node.creator
            if not may_subscribe(queue.node, queue.options, creator):
                effects += self.delete(copying)
        return effects + self.place_dead(name, now)

    def _end_subscription(
        self, queue: QueueNode, subscription: Subscription, why: str = ""
    ) -> list[QueueEffect]:
        self._defaults.pop(subscription.jid, None)
        node, jid = subscription.node, subscription.jid
        return [
            *queue.subscriptions.end(jid),
            *self.termini.end(jid),
            NotifySubscription(jid, node, jid, subscription.subid, why),
        ]

    def _silence(self, queue: QueueNode) -> None:
        for jid in queue.deliveries.suspended:
            self.presence.failed(jid)
        queue.deliveries.suspended.clear()

    # -- dead letters ------------------------------------------------------

    def place_dead(self, name: str, now: float) -> list[QueueEffect]:
        """Move a node's newly dead items to its dead-letter node, or keep them."""
        queue = self.nodes[name]
        if not queue.deliveries.died:
            return []
        effects, to = place_dead(self.nodes, queue, now)
        self._touched |= to
        return effects

    def letters(self, name: str) -> Iterable[tuple[QueueNode, LettersFrom]]:
        """The dead letters that came from a node, by the node where they are."""
        identity = self.nodes[name].node.identity
        for queue in self.nodes.values():
            letters = queue.live.letters.of(identity)
            if letters is not None:
                yield queue, letters

    # -- time and dispatch -------------------------------------------------

    def next_at(self) -> float | None:
        """The latest time to call `due`; None: there is no timed event."""
        times = list(self._leaving.values())
        at = self._timers.next_at()
        return min(times if at is None else (at, *times), default=None)

    def due(self, now: float) -> list[QueueEffect]:
        """Handle all timed events up to now; what was decided before is in the store."""
        due = list(self._timers.due(now))
        for name in {*due, *self._touched}:
            self.nodes[name].live.backlog.new.clear()
        effects: list[QueueEffect] = []
        for jid in [jid for jid, at in self._leaving.items() if at <= now]:
            effects += self.departed(jid, now)
        for name in due:
            self._touched.add(name)
            effects += self._pass_time(name, now)
        return effects

    def _pass_time(self, name: str, now: float) -> list[QueueEffect]:
        queue = self.nodes[name]
        effects = queue.due(now, self.link)
        if queue.deliveries.died:
            effects += self.place_dead(name, now)
        if queue.deliveries.suspended:
            self._silence(queue)
        for removal in queue.subscriptions.end_dormant(now):
            effects.append(removal)
            self.forget(bare(removal.jid), name)
        return effects

    def dispatch(self, now: float) -> list[QueueEffect]:
        """Give out all items that can be delivered.

        Call it after everything else of a step, before the commit.
        """
        effects = self.due(now)
        # An item that was just put there may have expired already. In all nodes, before
        # anything is given out: the holder of a lock that times out gets nothing in any
        # node, and what dies may go to another one.
        passed: set[str] = set()
        while new := self._touched - passed:
            passed |= new
            for name in new:
                effects += self._pass_time(name, now)
        self._classify(now)
        present = self.presence.present
        while self._touched:
            name = self._touched.pop()
            queue = self.nodes[name]
            effects += self._give_up_selectors(queue)
            effects += queue.deliveries.dispatch(
                present, new_token=self.new_id, now=now
            )
            if queue.is_over():
                effects += self.delete(name)
                continue
            # A step evaluates new selectors for some items only, and passes over some
            # that are held back; the next one goes on.
            at = now if queue.deliveries.goes_on else queue.next_at()
            if at is not None:
                self._timers.set(name, at)
        self.selector_time.begin_step(now)
        return effects

    def _classify(self, now: float) -> None:
        """Evaluate selectors for items that wait for that, as long as there is time."""
        for name in self._touched:
            if self.nodes[name].deliveries.classifying:
                self._classifying.setdefault(name)
        self.selector_time.begin_slice(now)
        for name in list(self._classifying):
            if self.selector_time.is_over:
                break
            self.nodes[name].deliveries.classify(now)
            self._touched.add(name)
            # If there is more, after the others.
            del self._classifying[name]
            if self.nodes[name].deliveries.classifying:
                self._classifying[name] = None

    def _give_up_selectors(self, queue: QueueNode) -> list[QueueEffect]:
        """End the subscriptions whose selectors have become too dear."""
        effects: list[QueueEffect] = []
        for selector, account in list(queue.live.ready.given_up):
            for subscription in list(queue.subscriptions.values()):
                if (
                    subscription.selector == selector
                    and bare(subscription.jid) == account
                ):
                    why = too_dear(account, self.selector_time.wait_s(account))
                    effects += self._end_subscription(queue, subscription, why)
            self.forget(account, queue.node.name)
        return effects

    def is_live(self, notification: NotifyItem) -> bool:
        """Whether the delivery of this notification has not ended yet."""
        queue = self.nodes.get(notification.item.node)
        return queue is not None and queue.is_live(notification.item)


def _by_node(entries: Iterable[_OfNode]) -> dict[str, list[_OfNode]]:
    """The items, or subscriptions, of each node."""
    by_node: dict[str, list[_OfNode]] = {}
    for entry in entries:
        by_node.setdefault(entry.node, []).append(entry)
    return by_node


def too_dear(account: str, wait_s: float) -> str:
    """Why an account cannot have another selector now."""
    return (
        f"the selectors of {account} have taken as much time as is possible: use a "
        "cheaper one (patterns without _ after % are the cheapest), or try again in "
        f"{math.ceil(wait_s)} s"
    )
