"""A model of the plain items in a store of a queue service (`Item.is_plain`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from qos.core.queue.contents import Moment, PlainItems
from qos.core.queue.item import Item, ItemState, Node
from qos.core.queue.places import LAST, DelayEnd, Place, delay_end, place_of
from qos.core.record import replace

__all__ = ["PlainModel"]

#: The items that one look for those that are not held back may pass over.
_PASSED_OVER = 3


@dataclass
class PlainModel:
    """The items of a store, and those questions that are about plain ones.

    Attributes:
        nodes: by name.
        items: by seq, in whatever state.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    items: dict[int, Item] = field(default_factory=dict)

    def _plain(self, node: str, gen: int) -> list[Item]:
        """The plain items of a node by seq."""
        return [
            item
            for _, item in sorted(self.items.items())
            if item.is_plain and (item.node, item.gen) == (node, gen)
        ]

    def _with_locked(self, node: str, gen: int) -> list[Item]:
        """Those, and the locked ones that would be plain without a lock."""
        return [
            item
            for item in self.items.values()
            if (item.node, item.gen) == (node, gen)
            and item.state is not ItemState.ARCHIVED
            and replace(item, state=ItemState.AVAILABLE).is_plain
        ]

    def plain_counts(self, now: float) -> dict[str, PlainItems]:
        """See QueueContents.plain."""
        counts = {}
        for name, node in self.nodes.items():
            items = self._plain(name, node.gen)
            ends = [item.expires_at for item in self._with_locked(name, node.gen)]
            releases = Counter(item.releases for item in items if item.releases)
            if items:
                counts[name] = PlainItems(
                    items=len(items),
                    size=sum(item.size for item in items),
                    expires_at=min((at for at in ends if at is not None), default=None),
                    delayed=sum(item.is_held_back(now) for item in items),
                    delayed_until=self.next_delay(name, node.gen, now),
                    counted_at=now,
                    releases=tuple(sorted(releases.items())),
                )
        return counts

    def plain(
        self, node: str, gen: int, *, start: Place, limit: int, now: float
    ) -> tuple[list[Item], Place]:
        """See QueueStore."""
        items: list[Item] = []
        passed_over = 0
        for item in sorted(self._plain(node, gen), key=place_of):
            if place_of(item) < start:
                continue
            if len(items) == limit or passed_over == _PASSED_OVER:
                return items, (*place_of(item)[:3], "")
            if item.is_held_back(now):
                passed_over += 1
            else:
                items.append(item)
        return items, LAST

    def find_plain(
        self, node: str, gen: int, item_ids: Collection[str]
    ) -> dict[str, Item]:
        """See QueueStore."""
        items = self._plain(node, gen)
        return {item.item_id: item for item in items if item.item_id in item_ids}

    def plain_page(
        self, node: str, gen: int, *, after: int, limit: int, last: bool = False
    ) -> list[Item]:
        """See QueueStore."""
        items = [item for item in self._plain(node, gen) if item.seq > after]
        return items[max(0, len(items) - limit) :] if last else items[:limit]

    def expiring(self, node: str, gen: int, *, after: Moment, limit: int) -> list[Item]:
        """See QueueStore."""
        moments = sorted(
            (item.expires_at, item.seq, item)
            for item in self._plain(node, gen)
            if item.expires_at is not None and (item.expires_at, item.seq) > after
        )
        return [item for *_, item in moments[:limit]]

    def delayed(
        self, node: str, gen: int, *, after: DelayEnd, until: float, limit: int
    ) -> list[Item]:
        """See QueueStore."""
        items = [
            item
            for item in sorted(self._plain(node, gen), key=delay_end)
            if item.has_delay and delay_end(item) > after and item.available_at <= until
        ]
        return items[:limit]

    def letter_counts(self) -> dict[str, dict[str, int]]:
        """See QueueContents.letters."""
        counts: dict[str, Counter[str]] = {}
        for item in self.items.values():
            node = self.nodes.get(item.node)
            if node is not None and item.gen == node.gen and _is_letter(item):
                counts.setdefault(item.node, Counter())[item.origin_identity] += 1
        return {name: dict(by_identity) for name, by_identity in counts.items()}

    def letters(
        self, node: str, gen: int, identity: str, *, after: int, limit: int
    ) -> list[Item]:
        """See QueueStore."""
        letters = self._letters(node, gen, identity)
        return [item for item in letters if item.seq > after][:limit]

    def find_letters(
        self, node: str, gen: int, identity: str, origin_ids: Collection[str]
    ) -> list[Item]:
        """See QueueStore."""
        letters = self._letters(node, gen, identity)
        return [item for item in letters if item.origin_id in origin_ids]

    def _letters(self, node: str, gen: int, identity: str) -> list[Item]:
        key = (node, gen, identity)
        return [
            item
            for _, item in sorted(self.items.items())
            if (item.node, item.gen, item.origin_identity) == key and _is_letter(item)
        ]

    def next_delay(self, node: str, gen: int, now: float) -> float | None:
        """See QueueStore."""
        items = self._with_locked(node, gen)
        ends = [item.available_at for item in items if item.is_held_back(now)]
        return min(ends, default=None)


def _is_letter(item: Item) -> bool:
    return item.state is not ItemState.ARCHIVED and item.origin != ""
