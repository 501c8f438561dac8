"""Ids of AMQP as properties and as texts: each type comes back as it was."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.amqp import values
from qos.core.amqp.bodies import message_id_of
from qos.core.amqp.message_ids import id_property, id_text, packed_id, text_property
from qos.core.amqp.messages import read_message
from qos.core.amqp.sections import Section, section
from qos.core.amqp.values import decode

ids = st.one_of(
    st.integers(0, 2**64 - 1).map(values.ulong),
    st.binary(min_size=16, max_size=16).map(values.uuid),
    st.binary(max_size=20).map(values.binary),
    st.text(max_size=20).map(values.string),
    st.sampled_from(["ULONG", "UUID", "BINARY", "STRING", "X"]).map(
        lambda kind: values.string(f"ID:AMQP_{kind}:5")
    ),
)


@given(ids)
def test_an_id_comes_back_with_its_type(packed: bytes) -> None:
    value = id_property(decode(packed))
    text = id_text(value)
    if text:
        assert packed_id(text) == packed
        assert text_property(text) == value
    else:
        assert packed == values.string("")


@pytest.mark.parametrize(
    ("packed", "value", "text"),
    [
        (values.string("a"), "a", "a"),
        (values.ulong(5), 5, "ID:AMQP_ULONG:5"),
        (values.ulong(2**64 - 1), *["ID:AMQP_ULONG:18446744073709551615"] * 2),
        (values.binary(b"\1\xff"), *["ID:AMQP_BINARY:01FF"] * 2),
        (
            values.uuid(bytes(15) + b"\5"),
            *["ID:AMQP_UUID:00000000-0000-0000-0000-000000000005"] * 2,
        ),
        (values.NULL, None, ""),
        (values.symbol("a"), None, ""),
        (values.boolean(True), None, ""),
    ],
)
def test_each_type_is_written_as_jms_clients_do(
    packed: bytes, value: str | int | None, text: str
) -> None:
    assert id_property(decode(packed)) == value
    assert id_text(value) == text


@pytest.mark.parametrize("value", [True, -1, 2**64, 1.5, None])
def test_other_properties_are_no_id(value: bool | float | None) -> None:
    assert id_text(value) == ""


@pytest.mark.parametrize(
    "text",
    ["ID:AMQP_ULONG:x", "ID:AMQP_ULONG:18446744073709551616", "ID:AMQP_UUID:5",
     "ID:AMQP_BINARY:5", "ID:AMQP_X:5"],
)  # fmt: skip
def test_a_wrong_prefix_is_text(text: str) -> None:
    assert packed_id(text) == values.string(text)
    assert text_property(text) == f"ID:AMQP_STRING:{text}"


def _payload(*sections: bytes) -> str:
    message = b"".join(sections) + section(Section.DATA, values.binary(b"x"))
    read = read_message(message, new_id=lambda: "new", now=0.0, bytes_max=10_000)
    return read.entry.payload


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([values.string("a")], "a"),
        ([values.ulong(5)], "ID:AMQP_ULONG:5"),
        ([values.NULL], ""),
        ([], ""),
    ],
)
def test_the_message_id_of_an_item(fields: list[bytes], text: str) -> None:
    properties = section(Section.PROPERTIES, values.pack_list(fields))
    assert message_id_of(_payload(properties)) == text


def test_an_item_may_have_no_message_id() -> None:
    """It came by another protocol, without properties, or with some that are none."""
    assert message_id_of("<x/>") == ""
    assert message_id_of(_payload()) == ""
    # An XMPP client has made it up: a text that is not UTF-8.
    fields = values.pack_list([b"\xa1\1\xff"])
    made_up = section(Section.PROPERTIES, fields) + section(
        Section.DATA, values.binary(b"x")
    )
    coded = b64encode(made_up).decode()
    payload = f"<message xmlns='xmpp-qos:amqp:0'>{coded}<body/></message>"
    assert message_id_of(payload) == ""
