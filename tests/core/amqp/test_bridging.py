"""Messages of a broker as items, and items as messages for a broker."""

import itertools

import pytest
from hypothesis import given

from amqp_messages import sections
from qos.core.amqp import values
from qos.core.amqp.bridging import item_of, message_of
from qos.core.amqp.sections import Section, section, split, without
from qos.core.amqp.values import DecodeError, decode, elements
from qos.core.queue.item import Item
from qos.core.queue.requests import PublishedItem, Refusal

NOW = 1_000.0
BYTES_MAX = 1024 * 1024

BODY = section(Section.VALUE, values.string("text"))
ID = section(Section.PROPERTIES, values.pack_list([values.string("m")]))


def taken(message: bytes) -> PublishedItem:
    ids = (f"made-{number}" for number in itertools.count(1))
    return item_of(message, new_id=ids.__next__, now=NOW, bytes_max=BYTES_MAX)


def sent(payload: str, item_id: str = "i", **changes: object) -> bytes:
    made: dict[str, object] = {
        "seq": 1,
        "node": "orders",
        "item_id": item_id,
        "publisher": "shop@x",
        "digest": "",
        "size": 0,
        "published_at": NOW,
        "available_at": NOW,
    }
    item = Item(**{**made, **changes})  # type: ignore[arg-type]  # by their names
    return message_of(item, payload, NOW)


def message_id(message: bytes) -> values.Value:
    return decode(elements(split(message).values[Section.PROPERTIES])[0])


def hops(count: int) -> bytes:
    pairs = [values.symbol("x-opt-qos-hops"), values.uint(count)]
    return section(Section.MESSAGE_ANNOTATIONS, values.pack_map(pairs))


@pytest.mark.parametrize("count", [1, 2, 300])
def test_each_bridge_counts_how_often_a_message_was_forwarded(count: int) -> None:
    """A ring of queues and brokers has an end; and the bare message stays as it is."""
    entry = taken(hops(count) + ID + BODY)
    assert entry.properties == {"qos_hops": count}
    assert entry.digest == taken(ID + BODY).digest
    again = sent(entry.payload, entry.item_id, properties=entry.properties)
    assert split(again).bare == ID + BODY
    assert taken(again).properties == {"qos_hops": count + 1}


def test_an_item_of_xmpp_is_counted_too() -> None:
    """Its properties are those of the message, and the larger count is right."""
    message = sent("<a xmlns='b'/>", properties={"qos_hops": 4, "n": 1})
    assert taken(message).properties == {"qos_hops": 5, "n": 1}
    lower = hops(2) + split(message).bare
    assert taken(lower).properties == {"qos_hops": 4, "n": 1}


@pytest.mark.parametrize(
    "annotations",
    [
        values.pack_map([values.symbol("x-opt-qos-hops"), values.NULL]),
        values.pack_map([values.symbol("x-opt-qos-hops"), values.string("3")]),
        values.pack_map([values.symbol("x-opt-qos-hops"), b"\x70"]),
        values.pack_map([values.string("x-opt-qos-hops"), values.uint(3)]),
        values.pack_map([values.symbol("x-opt-qos-hops")]),
        values.pack_map([]),
        b"\xc1\x12\x02" + values.symbol("x-opt-qos-hops"),
    ],
)
def test_a_count_that_is_none_is_left_out(annotations: bytes) -> None:
    """Brokers change annotations as they like."""
    try:
        entry = taken(section(Section.MESSAGE_ANNOTATIONS, annotations) + ID + BODY)
    except DecodeError:
        return
    assert entry.properties == {}


@pytest.mark.parametrize("key", ["x-opt-lock", "unknown"])
def test_annotations_do_not_make_another_message(key: str) -> None:
    """A broker may change them with each delivery, and none is carried."""
    annotations = values.pack_map([values.symbol(key), values.ubyte(1)])
    whole = (
        section(Section.HEADER, values.pack_list([values.NULL, values.ubyte(8)]))
        + section(Section.DELIVERY_ANNOTATIONS, annotations)
        + section(Section.MESSAGE_ANNOTATIONS, annotations)
        + ID
        + BODY
    )
    entry, bare = taken(whole), taken(ID + BODY)
    assert entry.item_id == "string:m"
    assert (entry.payload, entry.digest) == (bare.payload, bare.digest)
    assert (entry.priority, bare.priority) == (8, None)


def test_a_message_goes_through_a_queue_as_it_was() -> None:
    """But for its header, which is that of a new, durable message."""
    entry = taken(ID + BODY)
    message = sent(entry.payload, entry.item_id, delivery_count=3, order=5, priority=7)
    head = section(
        Section.HEADER,
        values.pack_list([values.boolean(True), values.ubyte(7), values.NULL]),
    )
    assert message == head + hops(1) + ID + BODY
    ttl = elements(
        split(sent(entry.payload, expires_at=NOW + 2)).values[Section.HEADER]
    )
    assert decode(ttl[2]) == ("unsigned", 2000)


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        section(Section.PROPERTIES, b"\x45"),
        section(Section.PROPERTIES, values.pack_list([values.NULL])),
        # A descriptor in its long form, and another field.
        b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x73"
        + values.pack_list([values.NULL, values.binary(b"u")]),
    ],
)
def test_a_message_without_an_id_gets_that_of_its_item(properties: bytes) -> None:
    """It is sent again with the same id."""
    entry = taken(properties + BODY)
    message = sent(entry.payload, entry.item_id)
    assert message_id(message) == ("string", "made-1")
    fields = elements(split(message).values[Section.PROPERTIES])
    if len(fields) > 1:
        assert decode(fields[1]) == ("binary", b"u")
    assert message.endswith(BODY)
    assert message == sent(entry.payload, entry.item_id)


def test_an_item_of_xmpp_has_its_id_as_message_id() -> None:
    message = sent("<a xmlns='b'/>", "order-1")
    assert message_id(message) == ("string", "order-1")
    assert split(message).body is Section.DATA


@given(given=sections())
def test_all_other_sections_stay_byte_for_byte(
    given: list[tuple[Section, bytes]],
) -> None:
    for which in Section:
        kept = b"".join(each for kind, each in given if kind is not which)
        assert without(b"".join(each for _, each in given), which) == kept


@given(given=sections())
def test_any_message_is_the_same_again(given: list[tuple[Section, bytes]]) -> None:
    """Its id and its body go through, whatever else it has."""
    message = b"".join(each for _, each in given)
    try:
        entry = taken(message)
    except (DecodeError, Refusal):
        return
    again = sent(entry.payload, entry.item_id)
    assert message_id(again)[0] != "null"
    if entry.item_id != "made-1":
        assert taken(again).item_id == entry.item_id
        assert split(again).bare == split(message).bare


def test_a_message_that_is_none_is_refused() -> None:
    with pytest.raises(DecodeError):
        taken(b"\x00\x53")
