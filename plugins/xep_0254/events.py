"""The events of a queue (XEP-0254 §2.2-2.4), written and read.

They are written for a service, as text in the namespace of its stream. They are read
for a worker, from any service, whatever it sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

from qos.core.queue.item import PRIORITIES, PRIORITY, Item
from qos.core.queue.properties import Properties
from qos.xml_text import attribute
from xep_0254.elements import (
    BOOLEANS,
    attributes,
    decimal,
    extended,
    moment,
    payload_text,
    seconds,
    timestamp,
    whole,
)
from xep_0254.item_properties import found_properties, render_properties
from xep_0254.namespaces import EVENT, EXTENSIONS, HINTS, QUEUEING, UNLOCKS

__all__ = [
    "EVENT_BYTES_MAX",
    "DeliveredItem",
    "Event",
    "parse_event",
    "render_items",
    "render_node",
    "render_retract",
    "render_subscription",
    "render_unlock",
    "split_ids",
    "split_items",
]

#: The most bytes of items in an event; Prosody accepts stanzas of 256 KiB.
EVENT_BYTES_MAX = 200 * 1024

#: The most bytes of an item in an event without payload and names, and of one character
#: in a name (`&apos;`).
_MARKS_BYTES_MAX = 400
_CHAR_BYTES_MAX = 6

# -- writing ---------------------------------------------------------------


def render_items(
    to: str,
    items: Sequence[tuple[Item, str]],
    *,
    event_id: str,
    now: float,
    sender: str = "",
) -> str:
    """Items for their holder (XEP-0254 §2.2).

    Args:
        to: the holder, or the bare JID that has subscribed.
        items: one or more of one node, each with its payload, as they were locked.
        event_id: the id of the message.
        now: the remaining ttl is counted from here.
        sender: the JID of the sender; '': that of the stream.
    """
    node = items[0][0].node
    content = "".join(_item(item, payload, now) for item, payload in items)
    content = _items(node, content, extended_=True)
    # Beside the items, since a stranger expects one child in each.
    content += "".join(
        render_properties(item.item_id, item.properties)
        for item, _ in items
        if item.properties
    )
    return _message(to, content, event_id, sender)


def render_retract(
    to: str, node: str, item_ids: Sequence[str], *, event_id: str, sender: str = ""
) -> str:
    """These items were deleted (XEP-0254 §2.3, listing 7)."""
    content = "".join([f"<retract id={attribute(item_id)}/>" for item_id in item_ids])
    return _message(to, _items(node, content), event_id, sender)


def render_unlock(
    to: str, node: str, item_ids: Sequence[str], *, event_id: str, sender: str = ""
) -> str:
    """These items were unlocked (XEP-0254 §2.4, listing 11)."""
    content = "".join(
        f"<unlock xmlns='{QUEUEING}'{attributes(id=item_id)}/>" for item_id in item_ids
    )
    return _message(to, _items(node, content), event_id, sender)


def render_node(
    to: str,
    node: str,
    action: str,
    *,
    event_id: str,
    sender: str = "",
) -> str:
    """The node was purged (XEP-0060 §8.5.2), or deleted (XEP-0060 §8.4.2).

    Args:
        to: the JID to notify.
        node: the name of the node.
        action: `purge` or `delete`.
        event_id: the id of the message.
        sender: as for render_items.
    """
    assert action in ("purge", "delete"), action
    return _message(to, f"<{action}{attributes(node=node)}/>", event_id, sender)


def render_subscription(
    to: str, node: str, jid: str, subid: str, *, event_id: str, sender: str = ""
) -> str:
    """The subscription was removed (XEP-0060 §8.8.4)."""
    attrs = attributes(node=node, jid=jid, subid=subid, subscription="none")
    return _message(to, f"<subscription{attrs}/>", event_id, sender)


def split_items(
    items: Sequence[tuple[Item, str]], *, bytes_max: int = EVENT_BYTES_MAX
) -> Iterator[Sequence[tuple[Item, str]]]:
    """Items in as few events as possible, in their order; at least one item each."""
    if items and sum(map(_item_bytes_max, items)) <= bytes_max:
        yield items
        return
    start = size = 0
    for number, (item, _) in enumerate(items):
        # Without the payload, whose size is known. The remaining time is not known yet,
        # but takes only a few digits.
        item_size = item.size + len(_item(item, "", item.published_at).encode())
        item_size += _properties_bytes(item)
        if number > start and size + item_size > bytes_max:
            yield items[start:number]
            start, size = number, 0
        size += item_size
    if start < len(items):
        yield items[start:]


def split_ids(
    item_ids: Sequence[str], *, bytes_max: int = EVENT_BYTES_MAX
) -> Iterator[Sequence[str]]:
    """Ids in as few events as possible, in their order; at least one each."""
    if item_ids and sum(map(_id_bytes_max, item_ids)) <= bytes_max:
        yield item_ids
        return
    start = size = 0
    for number, item_id in enumerate(item_ids):
        id_size = len(attributes(id=item_id).encode()) + len(QUEUEING) + 20
        if number > start and size + id_size > bytes_max:
            yield item_ids[start:number]
            start, size = number, 0
        size += id_size
    if start < len(item_ids):
        yield item_ids[start:]


def _item_bytes_max(entry: tuple[Item, str]) -> int:
    """The most bytes that an item takes; quicker than writing it."""
    item = entry[0]
    names = (item.item_id, item.publisher, item.token, item.origin, item.origin_id)
    marks = _MARKS_BYTES_MAX + _CHAR_BYTES_MAX * sum(map(len, names))
    return item.size + marks + _properties_bytes(item)


def _properties_bytes(item: Item) -> int:
    if not item.properties:
        return 0
    return len(render_properties(item.item_id, item.properties).encode())


def _id_bytes_max(item_id: str) -> int:
    return len(QUEUEING) + _MARKS_BYTES_MAX + _CHAR_BYTES_MAX * len(item_id)


def _item(item: Item, payload: str, now: float) -> str:
    rest = ""
    if item.expires_at is not None:
        rest += f" q:ttl='{seconds(max(0.0, item.expires_at - now))}'"
    if item.origin:
        rest += attributes(q_origin=item.origin, q_origin_id=item.origin_id or None)
    # As in AMQP (messaging §3.2.1), the usual values are left out: a server takes long
    # for an attribute in a namespace.
    if item.delivery_count:
        rest += f" q:delivery-count='{item.delivery_count}'"
    if item.priority != PRIORITY:
        rest += f" q:priority='{item.priority}'"
    # Not by attributes(): a service writes nothing more often than this.
    head = (
        f" id={attribute(item.item_id)} publisher={attribute(item.publisher)}"
        f" q:token={attribute(item.token)}"
        # When it was locked, it got a holder: the receiver of this event.
        f" q:first-acquirer='{'false' if item.order else 'true'}'"
        f" q:published='{timestamp(item.published_at)}'{rest}"
    )
    return f"<item{head}>{payload}</item>" if payload else f"<item{head}/>"


def _items(node: str, content: str, *, extended_: bool = False) -> str:
    bound = f" xmlns:q='{EXTENSIONS}'" if extended_ else ""
    return f"<items{bound}{attributes(node=node)}>{content}</items>"


def _message(to: str, content: str, event_id: str, sender: str) -> str:
    """A message without type: a server without storage bounces it if need be.

    That happens when the peer is gone. It is not to be stored, although some servers
    do: a peer that comes back has no lock any more.
    """
    head = f" id={attribute(event_id)} to={attribute(to)}"
    if sender:
        head += f" from={attribute(sender)}"
    return (
        f"<message{head}><event xmlns='{EVENT}'>{content}</event>"
        f"<no-store xmlns='{HINTS}'/></message>"
    )


# -- reading ---------------------------------------------------------------

_TOKEN = extended("token")
_DELIVERY_COUNT = extended("delivery-count")
_FIRST_ACQUIRER = extended("first-acquirer")
_PRIORITY = extended("priority")
_TTL = extended("ttl")
_PUBLISHED = extended("published")
_ORIGIN = extended("origin")
_ORIGIN_ID = extended("origin-id")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveredItem:
    """An item as a worker gets it; defaults for a service without our extensions.

    Attributes:
        item_id: its id.
        payload: XML, one element or ''.
        token: the fencing token of this delivery, or ''.
        delivery_count: the number of earlier failed deliveries.
        first_acquirer: whether it certainly had no holder before, since it was last put
            into the queue.
        priority: 0 to 9.
        ttl: seconds from now until it expires; None: not known.
        published: the time of its publication; None: not known.
        publisher: the JID of its publisher, or ''.
        origin: for a dead letter, the node where it died; otherwise ''.
        origin_id: its id in that node.
        properties: values of its publisher, by name.
    """

    item_id: str
    payload: str = field(default="", repr=False)
    token: str = ""
    delivery_count: int = 0
    first_acquirer: bool = False
    priority: int = PRIORITY
    ttl: float | None = None
    published: float | None = None
    publisher: str = ""
    origin: str = ""
    origin_id: str = ""
    properties: Properties = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event of a node: items, retractions, subscriptions.

    Attributes:
        node: the name of the node.
        items: for the worker.
        retracted: the ids of items that were deleted.
        unlocked: the ids of items that are no longer the worker's.
        purged: whether all items are gone.
        deleted: whether the node is gone.
        unsubscribed: whether the subscription is gone.
    """

    node: str
    items: tuple[DeliveredItem, ...] = ()
    retracted: tuple[str, ...] = ()
    unlocked: tuple[str, ...] = ()
    purged: bool = False
    deleted: bool = False
    unsubscribed: bool = False


def parse_event(message: ET.Element) -> Event | None:
    """Read an event; None: the message is no event. Never raises, whatever was sent.

    The caller must check the addresses of the message.
    """
    if message.get("type") == "error":
        return None  # a copy of our own event, or a forgery
    event = message.find(f"{{{EVENT}}}event")
    if event is None or not len(event):
        return None
    element, *beside = event
    node = element.get("node", "")
    if not node:
        return None
    match element.tag.removeprefix(f"{{{EVENT}}}"):
        case "items":
            return _read_items(node, element, beside)
        case "purge":
            return Event(node=node, purged=True)
        case "delete":
            return Event(node=node, deleted=True)
        case "subscription":
            unsubscribed = element.get("subscription") == "none"
            return Event(node=node, unsubscribed=unsubscribed)
        case _:
            return None


def _read_items(node: str, element: ET.Element, beside: Sequence[ET.Element]) -> Event:
    items, retracted, unlocked = [], [], []
    properties = found_properties(beside) if beside else {}
    for child in element:
        item_id = child.get("id")
        if not item_id:
            continue
        if child.tag == f"{{{EVENT}}}item":
            own = next(properties.get(item_id, iter(())), {})
            items.append(_read_item(item_id, child, own))
        elif child.tag == f"{{{EVENT}}}retract":
            retracted.append(item_id)
        elif child.tag in UNLOCKS:
            unlocked.append(item_id)
    return Event(
        node=node,
        items=tuple(items),
        retracted=tuple(retracted),
        unlocked=tuple(unlocked),
    )


def _read_item(item_id: str, item: ET.Element, properties: Properties) -> DeliveredItem:
    get = item.get
    priority = whole(get(_PRIORITY))
    if priority is None or priority not in PRIORITIES:
        priority = PRIORITY
    try:
        payload = payload_text(item[0]) if len(item) else ""
    except ValueError:  # XML cannot carry it: it was not read from XML
        payload = ""
    return DeliveredItem(
        item_id=item_id,
        payload=payload,
        token=get(_TOKEN, ""),
        delivery_count=whole(get(_DELIVERY_COUNT)) or 0,
        first_acquirer=BOOLEANS.get(get(_FIRST_ACQUIRER, "").strip(), False),
        priority=priority,
        ttl=decimal(get(_TTL)),
        published=moment(get(_PUBLISHED)),
        publisher=get("publisher", ""),
        origin=get(_ORIGIN, ""),
        origin_id=get(_ORIGIN_ID, ""),
        properties=properties,
    )
