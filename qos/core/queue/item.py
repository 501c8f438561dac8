"""A queue item, a node and a subscription (XEP-0254, AMQP 1.0 messaging §3).

Values only. Times are seconds since the epoch (UTC), lengths of time are seconds,
sizes are bytes of UTF-8, JIDs are strings as they stand on the wire.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field

from qos.core.queue.properties import Properties
from qos.core.quick_enum import QuickEnum
from qos.core.record import record

__all__ = [
    "EXTENSIONS_NAMESPACE",
    "LOCK",
    "PRIORITIES",
    "PRIORITY",
    "Affiliation",
    "Disposition",
    "EndedItem",
    "Failure",
    "Item",
    "ItemOutcome",
    "ItemState",
    "Node",
    "PurgedItems",
    "Subscription",
]

#: The namespace of our extensions of XEP-0254; no client needs them.
EXTENSIONS_NAMESPACE = "xmpp-qos:queue:0"

#: AMQP 1.0 messaging §3.2.1: ten distinct priorities, and 4 is the usual one.
PRIORITIES = range(10)
PRIORITY = 4


class ItemState(QuickEnum):
    """The state of an item (AMQP 1.0 messaging §3.3); the values are stored."""

    AVAILABLE = "available"
    ACQUIRED = "acquired"
    ARCHIVED = "archived"


class ItemOutcome(QuickEnum):
    """The end of a delivery of an item (AMQP 1.0 messaging §3.4); the values are stored."""

    ACCEPTED = "accepted"
    RELEASED = "released"
    MODIFIED = "modified"
    REJECTED = "rejected"


@record(frozen=True, slots=True)
class Disposition:
    """The end of a delivery, as the holder of the item wants it (AMQP 1.0 messaging §3.4).

    Attributes:
        outcome: of the delivery.
        delivery_failed: with modified: the delivery counts.
        undeliverable_here: with modified: do not deliver the item to this holder again.
        reason: with rejected and with modified: the reason, in words.
    """

    outcome: ItemOutcome
    _: KW_ONLY
    delivery_failed: bool = False
    undeliverable_here: bool = False
    reason: str = ""


class Affiliation(QuickEnum):
    """The affiliation of an account with a node (XEP-0060 §4.1); without one it is NONE."""

    OWNER = "owner"
    PUBLISHER = "publisher"
    PUBLISH_ONLY = "publish-only"
    MEMBER = "member"
    OUTCAST = "outcast"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Failure:
    """A delivery that failed, or the end of an item that died.

    Attributes:
        at: the time.
        by: the full JID that held the item, or ''.
        reason: `rejected`, `failed`, `timed out`, `gone` or `expired`; after a colon,
            the reason that the worker gave.
    """

    at: float
    by: str
    reason: str


@record(frozen=True, slots=True, kw_only=True)
class Item:
    """An item of a queue; its payload is in the store.

    Attributes:
        seq: its number in the store; grows in the order of publishing.
        node: the name of its node.
        gen: the generation of the node when the item came into it; see Node.
        item_id: its id in that node.
        origin: of a dead letter, the node where it died; else ''.
        origin_id: its id there.
        origin_identity: the identity of that node. It may be deleted, and another one
            have its name.
        publisher: the bare JID that published it.
        digest: of the payload and the properties (SHA-256, hex).
        size: bytes of the payload and of the properties.
        priority: one of PRIORITIES; a larger number is delivered earlier.
        published_at: the time of publishing.
        available_at: the earliest time of delivery, because of a delay or a backoff.
        expires_at: when its ttl ends; None: never.
        state: see ItemState.
        delivery_count: prior unsuccessful deliveries (AMQP 1.0 messaging §3.2.1).
        lost: how many of these ended with a process of this service. They do not count
            for `max_deliveries`.
        releases: how many times in a row it was released.
        order: 0 before the first redelivery (`first-acquirer`); then a number that
            grows with each redelivery. A take-over of its lock by another worker of the
            same account is a redelivery too.
        receivers: the bare JIDs that have received it since it was published or
            requeued.
        excluded: the full JIDs that cannot handle it (`undeliverable-here`).
        last_holder: the full JID that held it last, or ''.
        token: fence of the present delivery; '' when the item is not locked.
        holder: the full JID that holds it, or ''.
        durable: the lock belongs to the holder's account and outlives its presence.
        resumable: the lock belongs to the worker that has its token. It outlives the
            holder's presence, and the worker takes it up again under any full JID.
        locked_at: when it was locked.
        deadline: when the lock times out.
        outcome: of an item that is kept after its end, accepted or rejected (dead);
            else None.
        ended_at: the time of its end.
        forget_at: when an accepted item is no longer kept; None: it is kept.
        annotations: message annotations that its consumers have added (AMQP 1.0
            messaging §3.4.5), packed; '': none.
        history: its failures, oldest first; the first one is never dropped.
        properties: as they were published; and what the selectors of its node wanted to
            know of its payload, under names with `xml.`.
    """

    seq: int
    node: str
    gen: int = 0
    item_id: str
    origin: str = ""
    origin_id: str = ""
    origin_identity: str = ""
    publisher: str
    digest: str
    size: int
    priority: int = PRIORITY
    published_at: float
    available_at: float
    expires_at: float | None = None
    state: ItemState = ItemState.AVAILABLE
    delivery_count: int = 0
    lost: int = 0
    releases: int = 0
    order: int = 0
    receivers: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    last_holder: str = ""
    token: str = ""
    holder: str = ""
    durable: bool = False
    resumable: bool = False
    locked_at: float = 0.0
    deadline: float = 0.0
    outcome: ItemOutcome | None = None
    ended_at: float | None = None
    forget_at: float | None = None
    annotations: str = ""
    history: tuple[Failure, ...] = ()
    properties: Properties = field(default_factory=dict, hash=False)

    @property
    def has_delay(self) -> bool:
        """Whether a delay or a backoff holds it back, or has done so.

        Only a delay set by the publisher or a redelivery holds an item back. Without
        either, an `available_at` in the future means that the clock was set back, and
        newer items must not overtake this one. A requeued item, which has a history
        from its beginning, has no delay either until its first redelivery.
        """
        if self.order:
            return True
        return not self.history and self.available_at > self.published_at

    def is_held_back(self, now: float) -> bool:
        """Whether its delay or backoff is not over yet."""
        return self.available_at > now and self.has_delay

    @property
    def is_plain(self) -> bool:
        """Whether time and its place decide alone when it is given: see `queue.backlog`.

        Any worker may have it. (A requeued item, or a dead letter, that an older version
        wrote is none.)
        """
        return (
            self.state is ItemState.AVAILABLE
            and not self.excluded
            and (
                self.order > 0
                or not self.history
                or self.available_at <= self.published_at
            )
        )

    def is_kept(self, now: float) -> bool:
        """Whether it can still be browsed.

        Items that cannot are removed from time to time.
        """
        return self.forget_at is None or self.forget_at > now


#: The fields of an item that a lock, or its extension, may change.
LOCK = (
    "state",
    "receivers",
    "last_holder",
    "token",
    "holder",
    "durable",
    "resumable",
    "locked_at",
    "deadline",
)


@record(frozen=True, slots=True, kw_only=True)
class EndedItem:
    """The remembered end of an item.

    One id can have several: the id was used again, or the item was requeued.

    Attributes:
        seq: of the item; 0: an older version wrote this record.
        node: the name of its node.
        item_id: its id.
        publisher: the bare JID that had published it.
        digest: of its payload and its properties.
        ended_at: the time of its end; the dedupe window begins here.
        forget_at: when this record is forgotten.
        token: the token that settled it, or ''.
        account: the bare JID that settled it, or ''.
        outcome: the outcome that it was settled with; None: it was purged, it expired,
            or its owner or publisher retracted it.
        gen: the generation of the item.
    """

    seq: int
    node: str
    item_id: str
    publisher: str
    digest: str
    ended_at: float
    forget_at: float
    token: str = ""
    account: str = ""
    outcome: ItemOutcome | None = None
    gen: int = 0


@record(frozen=True, slots=True, kw_only=True)
class PurgedItems:
    """The items of a node that one purge has removed, while their rows are in the store.

    Nobody sees these items any more. Accepted items that are kept are none of them.

    Attributes:
        node: the name of the node.
        gen: the generation of the items.
        purged_at: the time of the purge, and the end of those that had not ended.
        forget_at: when these ends are forgotten.
    """

    node: str
    gen: int
    purged_at: float
    forget_at: float

    def has(self, item: Item) -> bool:
        """Whether the item is one of them."""
        return (item.node, item.gen) == (self.node, self.gen) and (
            item.outcome is not ItemOutcome.ACCEPTED
        )

    def end_of(self, item: Item) -> EndedItem:
        """The end of one of them that was available or locked."""
        return EndedItem(
            seq=item.seq,
            node=item.node,
            item_id=item.item_id,
            publisher=item.publisher,
            digest=item.digest,
            ended_at=self.purged_at,
            forget_at=self.forget_at,
            gen=item.gen,
        )


@record(frozen=True, slots=True, kw_only=True)
class Node:
    """A queue or a topic, as its owner has set it up.

    Attributes:
        name: its name. After this node is deleted, a new node may use the name.
        identity: random, made at creation, never used by another node.
        created_at: the time of creation.
        creator: the bare JID that created the node; the node counts towards the limit
            of this account. '': an older version created it, and it counts for no
            account.
        config: the values of the configuration form that differ from the default, as
            text, by the names of the form's fields.
        affiliations: by bare JID, or by that of a domain for all its accounts; see
            `access.affiliation`. NONE is left out.
        accepted: how many items have ever been accepted here.
        dead_letter: the identity of the node that `queue#dead_letter_node` names, or
            ''. See `qos.core.queue.dead_letters`.
        dead_letter_by: the bare JID that set it, or ''.
        lifetime: a value of `qos.core.queue.lifetime.Lifetime`; '': it stays.
        dropped: of a topic, the seq of the last item that it no longer keeps because of
            its limits; 0: none.
        missed: how many items of its topic found no room here.
        gen: its generation: one more with each purge. The items of an earlier one have
            been purged, or were those of a deleted node of this name.
    """

    name: str
    identity: str
    created_at: float
    creator: str = ""
    config: dict[str, str] = field(default_factory=dict)
    affiliations: dict[str, Affiliation] = field(default_factory=dict)
    accepted: int = 0
    dead_letter: str = ""
    dead_letter_by: str = ""
    lifetime: str = ""
    dropped: int = 0
    missed: int = 0
    gen: int = 0


@record(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription: a worker that asks for items of a node.

    Attributes:
        node: the name of the node.
        jid: a full JID; or a bare one, and then each of its resources may get items.
        subid: identifies the subscription.
        via: the full JID that subscribed. For a bare JID: after that one has left,
            another resource that works on.
        queue_requests: how many items it will hold at a time at most.
        batch: how many items one event may carry at most.
        durable_locks: its locks belong to its account and outlive its presence.
        resumable_locks: its locks belong to the worker that has their tokens, and outlive
            its presence.
        acknowledged: events go out at level acknowledged.
        dormant_since: when a probe of its holder failed, and the holder had not been
            heard of since a start of the service; None: it has been heard of, or was
            not probed yet.
        selector: the condition on the items that it wants; '': all.
        link: it is of a link of a gateway, which no XMPP client can be. No link outlives
            the process; its terminus may.
    """

    node: str
    jid: str
    subid: str
    via: str
    queue_requests: int
    batch: int = 1
    durable_locks: bool = False
    resumable_locks: bool = False
    acknowledged: bool = False
    dormant_since: float | None = None
    selector: str = ""
    link: bool = False
