"""Input of a stream is handled in short turns, in order, and none of it is lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest

from qos.stream import turns as module
from qos.stream.gate import Gate
from qos.stream.turns import Turns
from qos.testing.clients import new_client
from waiting import until

HEADER = (
    b"<stream:stream xmlns='jabber:client' id='s1' version='1.0'"
    b" xmlns:stream='http://etherx.jabber.org/streams'>"
)
STANZAS = 3_000
#: For which a turn has time, by the clock of these tests.
SLICES = 4
MUCH = b"".join(b"<iq type='result' id='%d'/>" % i for i in range(STANZAS))


class Transport:
    """Tells whether it is read."""

    def __init__(self) -> None:
        self.pauses: list[bool] = []

    def pause_reading(self) -> None:
        self.pauses.append(True)

    def resume_reading(self) -> None:
        self.pauses.append(False)

    def get_extra_info(self, _name: str, default: object = None) -> object:
        return default


class Reader:
    """A client that begins a stream, and what has come to it."""

    def __init__(self) -> None:
        self.client: Any = new_client("alice@localhost/a", "secret", {})
        self.client.enable_plaintext = True
        self.came: list[int] = []
        Gate.of(self.client).pass_to(self._take, "{jabber:client}iq")
        self.transport = Transport()
        self.client.transport = cast("Any", self.transport)
        self.client.init_parser()
        self.client.data_received(HEADER)

    def _take(self, xml: ET.Element) -> bool:
        self.came.append(int(xml.get("id", "")))
        return True

    async def all_of(self, count: int) -> None:
        await until(lambda: len(self.came) >= count)
        assert self.came == list(range(count))


class Clock:
    """Stands for the module `time`: it goes on when it is looked at."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        self.now_s += module._TURN_S / (SLICES + 0.5)
        return self.now_s


@pytest.fixture
async def reader(monkeypatch: pytest.MonkeyPatch) -> Reader:
    """In a running event loop; whatever the machine does, a turn has SLICES slices."""
    monkeypatch.setattr(module, "time", Clock())
    return Reader()


async def test_much_is_handled_in_turns_and_nothing_is_read_meanwhile(
    reader: Reader,
) -> None:
    """80 kB: one turn would last 30 ms and more."""
    reader.client.data_received(MUCH)
    for turns in range(1, 4):
        size = turns * SLICES * module._SLICE_BYTES
        assert len(reader.came) == MUCH[:size].count(b"/>")
        assert reader.transport.pauses == [True]
        await asyncio.sleep(0)
    await reader.all_of(STANZAS)
    assert reader.transport.pauses == [True, False]


async def test_what_comes_meanwhile_is_handled_after_it(reader: Reader) -> None:
    """A transport over TLS may have more in its hands when it is paused."""
    half = MUCH.index(b"<iq type='result' id='1500'")
    reader.client.data_received(MUCH[:half])
    reader.client.data_received(MUCH[half:])
    await reader.all_of(STANZAS)
    assert reader.transport.pauses == [True, False]


async def test_nobody_is_read_for_whom_there_is_no_room(reader: Reader) -> None:
    """The end of the turns does not resume what somebody else holds."""
    turns = Turns.of(reader.client)
    reader.client.data_received(MUCH)
    turns.hold()
    await reader.all_of(STANZAS)
    assert reader.transport.pauses[-1]
    turns.release()
    assert not reader.transport.pauses[-1]


async def test_a_hold_ends_when_all_is_handled(reader: Reader) -> None:
    """Released while more waits, it is read on at the end of the turns."""
    turns = Turns.of(reader.client)
    turns.hold()
    reader.client.data_received(MUCH)
    turns.release()
    assert reader.transport.pauses[-1]
    await reader.all_of(STANZAS)
    assert not reader.transport.pauses[-1]


async def test_a_new_connection_is_held_as_well(reader: Reader) -> None:
    """As soon as something comes by it."""
    Turns.of(reader.client).hold()
    reader.transport = Transport()
    reader.client.transport = reader.transport
    reader.client.data_received(b"<iq type='result' id='0'/>")
    assert (reader.came, reader.transport.pauses) == ([0], [True])


async def test_little_is_handled_at_once(reader: Reader) -> None:
    reader.client.data_received(b"<iq type='result' id='0'/>")
    assert (reader.came, reader.transport.pauses) == ([0], [])


async def test_all_that_has_come_is_handled_before_the_end_of_its_connection(
    reader: Reader,
) -> None:
    reader.client.data_received(MUCH)
    reader.client.connection_lost(None)
    assert reader.came == list(range(STANZAS))
    await asyncio.sleep(0)
    assert len(reader.came) == STANZAS


async def test_what_is_left_of_a_stream_is_not_read_as_part_of_the_next(
    reader: Reader,
) -> None:
    """Before STARTTLS anybody on the network path may have written it."""
    reader.client.data_received(MUCH)
    reader.client.init_parser()
    had = len(reader.came)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(reader.came) <= had
    reader.client.data_received(HEADER + b"<iq type='result' id='0'/>")
    assert reader.came[had:] == [0]


async def test_a_broken_stream_is_complained_of_once(
    reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    reader.client.data_received(b"<iq></wrong>" + MUCH)
    for _ in range(20):
        await asyncio.sleep(0)
    assert [each.msg for each in caplog.records].count("Parse error: %r") == 1
    assert reader.came == []
