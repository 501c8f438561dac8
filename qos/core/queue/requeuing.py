"""Requeuing: dead items live again in the queue where they died.

All of them are requeued some at a time, since each is written. Whoever asks for all asks
again with `last` of the answer until that is ''. So the service remembers nothing of it:
a request that is repeated, or comes to another process, goes on where it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

from qos.core.queue import item_lifecycle
from qos.core.queue.effects import QueueEffect
from qos.core.queue.item import Item, ItemOutcome, ItemState
from qos.core.queue.node import QueueNode
from qos.core.queue.owner_requests import owned
from qos.core.queue.requests import Refusal, Requeue
from qos.core.queue.results import RequeueResult
from qos.core.queue.seq_order import is_seq
from qos.core.queue.service import Queues

__all__ = ["requeue"]

#: The dead items that one request for all looks at: each is written, in one turn of the
#: loop, which has 5 ms.
_LOOKED_AT_MAX = 50

#: The characters of their ids, unless the first one has more: they are in the answer.
_ID_CHARS_MAX = 10_000

_Effects = list[QueueEffect]

#: A dead item, and the node where it is: the one where it died, or its dead-letter node.
_Dead: TypeAlias = tuple[QueueNode, Item]


def requeue(
    service: Queues, request: Requeue, requester: str, now: float
) -> tuple[RequeueResult, _Effects]:
    """Requeue dead items where they died.

    Those that are named: all, or none. Without names, the next ones of all, except those
    that are locked in the dead-letter node and those whose id is in use again.
    """
    queue = owned(service, request.node, requester)
    last = ""
    if request.item_ids:
        dead = _dead_named(service, queue, request.item_ids)
        _check(queue, request.item_ids, dead)
    else:
        dead, last = _next_dead(service, queue, request.after)
    effects: _Effects = []
    requeued_ids = []
    in_use = {*queue.live.find(request.item_ids or tuple(dead))}
    for item_id in request.item_ids or dead:
        location, item = dead[item_id]
        if item.state is ItemState.ACQUIRED or item_id in in_use:
            continue
        effects += _live_again(service, queue, location, item, item_id, now)
        in_use.add(item_id)
        requeued_ids.append(item_id)
    return RequeueResult(request.node, tuple(requeued_ids), last), effects


def _check(queue: QueueNode, item_ids: Sequence[str], dead: dict[str, _Dead]) -> None:
    """Refuse if one of the named items cannot be requeued."""
    in_use = queue.live.find(item_ids)
    for item_id in item_ids:
        if item_id not in dead:
            raise Refusal(
                f"there is no dead item {item_id!r}",
                condition="item-not-found",
                type="cancel",
            )
        location, item = dead[item_id]
        if item.state is ItemState.ACQUIRED:
            raise _conflict(f"{item_id!r} is locked in {location.node.name!r}")
        if item_id in in_use:
            raise _conflict(f"another item {item_id!r} lives")


def _live_again(
    service: Queues,
    queue: QueueNode,
    location: QueueNode,
    item: Item,
    item_id: str,
    now: float,
) -> _Effects:
    if item.state is ItemState.AVAILABLE:
        service.queue(location.node.name).withdraw(item)
    else:
        queue.dead -= 1
    # A dead letter that died again belongs to this node now.
    alive = item_lifecycle.requeued(item, node=queue.node, item_id=item_id)
    return queue.take_in(alive, item, now)


def _next_dead(
    service: Queues, queue: QueueNode, after: str
) -> tuple[dict[str, _Dead], str]:
    """The next items that died in a node, by the ids they had there, oldest first.

    Several can have one id, if the id was used again after the dedupe window. Then the
    one that died last counts.

    Args:
        service: the service.
        queue: the node.
        after: where the request before has ended; '': there was none.

    Returns:
        The items; and where this request ends, or '' if these are the last ones. What
        is published later than the first request is not among them: an item that dies
        again and again is met once.
    """
    since, until = _cursor(after) if after else (0, service.next_seq())
    candidates = _dead_after(service, queue, since, until)
    sizes = accumulate(len(item_id) for item_id, _ in candidates[:_LOOKED_AT_MAX])
    page = candidates[: max(1, sum(size <= _ID_CHARS_MAX for size in sizes))]
    newest = _dead_named(service, queue, {item_id for item_id, _ in page})
    dead = {
        item_id: (location, item)
        for item_id, (location, item) in page
        if item.seq == newest[item_id][1].seq
    }
    return dead, f"{_seq(page[-1])}.{until}" if len(candidates) > len(page) else ""


def _dead_after(
    service: Queues, queue: QueueNode, since: int, until: int
) -> list[tuple[str, _Dead]]:
    """One more than a request looks at of the items that died in a node, by seq."""
    name, limit = queue.node.name, _LOOKED_AT_MAX + 1
    archived = service.ended_items.archived(
        name, ItemOutcome.REJECTED, after=since, limit=limit
    )
    candidates: list[tuple[str, _Dead]] = [
        (item.item_id, (queue, item)) for item in archived
    ]
    for location, letters in service.letters(name):
        page = letters.page(since, limit)
        candidates += [(item.origin_id, (location, item)) for item in page]
    candidates.sort(key=_seq)
    return [dead for dead in candidates[:limit] if _seq(dead) <= until]


def _seq(candidate: tuple[str, _Dead]) -> int:
    return candidate[1][1].seq


def _cursor(text: str) -> tuple[int, int]:
    """The seqs after which, and up to which, a request looks."""
    after, _, until = text.partition(".")
    if not (is_seq(after) and is_seq(until)):
        raise Refusal(
            f"no answer to a requeue had {text[:40]!r} in it, to go on after",
            condition="bad-request",
            type="modify",
        )
    return int(after), int(until)


def _dead_named(
    service: Queues, queue: QueueNode, item_ids: Iterable[str]
) -> dict[str, _Dead]:
    """The items with these ids that died in a node, without a look at others."""
    name, find = queue.node.name, service.ended_items.find_archived
    died: dict[str, list[_Dead]] = {
        item_id: [(queue, item) for item in find(name, item_id, ItemOutcome.REJECTED)]
        for item_id in item_ids
    }
    for location, letters in service.letters(name):
        for item in letters.find(died.keys()):
            died[item.origin_id].append((location, item))
    return {
        item_id: max(dead, key=lambda entry: entry[1].seq)
        for item_id, dead in died.items()
        if dead
    }


def _conflict(text: str) -> Refusal:
    return Refusal(text, condition="conflict", type="cancel")
