"""Requests of publishers and workers to a queue service as XML, and its answers.

Pure functions: a request is text, to be put into an iq; an answer is the iq. Sources:
XEP-0060, XEP-0254, and our extensions, which a service may not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from xml.etree import ElementTree as ET

from qos import arguments
from qos.core.queue.item import Affiliation, Failure, ItemOutcome
from qos.core.queue.node_options import (
    NODE_FIELDS,
    SELECTOR,
    SUBSCRIBE_FIELDS,
    Field,
)
from qos.core.queue.properties import Properties
from qos.core.queue.selector import SelectorError, parse
from qos.errors import (
    InvalidArgument,
    RequestRefused,
)
from qos.jids import jid_of
from qos.xml_text import local, text
from xep_0254.disco import STATS_FIELDS, parse_node_type, parse_stats
from xep_0254.elements import attributes as attributes_of
from xep_0254.elements import (
    decimal,
    extended,
    legal,
    moment,
    namespace,
    payload_text,
    seconds,
    whole,
)
from xep_0254.forms import parse_form, render_form
from xep_0254.item_properties import (
    PROPERTIES,
    found_properties,
    render_properties,
)
from xep_0254.items import BrowsedItem, NewItem, NodeInfo, Page
from xep_0254.namespaces import (
    DATA_FORM,
    DISCO_INFO,
    DISCO_ITEMS,
    ERRORS,
    EXTENSIONS,
    NODE_CONFIG,
    OWNER,
    PUBSUB,
    QUEUEING,
    RSM,
    STANZAS,
    SUBSCRIBE_OPTIONS,
)

#: The states of items that can be browsed.
_STATES = ("live", "accepted", "dead")


# -- requests --------------------------------------------------------------


#: The names of the arguments for these attributes.
_ARGUMENTS = {"id": "item_id", "q_token": "token"}


def attributes(**values: str | None) -> str:
    """See xep_0254.elements.

    Raises:
        InvalidArgument: XML cannot carry one of the characters.
    """
    try:
        return attributes_of(**values)
    except ValueError:
        for name, value in values.items():
            _carried(_ARGUMENTS.get(name, name), value or "")
        raise


def _carried(name: str, value: str) -> str:
    """The value, escaped, as character data; InvalidArgument: XML cannot carry it."""
    try:
        return text(value)
    except ValueError as error:
        expected = "a string that XML can carry"
        raise InvalidArgument(name, value, expected, why=str(error)) from error


def _form(form_type: str, fields: Sequence[Field], values: Mapping[str, str]) -> str:
    try:
        return render_form("submit", form_type, fields, values)
    except ValueError as error:
        expected = "values that XML can carry"
        raise InvalidArgument("config", values, expected, why=str(error)) from error


def _pubsub(content: str, of: str = PUBSUB) -> str:
    return f"<pubsub xmlns='{of}' xmlns:q='{EXTENSIONS}'>{content}</pubsub>"


def _check_node(node: str) -> None:
    arguments.text("node", node, empty=False)


def _check_item(item_id: str, token: str, *, of: str = "") -> None:
    arguments.text(f"item_id{of}", item_id, empty=False)
    arguments.text(f"token{of}", token)


def _pair(item: object) -> tuple[str, str]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise InvalidArgument("items", item, "pairs of an item's id and token")
    item_id, token = item
    _check_item(item_id, token, of=" in items")
    return item_id, token


def _items(items: Iterable[tuple[str, str]]) -> str:
    """Items with their tokens, or '' for an item without one."""
    return "".join(
        f"<item{attributes(id=item_id, q_token=token or None)}/>"
        for item_id, token in items
    )


def create(node: str, config: Mapping[str, str]) -> str:
    """Create a node (XEP-0060 §8.1.3)."""
    arguments.text("node", node)
    arguments.text_by_text("config", config)
    form = _form(NODE_CONFIG, NODE_FIELDS, config) if config else ""
    configure = f"<configure>{form}</configure>" if form else ""
    return _pubsub(f"<create{attributes(node=node or None)}/>{configure}")


def configure(node: str, config: Mapping[str, str]) -> str:
    """Change the configuration of a node; fields not given stay (§8.2.4)."""
    _check_node(node)
    arguments.text_by_text("config", config)
    form = _form(NODE_CONFIG, NODE_FIELDS, config)
    return _pubsub(f"<configure{attributes(node=node)}>{form}</configure>", OWNER)


def of_owner(name: str, node: str) -> str:
    """A request of an owner about a whole node, by the name of its element (§8)."""
    _check_node(node)
    return _pubsub(f"<{name}{attributes(node=node)}/>", OWNER)


def set_affiliations(node: str, affiliations: Mapping[str, Affiliation]) -> str:
    """Change affiliations, by bare JID (§8.9.2)."""
    _check_node(node)
    arguments.mapping("affiliations", affiliations)
    changes = {
        jid_of("affiliations", jid): arguments.member(Affiliation, "affiliations", each)
        for jid, each in affiliations.items()
    }
    content = "".join(
        f"<affiliation{attributes(jid=jid, affiliation=each.value)}/>"
        for jid, each in changes.items()
    )
    return _pubsub(
        f"<affiliations{attributes(node=node)}>{content}</affiliations>", OWNER
    )


def publish(node: str, items: Sequence[NewItem]) -> str:
    """Publish items, all or none (§7.1).

    Raises:
        InvalidArgument: there is no item, or a payload cannot be sent.
    """
    _check_node(node)
    for each in arguments.sequence("entries", items, "NewItem", empty=False):
        arguments.instance(NewItem, "entries", each, "a list of NewItem")
    content = "".join(map(_new_item, items))
    properties = "".join(_properties(each) for each in items if each.properties)
    return _pubsub(f"<publish{attributes(node=node)}>{content}</publish>{properties}")


def _properties(item: NewItem) -> str:
    try:
        return render_properties(item.item_id, item.properties)
    except ValueError as error:
        expected = f"values that XML can carry, in the item {item.item_id!r}"
        raise InvalidArgument("properties", dict, expected, why=str(error)) from error


def _new_item(item: NewItem) -> str:
    marks = attributes(
        id=item.item_id,
        q_priority=None if item.priority is None else str(item.priority),
        q_ttl=None if item.ttl is None else seconds(item.ttl),
        q_delay=None if item.delay is None else seconds(item.delay),
    )
    payload = item.payload
    try:
        if isinstance(payload, str) and payload.strip():
            payload = ET.fromstring(payload)  # noqa: S314 - expat loads nothing
        elif not isinstance(payload, str):
            # payload_text sorts attributes; the application's element must not change.
            payload = deepcopy(payload)
        content = "" if isinstance(payload, str) else payload_text(payload)
    except (ET.ParseError, ValueError) as error:
        expected = f"one XML element, in the item {item.item_id!r}"
        raise InvalidArgument("payload", str, expected, why=str(error)) from error
    return f"<item{marks}>{content}</item>" if content else f"<item{marks}/>"


def check_selector(selector: str) -> None:
    """Check a selector as the service will.

    Raises:
        InvalidArgument: it is none; the text says where.
    """
    arguments.text("selector", selector)
    try:
        if selector:
            parse(selector)
    except SelectorError as error:
        expected = "a condition, such as color = 'red' AND n > 5"
        raise InvalidArgument("selector", selector, expected, why=str(error)) from error


def subscribe(node: str, jid: str, options: Mapping[str, str]) -> str:
    """Subscribe, with options (XEP-0254 §2.1)."""
    _check_node(node)
    who = attributes(node=node, jid=jid)
    form = _form(SUBSCRIBE_OPTIONS, SUBSCRIBE_FIELDS, options)
    return _pubsub(f"<subscribe{who}/><options{who}>{form}</options>")


def unsubscribe(node: str, jid: str, subid: str) -> str:
    """Unsubscribe (XEP-0060 §6.2)."""
    _check_node(node)
    arguments.text("subid", subid)
    who = attributes(node=node, jid=jid, subid=subid or None)
    return _pubsub(f"<unsubscribe{who}/>")


def retract(node: str, items: Iterable[tuple[str, str]]) -> str:
    """Delete items; if they are locked, they count as accepted (XEP-0254 §2.3).

    The answer is enough for us: no event is wanted beside it (XEP-0060 §7.2).

    Args:
        node: the name of the queue.
        items: each with the token of its delivery, or ''.
    """
    _check_node(node)
    content = _items(map(_pair, items))
    who = attributes(node=node)
    return _pubsub(f"<retract{who} notify='false'>{content}</retract>")


def unlock(
    node: str,
    item_id: str,
    token: str,
    outcome: ItemOutcome,
    *,
    delivery_failed: bool,
    undeliverable_here: bool,
    reason: str,
) -> str:
    """Unlock an item (XEP-0254 §2.4), with the outcome of its delivery."""
    _check_node(node)
    _check_item(item_id, token)
    arguments.flag("delivery_failed", delivery_failed)
    arguments.flag("undeliverable_here", undeliverable_here)
    arguments.text("reason", reason)
    how = ""
    if outcome is ItemOutcome.MODIFIED:
        marks = attributes(
            delivery_failed=str(delivery_failed).lower(),
            undeliverable_here=str(undeliverable_here).lower(),
        )
        how = f"<q:modified{marks}/>"
    elif outcome is ItemOutcome.REJECTED:
        how = f"<q:rejected>{text(legal(reason))}</q:rejected>"
    elif outcome is not ItemOutcome.RELEASED:
        expected = "released, modified or rejected; an item is accepted by a retract"
        raise InvalidArgument("outcome", outcome.value, expected)
    item = f"<item{attributes(id=item_id, q_token=token or None)}>{how}</item>"
    return _pubsub(f"<unlock xmlns='{QUEUEING}'{attributes(node=node)}>{item}</unlock>")


def extend(node: str, item_id: str, token: str, length: float) -> str:
    """Extend a lock to this number of seconds from now."""
    _check_node(node)
    _check_item(item_id, token)
    arguments.seconds("seconds", length)
    who = attributes(node=node, seconds=seconds(length))
    return _pubsub(f"<q:extend{who}>{_items([(item_id, token)])}</q:extend>")


def requeue(node: str, item_ids: Sequence[str]) -> str:
    """Put dead items back into their queue; without ids: all of them."""
    _check_node(node)
    arguments.texts("item_ids", item_ids)
    content = _items((item_id, "") for item_id in item_ids)
    return _pubsub(
        f"<requeue xmlns='{EXTENSIONS}'{attributes(node=node)}>{content}</requeue>"
    )


def items(node: str, state: str, max_items: int | None, after: str) -> str:
    """Browse items (XEP-0060 §6.5), one page (XEP-0059)."""
    _check_node(node)
    if state not in _STATES:
        raise InvalidArgument("state", state, f"one of {', '.join(_STATES)}")
    if max_items is not None:
        arguments.whole("max_items", max_items, least=0)
    arguments.text("after", after)
    limit = "" if max_items is None else f"<max>{max_items}</max>"
    start = f"<after>{_carried('after', after)}</after>" if after else ""
    page = f"<set xmlns='{RSM}'>{limit}{start}</set>" if limit or start else ""
    return _pubsub(f"<items{attributes(node=node, q_state=state)}/>{page}")


def info(node: str = "") -> str:
    """Ask for the disco#info of a service or a node (XEP-0030 §3)."""
    return f"<query xmlns='{DISCO_INFO}'{attributes(node=node or None)}/>"


def nodes(after: str) -> str:
    """Ask for the names of the nodes of a service after this one (XEP-0060 §5.2)."""
    page = f"<set xmlns='{RSM}'><after>{text(after)}</after></set>" if after else ""
    return f"<query xmlns='{DISCO_ITEMS}'>{page}</query>"


# -- answers ---------------------------------------------------------------


def refusal(iq: ET.Element, *, to: str, what: str) -> RequestRefused:
    """The refusal in an iq of type error."""
    error = next((child for child in iq if local(child) == "error"), None)
    if error is None:
        return RequestRefused("undefined-condition", to=to, what=what, type="cancel")
    words = {STANZAS: "undefined-condition", ERRORS: ""}
    explained = error.findtext(f"{{{STANZAS}}}text") or ""
    for child in error:
        if namespace(child) in words and local(child) != "text":
            words[namespace(child)] = local(child)
    return RequestRefused(
        words[STANZAS],
        to=to,
        what=what,
        type=error.get("type", "cancel"),
        pubsub=words[ERRORS],
        text=explained.strip(),
        by=error.get("by", ""),
    )


def _answer(iq: ET.Element, path: str, of: str = PUBSUB) -> ET.Element | None:
    return iq.find(f"{{{of}}}pubsub/{path}")


def created(iq: ET.Element, node: str) -> str:
    """The name of the new node: the service may have chosen or changed it."""
    element = _answer(iq, f"{{{PUBSUB}}}create")
    return node if element is None else element.get("node", node)


def published(iq: ET.Element, item_ids: list[str]) -> list[str]:
    """The ids of the published items."""
    found = iq.findall(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}publish/{{{PUBSUB}}}item")
    return [each.get("id", "") for each in found] or item_ids


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


def requeued(iq: ET.Element) -> list[str]:
    """The ids of the requeued items."""
    element = _answer(iq, extended("requeue"))
    if element is None:
        return []
    return [each.get("id", "") for each in element if local(each) == "item"]


def configuration(iq: ET.Element) -> dict[str, str]:
    """The values of a node's configuration form."""
    x = _answer(iq, f"{{{OWNER}}}configure/{{{DATA_FORM}}}x", OWNER)
    if x is None:
        return {}
    return {var: "\n".join(values) for var, values in parse_form(x).values.items()}


def affiliations(iq: ET.Element) -> dict[str, Affiliation]:
    """Affiliations by JID; unknown ones are left out."""
    known = {each.value: each for each in Affiliation}
    found = iq.findall(
        f"{{{OWNER}}}pubsub/{{{OWNER}}}affiliations/{{{OWNER}}}affiliation"
    )
    return {
        each.get("jid", ""): known[each.get("affiliation", "")]
        for each in found
        if each.get("affiliation") in known
    }


def features(iq: ET.Element) -> set[str]:
    """The features of a service or a node."""
    found = iq.findall(f"{{{DISCO_INFO}}}query/{{{DISCO_INFO}}}feature")
    return {each.get("var", "") for each in found}


def node_names(iq: ET.Element) -> tuple[list[str], str]:
    """The names of nodes, and the name after which there may be more; '': no more."""
    query = f"{{{DISCO_ITEMS}}}query"
    found = [
        each.get("node", "") for each in iq.iterfind(f"{query}/{{{DISCO_ITEMS}}}item")
    ]
    last = iq.findtext(f"{query}/{{{RSM}}}set/{{{RSM}}}last") or ""
    return [name for name in found if name], last if found else ""


def node_info(iq: ET.Element) -> NodeInfo:
    """The type of a node, and its counts by name; empty: the node has no counts."""
    query = iq.find(f"{{{DISCO_INFO}}}query")
    if query is None:
        return NodeInfo("", {})
    found = parse_stats(query)
    names = [field.var.partition("#")[2] for field in STATS_FIELDS] if found else []
    return NodeInfo(parse_node_type(query), {**dict.fromkeys(names), **found})


def page(iq: ET.Element) -> Page:
    """A page of a queue."""
    found = iq.findall(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}items/{{{PUBSUB}}}item")
    properties = found_properties(iq.iterfind(f"{{{PUBSUB}}}pubsub/{PROPERTIES}"))
    browsed = [
        _browsed(each, next(properties.get(each.get("id", ""), iter(())), {}))
        for each in found
    ]
    limits = _answer(iq, f"{{{RSM}}}set")
    if limits is None:
        return Page(browsed, len(browsed), "")
    count = whole(limits.findtext(f"{{{RSM}}}count"))
    last = limits.findtext(f"{{{RSM}}}last") or ""
    return Page(browsed, len(browsed) if count is None else count, last)


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
