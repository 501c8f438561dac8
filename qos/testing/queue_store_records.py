"""Values for tests of a store of a queue service, and how such a test uses one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from qos.core.queue.contents import QueueContents
from qos.core.queue.effects import Change
from qos.core.queue.item import (
    Affiliation,
    EndedItem,
    Item,
    ItemOutcome,
    ItemState,
    Node,
    Subscription,
)
from qos.core.queue.push import PushLink, PushSubscriber
from qos.core.queue.terminus import ExpiryPolicy, Terminus
from qos.stores.queue_base import QueueStore

__all__ = [
    "archived_item",
    "ended_item",
    "item",
    "node",
    "opened",
    "push_link",
    "push_subscriber",
    "subscription",
    "terminus",
    "write",
]


def node(name: str = "jobs", **changes: Any) -> Node:
    """A queue with this name."""
    plain = Node(
        name=name,
        identity=f"identity of {name}",
        created_at=1.0,
        config={"queue#ttl": "60"},
        affiliations={"p@example.org": Affiliation.OWNER},
    )
    return replace(plain, **changes)


def subscription(jid: str, **changes: Any) -> Subscription:
    """A subscription of this full JID to the queue `jobs`."""
    plain = Subscription(
        node="jobs", jid=jid, subid=f"s-{jid}", via=jid, queue_requests=3
    )
    return replace(plain, **changes)


def terminus(jid: str, **changes: Any) -> Terminus:
    """A durable terminus on the queue `jobs`, with no field at its default."""
    plain = Terminus(
        jid=jid,
        container="c",
        link="l",
        node="jobs",
        address="jobs?dead",
        selector="n > 5",
        copies=True,
        durability=2,
        policy=ExpiryPolicy.CONNECTION_CLOSE,
        timeout_s=60,
        cursor=2**40,
        until=1.5,
    )
    return replace(plain, **changes)


def push_subscriber(subscriber_id: str, **changes: Any) -> PushSubscriber:
    """A push subscriber of the queue `jobs`."""
    plain = PushSubscriber(
        subscriber_id=subscriber_id,
        node="jobs",
        account="w@example.org",
        rel="destination",
        href="https://example.org/inbox",
        base="https://queue.example.org",
        headers={"X-Kind": "job"},
        created_at=1.0,
    )
    return replace(plain, **changes)


def push_link(subscriber_id: str, seq: int, **changes: Any) -> PushLink:
    """The link of an item that is on its way to a push subscriber."""
    url = f"https://example.org/inbox/{seq}"
    return replace(PushLink(subscriber_id, seq, url, kept_at=1.0), **changes)


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
    memory = EndedItem(
        seq=seq,
        node="jobs",
        item_id=f"id-{seq}",
        publisher="p@example.org",
        digest="d" * 64,
        ended_at=2.0,
        forget_at=100.0,
    )
    return replace(memory, **changes)


def archived_item(
    seq: int, outcome: ItemOutcome = ItemOutcome.ACCEPTED, **changes: Any
) -> Item:
    """Such an item, which its queue keeps after this outcome."""
    fields: dict[str, Any] = {
        "state": ItemState.ARCHIVED,
        "outcome": outcome,
        "ended_at": 2.0,
        "forget_at": 100.0 if outcome is ItemOutcome.ACCEPTED else None,
    }
    return item(seq, **{**fields, **changes})


async def write(store: QueueStore, *changes: Change) -> None:
    """Write, and wait until it is on disk."""
    commit = store.write(changes)
    if commit is not None:
        await commit


@asynccontextmanager
async def opened(
    store: QueueStore, now: float | None = None
) -> AsyncIterator[QueueContents]:
    """Open the store, and close it in any case."""
    contents = store.open(now)
    try:
        yield contents
    finally:
        await store.close()
