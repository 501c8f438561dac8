"""Records of a queue service, for tests of its store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from qos.core.queue.item import EndedItem, Item

__all__ = ["ended_item", "item"]


def item(seq: int, **changes: Any) -> Item:
    """An item of the queue `jobs`."""
    plain = Item(
        seq=seq,
        node="jobs",
        item_id=f"id-{seq}",
        publisher="p@example.org",
        digest="d" * 64,
        size=4,
        published_at=1.0,
        available_at=1.0,
    )
    return replace(plain, **changes)


def ended_item(seq: int, **changes: Any) -> EndedItem:
    """The end of such an item."""
    ended = EndedItem(
        seq=seq,
        node="jobs",
        item_id=f"id-{seq}",
        publisher="p@example.org",
        digest="d" * 64,
        ended_at=2.0,
        forget_at=100.0,
    )
    return replace(ended, **changes)
