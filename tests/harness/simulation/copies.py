"""The copies of the items of topics, as they come to the disk, commit by commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from qos.core.queue.effects import Change, SaveItem
from qos.core.queue.item import Node
from qos.core.queue.node_options import NODE_TYPE, TOPIC
from simulation import invariants

__all__ = ["CopyLedger"]


class CopyLedger:
    """Which items of topics have been copied, and into which queues."""

    def __init__(self, check: Callable[..., None]) -> None:
        self._check = check
        #: By the identity of the queue and the id of the item.
        self._copies: Counter[tuple[str, str]] = Counter()
        #: Of the present commit.
        self._due: list[tuple[str, str]] = []

    def written(self, change: Change, nodes: Mapping[str, Node]) -> None:
        """A change is on disk, and these nodes."""
        if not isinstance(change, SaveItem) or change.payload is None:
            return
        item, node = change.item, nodes.get(change.item.node)
        if node is None:
            return
        if TOPIC in node.config:
            # A second copy has the id with a suffix, if the first one is there.
            self._copies[node.identity, item.item_id.partition("#")[0]] += 1
        elif node.config.get(NODE_TYPE) == "topic":
            self._due += [
                (each.identity, item.item_id)
                for each in nodes.values()
                if each.config.get(TOPIC) == node.name
            ]

    def committed(self) -> None:
        """The commit is on disk."""
        for identity, item_id in self._due:
            count = self._copies[identity, item_id]
            self._check(invariants.copied_once_with_the_item, item_id, count)
        self._due.clear()
        for (_, item_id), count in self._copies.items():
            if count > 1:
                self._check(invariants.copied_once_with_the_item, item_id, count)
