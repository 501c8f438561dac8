"""AMQP 1.0 values: where they end, and the few that are decoded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_messages import read_or_refused
from qos.core.amqp import values
from qos.core.amqp.values import (
    DecodeError,
    decode,
    decode_carried,
    descriptor,
    elements,
    end_of,
)

WRITTEN = [
    (values.NULL, ("null", None)),
    (values.boolean(True), ("boolean", True)),
    (values.boolean(False), ("boolean", False)),
    (b"\x56\x01", ("boolean", True)),
    (b"\x56\x00", ("boolean", False)),
    (values.ubyte(9), ("unsigned", 9)),
    (values.uint(255), ("unsigned", 255)),
    (values.uint(256), ("unsigned", 256)),
    (b"\x43", ("unsigned", 0)),
    (b"\x60\x01\x02", ("unsigned", 258)),
    (values.ulong(255), ("ulong", 255)),
    (values.ulong(2**64 - 1), ("ulong", 2**64 - 1)),
    (b"\x44", ("ulong", 0)),
    (b"\x54\xff", ("signed", -1)),
    (values.timestamp(-5), ("timestamp", -5)),
    (values.long(-5), ("signed", -5)),
    (values.double(1.5), ("float", 1.5)),
    (b"\x72\x3f\xc0\x00\x00", ("float", 1.5)),
    (values.binary(b"a"), ("binary", b"a")),
    (values.binary(b"a" * 256), ("binary", b"a" * 256)),
    (values.string("ä"), ("string", "ä")),
    (values.string("ä" * 200), ("string", "ä" * 200)),
    (values.symbol("a"), ("symbol", "a")),
    (b"\x98" + bytes(range(16)), ("uuid", bytes(range(16)).hex())),
    (values.pack_list([]), ("other", b"\xc0\x01\x00")),
    (b"\x73\x00\x00\x00a", ("other", b"\x73\x00\x00\x00a")),
]


@pytest.mark.parametrize(("data", "value"), WRITTEN)
def test_a_value_is_read_as_it_was_written(data: bytes, value: values.Value) -> None:
    assert decode(data) == value
    assert end_of(b"\x40" + data + b"\x40", 1) == 1 + len(data)


@pytest.mark.parametrize(("data", "_value"), WRITTEN)
def test_a_value_that_is_cut_off_is_refused(data: bytes, _value: values.Value) -> None:
    for length in range(len(data)):
        with pytest.raises(DecodeError):
            end_of(data[:length], 0)


@pytest.mark.parametrize("pack", [values.pack_list, values.pack_map])
@pytest.mark.parametrize("count", [0, 2, 254, 256, 300])
def test_a_compound_has_its_elements(pack: object, count: int) -> None:
    assert callable(pack)
    inside = [values.uint(each) for each in range(count)]
    assert elements(pack(inside)) == inside


def test_an_empty_list_may_be_one_byte() -> None:
    assert elements(b"\x45") == []


def test_an_array_of_symbols_is_one_value() -> None:
    data = values.symbols(["PLAIN", "EXTERNAL"])
    assert end_of(data, 0) == len(data)
    assert data.endswith(b"PLAIN\x00\x00\x00\x08EXTERNAL")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "ends at byte 0"),
        (b"\x10", "no value begins with 0x10 at byte 0"),
        (b"\x00\x53", "cut off"),
        (b"\xa1\x05ab", "cut off at byte 0"),
        (b"\xb1\x00\x00", "ends at byte 3"),
    ],
)
def test_what_is_no_value_is_refused_with_its_place(data: bytes, says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        end_of(data, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"\x40",  # no compound
        b"\xc0\x03\x01\x40\x40",  # one more than counted
        b"\xc0\x02\x02\x40",  # one less than counted
        b"\xc0\x02\x01\x40\x40",  # bytes after it
        b"\xc0\x09\x01\x40",  # cut off
        b"\xc0",
        b"\x45\x40",
        b"\xd0\x00\x00\x00\x05\xff\xff\xff\xff\x40",  # a count that would fill memory
    ],
)
def test_a_compound_that_contradicts_itself_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        elements(data)


def test_two_values_are_not_one() -> None:
    with pytest.raises(DecodeError, match="more than one"):
        decode(b"\x40\x40")


def test_a_text_has_to_be_utf_8() -> None:
    with pytest.raises(DecodeError, match="UTF-8 at byte 1"):
        decode(b"\xa1\x02a\xff")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"\x00\x53\x70\x45", (0x70, 3)),
        (b"\x00\x80" + bytes(7) + b"\x70\x45", (0x70, 10)),
        (b"\x00\xa3\x01a\x45", ("a", 4)),
    ],
)
def test_a_descriptor_is_a_number_or_a_symbol(
    data: bytes, found: tuple[int | str, int]
) -> None:
    assert descriptor(data, 0) == found


@pytest.mark.parametrize("data", [b"", b"\x40", b"\x00", b"\x00\x40\x40"])
def test_any_other_descriptor_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        descriptor(data, 0)


def test_ten_thousand_descriptors_need_no_stack() -> None:
    """A hostile peer chooses how deep they are nested."""
    deep = b"\x00" * 10_000 + b"\x40" * 10_001
    assert end_of(deep, 0) == len(deep)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    read_or_refused(decode, data)
    read_or_refused(elements, data)
    read_or_refused(lambda some: end_of(some, 0), data)
    read_or_refused(lambda some: descriptor(some, 0), data)


def test_a_text_that_is_only_carried_may_be_any_bytes() -> None:
    assert decode_carried(b"\xa1\x02a\xff") == ("other", b"\xa1\x02a\xff")
    assert decode_carried(b"\xa1\x01a") == ("string", "a")
    with pytest.raises(DecodeError, match="more than one"):
        decode_carried(b"\x40\x40")
    with pytest.raises(DecodeError, match="cut off"):
        decode_carried(b"\xa1\x02a")
