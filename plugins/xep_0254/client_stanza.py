"""Requests of publishers and workers to a queue service as XML.

Pure functions: a request is text, to be put into an iq; see `client_answers` for the
answers. Sources: XEP-0060, XEP-0254, and our extensions, which a service may not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from xml.etree import ElementTree as ET

from qos import arguments
from qos.core.queue.item import Affiliation, ItemOutcome
from qos.core.queue.node_options import (
    NODE_FIELDS,
    QUEUE_REQUESTS,
    SELECTOR,
    SUBSCRIBE_FIELDS,
    Field,
)
from qos.core.queue.selector import SelectorError, parse
from qos.errors import (
    InvalidArgument,
)
from qos.jids import jid_of
from qos.xml_text import text
from xep_0254.elements import attributes as attributes_of
from xep_0254.elements import (
    legal,
    payload_text,
    seconds,
)
from xep_0254.forms import render_form
from xep_0254.item_properties import (
    render_properties,
)
from xep_0254.items import NewItem
from xep_0254.namespaces import (
    DISCO_INFO,
    DISCO_ITEMS,
    EXTENSIONS,
    NODE_CONFIG,
    OWNER,
    PUBSUB,
    QUEUEING,
    RSM,
    SUBSCRIBE_OPTIONS,
)

_SOME_ITEM = "a list of at least one NewItem, unless json or text is given"
_NO_NULL = "None is not given: JSON null has to be inside of a value, such as [None]"

#: The states of items that can be browsed.
_STATES = ("live", "accepted", "dead")


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
    """Change the configuration of a node; fields not given stay (XEP-0060 §8.2.4)."""
    _check_node(node)
    arguments.text_by_text("config", config)
    form = _form(NODE_CONFIG, NODE_FIELDS, config)
    return _pubsub(f"<configure{attributes(node=node)}>{form}</configure>", OWNER)


def of_owner(name: str, node: str) -> str:
    """A request of an owner about a whole node, by the name of its element (XEP-0060 §8)."""
    _check_node(node)
    return _pubsub(f"<{name}{attributes(node=node)}/>", OWNER)


def set_affiliations(node: str, affiliations: Mapping[str, Affiliation]) -> str:
    """Change affiliations (XEP-0060 §8.9.2): by bare JID, or by `@` and a domain.

    The JID of the domain is sent for that: no JID begins with `@`.
    """
    _check_node(node)
    arguments.mapping("affiliations", affiliations)
    changes: dict[str, Affiliation] = {}
    for name, affiliation in affiliations.items():
        jid = jid_of("affiliations", _without_at(name))
        if jid in changes:
            raise InvalidArgument(
                "affiliations", name, "named once", why=f"there are two of {jid}"
            )
        changes[jid] = arguments.member(Affiliation, "affiliations", affiliation)
    content = "".join(
        f"<affiliation{attributes(jid=jid, affiliation=affiliation.value)}/>"
        for jid, affiliation in changes.items()
    )
    return _pubsub(
        f"<affiliations{attributes(node=node)}>{content}</affiliations>", OWNER
    )


def _without_at(name: object) -> object:
    """The JID of a domain that is written with an `@` before it; else the name."""
    if isinstance(name, str) and name.startswith("@") and "@" not in name[1:]:
        return name[1:]
    return name


def publish(node: str, items: Sequence[NewItem]) -> str:
    """Publish items, all or none (XEP-0060 §7.1).

    Raises:
        InvalidArgument: there is no item, or a payload cannot be sent.
    """
    _check_node(node)
    entries = arguments.sequence("entries", items, "NewItem")
    if not entries:
        raise InvalidArgument("entries", str, _SOME_ITEM, why=_NO_NULL)
    for item in entries:
        arguments.instance(NewItem, "entries", item, "a list of NewItem")
    content = "".join(map(_new_item, items))
    properties = "".join(
        render_properties(item.item_id, item.properties)
        for item in items
        if item.properties
    )
    return _pubsub(f"<publish{attributes(node=node)}>{content}</publish>{properties}")


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


def subscribe_options(
    *,
    queue_requests: int,
    batch: int,
    durable_locks: bool,
    resumable_locks: bool,
    new_worker: bool,
    events: str,
    selector: str,
) -> dict[str, str]:
    """The options of a subscription, by their fields; see `XEP_0254.subscribe`.

    Raises:
        InvalidArgument: one of them has a wrong value.
    """
    arguments.whole("queue_requests", queue_requests, least=1)
    arguments.whole("batch", batch, least=1)
    arguments.flag("durable_locks", durable_locks)
    arguments.flag("resumable_locks", resumable_locks)
    arguments.flag("new_worker", new_worker)
    if events not in ("message", "acknowledged"):
        raise InvalidArgument("events", events, "'message' or 'acknowledged'")
    check_selector(selector)
    options = {
        QUEUE_REQUESTS: str(queue_requests),
        "queue#batch": str(batch),
        "queue#durable_locks": "1" if durable_locks else "0",
        "queue#events": events,
    }
    # What a service does not know it leaves out, and the answer says so.
    if resumable_locks:
        options["queue#resumable_locks"] = "1"
    if new_worker:
        options["queue#new_worker"] = "1"
    if selector:
        options[SELECTOR] = selector
    return options


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
    attrs = attributes(node=node, jid=jid)
    form = _form(SUBSCRIBE_OPTIONS, SUBSCRIBE_FIELDS, options)
    return _pubsub(f"<subscribe{attrs}/><options{attrs}>{form}</options>")


def unsubscribe(node: str, jid: str, subid: str) -> str:
    """Unsubscribe (XEP-0060 §6.2)."""
    _check_node(node)
    arguments.text("subid", subid)
    attrs = attributes(node=node, jid=jid, subid=subid or None)
    return _pubsub(f"<unsubscribe{attrs}/>")


def retract(node: str, items: Iterable[tuple[str, str]]) -> str:
    """Delete items; if they are locked, they count as accepted (XEP-0254 §2.3).

    The answer is enough for us: no event is wanted beside it (XEP-0060 §7.2).

    Args:
        node: the name of the queue.
        items: each with the token of its delivery, or ''.
    """
    _check_node(node)
    content = _items(map(_pair, items))
    attrs = attributes(node=node)
    return _pubsub(f"<retract{attrs} notify='false'>{content}</retract>")


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
    how, why = "", text(legal(reason))
    if outcome is ItemOutcome.MODIFIED:
        marks = attributes(
            delivery_failed=str(delivery_failed).lower(),
            undeliverable_here=str(undeliverable_here).lower(),
        )
        how = (
            f"<q:modified{marks}>{why}</q:modified>" if why else f"<q:modified{marks}/>"
        )
    elif outcome is ItemOutcome.REJECTED:
        how = f"<q:rejected>{why}</q:rejected>"
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
    attrs = attributes(node=node, seconds=seconds(length))
    return _pubsub(f"<q:extend{attrs}>{_items([(item_id, token)])}</q:extend>")


def requeue(node: str, item_ids: Sequence[str], after: str = "") -> str:
    """Put dead items back into their queue; without ids: all, a page (XEP-0059)."""
    _check_node(node)
    arguments.texts("item_ids", item_ids)
    content = _items((item_id, "") for item_id in item_ids)
    return _pubsub(
        f"<requeue xmlns='{EXTENSIONS}'{attributes(node=node)}>{content}</requeue>"
        + _page("", _carried("after", after))
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
    page = _page(limit, _carried("after", after))
    return _pubsub(f"<items{attributes(node=node, q_state=state)}/>{page}")


def _page(limit: str, after: str) -> str:
    start = f"<after>{after}</after>" if after else ""
    return f"<set xmlns='{RSM}'>{limit}{start}</set>" if limit or start else ""


def info(node: str = "") -> str:
    """Ask for the disco#info of a service or a node (XEP-0030 §3)."""
    return f"<query xmlns='{DISCO_INFO}'{attributes(node=node or None)}/>"


def nodes(after: str) -> str:
    """Ask for the names of the nodes of a service after this one (XEP-0060 §5.2)."""
    page = f"<set xmlns='{RSM}'><after>{text(after)}</after></set>" if after else ""
    return f"<query xmlns='{DISCO_ITEMS}'>{page}</query>"
