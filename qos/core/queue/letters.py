"""The dead letters of one node, by the node where each one died.

Their numbers are known here; the letters themselves are in the store, and some of them in
memory too. So a page of them, and those with one id, are found without a look at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from qos.core.counting import uncount
from qos.core.queue.contents import StoredItems
from qos.core.queue.item import Item, Node

__all__ = ["Letters", "LettersFrom"]


class LettersFrom:
    """The dead letters of one node that came from one other node.

    Attributes:
        count: how many there are.
    """

    def __init__(
        self, store: StoredItems, node: str, gen: int, identity: str, count: int
    ) -> None:
        """See Letters.

        Args:
            store: has the letters.
            node: the node where they are.
            gen: its generation.
            identity: of the node where they died.
            count: how many there are.
        """
        self._store = store
        self._key = node, gen, identity
        self.count = count

    def page(self, after: int, limit: int) -> list[Item]:
        """The first letters with a larger seq, by seq."""
        return self._store.letters(*self._key, after=after, limit=limit)

    def find(self, origin_ids: Collection[str]) -> list[Item]:
        """The letters that had these ids where they died; several may have had one."""
        return self._store.find_letters(*self._key, origin_ids)


class Letters:
    """The items of one node that died in other nodes."""

    def __init__(
        self, node: Node, store: StoredItems, counts: dict[str, int] | None = None
    ) -> None:
        """Begin with what the store has.

        Args:
            node: the node where they are.
            store: has them.
            counts: how many there are, by the identity of the node where they died; None:
                there are none.
        """
        self._node, self._gen = node.name, node.gen
        self._store = store
        # Letters of a deleted node are of no other.
        self._counts = Counter(counts or {})

    def __len__(self) -> int:
        return self._counts.total()

    def put(self, item: Item) -> None:
        """Count a letter."""
        self._counts[item.origin_identity] += 1

    def drop(self, item: Item) -> None:
        """Count a letter no more."""
        uncount(self._counts, item.origin_identity)

    def clear(self, gen: int) -> None:
        """Note that the node has been purged, and has this generation now."""
        self._gen = gen
        self._counts.clear()

    def of(self, identity: str) -> LettersFrom | None:
        """The letters from the node of this identity; None: there is none."""
        count = self._counts.get(identity)
        if count is None:
            return None
        return LettersFrom(self._store, self._node, self._gen, identity, count)

    def page(self, after: int, limit: int) -> list[Item]:
        """The first letters with a larger seq, by seq, wherever they died."""
        letters = [
            item
            for identity in self._counts
            for item in self._store.letters(
                self._node, self._gen, identity, after=after, limit=limit
            )
        ]
        return sorted(letters, key=lambda item: item.seq)[:limit]
