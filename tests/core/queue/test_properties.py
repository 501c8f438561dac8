"""The properties of items, and the names by which selectors know an item."""

from __future__ import annotations

import math
from typing import Any

import pytest

from qos.core.queue.item import Item
from qos.core.queue.item_names import (
    TEXT_CHARS_MAX,
    ItemNames,
    names_of_payload,
)
from qos.core.queue.properties import (
    HEADER_BYTES_MAX,
    NAME_CHARS_MAX,
    NAMES_MAX,
    PROPERTIES_BYTES_MAX,
    Properties,
    content_digest,
    properties_size,
    why_not,
)
from qos.core.queue.requests import Publish
from qos.core.queue.selector import Untyped, parse
from queue_world import NODE, PLAIN, PUBLISHER, World, entry

# -- what there may be ---------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "part"),
    [
        ({f"n{number}": 1 for number in range(NAMES_MAX + 1)}, "65 properties"),
        ({"": 1}, "1 to 256 characters"),
        ({"n" * (NAME_CHARS_MAX + 1): 1}, "1 to 256 characters"),
        ({"n": "a\0"}, "'n' has a character that XML cannot carry"),
        ({"n": "\ud800"}, "'n' has a character that XML cannot carry"),
        ({"n\uffff": 1}, "has a character that XML cannot carry"),
        ({"xml.element": "a"}, "'xml.element': names with xml. are read"),
        ({"n": math.inf}, "'n' is not a finite number"),
        ({"n": math.nan}, "'n' is not a finite number"),
        ({"n": 2**63}, "'n' has more than 64 bits"),
        ({"n": -(2**63) - 1}, "'n' has more than 64 bits"),
        (
            {"n": "ä" * (PROPERTIES_BYTES_MAX // 2)},
            "8193 bytes, over the limit of 8192",
        ),
        ({"n": "ü" * 3900}, "23407 bytes as a header of HTTP, over the limit of 8000"),
        ({"http_content$type": "text"}, "content-type: a media type is expected"),
    ],
)
def test_properties_have_limits(properties: Properties, part: str) -> None:
    """They stay in the memory of the service."""
    assert part in (why_not(properties) or "")


def test_properties_up_to_their_limits_are_allowed() -> None:
    """Each limit is exact."""
    many = {f"n{number:02}": number for number in range(NAMES_MAX)}
    assert why_not(many) is None
    assert properties_size(many) == NAMES_MAX * 11
    room = HEADER_BYTES_MAX - NAME_CHARS_MAX - 6
    assert why_not({"n" * NAME_CHARS_MAX: "x" * room}) is None
    assert why_not({"n" * NAME_CHARS_MAX: "x" * (room + 1)})
    assert why_not({"n" * NAME_CHARS_MAX: "ü" * (room // 6)}) is None
    assert why_not({"a": 2**63 - 1, "b": -(2**63), "c": 1e308, "d": False}) is None


def test_the_digest_tells_all_types_and_names_apart() -> None:
    """A repeat has the same content and the same properties, in any order."""
    different: list[Properties] = [
        {},
        {"a": 1},
        {"a": 1.0},
        {"a": True},
        {"a": "1"},
        {"a": "true"},
        {"b": 1},
        {"a": 1, "b": 1},
        {"a": 'x","b":"y'},
        {"a": "x", "b": "y"},
    ]
    digests = {content_digest(b"<x/>", each) for each in different}
    digests |= {content_digest(b"<y/>", each) for each in different}
    assert len(digests) == 2 * len(different)
    assert content_digest(b"", {"a": 1, "b": 2}) == content_digest(
        b"", {"b": 2, "a": 1}
    )


def test_the_same_item_with_other_properties_is_another_one() -> None:
    """Published again, it is a conflict and not a repeat."""
    it = World(PLAIN)
    it.publish(entry("a", properties={"n": 1}))
    it.publish(entry("a", properties={"n": 1}))
    other = Publish(NODE, (entry("a", properties={"n": 2}),))
    assert it.refused(other, PUBLISHER)[0] == "conflict"
    assert it.refused(Publish(NODE, (entry("a"),)), PUBLISHER)[0] == "conflict"


# -- names ----------------------------------------------------------------------


def item_of(**changes: Any) -> Item:
    return Item(
        **{
            "seq": 1,
            "node": "orders",
            "item_id": "one",
            "publisher": "shop@x",
            "digest": "",
            "size": 1,
            "published_at": 1234.5678,
            "available_at": 1234.5678,
            **changes,
        }
    )


@pytest.mark.parametrize("jms", [True, False])
def test_names_of_jms_and_amqp_mean_what_the_service_knows(jms: bool) -> None:
    """Whatever a publisher has sent under these names."""
    names = (
        *("JMSMessageID", "amqp.message_id"),
        *("JMSPriority", "amqp.priority"),
        *("JMSTimestamp", "amqp.creation_time"),
        *("JMSExpiration", "amqp.absolute_expiry_time"),
        *("JMSXUserID", "amqp.user_id"),
    )[0 if jms else 1 :: 2]
    forged = dict.fromkeys(names, "forged")
    plain = ItemNames(item_of(properties=forged))
    assert [plain.get(name) for name in names] == ["one", 4, 1234568, 0, "shop@x"]
    other = ItemNames(item_of(priority=9, expires_at=2000.0))
    assert [other.get(name) for name in names[1:4:2]] == [9, 2000000]


def test_the_delivery_count_has_three_names() -> None:
    """JMS counts this delivery too, AMQP does not."""
    for count in (0, 2):
        names = ItemNames(item_of(delivery_count=count))
        assert names.get("JMSRedelivered") is (count > 0)
        assert names.get("JMSXDeliveryCount") == count + 1
        assert names.get("amqp.delivery_count") == count


def test_other_names_are_properties_also_by_their_amqp_name() -> None:
    """A JMS client sends JMSType, an AMQP filter asks for amqp.subject."""
    sent: Properties = {"JMSType": "order", "n": 0, "amqp.to": "there", "ok": False}
    names = ItemNames(item_of(properties=sent))
    assert names.get("JMSType") == names.get("amqp.subject") == "order"
    assert names.get("amqp.to") == "there"
    assert (names.get("n"), names.get("ok"), names.get("m")) == (0, False, None)
    assert names.get("amqp.group_id") is None
    assert parse("n = 0 AND NOT ok AND m IS NULL").matches(names)


ORDER = (
    "<o:order xmlns:o='urn:shop' year='2024' o:by='bee'>"
    "<sum>1<b>2</b></sum><o:unit-price>7</o:unit-price><sum>9</sum>"
    f"<long>{'x' * (TEXT_CHARS_MAX + 1)}</long><most>{'x' * TEXT_CHARS_MAX}</most></o:order>"
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("xml.element", "order"),
        ("xml.namespace", "urn:shop"),
        ("xml.attr.year", "2024"),
        ("xml.attr.{urn:shop}by", "bee"),
        ("xml.attr.by", None),
        ("xml.text.sum", "12"),
        ("xml.text.unit-price", "7"),
        ("xml.text.b", None),
        ("xml.text.long", None),
        ("xml.text.most", "x" * TEXT_CHARS_MAX),
        ("xml.text.*", None),
        ("xml.text", None),
        ("xml.other", None),
        ("xml.", None),
    ],
)
def test_parts_of_a_payload_have_names(name: str, value: str | None) -> None:
    """Its root, the attributes of that, and its children with text."""
    found = names_of_payload(ORDER, [name])
    assert found == ({} if value is None else {name: value})


def test_an_empty_or_unwanted_payload_has_no_names() -> None:
    """It is not even parsed."""
    assert names_of_payload("", ["xml.element"]) == {}
    assert names_of_payload("<not xml", []) == {}
    assert names_of_payload("<a/>", ["xml.namespace"]) == {"xml.namespace": ""}


def test_parts_of_a_payload_are_untyped() -> None:
    """They are numbers for a selector that wants numbers."""
    names = ItemNames(item_of(properties={"xml.attr.n": "7", "n": "7"}))
    assert type(names.get("xml.attr.n")) is Untyped
    assert parse("xml.attr.n > 6 AND xml.attr.n = '7'").matches(names)
    assert not parse("n > 6").matches(names)
