"""One topic: the latest items that were published to it, kept for reading by seq.

Nobody takes an item from a topic: its items are copied into the queues that subscribe to
it (`qos.core.queue.copying`), and a reader goes on after the seq that it has read. The
limits `queue#keep_items`, `queue#keep_seconds` and `queue#max_bytes` drop the oldest
items; a publish is never refused because of them. An item that expires is dropped too,
and is no dead letter: its copies may still be handled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from qos.core.queue.effects import QueueEffect, SaveItem, SaveNode
from qos.core.queue.item import EndedItem, Item
from qos.core.queue.link_time import LinkTime
from qos.core.queue.node import QueueNode
from qos.core.queue.publishing import new_items
from qos.core.queue.requests import PublishedItem
from qos.core.record import replace

__all__ = ["TopicNode"]


class TopicNode(QueueNode):
    """The items of a topic."""

    keeps_all = True

    # -- see QueueNode -----------------------------------------------------

    def publish(
        self,
        entries: Sequence[PublishedItem],
        publisher: str,
        *,
        present: Mapping[str, Item],
        ended_items: Mapping[str, Sequence[EndedItem]],
        next_seq: Callable[[], int],
        bytes_left: int,
        issued_at: float | None = None,
        now: float,
    ) -> list[QueueEffect]:
        """See QueueNode; the limits drop older items."""
        new = new_items(
            self.live,
            entries,
            publisher,
            node=self.node,
            options=replace(self.options, max_items=None, max_bytes=None),
            present=present,
            ended_items=ended_items,
            next_seq=next_seq,
            payload_names=(),
            bytes_left=bytes_left,
            issued_at=issued_at,
            now=now,
        )
        for item, _ in new:
            self.live.put(item, now)
        saved: list[QueueEffect] = [SaveItem(item, payload) for item, payload in new]
        return saved + self._trim(now)

    def next_at(self) -> float | None:
        """See QueueNode."""
        times = [super().next_at(), self._oldest_end()]
        return min((at for at in times if at is not None), default=None)

    def due(self, now: float, link: LinkTime) -> list[QueueEffect]:
        """See QueueNode: items expire, or have been kept for long enough."""
        effects = self._trim(now)
        for item in self.live.timers.due(now):
            self.live.mark_ready(item)
        for item in self.live.expired(now):
            effects += self._remove(item, now)
        return effects

    def _trim(self, now: float) -> list[QueueEffect]:
        """Drop the oldest items that the limits do not allow."""
        effects: list[QueueEffect] = []
        dropped = self.node.dropped
        while (oldest := self.live.order.oldest()) and self._exceeds(now):
            dropped = oldest.seq
            effects += self._remove(oldest, now)
        if effects:
            self.node = replace(self.node, dropped=dropped)
            effects.append(SaveNode(self.node))
        return effects

    def _exceeds(self, now: float) -> bool:
        options, end = self.options, self._oldest_end()
        return (
            self.live.count > options.keep_items
            or (options.max_bytes is not None and self.live.size > options.max_bytes)
            or (end is not None and end <= now)
        )

    def _oldest_end(self) -> float | None:
        """When the oldest item has been kept for long enough; None: never."""
        oldest, keep_s = self.live.order.oldest(), self.options.keep_seconds
        return (
            None if oldest is None or keep_s is None else oldest.published_at + keep_s
        )
