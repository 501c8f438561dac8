"""What an application sends: text, JSON, XML, or a whole message; and what it reads."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slixmpp import JID
from slixmpp.stanza import Message

from qos.errors import InvalidArgument, LocalProtocolError, RemoteProtocolError
from qos.xml_text import CLIENT, is_legal
from xep_qos import Json, content, json_of

BODY = "<message xmlns='jabber:client'><body>b</body></message>"
TO = "lamp@example.org/1"

CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(st.one_of(st.sampled_from("'\"<>&\t\n\r{}/@ ]\x7f"), CHARACTERS))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)


def parse(xml: str) -> ET.Element:
    return ET.fromstring(xml)  # noqa: S314


def made(
    to: object = TO,
    body: object = None,
    payload: object = None,
    value: object = None,
    sender: object = None,
    *,
    component: bool = False,
) -> content.Addressed:
    """As `XEP_QOS.submit` calls it; of wrong types, too."""
    xmpp: Any = stream(component=component)
    arguments: Any = (to, body, payload, value, sender)
    return content.addressed(xmpp, *arguments)


def stream(*, component: bool) -> SimpleNamespace:
    """All that is asked of a stream: whose it is."""
    own = JID("devices.example.org" if component else "controller@example.org/1")
    return SimpleNamespace(is_component=component, boundjid=own, requested_jid=own)


def message(**attributes: str) -> Message:
    xml = parse(BODY)
    xml.attrib.update({name.strip("_"): value for name, value in attributes.items()})
    return Message(None, xml=xml)  # type: ignore[no-untyped-call]


# -- text ------------------------------------------------------------------


@given(TEXTS.filter(lambda body: body and is_legal(body)))
def test_a_body_arrives_as_it_was_given(body: str) -> None:
    """Line ends included."""
    payload = parse(content.message_with_body(body))
    assert payload.tag == f"{{{CLIENT}}}message"
    assert [(child.tag, child.text) for child in payload] == [
        (f"{{{CLIENT}}}body", body)
    ]


@pytest.mark.parametrize("body", ["\x00", "a\x1bb", "\ud800", "\uffff"])
def test_a_body_that_xml_cannot_carry_is_the_callers_fault(body: str) -> None:
    """The server would close the stream over it."""
    with pytest.raises(LocalProtocolError, match="U\\+"):
        content.message_with_body(body)


# -- XML -------------------------------------------------------------------


def test_xml_that_is_a_message_is_taken_as_it_is() -> None:
    """Except its to, which only the iq has (the proto-XEP, Note)."""
    inner = "<body>b</body><x xmlns='urn:x' xmlns:a0='urn:y' a0:z='1'/>"
    for xmlns in ("", " xmlns='jabber:client'"):
        assert (
            content.message_of_xml(
                f"<?xml version='1.0'?>\n<message{xmlns} type='chat' to='a@b'>"
                f"{inner}</message>\n",
                "a@b",
            )
            == f"<message xmlns='jabber:client' type='chat'>{inner}</message>"
        )


def test_xml_that_goes_into_a_message_is_put_into_one() -> None:
    """`--xml` with only the payload."""
    assert content.message_of_xml("<set xmlns='urn:x'><int a='1'/></set>", TO) == (
        "<message xmlns='jabber:client'><set xmlns='urn:x'><int a='1'/></set></message>"
    )


def test_a_body_alone_goes_into_a_message_as_its_body() -> None:
    """A body without a namespace means that of a message, as in a whole message."""
    assert content.message_of_xml("<body>b</body>", TO) == BODY


@pytest.mark.parametrize(
    "xml", ["", "b", "<a>", "<a/><b/>", "<a:b/>", "<a>\x00</a>", "<a>\ud800</a>"]
)
def test_xml_that_is_not_well_formed_is_the_callers_fault(xml: str) -> None:
    """A message that cannot be sent is not accepted."""
    with pytest.raises(LocalProtocolError, match="well-formed"):
        content.message_of_xml(xml, TO)


@pytest.mark.parametrize(
    ("attribute", "said"),
    [("from='eve@example.org'", "without `from`"), ("to='cat@x'", f"or to {TO}")],
)
def test_an_address_in_xml_that_would_be_overwritten_is_refused(
    attribute: str, said: str
) -> None:
    """It was dropped without a word, and the message went out from somebody else."""
    with pytest.raises(InvalidArgument, match=said):
        made(payload=f"<message {attribute}><body>b</body></message>")


# -- JSON ------------------------------------------------------------------


def received(payload: str) -> Message:
    return Message(None, xml=parse(payload))  # type: ignore[no-untyped-call]


@given(VALUES.filter(lambda value: value is not None))
def test_json_arrives_as_it_was_given(value: Json) -> None:
    """XEP-0335; of any characters, also of those that XML cannot carry."""
    payload = made(value=value).payload
    (element,) = parse(payload)
    assert element.tag == "{urn:xmpp:json:0}json"
    assert json_of(received(payload)) == value


def test_json_that_xml_cannot_carry_is_escaped() -> None:
    payload = made(value={"a": "\uffff\x00ü"}).payload
    assert json_of(received(payload)) == {"a": "\uffff\x00ü"}
    assert "\\uffff" in payload


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, {1, 2}, b"x", object(), {("a",): 1}, nested(100_000)]
)
def test_a_value_that_json_cannot_carry_is_the_callers_fault(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="json must be a value that JSON"):
        made(value=value)


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", "[1,]", "[" * 100_000, "1" * 5000, "<a/>", "\u00a01"],
)
def test_what_is_no_json_rejects_the_message(text: str) -> None:
    """A consumer that lets the error pass: the sender learns why."""
    text = text.replace("<", "&lt;")
    bad = f"<message xmlns='{CLIENT}'><json xmlns='urn:xmpp:json:0'>{text}</json></message>"
    with pytest.raises(RemoteProtocolError, match="no JSON") as refused:
        json_of(received(bad))
    assert (refused.value.condition, refused.value.type) == ("bad-request", "modify")
    with pytest.raises(RemoteProtocolError, match="there is no such element"):
        json_of(received(BODY))


def test_other_programs_read_our_json() -> None:
    """slixmpp's own plugin for XEP-0335 among them: one element with the text."""
    (element,) = parse(made(value={"on": True, "level": 0.5}).payload)
    assert json.loads(element.text or "") == {"on": True, "level": 0.5}


# -- one content, from and to ----------------------------------------------


@pytest.mark.parametrize(
    ("given_arguments", "said"),
    [
        ({}, "body must be a text"),
        ({"body": "b", "payload": "<a/>"}, "body must be left out .* a payload"),
        ({"body": "", "value": 1}, "body must be left out .* a json"),
        ({"payload": "<a/>", "value": 1}, "payload must be left out .* a json"),
        ({"body": b"b"}, "body must be a string"),
        ({"payload": b"<a/>"}, "payload must be a string"),
        ({"body": "b", "sender": "x@example.org"}, "sender must be left out"),
        ({"to": message(), "body": "b"}, "body must be left out"),
        ({"to": message(to=TO), "value": 0}, "json must be left out"),
        ({"to": message(to=TO), "sender": TO}, "sender must be left out"),
        ({"to": message()}, "a Message that has a `to`"),
        ({"to": message(to=TO, from_="eve@x")}, "from controller@example.org"),
    ],
)
def test_arguments_that_leave_nothing_or_too_much_are_refused(
    given_arguments: dict[str, Any], said: str
) -> None:
    """Nothing is dropped in silence."""
    with pytest.raises(InvalidArgument, match=said):
        made(**given_arguments)


def test_a_component_sends_for_its_jids() -> None:
    """By `sender`, or by the `from` of a whole message."""
    own = "lamp.devices.example.org"
    sent = made(body="b", sender="Lamp@Devices.example.org/x", component=True)
    assert sent == content.Addressed(TO, "lamp@devices.example.org/x", BODY)
    assert made(JID(TO), "b", sender=JID(own), component=True).sender == own
    assert made(message(to=TO, from_=own), component=True).sender == own
    with pytest.raises(InvalidArgument, match="sender must be a JID"):
        made(body="b", sender="@", component=True)


def test_a_whole_message_of_ones_own_is_taken() -> None:
    """As slixmpp makes it, with or without a `from`."""
    for sender in ({}, {"from_": "controller@example.org/desk"}):
        assert made(message(to=TO, **sender)) == content.Addressed(TO, "", BODY)
