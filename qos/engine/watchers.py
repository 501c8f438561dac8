"""Readers that wait for new items of a node, without being given any.

A reader of a topic takes nothing, so no worker's subscription can wake it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from qos.core.queue.effects import Change, RemoveNode, SaveItem

__all__ = ["Watchers"]


class Watchers:
    """The readers that wait, by node."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[Callable[[], object]]] = {}

    @contextmanager
    def watching(self, node: str) -> Iterator[asyncio.Event]:
        """An event that is set when a new item of this node is on disk, or it is deleted.

        Look for items after this has begun, and again each time that it is set.
        """
        changed = asyncio.Event()
        self.watch(node, changed.set)
        try:
            yield changed
        finally:
            self.unwatch(node, changed.set)

    def watch(self, node: str, call: Callable[[], object]) -> None:
        """Call this each time that such an event would be set; it must ask for nothing."""
        self._waiting.setdefault(node, set()).add(call)

    def unwatch(self, node: str, call: Callable[[], object]) -> None:
        """Call this no more; harmless if it was not to be called."""
        waiting = self._waiting.get(node, set())
        waiting.discard(call)
        if not waiting:
            self._waiting.pop(node, None)

    def written(self, changes: Sequence[Change]) -> None:
        """Note that these changes are on disk."""
        if not self._waiting:
            return
        for change in changes:
            if isinstance(change, SaveItem) and change.payload is not None:
                node = change.item.node
            elif isinstance(change, RemoveNode):
                node = change.name
            else:
                continue
            for call in self._waiting.get(node, ()):
                call()
