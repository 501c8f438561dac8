"""The wire: which texts share a write, and what is said of a lost connection."""

import asyncio
import socket
from typing import Any, Self

import pytest
from slixmpp import ClientXMPP

from qos.stream.stream_management import StreamManagement
from qos.stream.wire import Wire


class Transport:
    """The part of a connection that the wire uses."""

    closing = False
    quickened = 0

    def is_closing(self) -> bool:
        return self.closing

    def get_extra_info(self, _name: str) -> Self:
        return self

    def setsockopt(self, level: int, option: int, value: int) -> None:
        assert (level, option, value) == (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        self.quickened += 1


class Stream:
    """A wire, and what it writes."""

    def __init__(self) -> None:
        client: Any = ClientXMPP("bob@localhost/b", "")
        self.client = client
        self.transport = client.transport = Transport()
        self.written: list[str] = []
        client.send_raw = self.written.append
        self.wire = Wire(client, StreamManagement(client))


async def two_turns() -> None:
    """Let the loop handle all that is ready, and all that this has made ready."""
    for _ in range(2):
        await asyncio.sleep(0)


@pytest.fixture
async def stream() -> Stream:
    return Stream()


async def test_what_is_sent_in_a_turn_goes_in_short_bursts(stream: Stream) -> None:
    """So that the server is at work on the first while the others are made."""
    texts = [f"<iq id='{number}'/>" for number in range(11)]
    assert all(stream.wire.send(text) for text in texts)
    assert stream.written == ["".join(texts[:8])]
    await two_turns()
    assert stream.written == ["".join(texts[:8]), "".join(texts[8:])]


async def test_a_lone_text_goes_after_the_next_turn(stream: Stream) -> None:
    for number in range(2):
        stream.wire.send(f"<iq id='{number}'/>")
        await two_turns()
    assert stream.written == ["<iq id='0'/>", "<iq id='1'/>"]


async def test_those_that_an_answer_wakes_send_in_the_same_write(
    stream: Stream,
) -> None:
    """An answer ends a message; its task wakes in the next turn, and sends another."""
    stream.wire.quicken()
    stream.wire.send("<iq id='1'/>")
    await asyncio.sleep(0)
    stream.wire.send("<iq id='2'/>")
    assert stream.written == []
    await asyncio.sleep(0)
    assert stream.written == ["<iq id='1'/><iq id='2'/>"]


async def test_a_batch_goes_at_once_after_what_was_gathered(stream: Stream) -> None:
    """The peer works on it while the next stanza of the same read is handled."""
    stream.wire.send("<iq id='1'/>")
    stream.wire.send("<iq id='2'/>", at_once=True)
    assert stream.written == ["<iq id='1'/><iq id='2'/>"]
    await two_turns()
    assert stream.written == ["<iq id='1'/><iq id='2'/>"]


async def test_each_read_is_acknowledged_quickly(stream: Stream) -> None:
    """The kernel forgets the setting at each read, and there may be one in each turn."""
    stream.wire.session_started(resumed=False)
    for turn in (1, 2):
        stream.wire.quicken()
        stream.wire.quicken()
        assert stream.transport.quickened == turn
        await asyncio.sleep(0)


async def test_nothing_is_kept_for_a_connection_that_is_gone(stream: Stream) -> None:
    """Its sender repeats it; a later connection must not get it."""
    stream.transport.closing = True
    assert not stream.wire.send("<iq id='1'/>")
    stream.client.transport = None
    assert not stream.wire.send("<iq id='2'/>")
    stream.client.transport = Transport()
    await two_turns()
    assert stream.written == []


async def test_what_was_gathered_ends_with_its_connection(stream: Stream) -> None:
    stream.wire.send("<iq id='1'/>")
    stream.wire.session_lost()
    await two_turns()
    assert stream.written == []


async def test_closing_sends_what_was_gathered(stream: Stream) -> None:
    stream.wire.send("<iq id='1'/>")
    stream.wire.close()
    assert stream.written == ["<iq id='1'/>"]
