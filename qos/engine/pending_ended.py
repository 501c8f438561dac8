"""The ended items of a queue, in the store or on their way there.

The core bases its decisions on its earlier ones, even while these are being written.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TypeVar

from qos.core.queue.contents import Moment, StepFailed
from qos.core.queue.effects import (
    Change,
    NotifyItem,
    PurgeNode,
    QueueEffect,
    RemoveItem,
    RemoveNode,
    SaveEnded,
    SaveItem,
)
from qos.core.queue.item import EndedItem, Item, ItemOutcome, ItemState
from qos.core.queue.places import DelayEnd, Place, behind, delay_end, place_of
from qos.errors import StoreError
from qos.stores.queue_base import QueueStore

__all__ = ["PendingEndedItems"]


class PendingEndedItems:
    """The ended items, in the store or on their way there."""

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self.clear()

    def clear(self) -> None:
        """Forget the changes on their way."""
        self._ended: dict[tuple[str, str], list[EndedItem]] = {}
        # Items with pending changes, and the number of these; nodes that are being
        # deleted.
        self._items: dict[int, Item | None] = {}
        self._seqs: dict[int, int] = {}
        # Those of them that are plain, by node and id.
        self._plain: dict[tuple[str, str], Item] = {}
        self._deleted: dict[str, int] = {}
        # By node, the purges on their way, each with the items that were in memory or on
        # their way, by id.
        self._purges: dict[str, list[tuple[PurgeNode, dict[str, Item]]]] = {}

    @property
    def deleted(self) -> Collection[str]:
        """The nodes whose deletion is on its way; they may have been created anew."""
        return self._deleted.keys()

    def note(self, effects: Sequence[QueueEffect]) -> None:
        """Note decided effects."""
        for effect in effects:
            # Effects on an item first: most are.
            if isinstance(effect, SaveItem):
                item = effect.item
                seq = item.seq
                self._items[seq] = item
                if item.state is ItemState.AVAILABLE and item.is_plain:
                    self._plain[item.node, item.item_id] = item
                elif self._plain:
                    self._plain.pop((item.node, item.item_id), None)
                self._seqs[seq] = self._seqs.get(seq, 0) + 1
            elif isinstance(effect, NotifyItem):
                continue
            elif isinstance(effect, RemoveItem):
                seq = effect.seq
                self._take(seq)
                self._items[seq] = None
                self._seqs[seq] = self._seqs.get(seq, 0) + 1
            elif isinstance(effect, SaveEnded):
                key = (effect.ended.node, effect.ended.item_id)
                self._ended[key] = [*self._ended.get(key, ()), effect.ended]
            elif isinstance(effect, RemoveNode):
                self._delete(effect.name)
            elif isinstance(effect, PurgeNode):
                self._purge(effect)

    def _take(self, seq: int) -> None:
        """Note that an item is not plain any more, or that it is written."""
        item = self._items.get(seq)
        if item is not None:
            key = item.node, item.item_id
            if self._plain.get(key) is item:
                del self._plain[key]

    def _purge(self, purge: PurgeNode) -> None:
        items = dict(purge.items)
        for seq, item in self._items.items():
            if item is not None and purge.purged.has(item):
                self._take(seq)
                self._items[seq] = None
                if item.state is not ItemState.ARCHIVED:
                    items[item.item_id] = item
        self._purges.setdefault(purge.purged.node, []).append((purge, items))

    def _delete(self, node: str) -> None:
        self._deleted[node] = self._deleted.get(node, 0) + 1
        self._purges.pop(node, None)
        # The store is not asked until the deletion is on disk, and then it has none of
        # them.
        for key in [key for key in self._ended if key[0] == node]:
            del self._ended[key]
        for seq, item in self._items.items():
            if item is not None and item.node == node:
                self._take(seq)
                self._items[seq] = None

    def written(self, changes: Sequence[Change]) -> None:
        """Note that these changes are on disk."""
        for change in changes:
            if isinstance(change, SaveItem):
                self._item_written(change.item.seq)
            elif isinstance(change, RemoveItem):
                self._item_written(change.seq)
            elif isinstance(change, SaveEnded):
                self._end_written(change.ended)
            elif isinstance(change, RemoveNode):
                _one_less(self._deleted, change.name)
            elif isinstance(change, PurgeNode):
                self._purge_written(change)

    def _item_written(self, seq: int) -> None:
        if not _one_less(self._seqs, seq):
            if self._plain:
                self._take(seq)
            del self._items[seq]

    def _purge_written(self, purge: PurgeNode) -> None:
        node = purge.purged.node
        purges = self._purges.get(node, ())
        remaining = [each for each in purges if each[0] is not purge]
        if remaining:
            self._purges[node] = remaining
        else:
            self._purges.pop(node, None)

    def _end_written(self, ended_item: EndedItem) -> None:
        key = (ended_item.node, ended_item.item_id)
        remaining = [
            item for item in self._ended.get(key, ()) if item is not ended_item
        ]
        if remaining:
            self._ended[key] = remaining
        else:
            self._ended.pop(key, None)

    def ended(
        self, node: str, item_ids: Sequence[str], *, since: float
    ) -> dict[str, list[EndedItem]]:
        """See qos.core.queue.contents.EndedItems."""
        ended_items: dict[str, list[EndedItem]] = {}
        if node not in self._deleted:
            ended_items = self._store.all_ended(node, item_ids, since=since)
        for item_id in item_ids:
            recent = [
                *self._ended.get((node, item_id), ()),
                *self._purged(node, item_id),
            ]
            if recent:
                ended_items[item_id] = [*ended_items.get(item_id, ()), *recent]
        return ended_items

    def _purged(self, node: str, item_id: str) -> list[EndedItem]:
        """The ends of items with this id, whose purge is on its way."""
        ends = []
        for purge, items in self._purges.get(node, ()):
            item = items.get(item_id)
            if item is None:
                gen = purge.purged.gen
                item = self.find_plain(node, gen, [item_id]).get(item_id)
            if item is not None:
                ends.append(purge.purged.end_of(item))
        return ends

    def _asks(self, node: str, outcome: ItemOutcome) -> bool:
        """Whether the store may have archived items that are not on their way out."""
        purged = node in self._purges and outcome is not ItemOutcome.ACCEPTED
        return node not in self._deleted and not purged

    def settled(
        self, node: str, tokens: Sequence[tuple[str, str]]
    ) -> dict[str, EndedItem]:
        """See qos.core.queue.contents.EndedItems."""
        ended_items = {
            item_id: ended_item
            for item_id, token in tokens
            for ended_item in self._ended.get((node, item_id), ())
            if ended_item.token == token
        }
        rest = [pair for pair in tokens if pair[0] not in ended_items]
        if rest and node not in self._deleted:
            ended_items |= self._store.settled(node, rest)
        return ended_items

    def archived(
        self,
        node: str,
        outcome: ItemOutcome,
        *,
        after: int,
        limit: int,
        now: float = -math.inf,
    ) -> list[Item]:
        """See qos.core.queue.contents.EndedItems."""
        changed = [
            item
            for item in self._items.values()
            if item is not None
            and (item.node, item.outcome) == (node, outcome)
            and item.seq > after
            and item.is_kept(now)
        ]
        # Ask the store for as many items: those with pending changes may come after
        # them.
        unchanged: list[Item] = []
        while self._asks(node, outcome):
            chunk = self._store.archived(
                node, outcome, after=after, limit=limit, now=now
            )
            unchanged += [item for item in chunk if item.seq not in self._items]
            if len(chunk) < limit or len(unchanged) >= limit:
                break
            after = chunk[-1].seq
        return sorted([*changed, *unchanged], key=lambda item: item.seq)[:limit]

    def find_archived(
        self, node: str, item_id: str, outcome: ItemOutcome
    ) -> list[Item]:
        """See qos.core.queue.contents.EndedItems."""
        key = (node, item_id, outcome)
        items = [
            item
            for item in self._items.values()
            if item is not None and (item.node, item.item_id, item.outcome) == key
        ]
        if self._asks(node, outcome):
            stored_items = self._store.find_archived(node, item_id, outcome)
            items += [item for item in stored_items if item.seq not in self._items]
        return sorted(items, key=lambda item: item.seq)

    def _pending_plain(self, node: str, gen: int) -> list[Item]:
        """The plain items that are on their way."""
        return [
            item
            for item in self._plain.values()
            if (item.node, item.gen) == (node, gen)
        ]

    def plain(
        self, node: str, gen: int, *, start: Place, limit: int, now: float
    ) -> tuple[list[Item], Place]:
        """See qos.core.queue.contents.StoredItems."""
        stored_items, end = self._store.plain(
            node, gen, start=start, limit=limit, now=now
        )
        items = [item for item in stored_items if item.seq not in self._items]
        items += [
            item
            for item in self._pending_plain(node, gen)
            if start < place_of(item) < end and not item.is_held_back(now)
        ]
        items.sort(key=place_of)
        if len(items) > limit:
            items = items[:limit]
            end = behind(place_of(items[-1]))
        return items, end

    def find_plain(
        self, node: str, gen: int, item_ids: Collection[str]
    ) -> dict[str, Item]:
        """See qos.core.queue.contents.StoredItems."""
        written = self._store.find_plain(node, gen, item_ids).values()
        pending = [self._plain.get((node, item_id)) for item_id in item_ids]
        items = [item for item in written if item.seq not in self._items]
        items += [item for item in pending if item is not None and item.gen == gen]
        return {item.item_id: item for item in items}

    def plain_item(self, node: str, gen: int, item_id: str) -> Item | None:
        """See qos.core.queue.contents.StoredItems."""
        try:
            return self.find_plain(node, gen, [item_id]).get(item_id)
        except StoreError as error:
            raise StepFailed(str(error)) from error

    def expiring(self, node: str, gen: int, *, after: Moment, limit: int) -> list[Item]:
        """See qos.core.queue.contents.StoredItems."""
        pending = [
            (item.expires_at, item.seq, item)
            for item in self._pending_plain(node, gen)
            if item.expires_at is not None and (item.expires_at, item.seq) > after
        ]
        unchanged: list[tuple[float, int, Item]] = []
        while len(unchanged) < limit:
            chunk = self._store.expiring(node, gen, after=after, limit=limit)
            moments = [(item.expires_at or 0.0, item.seq, item) for item in chunk]
            unchanged += [entry for entry in moments if entry[1] not in self._items]
            if len(chunk) < limit:
                break
            after = moments[-1][:2]
        return [item for *_, item in sorted([*pending, *unchanged])[:limit]]

    def delayed(
        self, node: str, gen: int, *, after: DelayEnd, until: float, limit: int
    ) -> list[Item]:
        """See qos.core.queue.contents.StoredItems."""
        pending = [
            item
            for item in self._pending_plain(node, gen)
            if item.has_delay and item.available_at <= until and delay_end(item) > after
        ]
        unchanged: list[Item] = []
        while len(unchanged) < limit:
            chunk = self._store.delayed(
                node, gen, after=after, until=until, limit=limit
            )
            unchanged += [item for item in chunk if item.seq not in self._items]
            if len(chunk) < limit:
                break
            after = delay_end(chunk[-1])
        return sorted([*pending, *unchanged], key=delay_end)[:limit]

    def _pending_letters(self, node: str, gen: int, identity: str) -> list[Item]:
        """The dead letters from this node that are on their way, or change."""
        key = (node, gen, identity)
        return [
            item
            for item in self._items.values()
            if item is not None
            and item.origin
            and (item.node, item.gen, item.origin_identity) == key
            and item.state is not ItemState.ARCHIVED
        ]

    def letters(
        self, node: str, gen: int, identity: str, *, after: int, limit: int
    ) -> list[Item]:
        """See qos.core.queue.contents.StoredItems."""
        pending = self._pending_letters(node, gen, identity)
        letters = [item for item in pending if item.seq > after]
        unchanged: list[Item] = []
        while len(unchanged) < limit:
            chunk = self._store.letters(node, gen, identity, after=after, limit=limit)
            unchanged += [item for item in chunk if item.seq not in self._items]
            if len(chunk) < limit:
                break
            after = chunk[-1].seq
        return sorted([*letters, *unchanged], key=lambda item: item.seq)[:limit]

    def find_letters(
        self, node: str, gen: int, identity: str, origin_ids: Collection[str]
    ) -> list[Item]:
        """See qos.core.queue.contents.StoredItems."""
        letters = self._store.find_letters(node, gen, identity, origin_ids)
        pending = self._pending_letters(node, gen, identity)
        return [
            *(item for item in letters if item.seq not in self._items),
            *(item for item in pending if item.origin_id in origin_ids),
        ]

    def next_delay(self, node: str, gen: int, now: float) -> float | None:
        """See qos.core.queue.contents.StoredItems."""
        times = [self._store.next_delay(node, gen, now)]
        times += [
            item.available_at
            for item in self._pending_plain(node, gen)
            if item.is_held_back(now)
        ]
        return min((at for at in times if at is not None), default=None)

    def plain_page(
        self, node: str, gen: int, *, after: int, limit: int, last: bool = False
    ) -> list[Item]:
        """See qos.core.queue.contents.StoredItems."""
        pending = [item for item in self._pending_plain(node, gen) if item.seq > after]
        rows = limit
        while True:
            written = self._store.plain_page(
                node, gen, after=after, limit=rows, last=last
            )
            unchanged = [item for item in written if item.seq not in self._items]
            if len(unchanged) >= limit or len(written) < rows:
                break
            rows *= 2
        page = sorted([*pending, *unchanged], key=lambda item: item.seq)
        return page[max(0, len(page) - limit) :] if last else page[:limit]

    def count_archived(
        self, node: str, outcome: ItemOutcome, *, most: int, now: float = -math.inf
    ) -> int | None:
        """See qos.core.queue.contents.EndedItems; the state of the last commit."""
        if not self._asks(node, outcome):
            return 0
        return self._store.count_archived(node, outcome, most=most, now=now)


K = TypeVar("K")


def _one_less(counts: dict[K, int], key: K) -> int:
    count = counts[key] - 1
    if count:
        counts[key] = count
    else:
        del counts[key]
    return count
