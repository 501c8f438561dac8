"""Browsing: the items of a node are shown, page by page, and not locked."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from operator import attrgetter

from qos.core.queue.access import is_owner
from qos.core.queue.effects import QueueEffect
from qos.core.queue.item import (
    Item,
    ItemOutcome,
)
from qos.core.queue.node import QueueNode
from qos.core.queue.replies import for_consumer
from qos.core.queue.requests import (
    Items,
    Refusal,
)
from qos.core.queue.results import (
    ItemsResult,
)
from qos.core.queue.seq_order import is_seq
from qos.core.queue.service import Queues
from qos.core.queue.subscriber_requests import check_access
from qos.core.strings import bare

__all__ = ["items"]

#: Items in one answer to a browse, and their bytes, unless the first one has more: their
#: payloads are read and written in one turn of the loop, which has 5 ms.
_PAGE_MAX = 200
_PAGE_BYTES_MAX = 256 * 1024

#: Accepted items that are counted for a page: each is a row that is read.
_COUNTED_MAX = 1000

_Effects = list[QueueEffect]


def items(
    service: Queues, request: Items, requester: str, now: float
) -> tuple[ItemsResult, _Effects]:
    """Browse items in the order of publishing, without locking them (XEP-0060 §6.5)."""
    queue, account = service.queue(request.node), bare(requester)
    if request.state == "live":
        check_access(queue, account)
    elif not is_owner(queue.node, account):
        raise Refusal(
            f"{account} does not own {request.node!r}",
            condition="forbidden",
            type="auth",
        )
    limit = _PAGE_MAX if request.max_items is None else request.max_items
    limit = min(limit, _PAGE_MAX)
    after = int(request.after) if is_seq(request.after) else 0
    page, count = _page(service, queue, request, after=after, limit=limit, now=now)
    page = _cut(page, last=request.last)
    result = ItemsResult(
        node=request.node,
        items=tuple(for_consumer(service.nodes, item) for item in page),
        count=count,
        now=now,
        # Decided now: when the answer is sent, another node may have the name.
        owner=is_owner(queue.node, account),
        dropped=queue.node.dropped,
    )
    return result, []


def _page(
    service: Queues,
    queue: QueueNode,
    request: Items,
    *,
    after: int,
    limit: int,
    now: float,
) -> tuple[list[Item], int | None]:
    """A page of items by seq, and how many there are in total; see ItemsResult."""
    if request.state == "live":
        if request.item_ids:
            live = list(queue.live.find(request.item_ids).values())
            return _sorted(live, after, limit, last=request.last), len(live)
        page = queue.live.page(after, limit, last=request.last)
        return page, queue.live.count
    if request.state == "dead":
        return _dead_page(service, queue, request, after=after, limit=limit, now=now)
    outcome, ended_items = ItemOutcome.ACCEPTED, service.ended_items
    name = queue.node.name
    if request.item_ids:
        matches = _named(service, name, request, outcome, now)
        return _sorted(matches, after, limit), len(matches)
    count = ended_items.count_archived(name, outcome, most=_COUNTED_MAX, now=now)
    # Expired items are left out by the query: removed afterwards, they would leave a
    # page short or empty.
    archived = ended_items.archived(name, outcome, after=after, limit=limit, now=now)
    return archived, count


def _dead_page(
    service: Queues,
    queue: QueueNode,
    request: Items,
    *,
    after: int,
    limit: int,
    now: float,
) -> tuple[list[Item], int]:
    """A page of the items that died here, or were moved here, by seq; and their number."""
    name, outcome = queue.node.name, ItemOutcome.REJECTED
    moved_away = [letters for _, letters in service.letters(name)]
    if request.item_ids:
        dead = _named(service, name, request, outcome, now)
        for item_id in frozenset(request.item_ids):
            item = queue.live.get(item_id)
            dead += [item] if item is not None and item.origin else []
        for letters in moved_away:
            dead += letters.find(request.item_ids)
        return _sorted(dead, after, limit), len(dead)
    page = service.ended_items.archived(
        name, outcome, after=after, limit=limit, now=now
    )
    page += queue.live.letters.page(after, limit)
    for letters in moved_away:
        page += letters.page(after, limit)
    count = queue.dead + len(queue.live.letters)
    return _sorted(page, after, limit), count + sum(each.count for each in moved_away)


def _named(
    service: Queues, node: str, request: Items, outcome: ItemOutcome, now: float
) -> list[Item]:
    """The archived items that are asked for by id."""
    return [
        item
        for item_id in frozenset(request.item_ids)
        for item in service.ended_items.find_archived(node, item_id, outcome)
        if item.is_kept(now)
    ]


def _cut(page: list[Item], *, last: bool) -> list[Item]:
    """The first items of a page, or the last ones, that are not too large together."""
    sizes = accumulate(item.size for item in (reversed(page) if last else page))
    fits = max(1, sum(size <= _PAGE_BYTES_MAX for size in sizes))
    return page[-fits:] if last else page[:fits]


_seq = attrgetter("seq")


def _sorted(
    items: Iterable[Item], after: int, limit: int, *, last: bool = False
) -> list[Item]:
    """The first items with a larger seq, or the last ones."""
    later = sorted((item for item in items if item.seq > after), key=_seq)
    return later[max(0, len(later) - limit) :] if last else later[:limit]
