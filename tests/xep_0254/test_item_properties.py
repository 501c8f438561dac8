"""The properties of items as XML, in requests, events and answers."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.queue.item import Item, ItemOutcome, ItemState
from qos.core.queue.properties import Properties, content_digest
from qos.core.queue.requests import Publish, PublishedItem, Refusal, Request
from qos.core.queue.results import ItemsResult
from qos.errors import InvalidArgument
from qos.steps import at_once
from xep_0254 import client_answers, client_stanza, events
from xep_0254.events import parse_event
from xep_0254.items import NewItem
from xep_0254.request_items import ITEM_BYTES_MAX
from xep_0254.requests import parse_publish_message, reading_request
from xep_0254.service_stanza import render_result

PUBSUB = "http://jabber.org/protocol/pubsub"
Q = "xmpp-qos:queue:0"
BEE = "bee@example.org/1"
PAYLOAD = "<x xmlns='urn:x'/>"

TYPES: Properties = {
    "text": 'it\'s <a> & "b"\t',
    "empty": "",
    "whole": -(2**63),
    "real": -1.5e300,
    "five": 5.0,
    "yes": True,
    "no": False,
    "like a number": "5",
}


def parse_request(iq: ET.Element, **options: Any) -> Request:
    return at_once(reading_request(iq, **options))


def item_of(item_id: str = "a", **changes: Any) -> Item:
    return Item(
        **{
            "seq": 1,
            "node": "orders",
            "item_id": item_id,
            "publisher": "shop@x",
            "digest": "",
            "size": len(PAYLOAD),
            "published_at": 1.0,
            "available_at": 1.0,
            "state": ItemState.ACQUIRED,
            "token": "t",
            **changes,
        }
    )


# -- published ------------------------------------------------------------------


def publish_iq(beside: str, items: str = "<item id='a'/>") -> ET.Element:
    return ET.XML(
        f"<iq xmlns='jabber:client' id='1' type='set'><pubsub xmlns='{PUBSUB}'>"
        f"<publish node='orders'>{items}</publish>{beside}</pubsub></iq>"
    )


def published(beside: str, items: str = "<item id='a'/>") -> tuple[PublishedItem, ...]:
    request = parse_request(publish_iq(beside, items), new_id=lambda: "made")
    assert isinstance(request, Publish)
    return request.entries


def properties(content: str, item_id: str = "a") -> str:
    return f"<properties xmlns='{Q}' for='{item_id}'>{content}</properties>"


def test_what_a_publisher_gives_is_what_the_service_reads() -> None:
    """All types, with all characters."""
    items = [NewItem(PAYLOAD, "a", properties=TYPES), NewItem(PAYLOAD, "b")]
    iq = (
        f"<iq xmlns='jabber:client' type='set'>{client_stanza.publish('n', items)}</iq>"
    )
    request = parse_request(ET.XML(iq), new_id=str)
    assert isinstance(request, Publish)
    first, second = request.entries
    assert first.properties == TYPES
    assert [type(each) for each in first.properties.values()] == [
        type(each) for each in TYPES.values()
    ]
    assert first.digest == content_digest(first.payload.encode(), TYPES)
    assert first.size > second.size == len(second.payload)
    assert second.properties == {}


@given(
    st.dictionaries(
        st.text(
            st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=9
        ).filter(lambda name: not name.startswith("xml.")),
        st.one_of(
            st.booleans(),
            st.integers(-(2**63), 2**63 - 1),
            st.floats(allow_nan=False, allow_infinity=False),
            st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=9),
        ),
        max_size=5,
    )
)
def test_any_properties_come_as_they_were(given_: dict[str, Any]) -> None:
    """To the service and to the worker."""
    try:
        content = client_stanza.publish("n", [NewItem("", "a", properties=given_)])
    except InvalidArgument:
        return  # U+FFFE is no character of XML
    request = parse_request(
        ET.XML(f"<iq xmlns='jabber:client' type='set'>{content}</iq>"), new_id=str
    )
    assert isinstance(request, Publish)
    assert repr(request.entries[0].properties) == repr(given_)
    item = item_of(properties=given_)
    text = events.render_items(BEE, [(item, "")], event_id="e", now=2.0)
    event = parse_event(ET.XML(f"<s xmlns='jabber:client'>{text}</s>")[0])
    assert event is not None
    assert repr(event.items[0].properties) == repr(given_)


def test_a_single_item_needs_no_id_for_its_properties() -> None:
    """The service makes the id, so nobody could name it."""
    without = f"<properties xmlns='{Q}'><property name='n'>5</property></properties>"
    (entry,) = published(without, "<item/>")
    assert (entry.item_id, entry.properties) == ("made", {"n": "5"})


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("<property name='n'>5</property>", "5"),
        ("<property name='n' type='string'> 5 </property>", " 5 "),
        ("<property name='n' type='int'> -5 </property>", -5),
        ("<property name='n' type='float'>5</property>", 5.0),
        ("<property name='n' type='float'>-.5E1</property>", -5.0),
        ("<property name='n' type='boolean'>1</property>", True),
        ("<property name='n' type='boolean'>false</property>", False),
        ("<property name='n'/>", ""),
    ],
)
def test_a_value_is_read_by_its_type(content: str, value: object) -> None:
    (entry,) = published(properties(content))
    assert repr(entry.properties) == repr({"n": value})


@pytest.mark.parametrize(
    ("beside", "part"),
    [
        (properties("", "b"), "not published here"),
        (properties("") * 2, "for the same item twice"),
        (properties("<other name='n'/>"), "other where a property is expected"),
        (properties("<property name='n'><b/></property>"), "where a property is"),
        (properties("<property name='n'/>" * 2), "'n' twice"),
        (properties("<property name='n' type='int'>five</property>"), "is no int"),
        (properties("<property name='n' type='int'>--5</property>"), "is no int"),
        (properties(f"<property name='n' type='int'>{2**63}</property>"), "is no int"),
        (properties("<property name='n' type='float'>nan</property>"), "is no float"),
        (properties("<property name='n' type='float'>1e999</property>"), "no float"),
        (properties("<property name='n' type='boolean'>yes</property>"), "no boolean"),
        (properties("<property name='n' type='date'>1</property>"), "is no date"),
    ],
)
def test_malformed_properties_are_refused(beside: str, part: str) -> None:
    with pytest.raises(Refusal) as caught:
        published(beside)
    assert caught.value.condition == "bad-request"
    assert part in str(caught.value)


def test_properties_of_two_items_without_an_id_are_nobodys() -> None:
    without = f"<properties xmlns='{Q}'/>"
    with pytest.raises(Refusal, match="not published here"):
        published(without, "<item id='a'/><item id='b'/>")


def test_properties_belong_to_a_publish() -> None:
    """Beside anything else they mean nothing."""
    iq = ET.XML(
        f"<iq xmlns='jabber:client' type='set'><pubsub xmlns='{PUBSUB}'>"
        f"<retract node='n'><item id='a'/></retract>{properties('')}</pubsub></iq>"
    )
    with pytest.raises(Refusal, match="properties without a publish"):
        parse_request(iq, new_id=str)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("".join(f"<property name='n{n}'/>" for n in range(65)), "65 properties"),
        ("<property/>", "1 to 256 characters"),
        ("<property name='xml.a'/>", "read from the payload"),
        (f"<property name='n'>{'x' * 9000}</property>", "9001 bytes"),
        ("<property name='http_content$type'>text</property>", "a media type is"),
    ],
)
def test_properties_over_a_limit_are_refused(content: str, part: str) -> None:
    with pytest.raises(Refusal) as caught:
        published(properties(content))
    assert (caught.value.condition, caught.value.type) == ("not-acceptable", "modify")
    assert part in str(caught.value)


def test_the_payload_and_its_properties_fit_into_an_event_together() -> None:
    """They are counted as they are written, where one character may take five."""
    beside = properties(f"<property name='n'>{'&amp;' * 1000}</property>")
    size = ITEM_BYTES_MAX - 5200
    (entry,) = published(beside, f"<item id='a'><x xmlns='u'>{'x' * size}</x></item>")
    item = item_of(size=entry.size, properties=entry.properties)
    text = events.render_items(BEE, [(item, entry.payload)], event_id="e", now=2.0)
    assert len(text.encode()) < 256 * 1024
    with pytest.raises(Refusal, match="the payload and its properties have") as caught:
        published(beside, f"<item id='a'><x xmlns='u'>{'x' * (size + 200)}</x></item>")
    assert caught.value.pubsub == "payload-too-big"


# -- in messages ------------------------------------------------------------------


def test_headers_of_a_message_are_properties_of_what_it_publishes() -> None:
    """XEP-0131: as texts; properties of the same name go before."""
    own = properties("<property name='n' type='int'>1</property>")
    message = ET.XML(
        f"<message xmlns='jabber:client'><pubsub xmlns='{PUBSUB}'>"
        "<publish node='orders'><item id='a'/><item id='b'/></publish>"
        f"{own}</pubsub>"
        "<headers xmlns='http://jabber.org/protocol/shim'>"
        "<header name='n'>2</header><header name='Urgency'>high</header>"
        "<header>none</header><other name='x'/><header name='empty'/></headers></message>"
    )
    publish = parse_publish_message(message, new_id=str)
    assert publish is not None
    assert [each.properties for each in publish.entries] == [
        {"n": 1, "Urgency": "high", "empty": ""},
        {"n": "2", "Urgency": "high", "empty": ""},
    ]


def test_too_large_headers_are_refused() -> None:
    message = ET.XML(
        f"<message xmlns='jabber:client'><pubsub xmlns='{PUBSUB}'>"
        "<publish node='orders'><item id='a'/></publish></pubsub>"
        "<headers xmlns='http://jabber.org/protocol/shim'>"
        f"<header name='n'>{'x' * 9000}</header></headers></message>"
    )
    with pytest.raises(Refusal, match="9001 bytes"):
        parse_publish_message(message, new_id=str)


# -- delivered ----------------------------------------------------------------------


def event_of(*items: Item) -> ET.Element:
    shown = [(item, PAYLOAD) for item in items]
    text = events.render_items(BEE, shown, event_id="e", now=2.0)
    return ET.XML(f"<s xmlns='jabber:client'>{text}</s>")[0]


def test_an_event_has_the_properties_beside_its_items() -> None:
    """A client that does not know them finds one child in each item, as always."""
    message = event_of(item_of("a", properties=TYPES), item_of("b"))
    event = message[0]
    assert [each.tag.rpartition("}")[2] for each in event] == ["items", "properties"]
    assert [len(each) for each in event[0]] == [1, 1]
    read = parse_event(message)
    assert read is not None
    assert [each.properties for each in read.items] == [TYPES, {}]


def test_what_the_service_has_read_from_the_payload_stays_there() -> None:
    """The worker has the payload itself."""
    item = item_of(properties={"xml.element": "x", "n": 1})
    read = parse_event(event_of(item))
    assert read is not None
    assert read.items[0].properties == {"n": 1}
    assert len(event_of(item_of(properties={"xml.element": "x"}))[0]) == 1


def test_items_with_properties_are_split_over_events_that_fit() -> None:
    """Their size is known before they are written."""
    items = [
        (item_of(f"i{n}", size=900, properties={"n": "&" * 800}), "x" * 100)
        for n in range(100)
    ]
    parts = list(events.split_items(items, bytes_max=50_000))
    assert len(parts) > 9
    for part in parts:
        text = events.render_items(BEE, part, event_id="e", now=2.0)
        assert len(text.encode()) < 50_500
    assert [each for part in parts for each in part] == items


@pytest.mark.parametrize(
    "beside",
    [
        "<other xmlns='urn:x'/>",
        f"<properties xmlns='{Q}'/>",
        properties("<property name='n' type='int'>five</property>"),
        properties("<other/>text"),
        properties("<property name='n'>1</property>", "b"),
    ],
)
def test_properties_that_make_no_sense_are_left_out(beside: str) -> None:
    """A worker must not fail, whatever a service sends."""
    message = ET.XML(
        "<message xmlns='jabber:client'><event xmlns="
        f"'{PUBSUB}#event'><items node='n'><item id='a'/></items>{beside}</event></message>"
    )
    read = parse_event(message)
    assert read is not None
    assert read.items[0].properties == {}


# -- browsed --------------------------------------------------------------------------


def page_of(*items: Item, **options: Any) -> Any:
    iq = ET.XML("<iq xmlns='jabber:client' id='1' type='get'/>")
    result = ItemsResult(node="orders", items=items, count=len(items), now=2.0)
    text = render_result(iq, result, **options)
    return client_answers.page(ET.XML(f"<s xmlns='jabber:client'>{text}</s>")[0])


def test_browsed_items_have_their_properties() -> None:
    page = page_of(item_of("a"), item_of("b", properties=TYPES))
    assert [each.properties for each in page.items] == [{}, TYPES]


def test_several_dead_items_with_one_id_keep_their_own_properties() -> None:
    """An id may be used again after the dedupe window."""
    dead = {"state": ItemState.ARCHIVED, "outcome": ItemOutcome.REJECTED, "token": ""}
    page = page_of(
        item_of("a", **dead),
        item_of("a", properties={"n": 1}, **dead),
        item_of("b", **dead),
        item_of("a", properties={"n": 2}, **dead),
    )
    assert [each.properties for each in page.items] == [{}, {"n": 1}, {}, {"n": 2}]


def test_a_page_is_cut_with_the_properties_counted() -> None:
    """An answer over the server's limit would end the stream."""
    items = [item_of(f"i{n}", properties={"n": "x" * 1000}) for n in range(20)]
    page = page_of(*items, answer_bytes_max=10_000)
    assert 0 < len(page.items) < 9
    assert all(each.properties == {"n": "x" * 1000} for each in page.items)


# -- arguments ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        "n=1",
        {1: "n"},
        {"n": None},
        {"n": b"x"},
        {"n": [1]},
        {"": 1},
        {"xml.a": "x"},
        {"n": 2**63},
        {"n": float("nan")},
        {"n": "x" * 9000},
        {"n": "\0"},
        {"\0": 1},
        {"n": "\ud800"},
    ],
)
def test_properties_of_a_new_item_are_checked(bad: Any) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidArgument, match="properties must be"):
        NewItem(properties=bad)


def test_a_new_item_keeps_what_was_checked() -> None:
    """Whatever the application does with its dict afterwards."""
    given_: dict[str, Any] = {"n": 1}
    item = NewItem(properties=given_)
    given_["n"] = None
    assert item.properties == {"n": 1}
    assert hash(item) == hash(item)
