"""The core of the queues with dictionaries for a disk, and nothing else.

`flush` does the work of the engine: dispatch, commit, and only then notify. Before it,
decisions are only in memory, and a crash loses them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from qos.core.queue.bounds import QueueBounds
from qos.core.queue.contents import Moment
from qos.core.queue.effects import (
    Change,
    ForgetOld,
    Notification,
    NotifyItem,
    PurgeNode,
    QueueEffect,
    RemoveItem,
    RemoveNode,
    RemovePurged,
    SaveEnded,
    SaveItem,
)
from qos.core.queue.handle import handle
from qos.core.queue.item import EndedItem, Item, ItemOutcome
from qos.core.queue.places import DelayEnd, Place
from qos.core.queue.properties import Properties, content_digest
from qos.core.queue.requests import (
    Create,
    Extend,
    Publish,
    PublishedItem,
    Refusal,
    Request,
    Retract,
    Settlement,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from qos.core.queue.results import ExtendResult, Result
from qos.core.queue.selector_time import Meter, SelectorTime
from qos.core.queue.service import Queues
from qos.testing.queue_store_model import QueueModel
from simulation.queue_disk import QueueDisk

NODE = "orders"
OWNER = "boss@x/desk"
PUBLISHER = "shop@x/1"
BEE = "bee@x/1"
BEE_2 = "bee@x/2"
ANT = "ant@y/1"
STRANGER = "cat@z/1"

#: Options without timed events within a test.
PLAIN = {
    "queue#backoff": "0",
    "pubsub#access_model": "open",
    "pubsub#publish_model": "open",
}

N = TypeVar("N", bound=Notification)

#: So few that purged items, and old ones, are still there when more happens.
PURGED_ROWS = FORGOTTEN_ROWS = 3


def entry(
    item_id: str,
    text: str = "",
    *,
    priority: int | None = None,
    ttl: float | None = None,
    delay: float = 0.0,
    properties: Properties | None = None,
    payload: str = "",
) -> PublishedItem:
    """An item to publish; its payload is its id, unless a text or a payload is given."""
    payload = payload or f"<x>{text or item_id}</x>"
    digest = content_digest(payload.encode(), properties or {})
    return PublishedItem(
        item_id=item_id,
        payload=payload,
        digest=digest,
        size=len(payload),
        priority=priority,
        ttl=ttl,
        delay=delay,
        properties=properties or {},
    )


class World:
    """A service, its disk, a clock that stands still, and its notifications."""

    def __init__(
        self,
        config: Mapping[str, str] | None = None,
        *,
        creators: set[str] | None = None,
        bounds: QueueBounds | None = None,
        meter: Meter | None = None,
        paged: bool = True,
    ) -> None:
        self.paged = paged
        self.now = 1000.0
        self.creators = creators
        self.bounds = bounds or QueueBounds()
        self.meter = meter
        self.disk = QueueDisk()
        self.ids = itertools.count(1)
        self.boot()
        if config is not None:
            self.create(NODE, config)

    # -- what the engine does ----------------------------------------------

    def boot(self) -> None:
        """Start from the disk; anything else is lost."""
        self.pending: list[Change] = []
        self.waiting: list[Notification] = []
        self.sent: list[Notification] = []
        #: What was old at this time is removed, some in each commit; None: it is gone.
        self.old_at: float | None = None
        self.core = Queues(
            self.disk.contents(paged_at=self.now if self.paged else None),
            _Memory(self),
            creators=self.creators,
            bounds=self.bounds,
            new_id=lambda: f"id-{next(self.ids)}",
            selector_time=SelectorTime(self.meter) if self.meter else None,
            now=self.now,
        )
        self.add(self.core.start(self.now))

    def add(self, effects: list[QueueEffect]) -> None:
        """Note the decided effects."""
        for effect in effects:
            if isinstance(effect, Notification):
                self.waiting.append(effect)
            else:
                self.pending.append(effect)

    def flush(self) -> None:
        """Dispatch, commit, notify."""
        self.add(self.core.dispatch(self.now))
        self.commit()

    def commit(self) -> None:
        """Commit the decided effects, and notify."""
        purging = [RemovePurged(PURGED_ROWS)] if self.disk.has_purged() else []
        self.write([*purging, *self.pending])
        if self.old_at is not None:
            self.disk.apply(ForgetOld(self.old_at, FORGOTTEN_ROWS))
            if not self.disk.has_old(self.old_at):
                self.old_at = None
        self.pending = []
        items = set()
        for told in self.waiting:
            if isinstance(told, NotifyItem):
                # As in the engine: each delivery once per step.
                if (told.to, told.item.token) in items or not self.core.is_live(told):
                    continue
                items.add((told.to, told.item.token))
            self.sent.append(told)
        self.waiting = []

    def write(self, changes: Sequence[Change]) -> None:
        """Make the changes of a commit; each says what was there before."""
        for change in changes:
            match change:
                case SaveItem(item, None, before):
                    assert before == self.disk.items[item.seq], "not as it was"
                case RemoveItem(seq, before):
                    assert before in {None, self.disk.items[seq]}, "not as it was"
            self.disk.apply(change)

    def remove_purged(self) -> None:
        """Commit until the disk has no rows that were purged, or deleted with their node."""
        while self.disk.has_purged():
            self.flush()

    def ask(self, request: Request, requester: str, *, flush: bool = True) -> Result:
        """Send a request; returns the answer, after the commit."""
        self.add(self.core.heard(requester))
        try:
            result, effects = handle(self.core, request, requester, self.now)
            self.add(effects)
        finally:
            if flush:
                self.flush()
        return result

    def refused(self, request: Request, requester: str) -> tuple[str, str, str]:
        """The refusal of a request, which must change nothing.

        Condition, type, pubsub.
        """
        self.add(self.core.heard(requester))
        self.flush()
        before = self.core.dispatch(self.now), repr(self.disk), self.live()
        try:
            handle(self.core, request, requester, self.now)
        except Refusal as refusal:
            after = self.core.dispatch(self.now), repr(self.disk), self.live()
            assert after == before, "refused, but something has changed"
            return refusal.condition, refusal.type, refusal.pubsub
        raise AssertionError(f"not refused: {request}")

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        self.flush()

    def heard(self, jid: str, *, available: bool = False) -> None:
        """A stanza or available presence comes."""
        self.add(self.core.heard(jid, available=available))
        self.flush()

    def departed(self, jid: str) -> None:
        """Unavailable presence comes."""
        self.add(self.core.departed(jid, self.now))
        self.flush()

    def absent(self, jid: str) -> None:
        """A probe fails."""
        self.add(self.core.absent(jid, self.now))
        self.flush()

    def bounce(self, event: NotifyItem) -> None:
        """An event bounces."""
        node, tokens = event.item.node, {event.item.token}
        self.add(self.core.bounced(event.to, node, tokens, self.now))
        self.flush()

    # -- requests ----------------------------------------------------------

    def create(
        self, node: str, config: Mapping[str, str] | None = None, by: str = OWNER
    ) -> None:
        """Create a node."""
        self.ask(Create(node, config or {}), by)

    def publish(
        self,
        *entries: PublishedItem | str,
        by: str = PUBLISHER,
        node: str = NODE,
        flush: bool = True,
    ) -> Result:
        """Publish items in one request; an id alone stands for an item."""
        made = tuple(entry(one) if isinstance(one, str) else one for one in entries)
        return self.ask(Publish(node, made), by, flush=flush)

    def subscribe(
        self,
        jid: str,
        requests: int = 1,
        *,
        by: str = "",
        node: str = NODE,
        **options: str,
    ) -> None:
        """Subscribe; options are named without their prefix."""
        fields = {f"queue#{name}": value for name, value in options.items()}
        fields["pubsub#queue_requests"] = str(requests)
        self.ask(Subscribe(node, jid, fields), by or jid)

    def unsubscribe(self, jid: str, *, by: str = "", node: str = NODE) -> None:
        """Unsubscribe."""
        self.ask(Unsubscribe(node, jid), by or jid)

    def retract(
        self, item_id: str, by: str, token: str = "", *, node: str = NODE
    ) -> Result:
        """Accept an item."""
        return self.ask(retraction(item_id, token, node=node), by)

    def unlock(
        self,
        item_id: str,
        by: str,
        token: str = "",
        outcome: ItemOutcome = ItemOutcome.RELEASED,
        *,
        failed: bool = False,
        not_here: bool = False,
        reason: str = "",
        node: str = NODE,
    ) -> Result:
        """Unlock an item."""
        settlement = Settlement(
            item_id=item_id,
            token=token,
            outcome=outcome,
            delivery_failed=failed,
            undeliverable_here=not_here,
            reason=reason,
        )
        return self.ask(Unlock(node, (settlement,)), by)

    def fail(self, item_id: str, by: str, *, node: str = NODE) -> Result:
        """Unlock an item as failed."""
        return self.unlock(
            item_id, by, "", ItemOutcome.MODIFIED, failed=True, node=node
        )

    def reject(
        self, item_id: str, by: str, reason: str = "", *, node: str = NODE
    ) -> Result:
        """Reject an item."""
        return self.unlock(
            item_id, by, "", ItemOutcome.REJECTED, reason=reason, node=node
        )

    def extend(self, item_id: str, by: str, token: str, seconds: float) -> float:
        """Extend a lock; returns the remaining seconds."""
        result = self.ask(Extend(NODE, seconds, ((item_id, token),)), by)
        assert isinstance(result, ExtendResult)
        return result.seconds

    # -- what there is -----------------------------------------------------

    def live(self, node: str = NODE) -> dict[str, Item]:
        """The available and locked items, by id."""
        queue = self.core.nodes.get(node)
        if queue is None:
            return {}
        page = queue.live.page(0, 10**9)
        assert len(page) == queue.live.count
        return {item.item_id: item for item in page}

    def item(self, item_id: str, node: str = NODE) -> Item:
        """One of the live items."""
        return self.live(node)[item_id]

    def dead(self, node: str = NODE) -> list[Item]:
        """The items that are kept as dead."""
        return self.disk.archived(node, ItemOutcome.REJECTED)

    def told(self, kind: type[N]) -> list[N]:
        """The notifications of this kind since the last call."""
        sent, self.sent = self.sent, []
        return [one for one in sent if isinstance(one, kind)]

    def given(self) -> list[tuple[str, str]]:
        """Each worker and item given out since the last call."""
        return [(one.item.item_id, one.to) for one in self.told(NotifyItem)]

    def stats(self, node: str = NODE, by: str = OWNER) -> dict[str, int | float | None]:
        """The counts of the node."""
        return self.core.stats(node, by, self.now)


def retraction(item_id: str, token: str = "", *, node: str = NODE) -> Retract:
    """A retraction of one item."""
    return Retract(node, (Settlement(item_id=item_id, token=token),))


class _Memory:
    """The disk as the engine shows it: without changes that are not committed yet."""

    def __init__(self, world: World) -> None:
        self._world = world

    def ended(
        self, node: str, item_ids: Sequence[str], *, since: float
    ) -> dict[str, list[EndedItem]]:
        return self._soon().all_ended(node, item_ids, since=since)

    def settled(
        self, node: str, tokens: Sequence[tuple[str, str]]
    ) -> dict[str, EndedItem]:
        return self._soon().settled(node, tokens)

    def _soon(self) -> QueueDisk:
        """Add the remembered ends that are not committed yet."""
        soon = QueueDisk()
        for end in self._world.disk.all_ends():
            soon.apply(SaveEnded(end))
        for change in self._world.pending:
            match change:
                case SaveEnded():
                    soon.apply(change)
                case PurgeNode(purged):
                    for item in self._items().values():
                        if purged.has(item) and item.outcome is None:
                            soon.apply(SaveEnded(purged.end_of(item)))
                case RemoveNode(name, _):
                    soon.ended = {
                        key: each for key, each in soon.ended.items() if key[0] != name
                    }
        return soon

    def _items(self) -> dict[int, Item]:
        """All items, as they will be, those of older generations too."""
        items = dict(self._world.disk.items)
        for change in self._world.pending:
            match change:
                case SaveItem(item):
                    items[item.seq] = item
                case RemoveItem(seq):
                    del items[seq]
        return items

    def plain(
        self, node: str, gen: int, *, start: Place, limit: int, now: float
    ) -> tuple[list[Item], Place]:
        return QueueModel(items=self._items()).plain(
            node, gen, start=start, limit=limit, now=now
        )

    def find_plain(
        self, node: str, gen: int, item_ids: Collection[str]
    ) -> dict[str, Item]:
        return QueueModel(items=self._items()).find_plain(node, gen, item_ids)

    def plain_item(self, node: str, gen: int, item_id: str) -> Item | None:
        return self.find_plain(node, gen, [item_id]).get(item_id)

    def expiring(self, node: str, gen: int, *, after: Moment, limit: int) -> list[Item]:
        return QueueModel(items=self._items()).expiring(
            node, gen, after=after, limit=limit
        )

    def delayed(
        self, node: str, gen: int, *, after: DelayEnd, until: float, limit: int
    ) -> list[Item]:
        return QueueModel(items=self._items()).delayed(
            node, gen, after=after, until=until, limit=limit
        )

    def letters(
        self, node: str, gen: int, identity: str, *, after: int, limit: int
    ) -> list[Item]:
        return QueueModel(items=self._items()).letters(
            node, gen, identity, after=after, limit=limit
        )

    def find_letters(
        self, node: str, gen: int, identity: str, origin_ids: Collection[str]
    ) -> list[Item]:
        return QueueModel(items=self._items()).find_letters(
            node, gen, identity, origin_ids
        )

    def next_delay(self, node: str, gen: int, now: float) -> float | None:
        return QueueModel(items=self._items()).next_delay(node, gen, now)

    def plain_page(
        self, node: str, gen: int, *, after: int, limit: int, last: bool = False
    ) -> list[Item]:
        return QueueModel(items=self._items()).plain_page(
            node, gen, after=after, limit=limit, last=last
        )

    def archived(
        self,
        node: str,
        outcome: ItemOutcome,
        *,
        after: int,
        limit: int,
        now: float = -math.inf,
    ) -> list[Item]:
        changing = set[int]()
        for change in self._world.pending:
            match change:
                case RemoveNode(name, _) if name == node:
                    return []
                case SaveItem(item):
                    changing.add(item.seq)
                case RemoveItem(seq):
                    changing.add(seq)
                case PurgeNode(purged):
                    changing |= {
                        item.seq
                        for item in self._world.disk.archived(node, outcome)
                        if purged.has(item)
                    }
        found = [
            item
            for item in self._world.disk.archived(node, outcome)
            if item.seq > after and item.seq not in changing and item.is_kept(now)
        ]
        return found[:limit]

    def find_archived(
        self, node: str, item_id: str, outcome: ItemOutcome
    ) -> list[Item]:
        found = self.archived(node, outcome, after=0, limit=10**9)
        return [item for item in found if item.item_id == item_id]

    def count_archived(
        self, node: str, outcome: ItemOutcome, *, most: int, now: float = -math.inf
    ) -> int | None:
        found = self._world.disk.archived(node, outcome)
        return None if len(found) > most else sum(each.is_kept(now) for each in found)
