"""The dead letters of one node, by the node where each one died.

A page of them, their number, and those with one id are found without a look at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from qos.core.queue.item import Item
from qos.core.queue.seq_order import SeqOrder

__all__ = ["Letters", "LettersFrom"]


class LettersFrom:
    """The dead letters of one node that came from one other node.

    Attributes:
        order: the letters by seq.
    """

    def __init__(self) -> None:
        """Begin without letters."""
        self.order = SeqOrder()
        # By the id where they died, then by seq. An id can be used again.
        self._by_id: dict[str, dict[int, Item]] = {}

    def put(self, item: Item) -> None:
        """Add a letter."""
        self.order.put(item)
        self._by_id.setdefault(item.origin_id, {})[item.seq] = item

    def drop(self, item: Item) -> None:
        """Remove a letter, given as it was put."""
        self.order.drop(item)
        same_id = self._by_id[item.origin_id]
        del same_id[item.seq]
        if not same_id:
            del self._by_id[item.origin_id]

    def named(self, origin_id: str) -> Iterable[Item]:
        """The letters that had this id where they died."""
        return self._by_id.get(origin_id, {}).values()


class Letters:
    """The items of one node that died in other nodes.

    Attributes:
        order: the letters by seq.
    """

    def __init__(self) -> None:
        """Begin without letters."""
        self.order = SeqOrder()
        # By the identity of the node: letters of a deleted one are of no other.
        self._origins: dict[str, LettersFrom] = {}

    def put(self, item: Item) -> None:
        """Add a letter."""
        self.order.put(item)
        self._origins.setdefault(item.origin_identity, LettersFrom()).put(item)

    def drop(self, item: Item) -> None:
        """Remove a letter, given as it was put."""
        self.order.drop(item)
        letters = self._origins[item.origin_identity]
        letters.drop(item)
        if not letters.order:
            del self._origins[item.origin_identity]

    def of(self, identity: str) -> LettersFrom | None:
        """The letters from the node of this identity; None: there is none."""
        return self._origins.get(identity)
