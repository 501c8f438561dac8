"""A stanza that slixmpp cannot take ends alone, and is counted."""

from __future__ import annotations

import logging
import math
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP
from slixmpp.jid import JID, InvalidJID

from qos.stream.gate import Gate
from qos.stream.refusals import Refusals
from qos.testing.clients import new_client

#: Servers let it pass; by slixmpp's rules it is none.
BAD = "x@queue.localhost/\U0001f64c"

HEADER = (
    b"<stream:stream xmlns='jabber:client' id='s1' version='1.0'"
    b" xmlns:stream='http://etherx.jabber.org/streams'>"
)


class Client:
    """A client in a session, whose stanzas the test hands over and gets."""

    def __init__(self, client: ClientXMPP) -> None:
        self.client = client
        self.sent: list[str] = []
        self.dispatched: list[ET.Element] = []
        client.send_raw = self.sent.append  # type: ignore[method-assign,assignment]
        client.register_plugin("xep_0198")
        self.management: Any = client.plugin["xep_0198"]
        self.management.enabled_in = True
        client._spawn_event = self.dispatched.append  # type: ignore[method-assign,assignment]
        client._session_started = True
        self.gate = Gate.of(client)
        client.init_parser()
        client.data_received(HEADER)

    def receive(self, xml: str) -> None:
        self.client.data_received(xml.encode())

    @property
    def counted(self) -> int:
        return int(self.management.handled)


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr("qos.stream.turns._TURN_S", math.inf)
    made = new_client("alice@localhost/a", "secret", {})
    made.enable_plaintext = True
    return Client(made)


def test_slixmpp_cannot_read_the_address_of_these_tests() -> None:
    with pytest.raises(InvalidJID):
        JID(BAD)


@pytest.mark.parametrize("name", ["from", "to"])
async def test_a_request_with_an_address_that_is_none_is_answered(
    client: Client, name: str
) -> None:
    """It would raise wherever slixmpp reads it; its sender learns why."""
    other = {"from": "to", "to": "from"}[name]
    client.receive(f"<iq type='get' id='7' {name}='{BAD}' {other}='y@localhost/z'/>")
    (refusal,) = map(ET.fromstring, client.sent)
    assert refusal.attrib == {
        "type": "error",
        "id": "7",
        other: BAD,
        name: "y@localhost/z",
    }
    (error,) = refusal
    assert error.attrib == {"type": "modify"}
    assert error[0].tag.endswith("jid-malformed")
    assert client.dispatched == []
    assert client.counted == 1


async def test_what_cannot_be_answered_is_dropped_and_said_once(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """An attacker can write as much as he likes."""
    with caplog.at_level(logging.WARNING, "qos"):
        for each in ("iq type='result'", "iq type='error'", "message", "presence"):
            client.receive(f"<{each} from='{BAD}' id='7'/>")
    assert (client.sent, client.dispatched) == ([], [])
    assert client.counted == 4
    assert len(caplog.messages) == 1
    assert "is no address" in caplog.text


async def test_what_waits_for_an_acknowledgement_is_read_again_so_it_is_not_sent(
    client: Client,
) -> None:
    """XEP-0198 keeps what was sent, and slixmpp would read its address."""
    client.management.enabled_out = True
    client.receive(f"<iq type='get' id='7' from='{BAD}'/>")
    assert (client.sent, client.dispatched) == ([], [])


async def test_an_address_is_looked_at_once_and_not_for_ever(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger has as many resources as he likes."""
    looks: list[str] = []

    def jid(address: str) -> JID:
        looks.append(address)
        return JID(address)

    monkeypatch.setattr("qos.stream.refusals.JID", jid)
    for _ in range(3):
        client.receive("<message from='x@localhost/y' to='alice@localhost/a'/>")
    assert looks == ["x@localhost/y", "alice@localhost/a"]
    for number in range(3_000):
        client.receive(f"<message from='x@localhost/{number}'/>")
    assert len(client.dispatched) == 3_003
    refusals = client.gate._refusals
    assert isinstance(refusals, Refusals)
    assert len(refusals.readable) < 1_100


async def test_a_stanza_that_was_cut_is_counted(client: Client) -> None:
    """Else the server would send it again after each resumption."""
    deep = "<a>" * 100 + "</a>" * 100
    for each in ("iq type='get'", "message", "presence"):
        end = each.split(" ", maxsplit=1)[0]
        client.receive(f"<{each} from='x@localhost/y' id='7'>{deep}</{end}>")
    assert client.counted == 3
    assert client.dispatched == []
