"""The wire: which texts share a write, and what is said of a lost connection."""

import asyncio
from typing import Any

import pytest
from slixmpp import ClientXMPP

from qos.stream.stream_management import StreamManagement
from qos.stream.wire import Wire


class Transport:
    """The part of a connection that the wire uses."""

    closing = False

    def is_closing(self) -> bool:
        return self.closing


class Stream:
    """A wire, and what it writes."""

    def __init__(self) -> None:
        client: Any = ClientXMPP("bob@localhost/b", "")
        self.client = client
        self.transport = client.transport = Transport()
        self.written: list[str] = []
        client.send_raw = self.written.append
        self.wire = Wire(client, StreamManagement(client))


@pytest.fixture
async def stream() -> Stream:
    return Stream()


async def test_what_is_sent_in_a_turn_goes_in_short_bursts(stream: Stream) -> None:
    """So that the server is at work on the first while the others are made."""
    texts = [f"<iq id='{number}'/>" for number in range(11)]
    assert all(stream.wire.send(text) for text in texts)
    assert stream.written == ["".join(texts[:8])]
    await asyncio.sleep(0)
    assert stream.written == ["".join(texts[:8]), "".join(texts[8:])]


async def test_a_lone_text_goes_at_the_end_of_its_turn(stream: Stream) -> None:
    for number in range(2):
        stream.wire.send(f"<iq id='{number}'/>")
        await asyncio.sleep(0)
    assert stream.written == ["<iq id='0'/>", "<iq id='1'/>"]


async def test_nothing_is_kept_for_a_connection_that_is_gone(stream: Stream) -> None:
    """Its sender repeats it; a later connection must not get it."""
    stream.transport.closing = True
    assert not stream.wire.send("<iq id='1'/>")
    stream.client.transport = None
    assert not stream.wire.send("<iq id='2'/>")
    stream.client.transport = Transport()
    await asyncio.sleep(0)
    assert stream.written == []


async def test_what_was_gathered_ends_with_its_connection(stream: Stream) -> None:
    stream.wire.send("<iq id='1'/>")
    stream.wire.session_lost()
    await asyncio.sleep(0)
    assert stream.written == []


async def test_closing_sends_what_was_gathered(stream: Stream) -> None:
    stream.wire.send("<iq id='1'/>")
    stream.wire.close()
    assert stream.written == ["<iq id='1'/>"]
