"""The journal lines for the changes of a queue service.

The lines are made from the values that the core has decided on, each with the one before
it. This module decides nothing and knows no files. A worker's own
words about a failure are cut off, since they may quote the payload.
"""

from __future__ import annotations

from collections.abc import Sequence

from qos.core.queue.effects import (
    Change,
    PurgeNode,
    RemoveItem,
    RemoveNode,
    RemovePurged,
    SaveEnded,
    SaveItem,
)
from qos.core.queue.item import EndedItem, Item, ItemOutcome, ItemState
from qos.journal.messages import NOT_STORED
from qos.journal.schema import Entry, QueueEvent, Role, time_of
from qos.journal.writer import JournalWriter
from qos.stores.queue_base import PurgedRows, QueueStore

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

    def note(self, changes: Sequence[Change]) -> Sequence[RemoveItem]:
        """Record changes that are about to be written; see ItemEvents.of."""
        return ()

    def failed(self, changes: Sequence[Change]) -> None:
        """Record that these changes could not be written."""

    async def close(self) -> None:
        """Close the recorder; called when the store is closed."""


class ItemJournal(ItemRecorder):
    """A recorder that writes the journal of a queue service."""

    def __init__(self, writer: JournalWriter, store: QueueStore) -> None:
        """Start to record each commit of the store before it is made.

        Args:
            writer: made for this store.
            store: open.
        """
        self._writer = writer
        self._events = ItemEvents(store)
        for line in writer.begun:
            node, item_id = line.text("queue"), line.text("item")
            # An earlier end is one of another item that had this id.
            since = time_of(line.text("at"))
            if line.role is Role.QUEUE and not (
                store.live_rows(node, [item_id])
                or store.all_ended(node, [item_id], since=since)
            ):
                writer.note(_not_stored(node, item_id))
        store.journal = writer

    def note(self, changes: Sequence[Change]) -> Sequence[RemoveItem]:
        """Record changes that are about to be written; see ItemEvents.of."""
        entries, rows = self._events.of(changes)
        self._writer.note(*entries)
        return rows

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
    """The events of the changes of commits.

    A purge or a deleted node ends any number of items, so they are named when their rows
    go (`RemovePurged`), some in each commit. The lines of one id stay in order: the row of
    an item whose id is used again goes with the commit that brings the new item.
    """

    def __init__(self, store: PurgedRows) -> None:
        """Record what is in this store; it is open."""
        self._store = store

    def of(self, changes: Sequence[Change]) -> tuple[list[Entry], list[RemoveItem]]:
        """The events of a commit, in order, and what must be written with it.

        Args:
            changes: of one commit; RemovePurged is the first of them, if it is there.
        """
        ends = {
            (change.ended.node, change.ended.seq): change.ended
            for change in changes
            if isinstance(change, SaveEnded)
        }
        purged = _PurgedItems(self._store, changes)
        entries: list[Entry] = []
        for change in changes:
            if isinstance(change, SaveItem):
                entries += purged.saved(change.item)
                entries += _saved(change)
            elif isinstance(change, RemoveItem):
                purged.removed(change.seq)
                if (item := change.before) is not None:
                    entries.append(_removed(item, ends.get((item.node, item.seq))))
            elif isinstance(change, RemovePurged):
                entries += purged.slice(change.rows)
        return entries, purged.used_again


class _PurgedItems:
    """The items that were purged, or deleted with their node, as one commit meets them.

    Attributes:
        used_again: removes the rows of those whose ids are used again.
    """

    def __init__(self, store: PurgedRows, changes: Sequence[Change]) -> None:
        self._store = store
        self.used_again: list[RemoveItem] = []
        # Items that have a row and have not died: the seq by node and id, and these by seq.
        # Only those that are seen here, or whose ids come here.
        self._seqs: dict[tuple[str, str], int] = {}
        self._keys: dict[int, tuple[str, str]] = {}
        ids: dict[str, list[str]] = {}
        for change in changes:
            if isinstance(change, SaveItem) and _comes(change):
                ids.setdefault(change.item.node, []).append(change.item.item_id)
        self._looks = bool(ids) and (
            any(isinstance(change, (PurgeNode, RemoveNode)) for change in changes)
            or store.has_purged()
        )
        if self._looks:
            for node, item_ids in ids.items():
                for row in store.live_rows(node, item_ids):
                    self._put(row.node, row.item_id, row.seq)

    def slice(self, rows: int) -> list[Entry]:
        """The events of those whose rows go now."""
        purged = self._store.next_purged(rows)
        for row in purged:
            self.removed(row.seq)
        return [Entry(_Q.PURGED, queue=row.node, item=row.item_id) for row in purged]

    def saved(self, item: Item) -> list[Entry]:
        """The event of one whose id this item has now."""
        entries: list[Entry] = []
        if self._looks:
            seq = self._seqs.get((item.node, item.item_id), item.seq)
            if seq != item.seq:
                self.used_again.append(RemoveItem(seq))
                self.removed(seq)
                entries.append(_entry(_Q.PURGED, item))
            self.removed(item.seq)
            if item.state is not ItemState.ARCHIVED:
                self._put(item.node, item.item_id, item.seq)
        return entries

    def removed(self, seq: int) -> None:
        """Note that an item has no row any more, has died, or has another id."""
        key = self._keys.pop(seq, None)
        if key is not None:
            del self._seqs[key]

    def _put(self, node: str, item_id: str, seq: int) -> None:
        self._seqs[node, item_id] = seq
        self._keys[seq] = node, item_id


def _comes(change: SaveItem) -> bool:
    """Whether an item comes into a node, or is there again."""
    before = change.before
    return before is None or _was_dead(before) or before.node != change.item.node


def _was_dead(before: Item) -> bool:
    return before.state is ItemState.ARCHIVED


def _saved(change: SaveItem) -> list[Entry]:
    item, before = change.item, change.before
    if before is None:
        return [_published(item)]
    if _was_dead(before):
        return [_requeued(item)]
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
