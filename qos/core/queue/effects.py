"""The effects that a queue service may ask for: writes and notifications.

Their order is the crash argument. All writes of a step go into one commit, together
with those of neighbouring steps. A notification, or the answer to a request, is sent
only when the commit with everything that was decided before it is on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from qos.core.queue.item import EndedItem, Item, Node, PurgedItems, Subscription
from qos.core.queue.push import PushChange
from qos.core.queue.terminus import Terminus
from qos.core.record import record

__all__ = [
    "Change",
    "ForgetOld",
    "NoteSeen",
    "Notification",
    "NotifyItem",
    "NotifyNode",
    "NotifyRetract",
    "NotifySubscription",
    "NotifyUnlock",
    "Probe",
    "PurgeNode",
    "QueueEffect",
    "RemoveItem",
    "RemoveNode",
    "RemovePurged",
    "RemoveSubscription",
    "RemoveTerminus",
    "SaveEnded",
    "SaveItem",
    "SaveLock",
    "SaveNode",
    "SaveSubscription",
    "SaveTerminus",
]


@record(frozen=True, slots=True)
class SaveItem:
    """Write the item, replacing any item with its seq.

    Attributes:
        item: the whole item.
        payload: of a new item; None: the stored payload stays.
        before: the item as it was; None: it is new.
    """

    item: Item
    payload: str | None = None
    before: Item | None = None


@record(frozen=True, slots=True)
class SaveLock(SaveItem):
    """Write the lock of an item that is there already.

    Since the item was written last, none of its fields has changed but those of
    `qos.core.queue.item.LOCK`. A lock is the most frequent step of an item: the store
    writes these fields only, and changes no index.
    """


@record(frozen=True, slots=True)
class RemoveItem:
    """Remove the item and its payload.

    Attributes:
        seq: its seq.
        before: the item as it was; None: nobody asks.
    """

    seq: int
    before: Item | None = None


@record(frozen=True, slots=True)
class SaveEnded:
    """Remember the end of an item, beside other ends of the same id.

    An end with the same token and seq is replaced: both ended without a token.
    """

    ended: EndedItem


@record(frozen=True, slots=True)
class SaveSubscription:
    """Write the subscription, replacing the one of this JID to this node."""

    subscription: Subscription


@record(frozen=True, slots=True)
class RemoveSubscription:
    """Remove the subscription of this JID to this node."""

    node: str
    jid: str


@record(frozen=True, slots=True)
class SaveTerminus:
    """Write the terminus, replacing the one of this full JID."""

    terminus: Terminus


@record(frozen=True, slots=True)
class RemoveTerminus:
    """Remove the terminus of this full JID."""

    jid: str


@record(frozen=True, slots=True)
class SaveNode:
    """Write the node and its affiliations, without its items and subscriptions."""

    node: Node


@record(frozen=True, slots=True)
class RemoveNode:
    """Remove the node and everything in it: items, subscriptions, termini, remembered ends.

    From then on nobody sees its items and remembered ends, however many there are.
    RemovePurged makes the store agree. Dead letters that came from it stay in their
    dead-letter node.

    Attributes:
        name: its name.
        gen: its last generation. A new node of this name has a later one.
    """

    name: str
    gen: int


@record(frozen=True, slots=True)
class PurgeNode:
    """Remove the items of one generation of a node, without touching any of them.

    From then on nobody sees these items: those that were available or locked are
    remembered ends. RemovePurged makes the store agree.

    Attributes:
        purged: the items.
        items: those of them that were available or locked, by id.
    """

    purged: PurgedItems
    items: Mapping[str, Item] = field(default_factory=dict, hash=False)


@record(frozen=True, slots=True)
class RemovePurged:
    """Look at the next rows of a deleted node or of a purge, and remove what is theirs.

    Deleted nodes come first, by name, and of each of them its items, by id and seq; when
    fewer than `rows` are left, remembered ends follow with the next change, by id, token
    and seq. Then the purge that comes first by the node's name and the generation has its
    turn, until all items of that node have been looked at, by id and seq. Where an item
    had not ended, its end takes its place. Nobody sees a difference.

    Attributes:
        rows: to look at, at least 1.
    """

    rows: int


@record(frozen=True, slots=True)
class ForgetOld:
    """Remove some of what is old: whose `forget_at` is not after now.

    First go archived items, by `forget_at` and seq; then remembered ends, by `forget_at`,
    node, id, token and seq; then links of push subscribers that are `LINK_S` old, by
    `kept_at`, subscriber and seq. Nobody asks for what is old, so it does not matter when
    it goes.

    Attributes:
        now: the time.
        rows: to remove at most, at least 1; an item and its payload are one.
    """

    now: float
    rows: int


@record(frozen=True, slots=True)
class NoteSeen:
    """Note that the service is there at this time: from then on it may be down.

    Attributes:
        now: the time.
        heard_at: when XMPP workers could be heard last, at most `now`; see `LinkTime`.
    """

    now: float
    heard_at: float


Change: TypeAlias = (
    SaveItem
    | RemoveItem
    | SaveEnded
    | SaveSubscription
    | RemoveSubscription
    | SaveTerminus
    | RemoveTerminus
    | SaveNode
    | RemoveNode
    | PurgeNode
    | RemovePurged
    | ForgetOld
    | NoteSeen
    | PushChange
)


@record(frozen=True, slots=True)
class NotifyItem:
    """Send the item to its holder, if this delivery has not ended by then.

    Attributes:
        to: the full JID to send it to.
        item: as it was when it was locked, with the token of this delivery.
        batch: how many items one event may carry at most.
        acknowledged: send the event at level acknowledged.
    """

    to: str
    item: Item
    batch: int = 1
    acknowledged: bool = False


@record(frozen=True, slots=True)
class NotifyRetract:
    """Tell the former holder that the items are deleted."""

    to: str
    node: str
    item_ids: tuple[str, ...]


@record(frozen=True, slots=True)
class NotifyUnlock:
    """Tell the former holder that the items are unlocked."""

    to: str
    node: str
    item_ids: tuple[str, ...]


@record(frozen=True, slots=True)
class NotifyNode:
    """Tell a subscriber that the node was purged or deleted.

    Attributes:
        to: the JID of the subscriber.
        node: the name of the node.
        action: `purge` or `delete`, the name of the element in the event.
    """

    to: str
    node: str
    action: str


@record(frozen=True, slots=True)
class NotifySubscription:
    """Tell a subscriber that its subscription was ended by the service.

    Attributes:
        to: the JID that is told.
        node: the name of the node.
        jid: that of the subscription.
        subid: the id of the subscription.
        why: it has used up what it may use, as a sentence; '': it has lost the right.
    """

    to: str
    node: str
    jid: str
    subid: str
    why: str = ""


@record(frozen=True, slots=True)
class Probe:
    """Ask a subscriber whether it is there (XEP-0199).

    After a start, that is not known.
    """

    to: str


Notification: TypeAlias = (
    NotifyItem | NotifyRetract | NotifyUnlock | NotifyNode | NotifySubscription | Probe
)

QueueEffect: TypeAlias = Change | Notification
