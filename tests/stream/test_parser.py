"""A stanza is handled as soon as its last byte has come, however it was cut."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP

from qos.stream.gate import Gate
from qos.testing.clients import new_client

HEADER = (
    b"<stream:stream xmlns='jabber:client' id='s1' version='1.0'"
    b" xmlns:stream='http://etherx.jabber.org/streams'>"
)
#: Elements without content, and with a long attribute: a parser sees one tag.
STANZAS = (
    b"<iq type='result' id='1'/>",
    b"<iq type='result' id='" + b"2" * 3_000 + b"'/>",
)


@pytest.fixture
async def client() -> ClientXMPP:
    """Without a connection; the tests hand over what it receives."""
    client = new_client("alice@localhost/a", "secret", {})
    client.enable_plaintext = True
    return client


def takes(client: ClientXMPP) -> list[ET.Element]:
    """Give the client a gate; returns the stanzas that will have passed it."""
    taken: list[ET.Element] = []

    def take(xml: ET.Element) -> bool:
        taken.append(xml)
        return True

    Gate.of(client).pass_to(take, "{jabber:client}iq")
    return taken


def cuts(length: int) -> Iterator[int]:
    """Each cut of a short stanza, and some of a long one."""
    return iter(range(1, length, max(1, length // 50)))


@pytest.mark.parametrize("whole", STANZAS, ids=["short", "long"])
async def test_a_stanza_that_comes_in_two_pieces_is_handled_with_the_second(
    client: ClientXMPP, whole: bytes
) -> None:
    """Expat 2.6 would wait for more bytes, and its peer for an answer."""
    taken = takes(client)
    client.init_parser()
    client.data_received(HEADER)
    for cut in cuts(len(whole)):
        client.data_received(whole[:cut])
        assert taken == []
        client.data_received(whole[cut:])
        assert [each.get("id") for each in taken] == [whole.split(b"'")[3].decode()]
        taken.clear()


async def test_a_stream_that_has_begun_before_our_first_part_is_no_exception(
    client: ClientXMPP,
) -> None:
    """A plugin may be registered on a client that is connected."""
    client.init_parser()
    client.data_received(HEADER)
    taken = takes(client)
    client.data_received(STANZAS[0][:-1])
    client.data_received(STANZAS[0][-1:])
    assert len(taken) == 1


async def test_a_tag_that_is_wrong_ends_the_stream_with_its_last_byte(
    client: ClientXMPP, caplog: pytest.LogCaptureFixture
) -> None:
    """As slixmpp ends it when the tag comes in one piece."""
    taken = takes(client)
    client.init_parser()
    client.data_received(HEADER)
    wrong = b"<iq type='result' type='result' id='1'/>"
    client.data_received(STANZAS[0] + wrong[:-1])
    with caplog.at_level(logging.ERROR):
        client.data_received(wrong[-1:])
        assert [each.msg for each in caplog.records] == ["Parse error: %r"]
        client.data_received(STANZAS[0])
    assert {each.msg for each in caplog.records} == {"Parse error: %r"}
    assert len(taken) == 1
