"""The counts of a queue that `xmpp-qos queue stats` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from qos.core.queue.holders import Present, resources
from qos.core.queue.item import Subscription
from qos.core.queue.node import QueueNode
from qos.core.strings import bare

__all__ = ["COUNT_LABELS", "EXCLUDING_MAX", "stats"]

#: Sets of excluded JIDs that are looked at. With more, `excluded` is not counted.
EXCLUDING_MAX = 300

#: The counts that are explained to people, by name, in this order.
COUNT_LABELS: Final = (
    ("available", "Items that wait"),
    ("acquired", "Items that somebody works on"),
    ("delayed", "Items that wait for their time"),
    ("dead", "Items that are dead"),
    ("accepted", "Items that were accepted, ever"),
    ("subscribers", "Subscribers"),
    ("oldest_seconds", "Seconds since the oldest item that waits was published"),
)


def stats(
    queue: QueueNode, present: Present, *, letters: int, copying: int, now: float
) -> dict[str, int | float | None]:
    """Counts of items, seconds and bytes; None: there is nothing to measure now.

    What this costs does not grow with the number of items.

    Args:
        queue: the node.
        present: by account, the full JIDs that were heard of.
        letters: how many dead letters of this node are in other nodes.
        copying: how many queues copy from this node.
        now: the time.
    """
    live, active = queue.live, queue.subscriptions.active()
    delayed = live.counts.delayed(now) + live.backlog.delayed
    oldest = live.published_at()
    return {
        "available": live.counts.waiting + live.backlog.count - delayed,
        "acquired": len(live.items) - live.counts.waiting,
        "delayed": delayed,
        "dead": queue.dead + letters,
        "accepted": queue.node.accepted,
        "subscribers": copying + len(active),
        "oldest_seconds": None if oldest is None else round(now - oldest, 3),
        "bytes": live.size,
        "excluded": _stuck(queue, active, present),
        "unmatched": _unmatched(queue, active),
        "oversized": live.oversized,
        "releases_most": max(live.counts.releases_most, live.backlog.releases_most),
        "missed": queue.node.missed,
        "repeated": queue.repeated,
    }


def _unmatched(queue: QueueNode, active: Sequence[Subscription]) -> int:
    """How many items the selectors of all subscribers refuse; 0 without a subscriber.

    Delayed items are not counted: selectors are evaluated when their time has come.
    """
    selectors = {subscription.selector for subscription in active}
    if not selectors or "" in selectors:
        return 0
    return queue.live.ready.unmatched(selectors)


def _stuck(
    queue: QueueNode, active: Sequence[Subscription], present: Present
) -> int | None:
    """How many items have subscribers, of whom none can handle them, or gets them."""
    excluding = queue.live.counts.excluding
    if not active or not excluding:
        return 0
    if len(excluding) > EXCLUDING_MAX:
        return None
    jids = {
        jid
        for subscription in active
        for jid in (
            [subscription.jid]
            if subscription.jid != bare(subscription.jid)
            else resources(subscription, present) or [subscription.jid]
        )
    }
    takers = set(filter(queue.live.ready.takes_excluding, jids))
    return sum(count for excluded, count in excluding.items() if excluded >= takers)
