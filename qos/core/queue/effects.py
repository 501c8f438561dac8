"""The effects that a queue service may ask for: writes and notifications.

The order is the crash argument. All changes of a step go into one commit, with
those of the steps around it; a notification, like the answer to a request, leaves
when the commit with everything that was decided before it is on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from qos.core.queue.item import EndedItem, Item, Node, Subscription

__all__ = [
    "Change",
    "ForgetOld",
    "Notification",
    "NotifyItem",
    "NotifyNode",
    "NotifyRetract",
    "NotifySubscription",
    "NotifyUnlock",
    "Probe",
    "QueueEffect",
    "RemoveItem",
    "RemoveNode",
    "RemoveSubscription",
    "SaveEnded",
    "SaveItem",
    "SaveNode",
    "SaveSubscription",
]


@dataclass(frozen=True, slots=True)
class SaveItem:
    """Write the item, in the place of what was there under its seq.

    Attributes:
        item: all of it.
        payload: of an item that is new; None: it is there already, and stays.
    """

    item: Item
    payload: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveItem:
    """Remove the item and its payload."""

    seq: int


@dataclass(frozen=True, slots=True)
class SaveEnded:
    """Remember the end of an item, beside others of its id.

    In the place of one with the same token and seq: both ended without a token.
    """

    ended: EndedItem


@dataclass(frozen=True, slots=True)
class SaveSubscription:
    """Write the subscription, in the place of the one of this JID to this node."""

    subscription: Subscription


@dataclass(frozen=True, slots=True)
class RemoveSubscription:
    """Remove the subscription of this JID to this node."""

    node: str
    jid: str


@dataclass(frozen=True, slots=True)
class SaveNode:
    """Write the node, with its affiliations; not what is in it."""

    node: Node


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """Remove the node, with everything in it: items, subscriptions, memories.

    Dead letters that came from it stay where they are.
    """

    name: str


@dataclass(frozen=True, slots=True)
class ForgetOld:
    """Remove every memory and every item whose `forget_at` is at or before now."""

    now: float


Change: TypeAlias = (
    SaveItem
    | RemoveItem
    | SaveEnded
    | SaveSubscription
    | RemoveSubscription
    | SaveNode
    | RemoveNode
    | ForgetOld
)


@dataclass(frozen=True, slots=True)
class NotifyItem:
    """Send the item to its holder, if the lock with this token still is one then.

    Attributes:
        to: the full JID to send it to.
        item: as it was locked.
        batch: items in one event, at most.
        acknowledged: send the event at level acknowledged.
    """

    to: str
    item: Item
    batch: int = 1
    acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class NotifyRetract:
    """Tell the subscriber that had the items that they are deleted."""

    to: str
    node: str
    item_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotifyUnlock:
    """Tell the subscriber that had the items that they are unlocked."""

    to: str
    node: str
    item_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotifyNode:
    """Tell a subscriber that the node was purged, or deleted.

    Attributes:
        to: whom.
        node: which.
        what: `purge` or `delete`, as the element of the event is called.
    """

    to: str
    node: str
    what: str


@dataclass(frozen=True, slots=True)
class NotifySubscription:
    """Tell somebody that the subscription has been taken from him."""

    to: str
    node: str
    jid: str
    subid: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask a subscriber whether it is there (XEP-0199): nobody knows after a start."""

    to: str


Notification: TypeAlias = (
    NotifyItem | NotifyRetract | NotifyUnlock | NotifyNode | NotifySubscription | Probe
)

QueueEffect: TypeAlias = Change | Notification
