"""The events of a queue: XEP-0254's listings, written and read, and hostile ones."""

import math
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qos.core.queue.item import Item, ItemState
from xep_0254 import events
from xep_0254.elements import payload_text
from xep_0254.events import DeliveredItem, Event, parse_event
from xep_0254.request_items import ITEM_BYTES_MAX

EVENT = "http://jabber.org/protocol/pubsub#event"
QUEUEING, QUEUEING_OLD = "urn:xmpp:pubsub:queueing:0", "urn:xmpp:queueing:0"
NODE, ID = "a290fjsl29j19kjb", "ae890ac52d0df67ed7cfd51b644e901"
BEE = "workerbee237@shakespeare.lit/foo"
SERVICE = "workflow.shakespeare.lit"
PAYLOAD = "<example xmlns='urn:xmpp:example'>payload</example>"
NOW = 1_700_000_000.0

ITEM = Item(
    seq=1,
    node=NODE,
    item_id=ID,
    publisher="engine.shakespeare.lit",
    digest="",
    size=len(PAYLOAD),
    published_at=NOW - 10,
    available_at=NOW - 10,
    state=ItemState.ACQUIRED,
    token="t1",  # noqa: S106
    holder=BEE,
)

texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
    | st.sampled_from("\t\n\r<>&'\"]")
)
names = st.sampled_from(["a", "b", "item", "retract", "é", "a-b"])
#: The namespace of XML itself is bound to a prefix, with no other names in it.
namespaces = st.sampled_from(["", EVENT, "urn:a", "urn:b", "jabber:client", "u'&<"])


@st.composite
def elements(draw: st.DrawFn, depth: int = 3) -> ET.Element:
    def name() -> str:
        namespace = draw(namespaces)
        return f"{{{namespace}}}{draw(names)}" if namespace else draw(names)

    attributes = {name(): draw(texts) for _ in range(draw(st.integers(0, 3)))}
    if draw(st.booleans()):
        attributes["{http://www.w3.org/XML/1998/namespace}lang"] = draw(texts)
    element = ET.Element(name(), attributes)
    element.text = draw(texts)
    for _ in range(draw(st.integers(0, 2)) if depth else 0):
        child = draw(elements(depth - 1))
        child.tail = draw(texts)
        element.append(child)
    return element


def infoset(element: ET.Element) -> object:
    children = [(infoset(child), child.tail or "") for child in element]
    return element.tag, element.attrib, element.text or "", children


def on_stream(text: str, namespace: str = "jabber:client") -> ET.Element:
    """The stanza as the receiver's parser sees it, in the namespace of the stream."""
    return ET.XML(f"<stream xmlns='{namespace}'>{text}</stream>")[0]


def read(text: str) -> Event:
    event = parse_event(on_stream(text))
    assert event is not None
    return event


# -- the listings ----------------------------------------------------------


@pytest.mark.parametrize("stream", ["jabber:client", "jabber:component:accept"])
def test_an_item_is_notified_as_in_the_text(stream: str) -> None:
    """Listing 5, with our attributes beside."""
    text = events.render_items(
        BEE, [(ITEM, PAYLOAD)], event_id="foo", now=NOW, sender=SERVICE
    )
    message = on_stream(text, stream)
    assert message.tag == f"{{{stream}}}message"
    assert message.attrib == {"from": SERVICE, "id": "foo", "to": BEE}
    items = message.find(f"{{{EVENT}}}event/{{{EVENT}}}items")
    assert items is not None
    assert items.attrib == {"node": NODE}
    assert infoset(items[0][0]) == infoset(ET.XML(PAYLOAD))
    assert items[0].attrib == {
        "id": ID,
        "publisher": "engine.shakespeare.lit",
        "{xmpp-qos:queue:0}token": "t1",
        # A delivery count of 0 and a priority of 4 are left out.
        "{xmpp-qos:queue:0}first-acquirer": "true",
        "{xmpp-qos:queue:0}published": "2023-11-14T22:13:10.000000Z",
    }


def test_an_item_has_what_differs_from_the_usual() -> None:
    """As in the header of AMQP (messaging §3.2.1)."""
    item = replace(ITEM, delivery_count=2, priority=7, order=3)
    text = events.render_items(BEE, [(item, "")], event_id="foo", now=NOW)
    (delivered,) = read(text).items
    assert (delivered.delivery_count, delivered.priority) == (2, 7)
    assert not delivered.first_acquirer
    text = events.render_items(BEE, [(ITEM, "")], event_id="foo", now=NOW)
    (delivered,) = read(text).items
    assert (delivered.delivery_count, delivered.priority) == (0, 4)
    assert delivered.first_acquirer


def test_an_event_is_bounced_and_not_stored_when_its_worker_is_gone() -> None:
    """No type: a server silently drops a headline.

    An offline worker must not find an item later whose lock ended long ago.
    """
    message = on_stream(events.render_items(BEE, [(ITEM, "")], event_id="e", now=NOW))
    assert message.get("type") is None
    assert message.get("from") is None
    assert message.find("{urn:xmpp:hints}no-store") is not None


def test_a_delete_is_notified_as_in_the_text() -> None:
    """Listing 7."""
    text = events.render_retract(BEE, NODE, [ID], event_id="bar", sender=SERVICE)
    items = on_stream(text).find(f"{{{EVENT}}}event/{{{EVENT}}}items")
    assert items is not None
    assert items.get("node") == NODE
    assert [(each.tag, each.attrib) for each in items] == [
        (f"{{{EVENT}}}retract", {"id": ID})
    ]
    assert read(text) == Event(node=NODE, retracted=(ID,))


def test_an_unlock_is_notified_in_the_registered_namespace() -> None:
    """The namespace of listing 11 differs from that in the XEP's registration.

    Row 4.
    """
    text = events.render_unlock(BEE, NODE, [ID, "b"], event_id="baz", sender=SERVICE)
    items = on_stream(text).find(f"{{{EVENT}}}event/{{{EVENT}}}items")
    assert items is not None
    assert [(each.tag, each.attrib) for each in items] == [
        (f"{{{QUEUEING}}}unlock", {"id": ID}),
        (f"{{{QUEUEING}}}unlock", {"id": "b"}),
    ]
    assert read(text) == Event(node=NODE, unlocked=(ID, "b"))


@pytest.mark.parametrize("namespace", [QUEUEING, QUEUEING_OLD])
def test_an_unlock_is_read_in_both_namespaces(namespace: str) -> None:
    """Another service may follow the listing."""
    text = (
        f"<message><event xmlns='{EVENT}'><items node='{NODE}'>"
        f"<unlock xmlns='{namespace}' id='{ID}'/></items></event></message>"
    )
    assert read(text) == Event(node=NODE, unlocked=(ID,))


def test_the_end_of_items_of_a_node_and_of_a_subscription_are_notified() -> None:
    """XEP-0060 §8.5, §8.4, §8.8.4."""
    purged = events.render_node(BEE, "n&'", "purge", event_id="e")
    assert read(purged) == Event(node="n&'", purged=True)
    deleted = events.render_node(BEE, "n", "delete", event_id="e", sender=SERVICE)
    assert read(deleted) == Event(node="n", deleted=True)
    taken = events.render_subscription(BEE, "n", BEE, "s", event_id="e")
    assert read(taken) == Event(node="n", unsubscribed=True)
    element = on_stream(taken).find(f"{{{EVENT}}}event/{{{EVENT}}}subscription")
    assert element is not None
    assert element.attrib == {
        "node": "n",
        "jid": BEE,
        "subid": "s",
        "subscription": "none",
    }


# -- there and back --------------------------------------------------------


@given(
    ids=st.lists(texts.filter(bool), min_size=1, max_size=3),
    node=texts.filter(bool),
    payload=st.none() | elements(),
    publisher=texts,
    origin=texts,
    order=st.integers(0, 3),
    priority=st.integers(0, 9),
    delivery_count=st.integers(0, 10**9),
    published=st.floats(0, 10**10),
    ttl=st.none() | st.floats(0, 10**9),
)
@example(
    ids=["a"],
    node="n",
    payload=ET.XML(
        "<a b='1' xmlns:x='u' x:c='&#13;&#10;&#9;'>\n<b xmlns='u'/>&#13;</a>"
    ),
    publisher="p",
    origin="",
    order=0,
    priority=4,
    delivery_count=0,
    published=0.0,
    ttl=0.0,
)
def test_whatever_is_sent_is_read(
    *,
    ids: list[str],
    node: str,
    payload: ET.Element | None,
    publisher: str,
    origin: str,
    order: int,
    priority: int,
    delivery_count: int,
    published: float,
    ttl: float | None,
) -> None:
    """Ids and nodes can be any text, payloads any XML: nothing may be lost."""
    xml = "" if payload is None else payload_text(payload)
    item = replace(
        ITEM,
        node=node,
        publisher=publisher,
        origin=origin,
        origin_id=origin,
        order=order,
        priority=priority,
        delivery_count=delivery_count,
        published_at=published,
        expires_at=None if ttl is None else NOW + ttl,
    )
    sent = [(replace(item, item_id=each, token=f"t{each}"), xml) for each in ids]
    event = read(events.render_items("to<&'\"@b", sent, event_id="'", now=NOW))
    assert event.node == node
    assert len(event.items) == len(ids)
    for received, item_id in zip(event.items, ids, strict=True):
        assert received.published is not None
        assert math.isclose(received.published, published, abs_tol=1e-5)
        if ttl is None:
            assert received.ttl is None
        else:
            assert received.ttl is not None
            assert math.isclose(received.ttl, ttl, abs_tol=1e-5)
        assert replace(received, published=None, ttl=None) == DeliveredItem(
            item_id=item_id,
            payload=xml,
            token=f"t{item_id}",
            delivery_count=delivery_count,
            first_acquirer=order == 0,
            priority=priority,
            publisher=publisher,
            origin=origin,
            origin_id=origin,
        )
        if payload is not None:
            assert infoset(ET.XML(received.payload)) == infoset(payload)


@given(ids=st.lists(texts.filter(bool), min_size=1), node=texts.filter(bool))
def test_whatever_ids_are_notified_are_read(ids: list[str], node: str) -> None:
    retracted = events.render_retract("a", node, ids, event_id="e")
    assert read(retracted) == Event(node=node, retracted=tuple(ids))
    unlocked = events.render_unlock("a", node, ids, event_id="e")
    assert read(unlocked) == Event(node=node, unlocked=tuple(ids))


def test_an_item_is_new_to_its_first_holder_only() -> None:
    """AMQP 1.0 messaging §3.2.1; even if the event is sent again for the same lock."""
    first = read(events.render_items("a", [(ITEM, "")], event_id="e", now=NOW))
    assert first.items[0].first_acquirer
    later = replace(ITEM, order=7)
    again = read(events.render_items("a", [(later, "")], event_id="e", now=NOW))
    assert not again.items[0].first_acquirer


def test_a_ttl_that_is_over_is_nothing_and_not_less() -> None:
    """The ttl is not checked while the item is locked, and may pass meanwhile."""
    late = replace(ITEM, expires_at=NOW - 5)
    event = read(events.render_items("a", [(late, "")], event_id="e", now=NOW))
    assert event.items[0].ttl == 0.0


# -- sizes -----------------------------------------------------------------


def test_the_largest_item_fits_into_a_stanza() -> None:
    """Prosody accepts 256 KiB; a larger stanza would end the stream of the service."""
    worst = replace(
        ITEM,
        item_id="'" * 1024,
        node="'" * 1024,
        origin="'" * 1024,
        origin_id="'" * 1024,
        publisher="p" * 2047,
        expires_at=NOW + 1 / 3,
        delivery_count=10**9,
    )
    payload = f"<a xmlns='u'>{'x' * (ITEM_BYTES_MAX - 17)}</a>"
    text = events.render_items(
        "j" * 3071, [(worst, payload)], event_id="e" * 40, now=NOW
    )
    assert len(text.encode()) < 256 * 1024


@given(
    sizes=st.lists(st.integers(0, 400), max_size=20),
    bytes_max=st.integers(1, 2000),
)
def test_items_are_split_over_as_few_events_as_they_fit_into(
    sizes: list[int], bytes_max: int
) -> None:
    """All items, in their order.

    An event with several items never exceeds the limit.
    """
    items = []
    for number, size in enumerate(sizes):
        payload = f"<a>{'x' * size}</a>"
        item = replace(ITEM, item_id=str(number), size=len(payload), expires_at=NOW)
        items.append((item, payload))
    parts = list(events.split_items(items, bytes_max=bytes_max))
    assert [each for part in parts for each in part] == items
    for part in parts:
        text = events.render_items("a", part, event_id="e", now=NOW)
        assert len(part) == 1 or len(text.encode()) <= bytes_max + 400
    for part, following in pairwise(parts):
        text = events.render_items("a", [*part, following[0]], event_id="e", now=NOW)
        assert len(text.encode()) > bytes_max


@given(ids=st.lists(texts.filter(bool), max_size=20), bytes_max=st.integers(1, 2000))
def test_ids_are_split_over_events_too(ids: list[str], bytes_max: int) -> None:
    """A subscriber may lose a thousand locks at once."""
    parts = list(events.split_ids(ids, bytes_max=bytes_max))
    assert [each for part in parts for each in part] == ids
    for part in parts:
        text = events.render_unlock("a", "n", part, event_id="e")
        assert len(part) == 1 or len(text.encode()) <= bytes_max + 400


# -- what strangers send ---------------------------------------------------


def event_of(content: str, message: str = "<message>") -> Event | None:
    text = f"{message}<event xmlns='{EVENT}' xmlns:q='xmpp-qos:queue:0'>{content}</event></message>"
    return parse_event(on_stream(text))


def test_an_item_of_a_service_without_our_extensions_is_read() -> None:
    """Listing 5 exactly: without token and without history."""
    event = event_of(
        f"<items node='{NODE}'><item id='{ID}'>\n {PAYLOAD}\n</item></items>"
    )
    assert event == Event(
        node=NODE, items=(DeliveredItem(item_id=ID, payload=PAYLOAD),)
    )
    assert event.items[0].token == ""
    assert not event.items[0].first_acquirer


@pytest.mark.parametrize(
    "content",
    [
        "",
        "<items/>",
        "<items node=''/>",
        "<collection node='n'/>",
        "<items xmlns='urn:other' node='n'/>",
        "<purge/>",
    ],
)
def test_what_is_no_event_of_a_queue_is_none(content: str) -> None:
    assert event_of(content) is None


def test_a_message_without_an_event_is_none() -> None:
    assert (
        parse_event(ET.XML("<message xmlns='jabber:client'><body>b</body></message>"))
        is None
    )


def test_an_event_that_bounced_is_none() -> None:
    """Otherwise anybody could hand out items by sending an error that contains an
    event.
    """
    content = f"<items node='n'><item id='{ID}'/></items>"
    assert event_of(content, "<message type='error'>") is None
    assert event_of(content, "<message type='headline'>") is not None


def test_a_subscription_that_begins_is_not_one_that_ends() -> None:
    event = event_of("<subscription node='n' jid='a' subscription='subscribed'/>")
    assert event == Event(node="n", unsubscribed=False)


@pytest.mark.parametrize(
    "attributes",
    [
        "q:priority='10' q:delivery-count='-1' q:ttl='x' q:published='yesterday'",
        "q:priority='' q:delivery-count='' q:ttl='nan' q:published='2023-11-14'",
        "q:priority='٣' q:delivery-count='1.5' q:ttl='-1' q:published='2023-11-14T00:00:00'",
        f"q:priority='-' q:delivery-count='{'9' * 5000}' q:ttl='1e999' q:first-acquirer='yes'",
        "q:published='0001-01-01T00:00:00+23:59' q:ttl='inf'",
        "q:published='0001-01-01T00:00:00Z'",
        "q:published='1969-12-31T23:59:59Z'",
        "q:published='9999-01-01T00:00:00Z'",
        "q:published='99999-01-01T00:00:00Z'",
    ],
)
def test_attributes_that_make_no_sense_are_as_if_not_there(attributes: str) -> None:
    event = event_of(f"<items node='n'><item id='a' {attributes}/></items>")
    assert event is not None
    (item,) = event.items
    assert item == DeliveredItem(item_id="a")


def test_items_without_an_id_and_strange_elements_are_left_out() -> None:
    event = event_of(
        "<items node='n'><item/><item id=''/><retract/><what id='a'/>"
        "<unlock id='b'/><item id='c'><a xmlns='u'/><b/></item></items>"
    )
    assert event == Event(
        node="n", items=(DeliveredItem(item_id="c", payload="<a xmlns='u'/>"),)
    )


def test_a_payload_that_xml_cannot_carry_is_left_out() -> None:
    """Only a stanza object of the same process can have it; the worker goes on."""
    message = on_stream(
        f"<message><event xmlns='{EVENT}'><items node='n'><item id='a'><b/></item></items>"
        "</event></message>"
    )
    next(message.iter(f"{{{EVENT}}}b")).text = "\x00"
    event = parse_event(message)
    assert event is not None
    assert event.items == (DeliveredItem(item_id="a"),)


@given(elements())
def test_no_message_whatever_raises(element: ET.Element) -> None:
    """This is the first code of the worker that handles a stranger's data."""
    message = ET.Element("{jabber:client}message")
    event = ET.SubElement(message, f"{{{EVENT}}}event")
    items = ET.SubElement(event, f"{{{EVENT}}}items", node="n")
    items.append(element)
    assert parse_event(message) is not None
    event.remove(items)
    event.append(element)
    parse_event(message)
