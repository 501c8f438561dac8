"""Reads requests to a queue service (XEP-0060, XEP-0254, our extensions).

This module makes of an iq a value of `qos.core.queue.requests`, or a `Refusal` with the
problem. It knows no nodes and no subscriptions, and does not check JIDs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from xml.etree import ElementTree as ET

from qos.core.queue.item import Affiliation
from qos.core.queue.node_options import NODE_FIELDS, SUBSCRIBE_FIELDS, Field
from qos.core.queue.properties import Properties
from qos.core.queue.requests import (
    Affiliations,
    Configure,
    Create,
    DefaultConfig,
    Delete,
    Extend,
    GetConfigure,
    GetOptions,
    Items,
    Publish,
    Purge,
    Refusal,
    Request,
    Requeue,
    Retract,
    SetAffiliations,
    SetOptions,
    Subscribe,
    Subscriptions,
    Unlock,
    Unsubscribe,
)
from qos.steps import Steps, at_once
from qos.xml_text import CLIENT, COMPONENT, local
from xep_0254.elements import bad_request, decimal, extended, unsupported, whole
from xep_0254.forms import fields_of, parse_form
from xep_0254.item_properties import PROPERTIES, read_headers
from xep_0254.namespaces import (
    DATA_FORM,
    NODE_CONFIG,
    OWNER,
    PUBSUB,
    RSM,
    SUBSCRIBE_OPTIONS,
    UNLOCKS,
)
from xep_0254.request_items import (
    ITEM_BYTES_MAX,
    ITEM_ID_CHARS_MAX,
    flag,
    read_ids,
    read_settlements,
    read_tokens,
    reading_entries,
)

__all__ = [
    "EXTEND_S_MAX",
    "NODE_CHARS_MAX",
    "is_request",
    "parse_publish_message",
    "reading_request",
]

#: As for item ids.
NODE_CHARS_MAX = 1024

#: RFC 7622 §3.1: three parts of 1023 bytes, and two signs between them.
_JID_CHARS_MAX = 3071

#: As for `queue#lock_timeout`: a worker that needs a week for an item needs no queue.
EXTEND_S_MAX = 7 * 24 * 3600.0

_TYPES = ("get", "set")
_STATES = ("live", "accepted", "dead")
_IQS = (f"{{{CLIENT}}}iq", f"{{{COMPONENT}}}iq")
_PUBSUBS = (f"{{{PUBSUB}}}pubsub", f"{{{OWNER}}}pubsub")
_SET = f"{{{RSM}}}set"
_PUBLISH_OPTIONS = f"{{{PUBSUB}}}publish-options"
_RSM_BEFORE = f"{{{RSM}}}before"
_RSM_INDEX = f"{{{RSM}}}index"


def is_request(iq: ET.Element) -> bool:
    """Whether an iq is for `reading_request`, well-formed or not."""
    return (
        iq.tag in _IQS
        and iq.get("type") in _TYPES
        and any(child.tag in _PUBSUBS for child in iq)
    )


def reading_request(
    iq: ET.Element, *, new_id: Callable[[], str], item_bytes_max: int = ITEM_BYTES_MAX
) -> Steps[Request]:
    """Read a request, in steps.

    Args:
        iq: one for which is_request is true. The order of its attributes may change.
        new_id: makes an id for an item that is published without one.
        item_bytes_max: the most bytes of a payload.

    Raises:
        Refusal: it is malformed, too large, or for something that is not offered.
    """
    pubsubs = [child for child in iq if child.tag in _PUBSUBS]
    if len(iq) != 1 or len(pubsubs) != 1:
        raise bad_request("more than one element in an iq")
    raw = _raw_request(pubsubs[0], new_id, item_bytes_max)
    tag = raw.element.tag
    kind = tag, iq.get("type", "")
    if kind == _PUBLISH:
        return (yield from _publish(raw))
    reader = _READERS.get(kind)
    if reader is not None:
        return reader(raw)
    if kind[0] == _PUBLISH[0] or any((tag, iq_type) in _READERS for iq_type in _TYPES):
        raise bad_request(f"{local(raw.element)} in an iq of the wrong type")
    raise unsupported(_UNSUPPORTED.get(tag, local(raw.element)[:40]))


def parse_publish_message(
    message: ET.Element,
    *,
    new_id: Callable[[], str],
    check: Callable[[ET.Element], None] | None = None,
    item_bytes_max: int = ITEM_BYTES_MAX,
) -> Publish | None:
    """Read the items that a message publishes; None: it publishes nothing.

    The headers of the message (XEP-0131) are properties of each of them.

    Args:
        message: the message.
        new_id: as for reading_request.
        check: raises a Refusal, before anything is read, if the publish is not allowed.
        item_bytes_max: as for reading_request.

    Raises:
        Refusal: as for reading_request.
    """
    if message.get("type") == "error":
        return None
    pubsub = message.find(_PUBSUBS[0])
    if pubsub is None or pubsub.find(f"{{{PUBSUB}}}publish") is None:
        return None
    if check is not None:
        check(pubsub)
    raw = _raw_request(pubsub, new_id, item_bytes_max)
    return at_once(_publish(raw, read_headers(message)))


@dataclass(frozen=True, slots=True)
class _RawRequest:
    """The request that a reader is given.

    Attributes:
        element: the child of `<pubsub/>` that names the request.
        companion: the child that goes with it: options, a form, pages; or None.
        new_id: see reading_request.
        item_bytes_max: see reading_request.
        properties: of items to publish.
    """

    element: ET.Element
    companion: ET.Element | None
    new_id: Callable[[], str]
    item_bytes_max: int
    properties: Sequence[ET.Element]

    @property
    def node(self) -> str:
        """The node, which must be there."""
        return _node(self.element)

    @property
    def jid(self) -> str:
        """The JID, which must be there."""
        return _jid(self.element)


def _raw_request(
    pubsub: ET.Element, new_id: Callable[[], str], item_bytes_max: int
) -> _RawRequest:
    children = [child for child in pubsub if child.tag != PROPERTIES]
    element, companion = _main(children)
    properties = []
    if len(children) < len(pubsub):
        if element.tag != _pubsub("publish"):
            raise bad_request("properties without a publish")
        properties = [child for child in pubsub if child.tag == PROPERTIES]
    return _RawRequest(element, companion, new_id, item_bytes_max, properties)


def _main(children: list[ET.Element]) -> tuple[ET.Element, ET.Element | None]:
    if len(children) == 1:
        return children[0], None
    if len(children) == 2:
        for element, companion in (children, reversed(children)):
            if element.tag in _COMPANIONS.get(companion.tag, ()):
                return element, companion
    raise bad_request(f"{len(children)} elements where one request is expected")


def _pubsub(name: str) -> str:
    return f"{{{PUBSUB}}}{name}"


def _owner(name: str) -> str:
    return f"{{{OWNER}}}{name}"


#: The elements that may be each other's companion.
_COMPANIONS: dict[str, tuple[str, ...]] = {
    _pubsub("options"): (_pubsub("subscribe"),),
    _pubsub("configure"): (_pubsub("create"),),
    _PUBLISH_OPTIONS: (_pubsub("publish"),),
    # A client that asks for pages of a short list of subscriptions or affiliations gets
    # all of it.
    _SET: (
        *map(_pubsub, ("items", "subscriptions", "affiliations")),
        extended("requeue"),
    ),
}


# -- attributes and children -----------------------------------------------


def _node(element: ET.Element, *, required: bool = True) -> str:
    node = element.get("node", "")
    if required and not node:
        raise bad_request(f"{local(element)} without a node", "nodeid-required")
    if len(node) > NODE_CHARS_MAX:
        raise bad_request(f"a node of more than {NODE_CHARS_MAX} characters")
    return node


def _jid(element: ET.Element) -> str:
    jid = element.get("jid", "")
    if not jid:
        raise bad_request(f"{local(element)} without a jid", "jid-required")
    if len(jid) > _JID_CHARS_MAX:
        raise bad_request("a jid that is too long", "invalid-jid")
    return jid


def _subid(element: ET.Element) -> str:
    subid = element.get("subid", "")
    if len(subid) > ITEM_ID_CHARS_MAX:
        raise bad_request("a subid that is too long", "invalid-subid")
    return subid


def _fields(
    element: ET.Element, form_type: str, definitions: tuple[Field, ...]
) -> Mapping[str, str] | None:
    """The values of the form in an element; None: there is no form."""
    if any(child.tag != f"{{{DATA_FORM}}}x" for child in element):
        raise bad_request(f"{local(element)} with something other than a form")
    if len(element) > 1:
        raise bad_request(f"{local(element)} with more than one form")
    if not len(element):
        return None
    form = parse_form(element[0])
    if form.type == "cancel":  # XEP-0060 §8.2.3: everything stays as it is
        return {}
    if form.type != "submit":
        raise bad_request(f"a form of type {form.type[:20]!r} instead of submit")
    return fields_of(form, definitions=definitions, form_type=form_type)


def _options(element: ET.Element) -> Mapping[str, str] | None:
    return _fields(element, SUBSCRIBE_OPTIONS, SUBSCRIBE_FIELDS)


# -- publishers and subscribers --------------------------------------------


def _publish(raw: _RawRequest, headers: Properties | None = None) -> Steps[Publish]:
    if raw.companion is not None:
        raise unsupported("publish-options")
    entries = yield from reading_entries(
        raw.element,
        properties=raw.properties,
        headers=headers,
        new_id=raw.new_id,
        item_bytes_max=raw.item_bytes_max,
    )
    return Publish(raw.node, entries)


def _subscribe(raw: _RawRequest) -> Subscribe:
    options = None if raw.companion is None else _options(raw.companion)
    return Subscribe(raw.node, raw.jid, options)


def _set_options(raw: _RawRequest) -> SetOptions:
    node, jid, options = raw.node, raw.jid, _options(raw.element)
    if options is None:
        raise bad_request("options without a form", "invalid-options")
    return SetOptions(node, jid, options, _subid(raw.element))


def _manage_subscriptions(_raw: _RawRequest) -> Request:
    raise unsupported("manage-subscriptions")


def _retract(raw: _RawRequest) -> Retract:
    # XEP-0060 §7.2.2.1 has events only if they are asked for; XEP-0254 has one always.
    notify = flag(raw.element, "notify", default="true")
    return Retract(raw.node, read_settlements(raw.element), notify)


def _extend(raw: _RawRequest) -> Extend:
    element = raw.element
    value = element.get("seconds", "")
    seconds = decimal(value)
    if not seconds or seconds > EXTEND_S_MAX:
        raise bad_request(
            f"seconds must be more than 0 and at most {EXTEND_S_MAX:.0f}, "
            f"not {value[:20]!r}"
        )
    return Extend(raw.node, seconds, read_tokens(element))


def _items(raw: _RawRequest) -> Items:
    element = raw.element
    state = element.get(extended("state"), "live")
    if state not in _STATES:
        raise bad_request(f"state must be one of {_STATES}, not {state[:20]!r}")
    limits = []
    if (value := element.get("max_items")) is not None:
        limits.append(_count(value))
    after = ""
    if raw.companion is not None:
        if (max_element := raw.companion.find(f"{{{RSM}}}max")) is not None:
            limits.append(_count(max_element.text or ""))
        after = _after(raw.companion)
    return Items(
        node=raw.node,
        item_ids=read_ids(element),
        max_items=min(limits) if limits else None,
        after=after,
        state=state,
    )


def _after(rsm_set: ET.Element) -> str:
    """Where a page begins (XEP-0059)."""
    if any(child.tag in (_RSM_BEFORE, _RSM_INDEX) for child in rsm_set):
        raise Refusal(
            "pages go forward only, and have no numbers",  # XEP-0059 §2.5
            condition="feature-not-implemented",
            type="cancel",
        )
    after = rsm_set.findtext(f"{{{RSM}}}after", "")
    if len(after) > ITEM_ID_CHARS_MAX:
        raise bad_request("a page after an id that is too long")
    return after


def _requeue(raw: _RawRequest) -> Requeue:
    after = "" if raw.companion is None else _after(raw.companion)
    return Requeue(raw.node, read_ids(raw.element), after)


def _count(value: str) -> int:
    count = whole(value)
    if count is None:
        raise bad_request(f"a number of items, not {value[:20]!r}")
    return count


# -- owners ----------------------------------------------------------------


def _create(raw: _RawRequest) -> Create:
    config = None
    if raw.companion is not None:
        config = _fields(raw.companion, NODE_CONFIG, NODE_FIELDS)
    return Create(_node(raw.element, required=False), config or {})


def _configure(raw: _RawRequest) -> Configure:
    node = raw.node
    config = _fields(raw.element, NODE_CONFIG, NODE_FIELDS)
    if config is None:
        raise bad_request("configure without a form", "invalid-options")
    return Configure(node, config)


def _set_affiliations(raw: _RawRequest) -> SetAffiliations:
    node = raw.node
    affiliations: dict[str, Affiliation] = {}
    for child in raw.element:
        if child.tag != _owner("affiliation"):
            raise bad_request(f"{local(child)[:40]} where an affiliation is expected")
        jid, value = _jid(child), child.get("affiliation", "")
        if value not in _AFFILIATIONS:
            raise bad_request(f"there is no affiliation {value[:20]!r}")
        if jid in affiliations:
            raise bad_request("two affiliations for the same jid")
        affiliations[jid] = _AFFILIATIONS[value]
    if not affiliations:
        raise bad_request("affiliations without an affiliation")
    return SetAffiliations(node, affiliations)


_AFFILIATIONS = {affiliation.value: affiliation for affiliation in Affiliation}

_Reader: TypeAlias = Callable[[_RawRequest], Request]

#: The request that is read in steps; the others are read at once.
_PUBLISH = (_pubsub("publish"), "set")

#: Readers by the element and by the type of the iq. Both types where XEP-0254 has one
#: type in its listings but means the other.
_READERS: dict[tuple[str, str], _Reader] = {
    (_pubsub("subscribe"), "set"): _subscribe,
    (_pubsub("unsubscribe"), "set"): lambda raw: Unsubscribe(
        raw.node, raw.jid, _subid(raw.element)
    ),
    (_pubsub("options"), "get"): lambda raw: GetOptions(
        raw.node, raw.jid, _subid(raw.element)
    ),
    (_pubsub("options"), "set"): _set_options,
    (_pubsub("items"), "get"): _items,
    (_pubsub("subscriptions"), "get"): lambda raw: Subscriptions(
        _node(raw.element, required=False)
    ),
    (_pubsub("affiliations"), "get"): lambda raw: Affiliations(
        _node(raw.element, required=False)
    ),
    (_pubsub("create"), "set"): _create,
    (extended("extend"), "set"): _extend,
    (extended("requeue"), "set"): _requeue,
    (_owner("default"), "get"): lambda _: DefaultConfig(),
    (_owner("configure"), "get"): lambda raw: GetConfigure(raw.node),
    (_owner("configure"), "set"): _configure,
    (_owner("delete"), "set"): lambda raw: Delete(raw.node),
    (_owner("purge"), "set"): lambda raw: Purge(raw.node),
    (_owner("subscriptions"), "get"): lambda raw: Subscriptions(raw.node, owner=True),
    (_owner("subscriptions"), "set"): _manage_subscriptions,
    (_owner("affiliations"), "get"): lambda raw: Affiliations(raw.node, owner=True),
    (_owner("affiliations"), "set"): _set_affiliations,
}
for _type in _TYPES:
    _READERS[_pubsub("retract"), _type] = _retract
    for _tag in UNLOCKS:
        _READERS[_tag, _type] = lambda raw: Unlock(
            raw.node, read_settlements(raw.element)
        )

#: XEP-0060's names of features, where they differ from those of the elements.
_UNSUPPORTED = {
    _pubsub("default"): "retrieve-default-sub",
    _pubsub("collection"): "collections",
    _owner("collection"): "collections",
}
