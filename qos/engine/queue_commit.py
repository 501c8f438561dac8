"""One commit of a queue service: the changes in it, and the outputs after it.

Nothing is told before what it says is on disk; and if that fails, the truth is told.
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
from qos.core.queue.requests import Refusal, Result
from qos.errors import StoreFull

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

#: To look for a class among some takes less time than in a union.
NOTIFICATIONS = (
    NotifyItem,
    NotifyRetract,
    NotifyUnlock,
    NotifyNode,
    NotifySubscription,
    Probe,
)

#: Called with what to answer, and the payloads of the items in it, by seq.
Answer = Callable[[Result | Refusal, Mapping[int, str]], None]


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """An answer that waits for its commit."""

    answer: Answer
    result: Result | Refusal


@dataclass(frozen=True, slots=True)
class View(Generic[T]):
    """The view of somebody who looks, to be told when all before it is on disk."""

    tell: Callable[[T | Refusal], object]
    seen: T | Refusal


@dataclass(slots=True)
class QueueCommit:
    """The changes of one commit, and the outputs after it.

    Attributes:
        changes: in order.
        outputs: what is told when they are on disk, in order.
        payloads: of the items that are new, by seq.
        purged: the nodes that are purged.
    """

    changes: list[Change] = field(default_factory=list)
    outputs: list[Notification | PendingAnswer | View[Any]] = field(
        default_factory=list
    )
    payloads: dict[int, str] = field(default_factory=dict)
    purged: set[str] = field(default_factory=set)

    def add(self, effects: Sequence[QueueEffect]) -> None:
        """These have been decided."""
        for effect in effects:
            # Of an item first: most are.
            if isinstance(effect, SaveItem):
                if effect.payload is not None:
                    self.payloads[effect.item.seq] = effect.payload
                self.changes.append(effect)
            elif isinstance(effect, NOTIFICATIONS):
                self.outputs.append(effect)
            else:
                self.changes.append(effect)

    def final(self) -> list[Change]:
        """The changes; of those to one node's own row only the last."""
        last = {
            each.node.name: place
            for place, each in enumerate(self.changes)
            if isinstance(each, SaveNode)
        }
        return [
            each
            for place, each in enumerate(self.changes)
            if not isinstance(each, SaveNode) or last[each.node.name] == place
        ]


class Unwritten(Refusal):
    """It is the disk, and not the request: it may be repeated."""


def unwritten(error: BaseException | None) -> Unwritten:
    """What those are told who asked for what could not be written, or read."""
    full = isinstance(error, StoreFull)
    return Unwritten(
        "the store is full" if full else "the store cannot be written",
        condition="resource-constraint" if full else "internal-server-error",
        type="wait",
    )
