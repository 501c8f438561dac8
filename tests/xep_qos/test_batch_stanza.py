"""A request or answer in a batch means the same as alone."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.message.batch import Element
from qos.core.message.effects import Answer, Transmit
from qos.core.message.model import NAMESPACES, Level, Outgoing, Route
from qos.core.message.receiver_table import Request
from xep_qos import batch_stanza, stanza
from xep_qos.content import message_with_body

CLIENT = "jabber:client"
PEER, OWN = "lamp@x/1", "controller@x/c"

IDS = st.one_of(
    st.text("0123456789abcdef", min_size=1, max_size=32),
    st.text(
        st.characters(
            exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"
        ),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(["'\"<>&", "\t\n\r", "]]>", "b:id='x'"]),
)


@st.composite
def transmits(draw: st.DrawFn) -> Transmit:
    """A step of any message."""
    level = draw(st.sampled_from([Level.ACKNOWLEDGED, Level.ASSURED]))
    steps = ["offer"] if level is Level.ACKNOWLEDGED else ["offer", "deliver"]
    record = Outgoing(
        msg_id=draw(IDS),
        seq=1,
        to=PEER,
        level=level,
        payload=message_with_body(draw(IDS)),
        size=1,
        created_at=0.0,
        offer_id=draw(IDS),
        deliver_id=draw(IDS),
        hold=draw(st.none() | IDS),
    )
    route = Route(PEER, draw(st.sampled_from(NAMESPACES)), True)
    return Transmit(draw(st.sampled_from(steps)), record, route)


def as_stamped(text: str, source: str, to: str) -> ET.Element:
    """The stanza as the server passes it on."""
    xml = ET.fromstring(text.replace("<iq", f"<iq xmlns='{CLIENT}'", 1))  # noqa: S314
    xml.set("from", source)
    xml.set("to", to)
    return xml


def read_alone(xml: ET.Element) -> Request:
    element = stanza.request_element(xml)
    assert element is not None
    return stanza.parse_request(xml, element)


@given(transmit=transmits(), store_id=IDS)
def test_a_request_means_the_same_in_a_batch_and_alone(
    transmit: Transmit, store_id: str
) -> None:
    """Only the carriage differs: the receiver cannot tell which way it came."""
    text = stanza.render_request(transmit, store_id=store_id)
    alone = read_alone(as_stamped(text, OWN, PEER))
    if alone.kind == "acknowledged":
        assert alone.iq_id == transmit.record.offer_id
    inside = batch_stanza.render_element(transmit)
    text = batch_stanza.render_batch("b", PEER, "", [inside], store_id=store_id)
    iq = as_stamped(text, OWN, PEER)
    batch = batch_stanza.batch_in(iq)
    assert batch is not None
    ((iq_id, element),) = batch_stanza.parse_batch(iq, batch)
    assert alone == batch_stanza.parse_request(iq_id, element, iq, batch, Request, None)


@given(transmit=transmits(), hold=IDS)
def test_an_answer_means_the_same_in_a_batch_and_alone(
    transmit: Transmit, hold: str
) -> None:
    """Otherwise a message could end in two ways."""
    text = stanza.render_request(transmit, store_id="s")
    request = read_alone(as_stamped(text, OWN, PEER))
    for answer in (
        Answer("received", hold),
        Answer("received", hold, credit=30),
        Answer("result", hold),
        Answer("result"),
        Answer("error", "", "not-allowed", "cancel"),
        Answer("error", hold, "item-not-found", "cancel"),
        Answer("error", "", "resource-constraint", "wait"),
        Answer("rejected", hold, "item-not-found", "cancel"),
        Answer("rejected", hold, "conflict", "cancel", "<it's there>", True),
    ):
        alone = stanza.parse_reply(
            as_stamped(stanza.render_answer(request, answer), PEER, OWN)
        )
        element = batch_stanza.render_answer(request.iq_id, request.msg_id, answer)
        text = batch_stanza.render_answers("b", OWN, "", [element])
        (reply,) = batch_stanza.parse_answers(as_stamped(text, PEER, OWN))
        assert reply == replace(alone, namespace=None)


@pytest.mark.parametrize(
    ("answer", "condition"),
    [
        ("<error id='1'/>", "undefined-condition"),
        ("<error id='1'><x xmlns='urn:x'/></error>", "undefined-condition"),
        (
            "<error id='1'><text xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'>t</text>"
            "<gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>",
            "gone",
        ),
    ],
)
def test_an_error_without_a_condition_is_an_error(answer: str, condition: str) -> None:
    """As it is for an iq (RFC 6120 §8.3.2)."""
    text = batch_stanza.render_answers("b", OWN, "", [answer])
    (reply,) = batch_stanza.parse_answers(as_stamped(text, PEER, OWN))
    assert (reply.error, reply.error_type) == (condition, "cancel")


def test_a_hold_too_long_to_be_repeated_answers_nothing() -> None:
    """Otherwise we would have to send it with each `deliver`."""
    long = f"<received id='1' msgId='m' hold='{'h' * 1025}'/>"
    text = batch_stanza.render_answers("b", OWN, "", [long])
    assert not list(batch_stanza.parse_answers(as_stamped(text, PEER, OWN)))


@given(transmit=transmits())
def test_the_size_of_an_element_is_that_of_what_is_sent(transmit: Transmit) -> None:
    """Batches are cut by this size."""
    element = batch_stanza.render_element(transmit)
    texts = [
        batch_stanza.render_batch("b", PEER, "", elements, store_id="s")
        for elements in ([element], [])
    ]
    longer, shorter = (len(text.encode()) for text in texts)
    assert longer - shorter == Element("i", transmit, batch_stanza.render_element).size
