"""The counts of a queue that `xmpp-qos queue stats` shows."""

from __future__ import annotations

from collections.abc import Iterable

from qos.core.queue.holders import Present, resources
from qos.core.queue.item import Item, ItemState
from qos.core.queue.node import QueueNode
from qos.core.strings import bare

__all__ = ["stats"]


def stats(
    queue: QueueNode, present: Present, *, letters: int, copying: int, now: float
) -> dict[str, int | float | None]:
    """Counts of items, seconds and bytes; None: there is nothing to measure now.

    Args:
        queue: the node.
        present: by account, the full JIDs that were heard of.
        letters: how many dead letters of this node are in other nodes.
        copying: how many queues copy from this node.
        now: the time.
    """
    live = queue.items.values()
    waiting = [item for item in live if item.state is ItemState.AVAILABLE]
    delayed = sum(item.is_held_back(now) for item in waiting)
    oldest = min((item.published_at for item in live), default=None)
    return {
        "available": len(waiting) - delayed,
        "acquired": len(live) - len(waiting),
        "delayed": delayed,
        "dead": queue.dead + letters,
        "accepted": queue.node.accepted,
        "subscribers": copying + len(queue.subscriptions.active()),
        "oldest_seconds": None if oldest is None else round(now - oldest, 3),
        "bytes": queue.live.size,
        "excluded": sum(_is_stuck(queue, item, present) for item in waiting),
        "unmatched": _unmatched(queue, waiting, now),
        "releases_most": max((item.releases for item in waiting), default=0),
        "missed": queue.node.missed,
    }


def _unmatched(queue: QueueNode, waiting: Iterable[Item], now: float) -> int:
    """How many items the selectors of all subscribers refuse; 0 without a subscriber.

    Delayed items are not counted: selectors are evaluated when their time has come.
    """
    selectors = {each.selector for each in queue.subscriptions.active()}
    if not selectors or "" in selectors:
        return 0
    ready = queue.live.ready
    return sum(
        not item.is_held_back(now) and ready.is_unmatched(item, selectors)
        for item in waiting
    )


def _is_stuck(queue: QueueNode, item: Item, present: Present) -> bool:
    """Whether there are subscribers, but none of them can handle the item, or gets it."""
    if not item.excluded or not (subscribers := queue.subscriptions.active()):
        return False
    takes = queue.live.ready.takes_excluding
    return not any(
        jid not in item.excluded and takes(jid)
        for each in subscribers
        for jid in (
            [each.jid]
            if each.jid != bare(each.jid)
            else resources(each, present) or [each.jid]
        )
    )
