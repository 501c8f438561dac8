"""Writes the lists of a queue service: items, subscriptions, affiliations, requeued ids.

A list is cut to whole elements: an answer beyond the server's limit for a stanza would end
the whole stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import add

from qos.core.queue.item import Item, ItemOutcome, ItemState
from qos.core.queue.results import (
    AffiliationsResult,
    ItemsResult,
    RequeueResult,
    SubscriptionsResult,
)
from xep_0254.elements import BIND_Q, attributes, in_pubsub, legal, timestamp
from xep_0254.item_properties import render_properties
from xep_0254.namespaces import OWNER, PUBSUB, RSM

__all__ = [
    "ANSWER_BYTES_MAX",
    "affiliations",
    "cut",
    "items",
    "requeued",
    "subscriptions",
]

#: The most bytes of items in an answer; Prosody accepts stanzas of 256 KiB.
ANSWER_BYTES_MAX = 200 * 1024

#: The most bytes of the history of one item; the oldest failures and the newest are
#: shown.
_HISTORY_BYTES_MAX = 16 * 1024


def cut(elements: list[str], bytes_max: int) -> list[str]:
    """As many elements as fit, and at least one.

    A client that asks for pages must advance.
    """
    size = 0
    for number, element in enumerate(elements):
        size += len(element.encode())
        if size > bytes_max and number:
            return elements[:number]
    return elements


def _list(
    name: str,
    node: str,
    elements: list[str],
    bytes_max: int,
    xmlns: str = PUBSUB,
    last: str = "",
) -> str:
    """A list; if it is cut, it has the number of all elements.

    With `last` it is a page, and there are more (XEP-0059).
    """
    shown_elements = cut(elements, bytes_max)
    pages = f"<last>{last}</last>" if last else ""
    if len(shown_elements) < len(elements):
        pages += f"<count>{len(elements)}</count>"
    if pages:
        pages = f"<set xmlns='{RSM}'>{pages}</set>"
    head = f"<{name}{attributes(node=node or None)}>"
    end = name.partition(" ")[0]
    return in_pubsub(f"{head}{''.join(shown_elements)}</{end}>{pages}", xmlns)


def subscriptions(result: SubscriptionsResult, bytes_max: int) -> str:
    """Subscriptions, of a node to its owner or of an account (XEP-0060 §5.6, §8.8.1)."""
    elements = [
        "<subscription"
        + attributes(
            node=None if result.owner else subscription.node,
            jid=subscription.jid,
            subid=subscription.subid,
            subscription="subscribed",
        )
        + "/>"
        for subscription in result.subscriptions
    ]
    xmlns = OWNER if result.owner else PUBSUB
    return _list("subscriptions", result.node, elements, bytes_max, xmlns)


def affiliations(result: AffiliationsResult, bytes_max: int) -> str:
    """Affiliations, of a node to its owner or of an account (XEP-0060 §5.7, §8.9.1)."""
    elements = [
        "<affiliation"
        + attributes(
            node=None if result.owner else node,
            jid=jid if result.owner else None,
            affiliation=affiliation.value,
        )
        + "/>"
        for node, jid, affiliation in result.affiliations
    ]
    xmlns = OWNER if result.owner else PUBSUB
    return _list("affiliations", result.node, elements, bytes_max, xmlns)


def requeued(result: RequeueResult, bytes_max: int) -> str:
    """The ids of requeued items; with `last` there are more to requeue."""
    ids = [f"<item{attributes(id=item_id)}/>" for item_id in result.item_ids]
    return _list("q:requeue" + BIND_Q, result.node, ids, bytes_max, last=result.last)


# -- items -----------------------------------------------------------------


def items(result: ItemsResult, payloads: Mapping[int, str], bytes_max: int) -> str:
    """The items as a page (XEP-0059), with their number where it is known."""
    elements = [
        _item(item, payloads.get(item.seq, ""), result.now, result.owner)
        for item in result.items
    ]
    pages = ""
    ids = Counter(item.item_id for item in result.items)
    properties = [
        # Of several items with one id, all: a reader tells them by their order.
        render_properties(item.item_id, item.properties, empty=ids[item.item_id] > 1)
        for item in result.items
    ]
    count = len(cut(list(map(add, elements, properties)), bytes_max))
    elements, properties = elements[:count], properties[:count]
    if elements:
        # Not the ids: the next page is found even if that item is gone meanwhile.
        first, last = result.items[0].seq, result.items[len(elements) - 1].seq
        pages = f"<first>{first}</first><last>{last}</last>"
    if result.count is not None:
        pages += f"<count>{result.count}</count>"
    return in_pubsub(
        f"<items{BIND_Q}{attributes(node=result.node)}>{''.join(elements)}</items>"
        f"{''.join(properties)}"
        f"<set xmlns='{RSM}'>{pages}</set>"
    )


def _item(item: Item, payload: str, now: float, owner_view: bool) -> str:
    dead = item.outcome is ItemOutcome.REJECTED
    reason = legal(item.history[-1].reason) if item.history else None
    head = attributes(
        id=item.item_id,
        publisher=item.publisher,
        q_state=_state(item, now),
        q_priority=str(item.priority),
        q_delivery_count=str(item.delivery_count),
        q_published=timestamp(item.published_at),
        q_holder=(item.holder or None) if owner_view else None,
        q_origin=item.origin or None,
        q_origin_id=item.origin_id or None,
        q_reason=reason,
    )
    history = _history(item, owner_view) if dead or item.origin else ""
    return f"<item{head}>{payload}{history}</item>"


def _state(item: Item, now: float) -> str:
    if item.state is ItemState.ACQUIRED:
        return "acquired"
    if item.state is ItemState.ARCHIVED:
        return "accepted" if item.outcome is ItemOutcome.ACCEPTED else "dead"
    return "delayed" if item.is_held_back(now) else "available"


def _history(item: Item, owner_view: bool) -> str:
    """The failures: the first, and of the others the newest that fit."""
    failures = [
        "<q:failure"
        + attributes(
            at=timestamp(failure.at),
            by=(failure.by or None) if owner_view else None,
            reason=legal(failure.reason),
        )
        + "/>"
        for failure in item.history
    ]
    newest = cut([*failures[:1], *reversed(failures[1:])], _HISTORY_BYTES_MAX)
    return f"<q:history>{''.join((*newest[:1], *reversed(newest[1:])))}</q:history>"
