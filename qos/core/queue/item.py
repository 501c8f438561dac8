"""A queue item, a node and a subscription (XEP-0254, AMQP 1.0 messaging §3).

Values only. Times are seconds since the epoch (UTC), lengths of time are seconds,
sizes are bytes of UTF-8, JIDs are strings as they stand on the wire.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

__all__ = [
    "EXTENSIONS_NAMESPACE",
    "PRIORITIES",
    "PRIORITY",
    "Affiliation",
    "EndedItem",
    "Failure",
    "Item",
    "ItemOutcome",
    "ItemState",
    "Node",
    "Subscription",
]

#: Our extensions of XEP-0254; optional to a stranger.
EXTENSIONS_NAMESPACE = "xmpp-qos:queue:0"

#: AMQP 1.0 messaging §3.2.1: ten distinct priorities, and 4 is the usual one.
PRIORITIES = range(10)
PRIORITY = 4


class ItemState(enum.Enum):
    """The state of an item (AMQP 1.0 messaging §3.3); the values are stored."""

    AVAILABLE = "available"
    ACQUIRED = "acquired"
    ARCHIVED = "archived"


class ItemOutcome(enum.Enum):
    """The end of a delivery of an item (AMQP 1.0 messaging §3.4); the values are stored."""

    ACCEPTED = "accepted"
    RELEASED = "released"
    MODIFIED = "modified"
    REJECTED = "rejected"


class Affiliation(enum.Enum):
    """The affiliation of an account with a node (XEP-0060 §4.1); without one it is NONE."""

    OWNER = "owner"
    PUBLISHER = "publisher"
    MEMBER = "member"
    OUTCAST = "outcast"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Failure:
    """A delivery that failed, or the end of an item that died.

    Attributes:
        at: when.
        by: the full JID that had it, or ''.
        reason: `rejected`, `failed`, `timed out`, `gone` or `expired`, and after
            a colon what the worker said of it.
    """

    at: float
    by: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """An item of a queue; its payload lies in the store.

    Attributes:
        seq: names it in the store; grows in the order of publishing.
        node: where it is.
        item_id: its id there.
        origin: of a dead letter, the node where it died; else ''.
        origin_id: its id there.
        publisher: the bare JID that published it.
        digest: of the payload (SHA-256, hex).
        size: bytes of the payload.
        priority: one of PRIORITIES; more is earlier.
        published_at: when.
        available_at: not before; a delay, or a backoff.
        expires_at: when its ttl ends; None: never.
        state: see ItemState.
        delivery_count: prior unsuccessful deliveries (AMQP 1.0 messaging §3.2.1).
        releases: how many times in a row it was released.
        order: 0 before its first redelivery (`first-acquirer`), be it to another of its
            account that takes its lock over; then grows with each.
        receivers: the bare JIDs that received it, in this life.
        excluded: the full JIDs that cannot handle it (`undeliverable-here`).
        last_holder: the full JID that had it last, or ''.
        token: fence of the present delivery, '' when it is not locked.
        holder: the full JID that has it.
        durable: the lock outlives the presence of its holder, and is its account's.
        locked_at: when it was locked.
        deadline: when the lock times out.
        outcome: how it ended, when it is kept after its end: accepted or rejected
            (dead); else None.
        ended_at: when.
        forget_at: when an accepted item is not kept any longer; None: kept.
        history: what failed, the oldest first, and the first always among them.
    """

    seq: int
    node: str
    item_id: str
    origin: str = ""
    origin_id: str = ""
    publisher: str
    digest: str
    size: int
    priority: int = PRIORITY
    published_at: float
    available_at: float
    expires_at: float | None = None
    state: ItemState = ItemState.AVAILABLE
    delivery_count: int = 0
    releases: int = 0
    order: int = 0
    receivers: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    last_holder: str = ""
    token: str = ""
    holder: str = ""
    durable: bool = False
    locked_at: float = 0.0
    deadline: float = 0.0
    outcome: ItemOutcome | None = None
    ended_at: float | None = None
    forget_at: float | None = None
    history: tuple[Failure, ...] = ()

    def is_held_back(self, now: float) -> bool:
        """Whether its delay or backoff is not over yet.

        A clock that was set back makes no delay where there was none, or newer items
        would overtake. There is one if the publisher said so, or after a redelivery;
        not in a second life, which has a history from its beginning.
        """
        never = not self.order and (
            self.history or self.available_at <= self.published_at
        )
        return not never and self.available_at > now

    def is_kept(self, now: float) -> bool:
        """Whether it is there to look at; what is not is removed from time to time."""
        return self.forget_at is None or self.forget_at > now


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedItem:
    """The memory of an item that has ended.

    Of one id there can be several: it is used again, or the item is requeued.

    Attributes:
        seq: of the item; 0: of an end that an older version has written.
        node: where it was.
        item_id: its id.
        publisher: the bare JID that had published it.
        digest: of its payload.
        ended_at: when; the dedupe window counts from here.
        forget_at: when this memory ends.
        token: that settled it, or ''.
        account: the bare JID that settled it, or ''.
        outcome: the one it was settled with; None: purged, expired or retracted
            by its owner or publisher.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A queue, as its owner has set it up.

    Attributes:
        name: its name. After a delete, another node may have it.
        identity: random, made at creation; no other node ever has it.
        created_at: when.
        creator: the bare JID that created the node, which counts in its bound; '' for
            a node of an older version, which counts in no account's bound.
        config: the values of the configuration form that are not the default, by
            the names of the form's fields, as text.
        affiliations: by bare JID; nobody that has none.
        accepted: how many items were accepted here, ever.
        dead_letter: the identity of the node that `queue#dead_letter_node` names, or
            ''. See `qos.core.queue.dead_letters`.
        dead_letter_by: the bare JID that set it, or ''.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A worker's wish for items of a node.

    Attributes:
        node: of which node.
        jid: a full JID, or a bare one: then any of its resources gets items.
        subid: names it.
        via: the full JID that asked for it; of a bare JID, when that one has gone, one
            that works on.
        queue_requests: items it will have at a time, at most.
        batch: items in one event, at most.
        durable_locks: its locks outlive its presence, and are its account's.
        acknowledged: events go out at level acknowledged.
        dormant_since: when a probe of its holder failed who had not been heard of
            since a start; None: the holder has been heard of, or was not probed yet.
    """

    node: str
    jid: str
    subid: str
    via: str
    queue_requests: int
    batch: int = 1
    durable_locks: bool = False
    acknowledged: bool = False
    dormant_since: float | None = None
