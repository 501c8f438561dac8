"""The result of the queue demo, according to the service and to the bees' books.

This module knows no network and no files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import fill

from qos.core.strings import bare
from qos.demo.bee import Run
from qos.demo.orders import FAILING, KILLED, Order
from qos.demo.text import number, table
from xep_0254 import BrowsedItem

__all__ = ["BeeRow", "Dead", "QueueRow", "bee_rows", "reckon", "render", "verdict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BeeRow:
    """The work of a bee from a start to its end.

    Attributes:
        bee: its name.
        run: 1, or 2 for a bee that was started again.
        received: the number of items that it has begun.
        accepted: the number of these that the service has accepted.
        failed: the number of these at which it has failed.
        lost: the number of items that it had when it was killed.
    """

    bee: str
    run: int
    received: int
    accepted: int
    failed: int
    lost: int

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"kind": "bee", **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """A dead letter.

    Attributes:
        id: the id of the item.
        reason: why it is dead.
        history: its failed deliveries: the bee, and the error.
    """

    id: str
    reason: str
    history: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """The result of the orders.

    Attributes:
        published: the number of items, including the poisoned one.
        good: the number of items that can be packed.
        accepted_once: good items that are accepted according to the service, and that
            are in the bees' books exactly once.
        lost: good items that are not accepted, or not in the books.
        duplicated: good items that are accepted, or in the books, more than once.
        pieces: the number of packed pieces, according to the books.
        pieces_truth: the number of ordered pieces.
        poisoned: the id of the item that no bee can pack.
        dead: the dead letters.
        left: the number of items that are neither accepted nor dead.
        kills: the number of killed bees.
        seconds: the duration.
    """

    published: int
    good: int
    accepted_once: int
    lost: int
    duplicated: int
    pieces: int
    pieces_truth: int
    poisoned: str
    dead: tuple[Dead, ...]
    left: int
    kills: int
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether each good item was accepted and packed once, and the bad is dead."""
        return (
            self.accepted_once == self.good
            and self.lost == self.duplicated == self.left == 0
            and self.pieces == self.pieces_truth
            and [each.id for each in self.dead] == [self.poisoned]
        )

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        dead = [
            {
                "id": each.id,
                "reason": each.reason,
                "history": [{"by": by, "reason": why} for by, why in each.history],
            }
            for each in self.dead
        ]
        return {"kind": "queue", **asdict(self), "dead": dead, "exact": self.exact}


def bee_rows(books: Mapping[str, Sequence[Run]]) -> list[BeeRow]:
    """The contents of the bees' books, by their names."""
    return [
        BeeRow(
            bee=name,
            run=place,
            received=run.received,
            accepted=len(run.packed),
            failed=run.failed,
            lost=run.received - len(run.packed) - run.failed,
        )
        for name, runs in books.items()
        for place, run in enumerate(runs, 1)
    ]


def reckon(
    ordered: Sequence[Order],
    books: Mapping[str, Sequence[Run]],
    *,
    accepted: Sequence[str],
    dead: Sequence[BrowsedItem],
    left: int,
    kills: int,
    seconds: float,
) -> QueueRow:
    """Compare the orders with the results of the service and the bees.

    Args:
        ordered: the published orders.
        books: the books of the bees.
        accepted: the ids of the items that are accepted according to the service.
        dead: the dead letters.
        left: see QueueRow.
        kills: the number of killed bees.
        seconds: the duration.
    """
    good = {order.item_id: int(order.pieces) for order in ordered if not order.poisoned}
    (poisoned,) = (order.item_id for order in ordered if order.poisoned)
    packed = [each for runs in books.values() for run in runs for each in run.packed]
    by_bees = Counter(each.item_id for each in packed)
    by_service = Counter(accepted)
    both = [(by_bees[item_id], by_service[item_id]) for item_id in good]
    return QueueRow(
        published=len(ordered),
        good=len(good),
        accepted_once=both.count((1, 1)),
        lost=sum(min(counts) == 0 for counts in both),
        duplicated=sum(max(counts) > 1 for counts in both),
        pieces=sum(each.pieces for each in packed),
        pieces_truth=sum(good.values()),
        poisoned=poisoned,
        dead=tuple(
            Dead(
                id=each.origin_id or each.item_id,
                reason=each.reason,
                history=tuple(
                    (bare(failure.by).partition("@")[0], failure.reason)
                    for failure in each.history
                ),
            )
            for each in dead
        ),
        left=left,
        kills=kills,
        seconds=round(seconds, 1),
    )


# -- as text ---------------------------------------------------------------

#: The number of characters in a line.
_LINE = 88

_HEADING = ("bee", "received", "accepted", "failed", "lost")


def render(rows: Sequence[BeeRow], *, bold: bool = False) -> str:
    """The rows as a table of text.

    Args:
        rows: the rows in their order.
        bold: mark the heading, for a terminal.
    """
    lines = [(_who(row), *_counts([row])) for row in rows]
    return table([_HEADING], [*lines, ("together", *_counts(rows))], bold=bold)


def _who(row: BeeRow) -> str:
    if row.bee == KILLED:
        return f"{row.bee}, killed" if row.run == 1 else f"{row.bee}, again"
    return f"{row.bee}, fails at times" if row.bee == FAILING else row.bee


def _counts(rows: Sequence[BeeRow]) -> tuple[str, ...]:
    counts = ((row.received, row.accepted, row.failed, row.lost) for row in rows)
    return tuple(str(sum(column)) for column in zip(*counts, strict=True))


def verdict(row: QueueRow) -> str:
    """The result, in a sentence or two."""
    return fill(_success(row) if row.exact else _failure(row), _LINE)


def _success(row: QueueRow) -> str:
    (dead,) = row.dead
    history = ", ".join(f"{by} ({why})" for by, why in dead.history)
    return (
        f"Queue: of {row.published} items each of the {row.good} good ones was accepted "
        f"once, and {row.pieces} pieces are packed of {row.pieces_truth}. {dead.id} is "
        f"dead ({dead.reason}), after {history}."
    )


def _failure(row: QueueRow) -> str:
    dead = ", ".join(each.id for each in row.dead) or "none"
    return (
        f"The queue has failed: of {number(row.good, 'good item')} {row.lost} lost, "
        f"{row.duplicated} duplicated, {row.left} left; {row.pieces} pieces packed of "
        f"{row.pieces_truth}; dead: {dead} (poisoned: {row.poisoned})."
    )
