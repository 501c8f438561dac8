"""A queue store on a simulated disk."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable, Collection, Sequence

from qos.core.queue.contents import Moment, QueueContents
from qos.core.queue.effects import Change
from qos.core.queue.item import EndedItem, Item, ItemOutcome
from qos.core.queue.places import DelayEnd, Place
from qos.core.queue.push import PushLink, PushSubscriber
from qos.core.wall_clock import ClockHistory
from qos.engine.clock import Clock
from qos.errors import StoreError, StoreInUse
from qos.stores.base import Journal, NoJournal
from qos.stores.queue_base import ItemRow
from simulation.disks import Commits, Disk
from simulation.queue_disk import QueueDisk

__all__ = ["QueueServiceDisk", "SimulatedQueueStore"]


class QueueServiceDisk(Disk[Change]):
    """The nodes and items of a queue service.

    Attributes:
        kept: the contents.
        seen: called with each change that is synced.
        committed: called after the changes of each commit.
        holder: the store that has it open, or None.
        link_key: see QueueStore.link_key; '': not made yet.
    """

    def __init__(
        self,
        name: str,
        seen: Callable[[Change], None],
        committed: Callable[[], None],
    ) -> None:
        super().__init__(name)
        self.kept = QueueDisk()
        self.holder: SimulatedQueueStore | None = None
        self.link_key = ""
        self.seen = seen
        self.committed = committed

    def apply(self, changes: Sequence[Change]) -> None:
        """See Disk."""
        for change in changes:
            self.kept.apply(change)
            self.seen(change)
        self.committed()


class SimulatedQueueStore:
    """A queue store on a simulated disk; see QueueStore."""

    def __init__(
        self, disk: QueueServiceDisk, clock: Clock, effect: Callable[[], None]
    ) -> None:
        """Not open yet; see SimulatedStore."""
        self.url = f"sim:{disk.name}"
        self.store_id = disk.name
        self.disk = disk
        self._commits = Commits(disk, clock)
        self._effect = effect
        #: By how many seconds all times moved when it was opened.
        self.moved_s = 0.0

    @property
    def clock(self) -> ClockHistory:
        """See QueueStore."""
        return self.disk.kept.clock

    @property
    def heard_at(self) -> float | None:
        """See QueueStore."""
        return self.disk.kept.heard_at

    @property
    def journal(self) -> Journal | None:
        """See QueueStore."""
        return self._commits.journal

    @journal.setter
    def journal(self, journal: Journal | None) -> None:
        self._commits.journal = NoJournal() if journal is None else journal

    @property
    def _kept(self) -> QueueDisk:
        """The contents of the open store."""
        if self.disk.holder is not self:
            raise StoreError(self.url, "is not open")
        return self.disk.kept

    def open(
        self, now: float | None = None, *, paged_at: float | None = None
    ) -> QueueContents:
        """See QueueStore."""
        if self.disk.holder is not None:
            raise StoreInUse(self.url, "a store has it open")
        self.disk.recover()
        if now is not None:
            self.moved_s = self.disk.kept.move(now)
        self.disk.holder = self
        return self.contents(paged_at=paged_at)

    def contents(self, *, paged_at: float | None = None) -> QueueContents:
        """See QueueStore."""
        return self._kept.contents(paged_at=paged_at)

    def write(self, changes: Sequence[Change]) -> asyncio.Future[None] | None:
        """See QueueStore."""
        self._effect()
        if self.disk.holder is not self:
            raise StoreError(self.url, "is not open")
        return self._commits.write(changes)

    async def close(self) -> None:
        """See QueueStore."""
        await self._commits.drain()
        if self.disk.holder is self:
            self.disk.holder = None

    def payloads(self, seqs: Sequence[int]) -> dict[int, str]:
        """See QueueStore."""
        payloads = self._kept.payloads
        return {seq: payloads[seq] for seq in seqs if seq in payloads}

    def plain(
        self, node: str, gen: int, *, start: Place, limit: int, now: float
    ) -> tuple[list[Item], Place]:
        """See QueueStore."""
        return self._kept.plain(node, gen, start=start, limit=limit, now=now)

    def find_plain(
        self, node: str, gen: int, item_ids: Collection[str]
    ) -> dict[str, Item]:
        """See QueueStore."""
        return self._kept.find_plain(node, gen, item_ids)

    def expiring(self, node: str, gen: int, *, after: Moment, limit: int) -> list[Item]:
        """See QueueStore."""
        return self._kept.expiring(node, gen, after=after, limit=limit)

    def delayed(
        self, node: str, gen: int, *, after: DelayEnd, until: float, limit: int
    ) -> list[Item]:
        """See QueueStore."""
        return self._kept.delayed(node, gen, after=after, until=until, limit=limit)

    def letters(
        self, node: str, gen: int, identity: str, *, after: int, limit: int
    ) -> list[Item]:
        """See QueueStore."""
        return self._kept.letters(node, gen, identity, after=after, limit=limit)

    def find_letters(
        self, node: str, gen: int, identity: str, origin_ids: Collection[str]
    ) -> list[Item]:
        """See QueueStore."""
        return self._kept.find_letters(node, gen, identity, origin_ids)

    def next_delay(self, node: str, gen: int, now: float) -> float | None:
        """See QueueStore."""
        return self._kept.next_delay(node, gen, now)

    def plain_page(
        self, node: str, gen: int, *, after: int, limit: int, last: bool = False
    ) -> list[Item]:
        """See QueueStore."""
        return self._kept.plain_page(node, gen, after=after, limit=limit, last=last)

    def live_rows(self, node: str, item_ids: Collection[str]) -> list[ItemRow]:
        """See QueueStore."""
        return self._kept.live_rows(node, item_ids)

    def next_purged(self, rows: int) -> list[ItemRow]:
        """See QueueStore."""
        return self._kept.next_purged(rows)

    def has_purged(self) -> bool:
        """See QueueStore."""
        return self._kept.has_purged()

    def check(self) -> None:
        """See QueueStore: a simulated disk keeps what it has."""

    def has_old(self, now: float) -> bool:
        """See QueueStore."""
        return self._kept.has_old(now)

    def push_subscribers(self) -> list[PushSubscriber]:
        """See QueueStore."""
        found = self._kept.push_subscribers.values()
        return sorted(found, key=lambda each: each.created_at)

    def push_links(self, subscriber_id: str) -> dict[int, PushLink]:
        """See QueueStore."""
        links = self._kept.push_links.values()
        return {each.seq: each for each in links if each.subscriber_id == subscriber_id}

    def ended(self, node: str, item_id: str) -> list[EndedItem]:
        """See QueueStore."""
        return self.all_ended(node, [item_id]).get(item_id, [])

    def all_ended(
        self, node: str, item_ids: Sequence[str], *, since: float = -math.inf
    ) -> dict[str, list[EndedItem]]:
        """See QueueStore."""
        return self._kept.all_ended(node, item_ids, since=since)

    def settled(
        self, node: str, tokens: Sequence[tuple[str, str]]
    ) -> dict[str, EndedItem]:
        """See QueueStore."""
        return self._kept.settled(node, tokens)

    def archived(
        self,
        node: str,
        outcome: ItemOutcome,
        *,
        after: int = 0,
        limit: int,
        now: float = -math.inf,
    ) -> list[Item]:
        """See QueueStore."""
        found = self._kept.archived(node, outcome)
        kept = [item for item in found if item.seq > after and item.is_kept(now)]
        return kept[:limit]

    def count_archived(
        self, node: str, outcome: ItemOutcome, *, most: int, now: float = -math.inf
    ) -> int | None:
        """See QueueStore."""
        found = self._kept.archived(node, outcome)
        return None if len(found) > most else sum(each.is_kept(now) for each in found)

    def find_archived(
        self, node: str, item_id: str, outcome: ItemOutcome
    ) -> list[Item]:
        """See QueueStore."""
        found = self._kept.archived(node, outcome)
        return [item for item in found if item.item_id == item_id]

    async def link_key(self) -> str:
        """See QueueStore."""
        if self.disk.holder is not self:
            raise StoreError(self.url, "is not open")
        if not self.disk.link_key:
            self.disk.link_key = hashlib.sha256(self.url.encode()).hexdigest()
        return self.disk.link_key
