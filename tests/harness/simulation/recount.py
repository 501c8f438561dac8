"""A recount of what a queue service counts: a look at every item that it has decided on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from qos.core.queue.contents import EndedItems
from qos.core.queue.effects import Change, RemoveNode, SaveEnded
from qos.core.queue.item import ItemOutcome, ItemState, Node
from qos.core.queue.service import Queues
from simulation import invariants

__all__ = ["AcceptedLedger", "recounted"]

#: More than any node of a simulation has.
_ALL = 10_000


def recounted(
    core: Queues, ended_items: EndedItems, name: str, now: float
) -> dict[str, int | float | None]:
    """The counts of a node, those of its items only, from the items themselves."""
    queue = core.nodes[name]
    items = queue.live.page(0, _ALL)
    waiting = [each for each in items if each.state is ItemState.AVAILABLE]
    delayed = [each for each in waiting if each.is_held_back(now)]
    dead = ended_items.archived(name, ItemOutcome.REJECTED, after=0, limit=_ALL)
    letters = [
        each
        for other in core.nodes.values()
        for each in other.live.page(0, _ALL)
        if each.origin_identity == queue.node.identity
    ]
    oldest = min((each.published_at for each in items), default=None)
    return {
        "available": len(waiting) - len(delayed),
        "acquired": len(items) - len(waiting),
        "delayed": len(delayed),
        "dead": len(dead) + len(letters),
        "oldest_seconds": None if oldest is None else round(now - oldest, 3),
        "bytes": sum(each.size for each in items),
        "oversized": sum(map(queue.live.ready.is_oversized, waiting)),
        "releases_most": max((each.releases for each in waiting), default=0),
    }


class AcceptedLedger:
    """How many items have been accepted in each node, as their ends come to the disk."""

    def __init__(self, check: Callable[..., None]) -> None:
        self._check = check
        self._accepted: Counter[str] = Counter()

    def written(self, change: Change) -> None:
        """A change is on disk."""
        if isinstance(change, SaveEnded):
            accepted = change.ended.outcome is ItemOutcome.ACCEPTED
            self._accepted[change.ended.node] += accepted
        elif isinstance(change, RemoveNode):
            del self._accepted[change.name]

    def committed(self, nodes: Mapping[str, Node]) -> None:
        """The commit is on disk, and these nodes."""
        for name, node in nodes.items():
            counts = {"accepted": node.accepted}
            recount = {"accepted": self._accepted[name]}
            self._check(invariants.counts_are_a_recount, name, counts, recount)
