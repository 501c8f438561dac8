"""The journal lines for the changes of a queue service.

The lines are made from the values that the core has decided on, and from the previous
state of each live item. This module decides nothing and knows no files. A worker's own
words about a failure are cut off, since they may quote the payload.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qos.core.queue.effects import (
    Change,
    PurgeNode,
    RemoveItem,
    RemoveNode,
    SaveEnded,
    SaveItem,
)
from qos.core.queue.item import EndedItem, Item, ItemOutcome, ItemState
from qos.journal.messages import NOT_STORED
from qos.journal.schema import Entry, QueueEvent, Role
from qos.journal.writer import JournalWriter
from qos.stores.queue_base import QueueStore

__all__ = ["ItemEvents", "ItemJournal", "ItemRecorder"]

_Q = QueueEvent

#: Events by the first words of `Failure.reason`.
_FAILURES = {
    "rejected": _Q.REJECTED,
    "failed": _Q.MODIFIED,
    "timed out": _Q.TIMED_OUT,
    "gone": _Q.GONE,
    "expired": _Q.EXPIRED,
}


class ItemRecorder:
    """A null recorder: it accepts each commit of a queue service, and keeps nothing."""

    def start_again(self, items: Iterable[Item]) -> None:
        """Continue with the contents of the store, after a commit that failed."""

    def note(self, changes: Sequence[Change]) -> None:
        """Record changes that are about to be written; see ItemEvents.of."""

    def failed(self, changes: Sequence[Change]) -> None:
        """Record that these changes could not be written."""

    async def close(self) -> None:
        """Close the recorder; called when the store is closed."""


class ItemJournal(ItemRecorder):
    """A recorder that writes the journal of a queue service."""

    def __init__(
        self, writer: JournalWriter, store: QueueStore, items: Iterable[Item]
    ) -> None:
        """Start to record each commit of the store before it is made.

        Args:
            writer: made for this store.
            store: open.
            items: the items that are available or locked.
        """
        self._writer = writer
        items = list(items)
        self.start_again(items)
        live = {(item.node, item.item_id) for item in items}
        for line in writer.begun:
            node, item_id = line.text("queue"), line.text("item")
            if line.role is Role.QUEUE and not (
                (node, item_id) in live
                or store.ended(node, item_id)
                or any(store.find_archived(node, item_id, how) for how in ItemOutcome)
            ):
                writer.note(_not_stored(node, item_id))
        store.journal = writer

    def start_again(self, items: Iterable[Item]) -> None:
        """Continue with the contents of the store, after a commit that failed."""
        self._events = ItemEvents(items)

    def note(self, changes: Sequence[Change]) -> None:
        """Record changes that are about to be written; see ItemEvents.of."""
        self._writer.note(*self._events.of(changes))

    def failed(self, changes: Sequence[Change]) -> None:
        """Record that these changes could not be written."""
        for change in changes:
            if isinstance(change, SaveItem) and change.payload is not None:
                item = change.item
                self._writer.note(_not_stored(item.node, item.item_id))

    async def close(self) -> None:
        """Close the journal; called when the store is closed."""
        await self._writer.close()


class ItemEvents:
    """The events of changes, found by comparing each item with its previous state.

    The live items are kept by reference.
    """

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._items = {item.seq: item for item in items}

    def of(self, changes: Sequence[Change]) -> list[Entry]:
        """The events of these changes, in order.

        Args:
            changes: of one step or of several.
        """
        memories = {
            (change.ended.node, change.ended.seq): change.ended
            for change in changes
            if isinstance(change, SaveEnded)
        }
        entries: list[Entry] = []
        for change in changes:
            if isinstance(change, SaveItem):
                entries += self._saved(change)
            elif isinstance(change, RemoveItem):
                item = self._items.pop(change.seq, None)
                if item is not None:
                    memory = memories.get((item.node, item.seq))
                    entries.append(_removed(item, memory))
            elif isinstance(change, PurgeNode):
                for item in change.items.values():
                    del self._items[item.seq]
                    entries.append(_entry(_Q.PURGED, item))
            elif isinstance(change, RemoveNode):
                for item in [
                    item for item in self._items.values() if item.node == change.name
                ]:
                    del self._items[item.seq]
                    entries.append(_entry(_Q.PURGED, item))
        return entries

    def _saved(self, change: SaveItem) -> list[Entry]:
        item = change.item
        before = self._items.pop(item.seq, None)
        if item.state is not ItemState.ARCHIVED:
            self._items[item.seq] = item
        if before is None:
            # A dead item is not among the live ones: its next change is a requeue.
            return [_published(item) if change.payload is not None else _requeued(item)]
        if item.node != before.node:
            return _moved(before, item)
        if item.state is ItemState.ACQUIRED:
            return [] if item.token == before.token else [_acquired(item)]
        if item.outcome is ItemOutcome.ACCEPTED:
            return [_entry(_Q.ACCEPTED, item, source=before.holder)]
        entries = _given_back(before, item)
        if item.outcome is ItemOutcome.REJECTED:
            entries.append(_entry(_Q.DEAD, item, condition=_reason(item)))
        return entries


def _moved(before: Item, item: Item) -> list[Entry]:
    if item.origin:
        dead = _entry(_Q.DEAD, before, condition=_reason(item))
        return [*_given_back(before, item), dead, _published(item)]
    withdrawal = _entry(_Q.WITHDRAWN, before, condition="requeued")
    return [withdrawal, _requeued(item)]


def _given_back(before: Item, item: Item) -> list[Entry]:
    """The event that ends a delivery, or that ends the wait for one."""
    if before.state is not ItemState.ACQUIRED:
        expired = item.history[len(before.history) :] and _reason(item) == "expired"
        return [_entry(_Q.EXPIRED, before)] if expired else []
    failed = item.history[-1:] != before.history[-1:]
    if failed:
        event = _FAILURES.get(_reason(item) or "", _Q.MODIFIED)
    elif item.excluded != before.excluded:
        event = _Q.MODIFIED
    else:
        event = _Q.RELEASED
    condition = _reason(item) if failed else None
    return [_entry(event, before, source=before.holder, condition=condition)]


def _removed(item: Item, memory: EndedItem | None) -> Entry:
    if memory is not None and memory.outcome is ItemOutcome.ACCEPTED:
        return _entry(_Q.ACCEPTED, item, source=item.holder)
    return _entry(_Q.WITHDRAWN, item)


def _published(item: Item) -> Entry:
    return Entry(
        _Q.PUBLISHED,
        source=item.publisher,
        queue=item.node,
        item=item.item_id,
        bytes=item.size,
    )


def _requeued(item: Item) -> Entry:
    return _entry(_Q.REQUEUED, item)


def _acquired(item: Item) -> Entry:
    return Entry(
        _Q.ACQUIRED,
        to=item.holder,
        queue=item.node,
        item=item.item_id,
        attempt=item.delivery_count + 1,
    )


def _entry(
    event: QueueEvent,
    item: Item,
    *,
    source: str | None = None,
    condition: str | None = None,
) -> Entry:
    return Entry(
        event,
        source=source or None,
        queue=item.node,
        item=item.item_id,
        condition=condition,
    )


def _reason(item: Item) -> str | None:
    if not item.history:
        return None
    return item.history[-1].reason.partition(":")[0]


def _not_stored(node: str, item_id: str) -> Entry:
    return Entry(_Q.WITHDRAWN, queue=node, item=item_id, condition=NOT_STORED)
