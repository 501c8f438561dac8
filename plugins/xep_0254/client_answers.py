"""Answers of a queue service to publishers and workers.

Pure functions: an answer is an iq. See `client_stanza` for the requests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from qos.core.queue.item import Affiliation, Failure
from qos.core.queue.node_options import (
    SELECTOR,
)
from qos.core.queue.properties import Properties
from qos.errors import (
    RequestRefused,
)
from qos.xml_text import local
from xep_0254.disco import STATS_FIELDS, parse_node_type, parse_stats
from xep_0254.elements import (
    decimal,
    extended,
    moment,
    namespace,
    payload_text,
    whole,
)
from xep_0254.forms import parse_form
from xep_0254.item_properties import (
    PROPERTIES,
    found_properties,
)
from xep_0254.items import BrowsedItem, NodeInfo, Page, Published
from xep_0254.namespaces import (
    DATA_FORM,
    DISCO_INFO,
    DISCO_ITEMS,
    ERRORS,
    OWNER,
    PUBSUB,
    RSM,
    STANZAS,
)

_REPEATED = extended("repeated")


def refusal(iq: ET.Element, *, to: str, action: str) -> RequestRefused:
    """The refusal in an iq of type error."""
    error = next((child for child in iq if local(child) == "error"), None)
    if error is None:
        return RequestRefused("undefined-condition", to=to, what=action, type="cancel")
    words = {STANZAS: "undefined-condition", ERRORS: ""}
    explained = error.findtext(f"{{{STANZAS}}}text") or ""
    for child in error:
        if namespace(child) in words and local(child) != "text":
            words[namespace(child)] = local(child)
    return RequestRefused(
        words[STANZAS],
        to=to,
        what=action,
        type=error.get("type", "cancel"),
        pubsub=words[ERRORS],
        text=explained.strip(),
        by=error.get("by", ""),
    )


@contextlib.contextmanager
def missing_named(node: str) -> Iterator[None]:
    """Add the name of a node to a refusal that says only that something is missing."""
    try:
        yield
    except RequestRefused as error:
        if error.condition != "item-not-found" or error.text:
            raise
        raise RequestRefused(
            error.condition,
            to=error.to,
            what=error.what,
            type=error.type,
            pubsub=error.pubsub,
            text=f"there is no queue {node!r}, or this account may not see it",
            by=error.by,
        ) from None


def _answer(iq: ET.Element, path: str, of: str = PUBSUB) -> ET.Element | None:
    return iq.find(f"{{{of}}}pubsub/{path}")


def created(iq: ET.Element, node: str) -> str:
    """The name of the new node: the service may have chosen or changed it."""
    element = _answer(iq, f"{{{PUBSUB}}}create")
    return node if element is None else element.get("node", node)


def published(iq: ET.Element, item_ids: list[str]) -> list[Published]:
    """The published items."""
    elements = iq.findall(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}publish/{{{PUBSUB}}}item")
    if len(elements) != len(item_ids):  # a service may leave them out
        return [Published(item_id) for item_id in item_ids]
    return [
        Published(element.get("id", ""), element.get(_REPEATED) in {"true", "1"})
        for element in elements
    ]


def subscribed(iq: ET.Element) -> str:
    """The subid, or ''."""
    element = _answer(iq, f"{{{PUBSUB}}}subscription")
    return "" if element is None else element.get("subid", "")


def selects(iq: ET.Element) -> bool:
    """Whether the options of a new subscription show a selector."""
    x = _answer(iq, f"{{{PUBSUB}}}options/{{{DATA_FORM}}}x")
    return x is not None and any(parse_form(x).values.get(SELECTOR, ()))


def extended_by(iq: ET.Element, length: float) -> float:
    """The number of seconds for which the lock lasts, from its extension."""
    element = _answer(iq, extended("extend"))
    granted = None if element is None else decimal(element.get("seconds"))
    return length if granted is None else granted


def requeued(iq: ET.Element) -> tuple[list[str], str]:
    """The ids of the requeued items, and after which there may be more; '': no more."""
    element = _answer(iq, extended("requeue"))
    if element is None:
        return [], ""
    last = iq.findtext(f"{{{PUBSUB}}}pubsub/{{{RSM}}}set/{{{RSM}}}last") or ""
    return [item.get("id", "") for item in element if local(item) == "item"], last


def configuration(iq: ET.Element) -> dict[str, str]:
    """The values of a node's configuration form."""
    x = _answer(iq, f"{{{OWNER}}}configure/{{{DATA_FORM}}}x", OWNER)
    if x is None:
        return {}
    return {var: "\n".join(values) for var, values in parse_form(x).values.items()}


def affiliations(iq: ET.Element) -> dict[str, Affiliation]:
    """Affiliations by JID; unknown ones are left out."""
    by_name = {affiliation.value: affiliation for affiliation in Affiliation}
    elements = iq.findall(
        f"{{{OWNER}}}pubsub/{{{OWNER}}}affiliations/{{{OWNER}}}affiliation"
    )
    return {
        element.get("jid", ""): by_name[element.get("affiliation", "")]
        for element in elements
        if element.get("affiliation") in by_name
    }


def features(iq: ET.Element) -> set[str]:
    """The features of a service or a node."""
    elements = iq.findall(f"{{{DISCO_INFO}}}query/{{{DISCO_INFO}}}feature")
    return {element.get("var", "") for element in elements}


def node_names(iq: ET.Element) -> tuple[list[str], str]:
    """The names of nodes, and the name after which there may be more; '': no more."""
    query = f"{{{DISCO_ITEMS}}}query"
    names = [
        item.get("node", "") for item in iq.iterfind(f"{query}/{{{DISCO_ITEMS}}}item")
    ]
    last = iq.findtext(f"{query}/{{{RSM}}}set/{{{RSM}}}last") or ""
    return [name for name in names if name], last if names else ""


def node_info(iq: ET.Element) -> NodeInfo:
    """The type of a node, and its counts by name; empty: the node has no counts."""
    query = iq.find(f"{{{DISCO_INFO}}}query")
    if query is None:
        return NodeInfo("", {})
    stats = parse_stats(query)
    names = [field.var.partition("#")[2] for field in STATS_FIELDS] if stats else []
    return NodeInfo(parse_node_type(query), {**dict.fromkeys(names), **stats})


def page(iq: ET.Element) -> Page:
    """A page of a queue."""
    elements = iq.findall(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}items/{{{PUBSUB}}}item")
    properties = found_properties(iq.iterfind(f"{{{PUBSUB}}}pubsub/{PROPERTIES}"))
    browsed = [
        _browsed(element, next(properties.get(element.get("id", ""), iter(())), {}))
        for element in elements
    ]
    limits = _answer(iq, f"{{{RSM}}}set")
    if limits is None:
        return Page(browsed, len(browsed), "")  # Without pages it has all of them.
    count = whole(limits.findtext(f"{{{RSM}}}count"))
    last = limits.findtext(f"{{{RSM}}}last") or ""
    return Page(browsed, count, last)


def _browsed(item: ET.Element, properties: Properties) -> BrowsedItem:
    history = item.find(extended("history"))
    payload = [child for child in item if child is not history]
    return BrowsedItem(
        item_id=item.get("id", ""),
        payload=payload_text(payload[0]) if payload else "",
        publisher=item.get("publisher", ""),
        state=item.get(extended("state"), ""),
        priority=whole(item.get(extended("priority"))),
        delivery_count=whole(item.get(extended("delivery-count"))),
        published_at=moment(item.get(extended("published"))),
        holder=item.get(extended("holder"), ""),
        origin=item.get(extended("origin"), ""),
        origin_id=item.get(extended("origin-id"), ""),
        reason=item.get(extended("reason"), ""),
        history=() if history is None else tuple(map(_failure, history)),
        properties=properties,
    )


def _failure(failure: ET.Element) -> Failure:
    at = moment(failure.get("at"))
    return Failure(
        at=0.0 if at is None else at,
        by=failure.get("by", ""),
        reason=failure.get("reason", ""),
    )
