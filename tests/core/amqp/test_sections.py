"""The sections of a message: their borders, and the bytes that nobody may change."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp_messages import read_or_refused, sections
from qos.core.amqp import values
from qos.core.amqp.sections import Section, must_understand, section, split
from qos.core.amqp.values import DecodeError

#: A string.
NOT_UTF8 = b"\xa1\x01\xff"

_NOT_BARE = {
    Section.HEADER,
    Section.DELIVERY_ANNOTATIONS,
    Section.MESSAGE_ANNOTATIONS,
}


@settings(max_examples=50)
@given(sections())
def test_each_section_is_found_and_the_bare_message_is_cut_out(
    parts: list[tuple[Section, bytes]],
) -> None:
    found = split(b"".join(written for _, written in parts))
    assert found.values.keys() == {each for each, _ in parts}
    for each, value in found.values.items():
        assert next(one for which, one in parts if which is each).endswith(value)
    bare = [written for each, written in parts if each not in _NOT_BARE]
    assert found.bare == b"".join(bare)
    body = [
        each
        for each, _ in parts
        if each in (Section.DATA, Section.SEQUENCE, Section.VALUE)
    ]
    assert (found.body, found.parts) == (body[0] if body else None, len(body))


@pytest.mark.parametrize("each", Section)
def test_a_section_may_be_named_by_a_symbol(each: Section) -> None:
    """As the standard names them: amqp:header:list and so on."""
    names = {
        Section.HEADER: ("header:list", b"\x45"),
        Section.DELIVERY_ANNOTATIONS: ("delivery-annotations:map", b"\xc1\x01\x00"),
        Section.MESSAGE_ANNOTATIONS: ("message-annotations:map", b"\xc1\x01\x00"),
        Section.PROPERTIES: ("properties:list", b"\x45"),
        Section.APPLICATION_PROPERTIES: ("application-properties:map", b"\xc1\x01\x00"),
        Section.DATA: ("data:binary", b"\xa0\x00"),
        Section.SEQUENCE: ("amqp-sequence:list", b"\x45"),
        Section.VALUE: ("amqp-value:*", b"\x40"),
        Section.FOOTER: ("footer:map", b"\xc1\x01\x00"),
    }
    name, value = names[each]
    message = b"\x00" + values.symbol(f"amqp:{name}") + value
    assert split(message).values == {each: value}


ONCE = sorted(set(Section) - {Section.DATA, Section.SEQUENCE})
EMPTY = {
    Section.HEADER: b"\x45",
    Section.PROPERTIES: b"\x45",
    Section.SEQUENCE: b"\x45",
    Section.DATA: b"\xa0\x00",
}


def empty(which: Section) -> bytes:
    return section(which, EMPTY.get(which, b"\xc1\x01\x00"))


@pytest.mark.parametrize("which", ONCE)
def test_a_second_section_of_a_kind_is_refused_with_its_place(which: Section) -> None:
    first = empty(which)
    with pytest.raises(DecodeError, match="a second section") as refused:
        split(first + first)
    assert refused.value.position == len(first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Section.DATA, Section.SEQUENCE),
        (Section.SEQUENCE, Section.VALUE),
        (Section.VALUE, Section.DATA),
    ],
)
def test_a_body_is_of_one_kind(first: Section, second: Section) -> None:
    with pytest.raises(DecodeError, match=f"{second.name} in a body of {first.name}"):
        split(empty(first) + empty(second))


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"\x40", "no described value at byte 0"),
        (b"\x00\x53\x79\x40", "121 is no section"),
        (b"\x00\xa3\x01x\x40", "'x' is no section"),
        (b"\x00\x53\x70\x40", "wrong type in HEADER at byte 3"),
        (b"\x00\x53\x75\xa1\x00", "wrong type in DATA"),
        (b"\x00\x53\x70", "ends at byte 3"),
        (b"\x00\x53\x75\xa0\x05ab", "cut off at byte 3"),
    ],
)
def test_what_is_no_message_is_refused_with_its_place(
    message: bytes, says: str
) -> None:
    with pytest.raises(DecodeError, match=says):
        split(message)


def test_a_message_without_sections_has_none() -> None:
    found = split(b"")
    assert (found.values, found.body, found.parts, found.bare) == ({}, None, 0, b"")


def test_an_annotation_that_must_be_understood_is_named() -> None:
    key, value = values.symbol, values.uint(1)
    assert must_understand(values.pack_map([])) is None
    assert must_understand(values.pack_map([key("x-opt-a"), value])) is None
    both = [key("x-opt-a"), value, key("x-must"), value]
    assert must_understand(values.pack_map(both)) == "x-must"
    assert must_understand(values.pack_map([values.ulong(7), value])) == "7"


def test_a_key_that_is_no_key_of_an_annotation_is_carried() -> None:
    """Some clients write strings; nobody has to understand them."""
    for key in (values.string("a"), NOT_UTF8, b"\xa3\x01\xff"):
        assert must_understand(values.pack_map([key, values.NULL])) is None


def test_annotations_of_a_wrong_shape_are_refused() -> None:
    with pytest.raises(DecodeError):
        must_understand(values.pack_map([values.symbol("x-opt-a")]))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    if (found := read_or_refused(split, data)) is not None:
        assert split(found.bare).bare == found.bare


@settings(max_examples=50)
@given(sections(), st.data())
def test_a_damaged_message_is_a_message_or_refused(
    parts: list[tuple[Section, bytes]], data: st.DataObject
) -> None:
    message = bytearray(b"".join(written for _, written in parts) or b"\x00")
    at = data.draw(st.integers(0, len(message) - 1))
    message[at] ^= data.draw(st.integers(1, 255))
    read_or_refused(split, bytes(message))
