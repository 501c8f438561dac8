"""A queue that is deeper than its memory."""

from __future__ import annotations

from qos.core.queue.node import QueueNode
from queue_world import NODE, PLAIN, World

#: The items of a deep queue.
COUNT = 40


def deep(**config: str) -> World:
    """A world whose queue has i0 to i39."""
    fields = {f"queue#{name}": value for name, value in config.items()}
    it = World({**PLAIN, **fields})
    it.publish(*(f"i{number}" for number in range(COUNT)))
    return it


def queue_of(it: World, node: str = NODE) -> QueueNode:
    return it.core.nodes[node]


def is_due(it: World) -> bool:
    at = it.core.next_at()
    return at is not None and at <= it.now
