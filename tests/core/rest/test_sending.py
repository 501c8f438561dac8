"""A post as an assured message, and the outcome of one."""

import json
from typing import Any

import pytest

from qos.core.contents import unwrap
from qos.core.message.model import Ended, Level, Outgoing, OutgoingState
from qos.core.queue.requests import Refusal
from qos.core.record import replace
from qos.core.rest.one_off import OneOffLinks
from qos.core.rest.sending import TTL_S, Sending, reading_sending, render_outcome
from qos.steps import at_once

LAMP = "lamp@example.org/1"
LIGHT = "<light xmlns='urn:example:light'/>"
HEAD, TAIL = "<message xmlns='jabber:client'>", "</message>"


def read(body: bytes, kind: str = "", of: str = "", **query: str) -> Sending:
    headers = {"content-type": kind} if kind else {}
    return at_once(reading_sending(body, headers, query, now=1000.0, original_from=of))


def content(sending: Sending) -> str:
    assert sending.payload.startswith(HEAD)
    assert sending.payload.endswith(TAIL)
    return sending.payload[len(HEAD) : -len(TAIL)]


@pytest.mark.parametrize(
    "kind", ["text/plain", "Text/Plain; charset=UTF-8", "text/plain;charset=us-ascii"]
)
def test_a_text_becomes_the_body(kind: str) -> None:
    assert content(read("a<ü\r".encode(), kind)) == "<body>a&lt;ü&#13;</body>"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"a", "text/html"),
        (b"a", "text/plain; charset=latin-1"),
        (b"\xff", "text/plain"),
        (b"\0", "text/plain"),
        (b"<a/>", "application/xml"),
        (b"<body xmlns='xmpp-qos:http:0'/>", "application/xml"),
        (LIGHT.encode(), "text/plain+zip"),
        (b"", ""),
    ],
)
@pytest.mark.parametrize("of", ["", "eve@example.org"])
def test_any_other_body_is_kept_byte_for_byte(body: bytes, kind: str, of: str) -> None:
    inner = content(read(body, kind, of)).partition("<addresses ")[0]
    found = unwrap(inner)
    assert found is not None
    assert found[0] == body
    assert found[1] in {kind, "application/octet-stream"}


def test_an_element_is_sent_as_it_is() -> None:
    assert content(read(LIGHT.encode(), "application/xml")) == LIGHT


def test_the_service_names_the_user_it_speaks_for() -> None:
    """XEP-0033: ofrom."""
    sending = read(LIGHT.encode(), "application/xml", "eve@example.org")
    assert content(sending) == (
        f"{LIGHT}<addresses xmlns='http://jabber.org/protocol/address'>"
        "<address type='ofrom' jid='eve@example.org'/></addresses>"
    )


@pytest.mark.parametrize(
    "namespace",
    [
        "http://jabber.org/protocol/pubsub#event",
        "http://jabber.org/protocol/address",
        "jabber:client",
        "jabber:x:data",
        "urn:xmpp:forward:0",
        "urn:ieee:iot:qos:1.0",
        "urn:nf:iot:qos:1.0",
        "urn:ietf:params:xml:ns:xmpp-stanzas",
        "http://etherx.jabber.org/streams",
        "vcard-temp",
        "storage:bookmarks",
        "xmpp-qos:store:0",
    ],
)
def test_nobody_speaks_xmpp_as_the_service(namespace: str) -> None:
    """A device would take it for the service's own; from a user's address it may."""
    body = f"<event xmlns='{namespace}'/>".encode()
    with pytest.raises(Refusal, match=namespace) as refused:
        read(body, "application/xml", "eve@example.org")
    assert refused.value.condition == "not-allowed"
    assert content(read(body, "application/xml")) == body.decode()


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"content-encoding": "gzip"}, {}),
        ({"content-language": "de"}, {}),
        ({"link": "<a>; rel=b"}, {}),
        ({"msg-properties": "a=1"}, {}),
        ({"content-type": "text"}, {}),
        ({}, {"priority": "1"}),
        ({}, {"delay": "1"}),
        ({}, {"ttl": "0"}),
        ({}, {"expiration": "1"}),
    ],
)
def test_what_would_be_lost_is_refused(
    headers: dict[str, str], query: dict[str, str]
) -> None:
    name = next(iter([*headers, *query]))
    with pytest.raises(Refusal, match=name) as refused:
        at_once(reading_sending(b"", headers, query, now=1000.0))
    assert refused.value.condition == "bad-request"


def test_a_message_ends_after_a_week_unless_the_user_says_when() -> None:
    assert read(b"").ttl_s == TTL_S
    assert read(b"", ttl="1500").ttl_s == 1.5
    assert read(b"", ttl="1", expiration="1002000").ttl_s == 2.0


def test_the_digest_is_of_the_content() -> None:
    """Not of the ttl, nor of who sends it."""
    one = read(b"1", "text/plain", "eve@example.org", ttl="1").digest
    assert one == read(b"1", "text/plain").digest
    assert one != read(b"2", "text/plain").digest
    assert one != read(b"1", "text/html").digest


def test_the_id_of_a_message_is_of_one_user_device_and_link() -> None:
    """The same after a restart; nobody can make it up."""
    links = OneOffLinks("key", 0.0)
    msg_id = links.message_id(LAMP, "shop@x", "k")
    assert len(msg_id) == 32
    assert OneOffLinks("key", 0.0).message_id(LAMP, "shop@x", "k") == msg_id
    others = {
        OneOffLinks("other", 0.0).message_id(LAMP, "shop@x", "k"),
        links.message_id("till@x/1", "shop@x", "k"),
        links.message_id(LAMP, "eve@x", "k"),
        links.message_id(LAMP, "shop@x", "l"),
    }
    assert len(others | {msg_id}) == 5


def ended(state: OutgoingState, **changes: Any) -> Ended:
    record = Outgoing(
        msg_id="m",
        seq=1,
        to=LAMP,
        level=Level.ASSURED,
        payload="",
        size=0,
        created_at=1000.0,
        offer_id="o",
        deliver_id="d",
        attempts=3,
        state=state,
    )
    return replace(Ended.of(record, 1001.5), **changes)


def shown(message: Outgoing | Ended) -> dict[str, object]:
    return dict(json.loads(render_outcome(message)))


def test_an_outcome_says_how_it_ended_and_why() -> None:
    assert shown(ended(OutgoingState.DELIVERED, condition="conflict")) == {
        "to": LAMP,
        "outcome": "delivered",
        "seconds": 1.5,
        "attempts": 3,
    }
    refused = ended(OutgoingState.NOT_DELIVERED, condition="gone", condition_by=LAMP)
    assert shown(refused)["outcome"] == "not-delivered"
    assert shown(refused)["condition"] == "gone"
    assert str(shown(refused)["reason"]).startswith("gone, answered for lamp@")
    doubt = shown(ended(OutgoingState.IN_DOUBT, ended_at=999.0))
    assert (doubt["outcome"], doubt["seconds"]) == ("in-doubt", 0)
    assert doubt["reason"] == "no answer in time"
    assert "condition" not in doubt


@pytest.mark.parametrize("state", [OutgoingState.OFFERED, OutgoingState.DELIVERED])
def test_an_outcome_is_pending_until_it_is_on_disk(state: OutgoingState) -> None:
    record = Outgoing(
        msg_id="m",
        seq=1,
        to=LAMP,
        level=Level.ASSURED,
        payload="",
        size=0,
        created_at=1000.0,
        offer_id="o",
        deliver_id="d",
        attempts=1,
        state=state,
        condition="service-unavailable",
    )
    assert shown(record) == {
        "to": LAMP,
        "outcome": "pending",
        "attempts": 1,
        "condition": "service-unavailable",
    }
