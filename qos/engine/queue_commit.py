"""One commit of a queue service: its changes, and the outputs to send after it.

Nothing is sent before its cause is on disk. If the commit fails, the truth is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from qos.core.queue.effects import (
    Change,
    Notification,
    NotifyItem,
    NotifyNode,
    NotifyRetract,
    NotifySubscription,
    NotifyUnlock,
    Probe,
    QueueEffect,
    SaveItem,
    SaveNode,
)
from qos.core.queue.requests import Refusal
from qos.core.queue.results import Result
from qos.core.record import record
from qos.errors import StoreError, StoreFull

__all__ = [
    "NOTIFICATIONS",
    "Answer",
    "PendingAnswer",
    "QueueCommit",
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
