"""Writes the answers of a queue service (XEP-0060, XEP-0254, our extensions), as text.

Each is an iq in the namespace of the stream. Data of a peer is repeated only up to a
limit: an answer beyond the server's limit for a stanza would end the whole stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import add
from typing import assert_never
from xml.etree import ElementTree as ET

from qos.core.queue.item import Item, ItemOutcome, ItemState
from qos.core.queue.node_options import (
    NODE_FIELDS,
    SUBSCRIBE_FIELDS,
    subscription_values,
)
from qos.core.queue.requests import Refusal
from qos.core.queue.results import (
    AffiliationsResult,
    ConfigureResult,
    CreateResult,
    CreditResult,
    ExtendResult,
    ItemsResult,
    Ok,
    OptionsResult,
    PublishResult,
    RequeueResult,
    Result,
    SubscribeResult,
    SubscriptionsResult,
)
from qos.xml_text import attribute, local, render_iq, text
from xep_0254.elements import (
    attributes,
    extended,
    legal,
    namespace,
    seconds,
    timestamp,
)
from xep_0254.forms import render_form
from xep_0254.item_properties import render_properties
from xep_0254.namespaces import (
    ERRORS,
    EXTENSIONS,
    NODE_CONFIG,
    OWNER,
    PUBSUB,
    RSM,
    STANZAS,
    SUBSCRIBE_OPTIONS,
    UNLOCKS,
)

__all__ = [
    "ANSWER_BYTES_MAX",
    "answer_to",
    "cut",
    "render_error",
    "render_refusal",
    "render_result",
]

#: The most bytes of items in an answer; Prosody accepts stanzas of 256 KiB.
ANSWER_BYTES_MAX = 200 * 1024

#: The most bytes of the history of one item; the oldest failures and the newest are
#: shown.
_HISTORY_BYTES_MAX = 16 * 1024

#: The most bytes of a request in an error: enough for a few items.
_ECHO_BYTES_MAX = 4096

_PUBSUB = f"{{{PUBSUB}}}pubsub"
_SUBSCRIBE = f"{{{PUBSUB}}}subscribe"
_ECHOED = frozenset(
    (_SUBSCRIBE, f"{{{PUBSUB}}}options", f"{{{PUBSUB}}}retract", *UNLOCKS)
)
_Q = f" xmlns:q='{EXTENSIONS}'"


def answer_to(iq: ET.Element, kind: str, content: str, *, sender: str = "") -> str:
    """The answer to an iq.

    Args:
        iq: the iq to answer.
        kind: `result` or `error`.
        content: the content of the answer, as XML.
        sender: the JID of the sender; '': that of the stream.
    """
    iq_id, to = iq.get("id", ""), iq.get("from", "")
    return render_iq(kind, iq_id, content, to=to, sender=sender)


# -- refusals --------------------------------------------------------------


def render_refusal(
    iq: ET.Element, refusal: Refusal, *, sender: str = "", by: str = ""
) -> str:
    """The error that answers a request.

    Args:
        iq: the request, which may be malformed.
        refusal: the reason.
        sender: as for answer_to.
        by: the JID that refuses (RFC 6120 §8.3.1). When a peer is away, a server
            answers in its place, from the same address; only `by` tells the two apart.
    """
    echo = _form_to_fill_in(iq) if refusal.form else _echo(iq)
    return answer_to(iq, "error", echo + render_error(refusal, by=by), sender=sender)


def render_error(refusal: Refusal, *, by: str = "") -> str:
    """The error element of a refusal; `by` as for render_refusal."""
    pubsub = ""
    if refusal.pubsub:
        feature = attributes(feature=refusal.feature or None)
        pubsub = f"<{refusal.pubsub} xmlns='{ERRORS}'{feature}/>"
    return (
        f"<error type='{refusal.type}'{attributes(by=by or None)}>"
        f"<{refusal.condition} xmlns='{STANZAS}'/>{pubsub}"
        f"<text xmlns='{STANZAS}'>{text(legal(str(refusal)))}</text></error>"
    )


def _form_to_fill_in(iq: ET.Element) -> str:
    """The options that a subscription needs (XEP-0254 listing 1)."""
    subscribe = iq.find(f"{_PUBSUB}/{_SUBSCRIBE}")
    if subscribe is None:
        subscribe = ET.Element(_SUBSCRIBE)
    attrs = attributes(jid=subscribe.get("jid"), node=subscribe.get("node"))
    form = render_form("form", SUBSCRIBE_OPTIONS, SUBSCRIBE_FIELDS, {})
    return _inside(f"<subscribe{attrs}/><options{attrs}>{form}</options>")


def _echo(iq: ET.Element) -> str:
    """The request, repeated as in XEP-0254, without payloads, forms and outcomes."""
    pubsub = iq.find(_PUBSUB)
    if pubsub is None:
        return ""
    for request in pubsub:
        if request.tag in _ECHOED:
            break
    else:
        return ""
    names = ("jid", "node", "subid")
    attrs = attributes(**{name: request.get(name) for name in names})
    items = "".join(_echoed_item(item) for item in request if local(item) == "item")
    name = local(request)
    xmlns = "" if namespace(request) == PUBSUB else f" xmlns='{namespace(request)}'"
    head = f"<{name}{xmlns}{attrs}"
    echo = _inside(f"{head}>{items}</{name}>" if items else f"{head}/>")
    return "" if len(echo.encode()) > _ECHO_BYTES_MAX else echo


def _echoed_item(item: ET.Element) -> str:
    token = item.get(extended("token"))
    bound = "" if token is None else _Q
    return f"<item{bound}{attributes(id=item.get('id'), q_token=token)}/>"


def _inside(content: str, xmlns: str = PUBSUB) -> str:
    return f"<pubsub xmlns='{xmlns}'>{content}</pubsub>"


# -- results ---------------------------------------------------------------


def render_result(
    iq: ET.Element,
    result: Result,
    *,
    sender: str = "",
    payloads: Mapping[int, str] | None = None,
    answer_bytes_max: int = ANSWER_BYTES_MAX,
) -> str:
    """The answer to a request that was done.

    Args:
        iq: the request.
        result: its result.
        sender: as for answer_to.
        payloads: the payloads of items, by seq.
        answer_bytes_max: the most bytes of a list; it is cut to whole elements, at
            least one.
    """
    content = ""
    match result:
        case Ok() | CreditResult():  # of Credit, which no iq asks for
            pass
        case ItemsResult():
            content = _items(result, payloads or {}, answer_bytes_max)
        case SubscriptionsResult():
            content = _subscriptions(result, answer_bytes_max)
        case AffiliationsResult():
            content = _affiliations(result, answer_bytes_max)
        case RequeueResult():
            content = _requeued(result, answer_bytes_max)
        case ExtendResult():
            attrs = attributes(node=result.node, seconds=seconds(result.seconds))
            content = _inside(
                f"<q:extend{_Q}{attrs}>{_ids(result.item_ids)}</q:extend>"
            )
        case PublishResult():
            node = attributes(node=result.node)
            ids = _published(result) if result.repeated else _ids(result.item_ids)
            content = _inside(f"<publish{node}>{ids}</publish>")
        case CreateResult():
            content = _inside(f"<create{attributes(node=result.node)}/>")
        case SubscribeResult() | OptionsResult():
            content = _options(result)
        case ConfigureResult():
            content = _configure(result)
        case _:
            assert_never(result)
    return answer_to(iq, "result", content, sender=sender)


def _requeued(result: RequeueResult, bytes_max: int) -> str:
    items = [f"<item{attributes(id=item_id)}/>" for item_id in result.item_ids]
    return _list("q:requeue" + _Q, result.node, items, bytes_max, last=result.last)


def _ids(item_ids: Iterable[str]) -> str:
    return "".join([f"<item id={attribute(item_id)}/>" for item_id in item_ids])


def _published(result: PublishResult) -> str:
    repeated = frozenset(result.repeated)
    mark = f"{_Q} q:repeated='true'"
    return "".join(
        f"<item{mark if item_id in repeated else ''} id={attribute(item_id)}/>"
        for item_id in result.item_ids
    )


def _options(result: SubscribeResult | OptionsResult) -> str:
    subscription = result.subscription
    values = subscription_values(subscription)
    attrs = attributes(
        jid=subscription.jid, node=subscription.node, subid=subscription.subid
    )
    if isinstance(result, OptionsResult):
        form = render_form("form", SUBSCRIBE_OPTIONS, SUBSCRIBE_FIELDS, values)
        return _inside(f"<options{attrs}>{form}</options>")
    form = render_form("result", SUBSCRIBE_OPTIONS, SUBSCRIBE_FIELDS, values)
    return _inside(
        f"<subscription{attrs} subscription='subscribed'/><options>{form}</options>"
    )


def _configure(result: ConfigureResult) -> str:
    if result.node is None:
        form = render_form("form", NODE_CONFIG, NODE_FIELDS, {})
        return _inside(f"<default>{form}</default>", OWNER)
    form = render_form("form", NODE_CONFIG, NODE_FIELDS, result.node.config)
    node = attributes(node=result.node.name)
    return _inside(f"<configure{node}>{form}</configure>", OWNER)


# -- lists -----------------------------------------------------------------


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
    return _inside(f"{head}{''.join(shown_elements)}</{end}>{pages}", xmlns)


def _subscriptions(result: SubscriptionsResult, bytes_max: int) -> str:
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


def _affiliations(result: AffiliationsResult, bytes_max: int) -> str:
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


# -- items -----------------------------------------------------------------


def _items(result: ItemsResult, payloads: Mapping[int, str], bytes_max: int) -> str:
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
    return _inside(
        f"<items{_Q}{attributes(node=result.node)}>{''.join(elements)}</items>"
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
