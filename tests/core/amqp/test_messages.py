"""Messages as items and back: byte for byte, and readable for XMPP workers."""

import itertools
from base64 import b64encode
from collections.abc import Mapping
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given, settings

from amqp_messages import message_ids, sections
from qos.core.amqp import values
from qos.core.amqp.bodies import body_of
from qos.core.amqp.delays import DELAY_S_MAX
from qos.core.amqp.item_rendering import (
    NAMESPACE,
    as_published,
    render_item,
    with_annotations,
)
from qos.core.amqp.messages import (
    READABLE_TAGS_MAX,
    MustDetach,
    ReceivedMessage,
    addressed_to,
    read_message,
)
from qos.core.amqp.sections import Section, section, split
from qos.core.amqp.values import DecodeError, decode, elements
from qos.core.contents import OCTETS, wrap
from qos.core.queue.item import Item
from qos.core.queue.properties import Properties, properties_size
from qos.core.queue.requests import PublishedItem, Refusal
from qos.core.url_segments import why_no_segment
from qos.xml_text import attribute

NOW = 1_000.0
MIB = 1024 * 1024

#: A string.
NOT_UTF8 = b"\xa1\x01\xff"

CUT_OFF = bytes.fromhex("c003077b0e")


def read(message: bytes, *, bytes_max: int = MIB) -> ReceivedMessage:
    ids = (f"made-{number}" for number in itertools.count(1))
    return read_message(message, new_id=ids.__next__, now=NOW, bytes_max=bytes_max)


def text(value: str) -> bytes:
    return section(Section.VALUE, values.string(value))


def fields(which: Section, given: Mapping[int, bytes]) -> bytes:
    packed = [given.get(place, values.NULL) for place in range(max(given) + 1)]
    return section(which, values.pack_list(packed))


def header(**given: bytes) -> bytes:
    places = {"durable": 0, "priority": 1, "ttl": 2}
    return fields(Section.HEADER, {places[name]: one for name, one in given.items()})


def item(entry: PublishedItem, **changes: object) -> Item:
    made: dict[str, object] = {
        "seq": 1,
        "node": "orders",
        "item_id": entry.item_id,
        "publisher": "shop@x",
        "digest": entry.digest,
        "size": entry.size,
        "published_at": NOW,
        "available_at": NOW,
    }
    return Item(**{**made, **changes})  # type: ignore[arg-type]  # by their names


def sent(entry: PublishedItem, **changes: object) -> bytes:
    return render_item(item(entry, **changes), entry.payload, NOW)


@settings(max_examples=40)
@given(sections())
def test_the_bare_message_and_its_annotations_leave_byte_for_byte(
    parts: list[tuple[Section, bytes]],
) -> None:
    """Hashes, signatures and HMACs of a sender stay valid (messaging §3.2)."""
    message = b"".join(written for _, written in parts)
    came = split(message)
    left = split(sent(read(message).entry))
    if came.bare:
        assert left.bare == came.bare
        assert left.values.get(Section.MESSAGE_ANNOTATIONS) == came.values.get(
            Section.MESSAGE_ANNOTATIONS
        )
    assert Section.DELIVERY_ANNOTATIONS not in left.values


@settings(max_examples=40)
@given(sections())
def test_a_payload_is_one_element_that_an_xmpp_worker_can_read(
    parts: list[tuple[Section, bytes]],
) -> None:
    entry = read(b"".join(written for _, written in parts)).entry
    element = ET.fromstring(entry.payload)  # noqa: S314 - ours
    assert element.tag == f"{{{NAMESPACE}}}message"
    assert entry.size == len(entry.payload.encode()) + properties_size(entry.properties)


@pytest.mark.parametrize(
    ("body", "readable"),
    [
        (text("a < b"), "<body>a &lt; b</body>"),
        (text("\0"), ""),
        (section(Section.VALUE, values.uint(1)), ""),
        # In no namespace, and so not in that of the element around it.
        (
            section(Section.DATA, values.binary(b"<a b='c'>d</a>")),
            "<a xmlns='' b='c'>d</a>",
        ),
        (section(Section.DATA, values.binary(b"<a xmlns='u'/>")), "<a xmlns='u'/>"),
        (section(Section.DATA, values.binary(b"<a>")), ""),
        (section(Section.DATA, values.binary(b"<\xff/>")), ""),
        (section(Section.DATA, values.binary(b"plain")), ""),
        (section(Section.DATA, values.binary(b"<!DOCTYPE a><a/>")), ""),
        (section(Section.DATA, values.binary(b"<?xml version='1.0'?><a/>")), ""),
        (2 * section(Section.DATA, values.binary(b"<a/>")), ""),
        (section(Section.SEQUENCE, b"\x45"), ""),
    ],
)
def test_a_body_that_is_text_can_be_read_beside_the_bytes(
    body: bytes, readable: str
) -> None:
    payload = read(body).entry.payload
    inside = b64encode(body).decode() + readable
    assert payload == f"<message xmlns='{NAMESPACE}'>{inside}</message>"


def test_the_readable_body_is_left_out_where_it_finds_no_room() -> None:
    body = text("x" * 1000)
    full = read(body).entry
    assert "<body>" in full.payload
    short = read(body, bytes_max=full.size - 100).entry
    assert "<body>" not in short.payload
    assert split(sent(short)).bare == body


@pytest.mark.parametrize(("tags", "is_there"), [(1000, True), (1001, False)])
def test_xml_that_is_dear_to_read_is_not_written_beside_its_bytes(
    tags: int, is_there: bool
) -> None:
    """All of it would be done at once, and everybody would wait for it."""
    assert READABLE_TAGS_MAX == 1000
    xml = b"<a>" + b"<b/>" * (tags - 2) + b"</a>"
    body = section(Section.DATA, values.binary(xml))
    entry = read(body).entry
    assert ("<b/>" in entry.payload) == is_there
    assert split(sent(entry)).bare == body


def test_a_message_that_finds_no_room_is_refused() -> None:
    with pytest.raises(Refusal, match="over the limit of 1000") as refused:
        read(text("x" * 1000), bytes_max=1000)
    assert refused.value.pubsub == "payload-too-big"


@pytest.mark.parametrize(
    ("message_id", "item_id"),
    [
        (values.NULL, "made-1"),
        (values.ulong(5), "ulong:5"),
        (values.string("5"), "string:5"),
        (values.binary(b"5"), "binary:35"),
        (b"\x98" + b"5" * 16, "uuid:" + "35" * 16),
    ],
)
def test_an_id_tells_the_type_of_its_message_id(
    message_id: bytes, item_id: str
) -> None:
    """Four ids of different types are four ids (messaging §3.2.4)."""
    message = fields(Section.PROPERTIES, {0: message_id}) + text("x")
    assert read(message).entry.item_id == item_id


@given(message_ids)
@example(values.string("😀" * 1000))
def test_any_message_id_makes_an_id_that_xml_can_carry(message_id: bytes) -> None:
    message = fields(Section.PROPERTIES, {0: message_id}) + text("x")
    first, again = read(message).entry.item_id, read(message).entry.item_id
    assert first == again
    assert 0 < len(first) <= 1024
    assert not why_no_segment(first)
    element = ET.fromstring(f"<a id={attribute(first)}/>")  # noqa: S314 - ours
    assert element.get("id") == first


def test_the_same_bare_message_is_the_same_whatever_its_header() -> None:
    """A publisher that repeats itself after a cut is known by it."""
    one = read(header(ttl=values.uint(5)) + text("x")).entry
    other = read(text("x")).entry
    assert one.digest == other.digest != read(text("y")).entry.digest


@pytest.mark.parametrize(
    ("priority", "found"),
    [(values.NULL, None), *((values.ubyte(n), min(n, 9)) for n in (0, 4, 9, 10, 255))],
)
def test_ten_priorities_are_distinct(priority: bytes, found: int | None) -> None:
    assert read(header(priority=priority) + text("x")).entry.priority == found


@pytest.mark.parametrize(
    ("ttl", "expiry", "seconds"),
    [
        (values.NULL, values.NULL, None),
        (values.uint(0), values.timestamp(0), None),
        (values.uint(1500), values.NULL, 1.5),
        (values.NULL, values.timestamp(1_002_000), 2.0),
        (values.uint(1500), values.timestamp(1_002_000), 1.5),
        (values.uint(2500), values.timestamp(1_002_000), 2.0),
        (values.NULL, values.timestamp(1), 0.0),
    ],
)
def test_a_time_to_live_counts_from_now(
    ttl: bytes, expiry: bytes, seconds: float | None
) -> None:
    properties = fields(Section.PROPERTIES, {8: expiry})
    assert read(header(ttl=ttl) + properties + text("x")).entry.ttl == seconds


def application_properties(*pairs: bytes) -> bytes:
    return section(Section.APPLICATION_PROPERTIES, values.pack_map(pairs))


def test_selectors_read_application_properties_and_some_others() -> None:
    given = application_properties(
        *(values.string("colour"), values.string("red")),
        *(values.string("n"), values.uint(5)),
        *(values.string("ok"), values.boolean(True)),
        *(values.string("weight"), values.double(1.5)),
        *(values.string("blob"), values.binary(b"x")),
        *(values.string("none"), values.NULL),
        *(values.string("large"), values.ulong(2**64 - 1)),
        *(values.string("nan"), values.double(float("nan"))),
        # An XMPP worker could not be told of these.
        *(values.string("nul"), values.string("a\0b")),
        *(values.string("n\0l"), values.uint(1)),
    )
    standard = fields(
        Section.PROPERTIES,
        {
            3: values.string("order"),
            4: values.string("\uffff"),
            5: values.ulong(7),
            11: values.uint(2),
        },
    )
    message = read(standard + given + text("x")).entry
    assert message.properties == {
        "colour": "red",
        "n": 5,
        "ok": True,
        "weight": 1.5,
        "JMSType": "order",
        "JMSCorrelationID": 7,
        "JMSXGroupSeq": 2,
    }
    assert message.size > len(message.payload)


def test_more_properties_than_an_item_can_have_are_left_out() -> None:
    """They are still in the message, byte for byte."""
    pairs = [values.string("xml.a"), values.uint(1)]
    subject = fields(Section.PROPERTIES, {3: values.string("order")})
    message = read(subject + application_properties(*pairs) + text("x")).entry
    assert message.properties == {"JMSType": "order"}
    long = fields(Section.PROPERTIES, {3: values.string("x" * 9000)})
    assert read(long + text("x")).entry.properties == {}


def test_application_properties_that_name_a_header_and_are_none_are_left_out() -> None:
    """An HTTP consumer would get them as headers; an AMQP consumer gets the message as it is."""
    given = application_properties(
        *(values.string("http_content$type"), values.string('<x>; rel="self"')),
        *(values.string("http_content$language"), values.string("de")),
    )
    message = given + text("x")
    entry = read(message).entry
    assert entry.properties == {"http_content$language": "de"}
    assert as_published(entry.payload) == (b"", message)


@pytest.mark.parametrize(
    "pair",
    [
        (values.symbol("a"), values.uint(1)),
        (NOT_UTF8, values.uint(1)),
        (values.string("a"), NOT_UTF8),
        (values.string("a"), values.pack_list([])),
        (values.string("a"), values.pack_map([])),
        (values.string("a"), values.symbols(["x"])),
    ],
)
def test_application_properties_that_cannot_be_read_are_left_out(
    pair: tuple[bytes, bytes],
) -> None:
    """Messaging §3.2.5 has strings and simple values only; RabbitMQ and rhea write others."""
    given = application_properties(*pair, values.string("n"), values.uint(5))
    message = given + text("x")
    entry = read(message).entry
    assert entry.properties == {"n": 5}
    assert as_published(entry.payload) == (b"", message)


@pytest.mark.parametrize(
    "carried",
    [
        section(Section.FOOTER, values.pack_map([values.string("a"), values.NULL])),
        section(Section.FOOTER, values.pack_map([values.symbol("x-must"), NOT_UTF8])),
        fields(Section.PROPERTIES, dict.fromkeys((3, 4, 5, 6), NOT_UTF8)),
    ],
)
def test_what_is_only_carried_is_not_validated(carried: bytes) -> None:
    entry = read(carried + text("x")).entry
    assert as_published(entry.payload) == (b"", carried + text("x"))
    assert entry.properties == {}
    assert sent(entry).endswith(carried + text("x"))
    assert body_of(entry.payload) == (b"x", "text/plain; charset=utf-8")


def test_a_text_that_is_not_utf8_is_carried_as_a_body_and_as_an_id() -> None:
    message_id = fields(Section.PROPERTIES, {0: NOT_UTF8})
    body = section(Section.VALUE, NOT_UTF8)
    entry = read(message_id + body).entry
    assert entry.item_id == "string-bytes:a101ff"
    assert as_published(entry.payload) == (b"", message_id + body)
    assert "<body>" not in entry.payload
    assert body_of(entry.payload) is None
    with pytest.raises(DecodeError, match="wrong type"):
        read(fields(Section.PROPERTIES, {0: values.pack_list([])}) + body)


def test_a_key_without_a_value_is_refused() -> None:
    with pytest.raises(DecodeError, match="without a value"):
        read(application_properties(values.string("a")) + text("x"))


def test_the_properties_of_an_item_of_xmpp_are_application_properties() -> None:
    entry = PublishedItem(
        item_id="one",
        payload="<x/>",
        digest="d",
        size=1,
        properties={"b": True, "a": "red", "n": 5, "w": 1.5},
    )
    seen = {**entry.properties, "xml.element": "x"}
    found = split(sent(entry, properties=seen))
    pairs = list(map(decode, elements(found.values[Section.APPLICATION_PROPERTIES])))
    assert [each for _, each in pairs] == ["a", "red", "b", True, "n", 5, "w", 1.5]


def test_where_to_reply_and_its_id_are_fields_of_the_properties() -> None:
    """Of any item: a worker by AMQP replies there, whatever the request came by."""
    properties: Properties = {"JMSReplyTo": "replies", "JMSCorrelationID": 7, "a": "b"}
    entry = PublishedItem(
        item_id="one", payload="<x/>", digest="d", size=1, properties=properties
    )
    found = split(sent(entry, properties=properties))
    fields_ = list(map(decode, elements(found.values[Section.PROPERTIES])))
    assert fields_[4:6] == [("string", "replies"), ("ulong", 7)]
    assert len(elements(found.values[Section.APPLICATION_PROPERTIES])) == 2


@pytest.mark.parametrize("value", [True, -1, 1.5, ""])
def test_what_is_no_id_stays_an_application_property(value: bool | float | str) -> None:
    properties: Properties = {"JMSReplyTo": 5, "JMSCorrelationID": value}
    entry = PublishedItem(
        item_id="one", payload="<x/>", digest="d", size=1, properties=properties
    )
    found = split(sent(entry, properties=properties))
    fields_ = elements(found.values[Section.PROPERTIES])
    assert fields_[4:6] == [values.NULL, values.NULL]
    assert len(elements(found.values[Section.APPLICATION_PROPERTIES])) == 4


def test_properties_may_name_the_node() -> None:
    to = fields(Section.PROPERTIES, {2: values.string("orders")})
    assert addressed_to(to + text("x")) == "orders"
    assert addressed_to(text("x")) == ""
    assert addressed_to(fields(Section.PROPERTIES, {2: values.NULL})) == ""
    # Nothing behind it is looked at.
    assert addressed_to(to + b"no message") == "orders"
    with pytest.raises(DecodeError):
        addressed_to(b"no message")


@pytest.mark.parametrize(
    "section_",
    [
        header(priority=values.string("4")),
        header(ttl=values.string("4")),
        fields(Section.PROPERTIES, {0: values.boolean(True)}),
        fields(Section.PROPERTIES, {8: values.uint(1)}),
    ],
)
def test_a_field_of_a_wrong_type_is_refused(section_: bytes) -> None:
    with pytest.raises(DecodeError, match="wrong type"):
        read(section_ + text("x"))


@pytest.mark.parametrize(
    "which", [Section.DELIVERY_ANNOTATIONS, Section.MESSAGE_ANNOTATIONS]
)
def test_an_annotation_that_must_be_understood_is_not(which: Section) -> None:
    pairs = values.pack_map([values.symbol("x-must"), values.uint(1)])
    with pytest.raises(MustDetach, match="'x-must'"):
        read(section(which, pairs) + text("x"))


def test_a_header_tells_the_state_of_the_item() -> None:
    entry = read(text("x")).entry
    told = sent(entry, priority=7, delivery_count=3, order=5, expires_at=NOW + 2.5)
    assert list(map(decode, elements(split(told).values[Section.HEADER]))) == [
        ("boolean", True),
        ("unsigned", 7),
        ("unsigned", 2500),
        ("boolean", False),
        ("unsigned", 3),
    ]


@pytest.mark.parametrize(
    ("expires_at", "ttl"),
    [
        (None, ("null", None)),
        (NOW - 5, ("unsigned", 1)),
        (NOW + 1e9, ("unsigned", 2**32 - 1)),
    ],
)
def test_a_ttl_is_what_is_left(expires_at: float | None, ttl: values.Value) -> None:
    told = sent(read(text("x")).entry, expires_at=expires_at)
    assert decode(elements(split(told).values[Section.HEADER])[2]) == ttl


@pytest.mark.parametrize(
    "payload",
    [
        "<order xmlns='shop'>7</order>",
        "",
        # Made up by an XMPP client: no base64, no message, no bare one, no annotations.
        f"<message xmlns='{NAMESPACE}'>A<body/></message>",
        f"<message xmlns='{NAMESPACE}'>AAAA</message>",
        f"<message xmlns='{NAMESPACE}'>{b64encode(header(ttl=values.NULL)).decode()}"
        "</message>",
        f"<message xmlns='{NAMESPACE}' annotations='AAAA'>"
        f"{b64encode(text('x')).decode()}</message>",
        f"<message xmlns='{NAMESPACE}' annotations='A'>"
        f"{b64encode(text('x')).decode()}</message>",
    ],
)
def test_an_item_of_xmpp_leaves_as_properties_and_one_data_section(
    payload: str,
) -> None:
    entry = PublishedItem(item_id="one", payload=payload, digest="d", size=1)
    found = split(sent(entry, published_at=12.5))
    properties = list(map(decode, elements(found.values[Section.PROPERTIES])))
    assert properties[0] == ("string", "one")
    assert properties[6] == ("symbol", "application/xml")
    assert properties[9] == ("timestamp", 12500)
    assert found.parts == 1
    assert decode(found.values[Section.DATA]) == ("binary", payload.encode())
    assert split(sent(entry, delivery_count=3, published_at=12.5)).bare == found.bare


@pytest.mark.parametrize("media_type", ["", "text/plain; charset=utf-8"])
def test_an_item_of_http_leaves_as_one_data_section_with_its_type(
    media_type: str,
) -> None:
    payload = wrap(b"a\0b", media_type)
    entry = PublishedItem(item_id="one", payload=payload, digest="d", size=1)
    found = split(sent(entry))
    properties = list(map(decode, elements(found.values[Section.PROPERTIES])))
    assert properties[6] == ("symbol", media_type or "application/octet-stream")
    assert decode(found.values[Section.DATA]) == ("binary", b"a\0b")


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (text("ü"), ("ü".encode(), "text/plain; charset=utf-8")),
        (section(Section.VALUE, values.binary(b"\0")), (b"\0", OCTETS)),
        (section(Section.DATA, values.binary(b"<x/>")), (b"<x/>", OCTETS)),
        (
            fields(Section.PROPERTIES, {6: values.symbol("a/b")})
            + section(Section.DATA, values.binary(b"1")),
            (b"1", "a/b"),
        ),
        (fields(Section.PROPERTIES, {0: values.string("i")}) + text("1"), (b"1", "text/plain; charset=utf-8")),
        (fields(Section.PROPERTIES, {6: values.symbol("a\nb")}) + text("1"), (b"1", "text/plain; charset=utf-8")),
        (fields(Section.PROPERTIES, {6: values.symbol('<x>; rel="self"')}) + text("1"), (b"1", "text/plain; charset=utf-8")),
        (fields(Section.PROPERTIES, {6: values.NULL}) + text("1"), (b"1", "text/plain; charset=utf-8")),
        (2 * section(Section.DATA, values.binary(b"1")), None),
        (section(Section.VALUE, values.pack_list([])), None),
        (section(Section.VALUE, values.uint(1)), None),
        (section(Section.SEQUENCE, values.pack_list([])), None),
    ],
)  # fmt: skip
def test_a_body_of_one_part_can_be_read_by_others(
    message: bytes, body: tuple[bytes, str] | None
) -> None:
    """By HTTP clients; anything else they get as the element that XMPP workers get."""
    assert body_of(read(message).entry.payload) == body


@pytest.mark.parametrize(
    "payload",
    [
        "<x/>",
        f"<message xmlns='{NAMESPACE}'>eA==</message>",
        f"<message xmlns='{NAMESPACE}'>"
        f"{b64encode(section(Section.PROPERTIES, values.uint(1)) + text('x')).decode()}"
        "</message>",
        # A list of seven values, of which the first one is cut off.
        f"<message xmlns='{NAMESPACE}'>"
        f"{b64encode(section(Section.PROPERTIES, CUT_OFF) + text('x')).decode()}"
        "</message>",
    ],
)
def test_what_an_xmpp_client_has_made_up_has_no_body(payload: str) -> None:
    assert body_of(payload) is None


def annotated(**pairs: int) -> bytes:
    return values.pack_map(
        [
            each
            for name, value in pairs.items()
            for each in (values.symbol(f"x-opt-{name}"), values.uint(value))
        ]
    )


def annotations_of(message: bytes) -> dict[object, object]:
    pairs = elements(split(message).values[Section.MESSAGE_ANNOTATIONS])
    plain = [decode(each)[1] for each in pairs]
    return dict(zip(plain[::2], plain[1::2], strict=True))


@pytest.mark.parametrize("payload", ["<x/>", ""])
def test_annotations_are_merged_and_the_later_value_wins(payload: str) -> None:
    """Messaging §3.4.5; the bare message does not change."""
    first = section(Section.MESSAGE_ANNOTATIONS, annotated(a=1, b=2))
    entry = read(first + text("x")).entry
    once = with_annotations(item(entry), annotated(b=3, c=4))
    twice = with_annotations(item(entry, annotations=once), annotated(c=5))
    message = sent(entry, annotations=twice)
    assert annotations_of(message) == {"x-opt-a": 1, "x-opt-b": 3, "x-opt-c": 5}
    assert split(message).bare == text("x")
    plain = PublishedItem(item_id="one", payload=payload, digest="d", size=1)
    assert annotations_of(sent(plain, annotations=twice)) == {
        "x-opt-b": 3,
        "x-opt-c": 5,
    }


def test_annotations_that_are_too_large_are_not_added() -> None:
    entry = read(text("x")).entry
    large = values.pack_map([values.symbol("x-opt-a"), values.binary(b"x" * 5000)])
    once = with_annotations(item(entry), annotated(a=1))
    assert with_annotations(item(entry, annotations=once), large) == once
    with pytest.raises(DecodeError):
        with_annotations(item(entry), b"x")


def test_an_xmpp_library_may_write_the_element_in_its_own_way() -> None:
    """An item that a worker publishes again is still the message that it was."""
    entry = read(text("x")).entry
    quoted = entry.payload.replace("'", '"')
    assert split(render_item(item(entry), quoted, NOW)).bare == text("x")


# -- the queue for replies -------------------------------------------------


def asks(reply_to: bytes, more: bytes = b"") -> bytes:
    """A request that names a queue for replies."""
    named = fields(Section.PROPERTIES, {0: values.string("q"), 4: reply_to})
    return named + more + text("how much?")


def reply_to_of(rendered: bytes) -> object:
    properties = elements(split(rendered).values[Section.PROPERTIES])
    return decode(properties[4])[1]


def test_a_queue_for_replies_that_the_item_does_not_name_is_left_out() -> None:
    """The worker would post where the publisher may not; all else stays as it is."""
    message = asks(values.string("replies"))
    entry = read(message).entry
    named = item(entry, properties=entry.properties)
    assert render_item(named, entry.payload, NOW).endswith(message)
    rendered = render_item(item(entry, properties={}), entry.payload, NOW)
    assert reply_to_of(rendered) is None
    found, before = split(rendered), split(message)
    assert decode(elements(found.values[Section.PROPERTIES])[0]) == ("string", "q")
    assert found.values[Section.VALUE] == before.values[Section.VALUE]


@pytest.mark.parametrize("reply_to", [values.NULL, values.uint(7), values.binary(b"x")])
def test_an_address_that_no_node_can_have_stays(reply_to: bytes) -> None:
    """It leads to nothing here."""
    message = asks(reply_to)
    entry = read(message).entry
    rendered = render_item(item(entry, properties={}), entry.payload, NOW)
    assert rendered.endswith(message)


def test_a_queue_for_replies_is_a_property_whatever_else_is_named() -> None:
    """So it can be looked at when the item is given out."""
    pairs = [
        each
        for number in range(100)
        for each in (values.string(f"n{number}"), values.uint(1))
    ]
    many = section(Section.APPLICATION_PROPERTIES, values.pack_map(pairs))
    assert read(asks(values.string("r"), many)).entry.properties == {"JMSReplyTo": "r"}
    long = {3: values.string("x" * 9000), 4: values.string("r")}
    message = fields(Section.PROPERTIES, long) + many + text("1")
    assert read(message).entry.properties == {"JMSReplyTo": "r"}
    assert read(asks(values.string("r" * 9000))).entry.properties == {}


def test_properties_that_an_xmpp_client_has_made_up_are_xml() -> None:
    """To AMQP such an item is XML like any other."""
    made_up = section(Section.PROPERTIES, CUT_OFF) + text("1")
    coded = b64encode(made_up).decode()
    payload = f"<message xmlns='{NAMESPACE}'>{coded}<body/></message>"
    entry = read(text("1")).entry
    rendered = render_item(item(entry), payload, NOW)
    assert values.binary(payload.encode()) in rendered


@pytest.mark.parametrize(
    ("annotations", "delay"),
    [
        ([], 0.0),
        ([values.symbol("x-opt-other"), values.uint(5)], 0.0),
        ([values.symbol("x-opt-delivery-delay"), values.uint(1500)], 1.5),
        ([values.symbol("x-opt-delivery-delay"), b"\x55\xff"], 0.0),
        ([values.symbol("x-opt-delivery-delay"), values.string("1500")], 0.0),
        (
            [
                values.symbol("x-opt-delivery-time"),
                b"\x83" + (1_003_000).to_bytes(8, "big"),
            ],
            3.0,
        ),
        ([values.symbol("x-opt-delivery-time"), values.uint(999_000)], 0.0),
        (
            [
                values.symbol("x-opt-delivery-delay"),
                values.uint(9000),
                values.symbol("x-opt-delivery-time"),
                values.uint(1_003_000),
            ],
            9.0,
        ),
        (
            [values.symbol("x-opt-delivery-delay"), b"\x80" + b"\xff" * 8],
            DELAY_S_MAX,
        ),
    ],
)
def test_an_annotation_delays_its_message(
    annotations: list[bytes], delay: float
) -> None:
    """That of JMS (delivery delay): a length, or a moment, in milliseconds."""
    packed = values.pack_map(annotations)
    message = section(Section.MESSAGE_ANNOTATIONS, packed) + text("x")
    entry = read(message).entry
    assert entry.delay == delay
    assert entry.digest == read(text("x")).entry.digest, "it is no content"


def test_a_message_of_a_bridge_says_how_often_it_was_forwarded() -> None:
    """Its annotation is a property of the item, so that push and bridges read it."""
    pairs = [values.symbol("x-opt-qos-hops"), values.uint(3)]
    annotations = section(Section.MESSAGE_ANNOTATIONS, values.pack_map(pairs))
    assert read(annotations + text("1")).entry.properties == {"qos_hops": 3}
