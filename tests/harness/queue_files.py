"""Queue stores as files, for tests that look into them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from qos.core.queue.effects import Change
from qos.core.queue.item import EndedItem, Item, ItemOutcome, ItemState, Node
from qos.stores.queue_base import QueueStore
from qos.testing.queue_store_records import ended_item, item, write

__all__ = ["NODE", "accepted", "ended", "query", "run"]

NODE = Node(name="jobs", identity="i", created_at=1.0)


def accepted(seq: int) -> Item:
    return item(
        seq,
        state=ItemState.ARCHIVED,
        outcome=ItemOutcome.ACCEPTED,
        ended_at=2.0,
        forget_at=100.0,
    )


def ended(item_id: str) -> EndedItem:
    return ended_item(1, item_id=item_id)


def run(store: QueueStore, *writes: list[Change]) -> None:
    """Open the store, make the writes, and close it."""

    async def runs() -> None:
        store.open()
        try:
            for changes in writes:
                await write(store, *changes)
        finally:
            await store.close()

    asyncio.run(runs())


def query(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        found = db.execute(sql).fetchall()
        db.commit()
        return found
