"""The items inside a request: those to publish, settle, extend or name.

This module reads elements and returns values of `qos.core.queue.requests`. It refuses
malformed and too large ones. It knows no nodes and no locks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from xml.etree import ElementTree as ET

from qos.core.queue.item import PRIORITIES, ItemOutcome
from qos.core.queue.properties import (
    Properties,
    content_digest,
    properties_size,
)
from qos.core.queue.requests import PublishedItem, Refusal, Settlement
from qos.steps import Steps
from qos.xml_text import XML_NAMESPACE, attribute, local
from xep_0254.elements import (
    BOOLEANS,
    bad_request,
    decimal,
    extended,
    namespace,
    rendering_payload,
    whole,
)
from xep_0254.item_properties import read_properties, render_properties
from xep_0254.namespaces import PUBSUB

__all__ = [
    "IDS_BYTES_MAX",
    "ITEMS_MAX",
    "ITEM_BYTES_MAX",
    "ITEM_ID_CHARS_MAX",
    "REASON_CHARS_MAX",
    "TIME_S_MAX",
    "TOKEN_CHARS_MAX",
    "flag",
    "read_ids",
    "read_settlements",
    "read_tokens",
    "reading_entries",
]

#: The size of a payload, in bytes. Its event adds a few ids and JIDs, and must fit into
#: the 256 KiB that Prosody accepts for a stanza.
ITEM_BYTES_MAX = 200 * 1024

#: About as long as a part of a JID may be; an id is kept for good.
ITEM_ID_CHARS_MAX = 1024

#: Our own tokens are far shorter.
TOKEN_CHARS_MAX = 256

#: Items in one request, and bytes of their ids as they are written. They are repeated
#: in the answer and in an event, and must fit into a stanza.
ITEMS_MAX = 1000
IDS_BYTES_MAX = 64 * 1024

#: The length of the reason for which a worker rejects an item, or has failed on it, kept
#: in the item's history.
REASON_CHARS_MAX = 1000

#: As for `queue#ttl`: a later time is a mistake.
TIME_S_MAX = 10 * 365 * 24 * 3600.0

_ITEM = f"{{{PUBSUB}}}item"
_TOKEN = extended("token")
_PRIORITY = extended("priority")
_TTL = extended("ttl")
_DELAY = extended("delay")
_MODIFIED = extended("modified")
_REJECTED = extended("rejected")


#: The items that are read in one step.
_STEP_ITEMS = 20

# -- publish ---------------------------------------------------------------


def reading_entries(
    publish: ET.Element,
    *,
    properties: Sequence[ET.Element] = (),
    headers: Properties | None = None,
    new_id: Callable[[], str],
    item_bytes_max: int,
) -> Steps[tuple[PublishedItem, ...]]:
    """The items to be published, in steps.

    Args:
        publish: the element with the items.
        properties: the elements with their properties.
        headers: properties that each of them has, unless it has them itself.
        new_id: makes an id for an item that has none.
        item_bytes_max: the most bytes of a payload with its properties.

    Raises:
        Refusal: malformed (XEP-0060 §7.1.3), or too large.
    """
    items = _items(publish)
    if not items:
        raise bad_request("there is no item to publish", "item-required")
    ids = _distinct([_id(item, new_id) for item in items])
    properties_by_id = read_properties(properties, ids) if properties else {}
    entries: list[PublishedItem] = []
    for item, item_id in zip(items, ids, strict=True):
        own = {**(headers or {}), **properties_by_id.get(item_id, {})}
        entries.append((yield from _entry(item, item_id, own, item_bytes_max)))
        if len(entries) % _STEP_ITEMS == 0:
            yield
    return tuple(entries)


def _entry(
    item: ET.Element, item_id: str, properties: Properties, bytes_max: int
) -> Steps[PublishedItem]:
    payload = yield from _payload(item)
    content = payload.encode()
    size = len(content)
    if properties:
        # As they are written: the event must fit into a stanza.
        size += len(render_properties(item_id, properties).encode())
    if size > bytes_max:
        subject = (
            "the payload and its properties have" if properties else "the payload has"
        )
        raise Refusal(
            f"{subject} {size} bytes, over the limit of {bytes_max}",
            condition="not-acceptable",
            type="modify",
            pubsub="payload-too-big",
        )
    ttl = _time(item, _TTL)
    if ttl == 0:
        raise bad_request("ttl is 0: the item would have expired")
    return PublishedItem(
        item_id=item_id,
        payload=payload,
        digest=content_digest(content, properties),
        size=len(content) + properties_size(properties),
        priority=_priority(item),
        ttl=ttl,
        delay=_time(item, _DELAY) or 0.0,
        properties=properties,
    )


def _payload(item: ET.Element) -> Steps[str]:
    if len(item) > 1:
        raise bad_request("more than one payload in an item", "invalid-payload")
    if any((string or "").strip() for string in (item.text, *(c.tail for c in item))):
        raise bad_request("a payload must be an element", "invalid-payload")
    if not len(item):
        return ""
    if namespace(item[0]) == XML_NAMESPACE:
        raise bad_request("a payload in the namespace of XML", "invalid-payload")
    try:
        return (yield from rendering_payload(item[0]))
    except ValueError as error:
        raise bad_request(f"the payload: {error}", "invalid-payload") from error


def _priority(item: ET.Element) -> int | None:
    value = item.get(_PRIORITY)
    if value is None:
        return None
    priority = whole(value)
    if priority not in PRIORITIES:
        raise bad_request(f"priority must be from 0 to 9, not {value[:20]!r}")
    return priority


def _time(item: ET.Element, name: str) -> float | None:
    value = item.get(name)
    if value is None:
        return None
    time_s = decimal(value)
    if time_s is None or time_s > TIME_S_MAX:
        raise bad_request(
            f"{name.rpartition('}')[2]} must be seconds, at most {TIME_S_MAX:.0f}, not {value[:20]!r}"
        )
    return time_s


# -- settle, extend, name --------------------------------------------------


def read_settlements(element: ET.Element) -> tuple[Settlement, ...]:
    """The settlements that a retract or an unlock asks for.

    Raises:
        Refusal: malformed.
    """
    items = _some_items(element)
    ids = _distinct([_id(item) for item in items])
    reader = _accepted if local(element) == "retract" else _unlocked
    return tuple(map(reader, items, ids))


def _accepted(item: ET.Element, item_id: str) -> Settlement:
    if len(item):
        raise bad_request("a retracted item has no content")
    return Settlement(item_id=item_id, token=_token(item))


def _unlocked(item: ET.Element, item_id: str) -> Settlement:
    token = _token(item)
    if len(item) > 1:
        raise bad_request("more than one outcome for an item")
    if not len(item):
        return Settlement(item_id=item_id, token=token, outcome=ItemOutcome.RELEASED)
    outcome = item[0]
    if outcome.tag == _MODIFIED:
        return Settlement(
            item_id=item_id,
            token=token,
            outcome=ItemOutcome.MODIFIED,
            delivery_failed=flag(outcome, "delivery-failed"),
            undeliverable_here=flag(outcome, "undeliverable-here"),
            reason=_reason(outcome),
        )
    if outcome.tag == _REJECTED:
        return Settlement(
            item_id=item_id,
            token=token,
            outcome=ItemOutcome.REJECTED,
            reason=_reason(outcome),
        )
    raise bad_request(f"{local(outcome)[:40]} is not an outcome")


def _reason(outcome: ET.Element) -> str:
    return "".join(outcome.itertext()).strip()[:REASON_CHARS_MAX]


def flag(element: ET.Element, name: str, *, default: str = "false") -> bool:
    """The boolean attribute of this name.

    Raises:
        Refusal: it is not a boolean.
    """
    value = element.get(name, default).strip()
    if value not in BOOLEANS:
        raise bad_request(f"{name} must be true or false, not {value[:20]!r}")
    return BOOLEANS[value]


def read_tokens(element: ET.Element) -> tuple[tuple[str, str], ...]:
    """Items with the tokens of their locks, which must be there.

    Raises:
        Refusal: malformed.
    """
    items = _some_items(element)
    _distinct([_id(item) for item in items])
    tokens = tuple((_id(item), _token(item)) for item in items)
    if not all(token for _, token in tokens):
        raise bad_request("an item without the token of its lock")
    return tokens


def read_ids(element: ET.Element) -> tuple[str, ...]:
    """The ids of the named items; () for none.

    Raises:
        Refusal: malformed.
    """
    return _distinct([_id(item) for item in _items(element)])


# -- each item -------------------------------------------------------------


def _some_items(element: ET.Element) -> list[ET.Element]:
    items = _items(element)
    if not items:
        raise bad_request(f"{local(element)} without an item", "item-required")
    return items


def _items(element: ET.Element) -> list[ET.Element]:
    """The items in an element; XEP-0254's own are in the namespace of `<unlock/>`."""
    own = f"{{{namespace(element)}}}item"
    for child in element:
        if child.tag not in (_ITEM, own):
            raise bad_request(f"{local(child)[:40]} where an item is expected")
    if len(element) > ITEMS_MAX:
        raise Refusal(
            f"{len(element)} items in one request, over the limit of {ITEMS_MAX}",
            condition="not-acceptable",
            type="modify",
            pubsub="max-items-exceeded",
        )
    return list(element)


def _id(item: ET.Element, new_id: Callable[[], str] | None = None) -> str:
    item_id = item.get("id")
    if item_id is None and new_id is not None:
        return new_id()
    if not item_id:
        raise bad_request("an item without an id")
    if len(item_id) > ITEM_ID_CHARS_MAX:
        raise bad_request(f"an item id of more than {ITEM_ID_CHARS_MAX} characters")
    return item_id


def _token(item: ET.Element) -> str:
    token = item.get(_TOKEN, "")
    if len(token) > TOKEN_CHARS_MAX:
        raise bad_request(f"a token of more than {TOKEN_CHARS_MAX} characters")
    return token


def _distinct(ids: list[str]) -> tuple[str, ...]:
    if len(set(ids)) < len(ids):
        raise bad_request("two items with the same id")
    try:
        size = sum(len(attribute(item_id).encode()) for item_id in ids)
    except ValueError as error:
        raise bad_request(f"an item id: {error}") from error
    if size > IDS_BYTES_MAX:
        raise bad_request(f"item ids of more than {IDS_BYTES_MAX} bytes together")
    return tuple(ids)
