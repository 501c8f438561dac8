"""One commit of a queue service: its changes, and the outputs to send after it.

Nothing is sent before its cause is on disk. If the commit fails, the truth is sent.

Each commit also removes some rows of items that were purged, and some that are old.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from qos.core.queue.effects import (
    Change,
    ForgetOld,
    Notification,
    NotifyItem,
    NotifyNode,
    NotifyRetract,
    NotifySubscription,
    NotifyUnlock,
    Probe,
    PurgeNode,
    QueueEffect,
    RemoveNode,
    RemovePurged,
    SaveItem,
    SaveNode,
)
from qos.core.queue.requests import Refusal
from qos.core.queue.results import Result
from qos.core.record import record
from qos.errors import StoreError, StoreFull
from qos.stores.queue_base import QueueStore

__all__ = [
    "NOTIFICATIONS",
    "Answer",
    "PendingAnswer",
    "QueueCommit",
    "Removals",
    "Unwritten",
    "View",
    "unwritten",
]

T = TypeVar("T")

#: A tuple: to look for a class in it takes less time than in a union.
NOTIFICATIONS = (
    NotifyItem,
    NotifyRetract,
    NotifyUnlock,
    NotifyNode,
    NotifySubscription,
    Probe,
)

#: The rows that one commit looks at to remove what was purged: a commit of so many takes
#: some milliseconds, and others wait for it. Beyond that there are twice as many as items
#: that the commit brings: who publishes and purges in turn does not fill the disk.
_PURGED_ROWS = 100
_PURGED_ROWS_PER_NEW = 2

#: The changes after which there are such rows.
_REMOVALS = frozenset((PurgeNode, RemoveNode))

#: The old rows that one commit removes at most: one that removes so many takes some
#: milliseconds, and others wait for it. Beyond that there is one for each change of the
#: commit: the change of an item brings one row at most that becomes old, so more go than come.
_FORGOTTEN_ROWS = 100

#: Called with the answer, and the payloads of the items in it, by seq.
Answer = Callable[[Result | Refusal, Mapping[int, str]], None]


@record(frozen=True, slots=True)
class PendingAnswer:
    """An answer that waits for its commit."""

    answer: Answer
    result: Result | Refusal


@record(frozen=True, slots=True)
class View(Generic[T]):
    """The view of a caller, returned when everything before it is on disk."""

    tell: Callable[[T | Refusal], object]
    seen: T | Refusal


@dataclass(slots=True)
class QueueCommit:
    """The changes of one commit, and the outputs after it.

    Attributes:
        changes: in order.
        outputs: to be sent when the changes are on disk, in order.
        payloads: the payloads of the new items, by seq.
    """

    changes: list[Change] = field(default_factory=list)
    outputs: list[Notification | PendingAnswer | View[Any]] = field(
        default_factory=list
    )
    payloads: dict[int, str] = field(default_factory=dict)

    def add(self, effects: Sequence[QueueEffect]) -> None:
        """Add decided effects."""
        for effect in effects:
            # Effects on an item first: most are.
            if isinstance(effect, SaveItem):
                if effect.payload is not None:
                    self.payloads[effect.item.seq] = effect.payload
                self.changes.append(effect)
            elif isinstance(effect, NOTIFICATIONS):
                self.outputs.append(effect)
            else:
                self.changes.append(effect)

    def final(self) -> list[Change]:
        """The changes; of several changes to one node's own row, only the last."""
        last = {
            change.node.name: place
            for place, change in enumerate(self.changes)
            if isinstance(change, SaveNode)
        }
        return [
            change
            for place, change in enumerate(self.changes)
            if not isinstance(change, SaveNode) or last[change.node.name] == place
        ]


class Removals:
    """The rows that nobody reads any more: purged, deleted with their node, or old.

    Commits remove them in slices.
    """

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        # Whether the next commit removes some that were purged, or deleted.
        self._has_purged = False
        # What was old at this time is removed by the next commit; None: it is gone.
        self._old_at: float | None = None

    def look(self, now: float) -> None:
        """Let the next commits remove what there is to remove at this time.

        Raises:
            StoreError: the store could not be read; what is old is removed all the same.
        """
        self._old_at = now
        self._has_purged |= self._store.has_purged()

    def add_to(self, commit: QueueCommit) -> None:
        """Let the commit remove some of the rows, if there are any."""
        changes = commit.changes
        if self._has_purged:
            rows = _PURGED_ROWS + _PURGED_ROWS_PER_NEW * len(commit.payloads)
            # First, so that these are rows which are there already.
            changes.insert(0, RemovePurged(rows))
        self._has_purged |= not _REMOVALS.isdisjoint(map(type, changes))
        if self._old_at is not None:
            rows = _FORGOTTEN_ROWS + len(changes)
            changes.append(ForgetOld(self._old_at, rows))

    def written(self) -> None:
        """Note that a commit is on disk: perhaps it has removed the last of them."""
        self._has_purged = self._has_purged and self._store.has_purged()
        if self._old_at is not None and not self._store.has_old(self._old_at):
            self._old_at = None

    def pause(self) -> None:
        """Remove nothing until the next look.

        A commit has failed: if the disk is full, the next one must be small.
        """
        self._has_purged, self._old_at = False, None


class Unwritten(Refusal):
    """A refusal due to the disk or the service, not to the request: repeat it."""


def unwritten(error: BaseException | None) -> Unwritten:
    """The refusal of a request whose result could not be written or read."""
    full = isinstance(error, StoreFull)
    text = "the store is full" if full else "the store cannot be written"
    if error is not None and not isinstance(error, StoreError):
        text = "the service has met an error of its own"
    return Unwritten(
        text,
        condition="resource-constraint" if full else "internal-server-error",
        type="wait",
    )
