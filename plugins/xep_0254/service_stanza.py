"""Writes the answers of a queue service (XEP-0060, XEP-0254, our extensions), as text.

Each is an iq in the namespace of the stream. Data of a peer is repeated only up to a
limit: an answer beyond the server's limit for a stanza would end the whole stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never
from xml.etree import ElementTree as ET

from qos.core.queue.command_session import CommandRefusal
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
from xep_0254 import service_lists
from xep_0254.elements import (
    BIND_Q,
    attributes,
    extended,
    in_pubsub,
    legal,
    namespace,
    seconds,
)
from xep_0254.forms import render_form
from xep_0254.namespaces import (
    COMMANDS,
    ERRORS,
    NODE_CONFIG,
    OWNER,
    PUBSUB,
    STANZAS,
    SUBSCRIBE_OPTIONS,
    UNLOCKS,
)
from xep_0254.service_lists import ANSWER_BYTES_MAX

__all__ = [
    "answer_to",
    "render_error",
    "render_refusal",
    "render_result",
]

#: The most bytes of a request in an error: enough for a few items.
_ECHO_BYTES_MAX = 4096

_PUBSUB = f"{{{PUBSUB}}}pubsub"
_SUBSCRIBE = f"{{{PUBSUB}}}subscribe"
_ECHOED = frozenset(
    (_SUBSCRIBE, f"{{{PUBSUB}}}options", f"{{{PUBSUB}}}retract", *UNLOCKS)
)


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
    specific = ""
    if refusal.pubsub:
        feature = attributes(feature=refusal.feature or None)
        specific = f"<{refusal.pubsub} xmlns='{ERRORS}'{feature}/>"
    elif isinstance(refusal, CommandRefusal):
        specific = f"<{refusal.command} xmlns='{COMMANDS}'/>"
    return (
        f"<error type='{refusal.type}'{attributes(by=by or None)}>"
        f"<{refusal.condition} xmlns='{STANZAS}'/>{specific}"
        f"<text xmlns='{STANZAS}'>{text(legal(str(refusal)))}</text></error>"
    )


def _form_to_fill_in(iq: ET.Element) -> str:
    """The options that a subscription needs (XEP-0254 listing 1)."""
    subscribe = iq.find(f"{_PUBSUB}/{_SUBSCRIBE}")
    if subscribe is None:
        subscribe = ET.Element(_SUBSCRIBE)
    attrs = attributes(jid=subscribe.get("jid"), node=subscribe.get("node"))
    form = render_form("form", SUBSCRIBE_OPTIONS, SUBSCRIBE_FIELDS, {})
    return in_pubsub(f"<subscribe{attrs}/><options{attrs}>{form}</options>")


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
    echo = in_pubsub(f"{head}>{items}</{name}>" if items else f"{head}/>")
    return "" if len(echo.encode()) > _ECHO_BYTES_MAX else echo


def _echoed_item(item: ET.Element) -> str:
    token = item.get(extended("token"))
    bound = "" if token is None else BIND_Q
    return f"<item{bound}{attributes(id=item.get('id'), q_token=token)}/>"


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
            content = service_lists.items(result, payloads or {}, answer_bytes_max)
        case SubscriptionsResult():
            content = service_lists.subscriptions(result, answer_bytes_max)
        case AffiliationsResult():
            content = service_lists.affiliations(result, answer_bytes_max)
        case RequeueResult():
            content = service_lists.requeued(result, answer_bytes_max)
        case ExtendResult():
            attrs = attributes(node=result.node, seconds=seconds(result.seconds))
            content = in_pubsub(
                f"<q:extend{BIND_Q}{attrs}>{_ids(result.item_ids)}</q:extend>"
            )
        case PublishResult():
            node = attributes(node=result.node)
            ids = _published(result) if result.repeated else _ids(result.item_ids)
            content = in_pubsub(f"<publish{node}>{ids}</publish>")
        case CreateResult():
            content = in_pubsub(f"<create{attributes(node=result.node)}/>")
        case SubscribeResult() | OptionsResult():
            content = _options(result)
        case ConfigureResult():
            content = _configure(result)
        case _:
            assert_never(result)
    return answer_to(iq, "result", content, sender=sender)


def _ids(item_ids: Iterable[str]) -> str:
    return "".join([f"<item id={attribute(item_id)}/>" for item_id in item_ids])


def _published(result: PublishResult) -> str:
    repeated = frozenset(result.repeated)
    mark = f"{BIND_Q} q:repeated='true'"
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
        return in_pubsub(f"<options{attrs}>{form}</options>")
    form = render_form("result", SUBSCRIBE_OPTIONS, SUBSCRIBE_FIELDS, values)
    return in_pubsub(
        f"<subscription{attrs} subscription='subscribed'/><options>{form}</options>"
    )


def _configure(result: ConfigureResult) -> str:
    if result.node is None:
        form = render_form("form", NODE_CONFIG, NODE_FIELDS, {})
        return in_pubsub(f"<default>{form}</default>", OWNER)
    form = render_form("form", NODE_CONFIG, NODE_FIELDS, result.node.config)
    node = attributes(node=result.node.name)
    return in_pubsub(f"<configure{node}>{form}</configure>", OWNER)
