"""Transfers that nobody has asked for: they are not kept, not decoded, and they have a bound.

A link that was refused, or has ended, has no right to publish. A message that never ends
counts for its connection.
"""

import pytest

from amqp_bench import Bench
from frame_peer import (
    CLOSE,
    DETACH,
    DISPOSITION,
    FLOW,
    FramePeer,
)
from qos.amqp import bounds, incoming
from qos.core.amqp import messages, values
from qos.core.amqp.sections import Section, section
from qos.core.queue.requests import Delete
from waiting import until

LIMIT = b"amqp:link:transfer-limit-exceeded"

CHUNK = b"x" * 60_000


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The messages that are decoded."""
    found: list[bytes] = []
    reads = messages.read_message

    def counted(content: bytes, **options: object) -> object:
        found.append(content)
        return reads(content, **options)  # type: ignore[arg-type]  # handed on

    monkeypatch.setattr(incoming, "read_message", counted)
    return found


def message(text: str = "x", to: str = "") -> bytes:
    body = section(Section.VALUE, values.string(text))
    fields = [values.NULL, values.NULL, values.string(to)]
    properties = section(Section.PROPERTIES, values.pack_list(fields))
    return properties + body if to else body


def begun(text: bytes) -> bytes:
    """The begin of a message that goes on."""
    return b"\x00\x53\x75\xb0" + (1 << 20).to_bytes(4, "big") + text


# -- messages that never end -----------------------------------------------


async def test_unfinished_messages_of_a_connection_have_a_bound(bench: Bench) -> None:
    """256 links with a message each that never ends took 52 MB, outside of all bounds."""
    count = bounds.UNFINISHED_BYTES_MAX // len(CHUNK) + 1
    async with FramePeer(bench.port) as peer:
        for handle in range(count):
            await peer.attach(f"l{handle}", target="orders", handle=handle)
        for handle in range(count):
            peer.transfer(handle, b"t", begun(CHUNK), more=True, handle=handle)
        ended = await peer.frame(DETACH)
        assert b"amqp:resource-limit-exceeded" in ended[2]
        assert ended.value(0) == count - 1
        (connection,) = bench.gateway._connections
        assert 0 < connection._unfinished_bytes <= bounds.UNFINISHED_BYTES_MAX


@pytest.mark.parametrize("ends", ["aborted", "detached", "too large", "whole"])
async def test_what_is_not_unfinished_any_more_does_not_count(
    bench: Bench, ends: str
) -> None:
    async with FramePeer(bench.port) as peer:
        await peer.attach("mine", target="orders", timeout_s=0)
        peer.transfer(0, b"t", begun(CHUNK), more=True)
        await until(lambda: unfinished(bench) > 0)
        if ends == "aborted":
            peer.transfer(0, b"t", aborted=True)
        elif ends == "detached":
            peer.detach()
        elif ends == "too large":
            for _ in range(3):
                peer.transfer(0, b"t", CHUNK, more=True)
        else:
            peer.transfer(0, b"t", bytes(100))
        await until(lambda: unfinished(bench) == 0)


def unfinished(bench: Bench) -> int:
    (connection,) = bench.gateway._connections
    return connection._unfinished_bytes


# -- links without a right -------------------------------------------------


async def test_a_transfer_on_a_refused_link_ends_the_connection_unread(
    bench: Bench, read: list[bytes]
) -> None:
    """It had no credit, and what comes behind it is not even cut into frames."""
    async with FramePeer(bench.port) as peer:
        await peer.attach("mine", target="no such node")
        for number in range(100):
            peer.transfer(number, b"t%d" % number, message())
        assert LIMIT in (await peer.frame(CLOSE))[0]
    assert not read
    # A peer that goes on has nothing handled, until the connection is cut.
    await until(lambda: not bench.gateway._connections)


async def test_what_comes_on_a_link_that_has_ended_is_dropped_unread(
    bench: Bench, read: list[bytes]
) -> None:
    """As much as its credit was; its sender does not know yet that it has ended."""
    async with FramePeer(bench.port) as peer:
        peer.begin(1)
        await peer.attach("mine", target="orders")
        await peer.attach("mine", target="orders", channel=1)
        for number in range(bounds.CREDIT):
            peer.transfer(number, b"t%d" % number, message())
        peer.transfer(0, b"t", message(), channel=1)
        told = await peer.frame(DISPOSITION, CLOSE)
        assert (told.channel, told.state(4)) == (1, 0x24)
        assert len(read) == 1
        peer.transfer(bounds.CREDIT, b"t", message())
        assert LIMIT in (await peer.frame(CLOSE))[0]


async def test_a_publisher_that_ignores_its_credit_loses_its_link(bench: Bench) -> None:
    # All in one turn: none of them is written yet, and the credit is not renewed.
    now = bench.engine.now()
    bench.engine.payers.now = lambda: now
    async with FramePeer(bench.port) as peer:
        await peer.attach("mine", target="orders")
        await peer.frame(FLOW)
        for number in range(3 * bounds.CREDIT):
            peer.transfer(number, b"t%d" % number, message())
        # Its own end: if nothing was wrong, that is answered, and nobody waits.
        peer.detach()
        assert LIMIT in (await peer.frame(DETACH))[2]


async def test_a_message_to_a_node_without_a_right_is_refused_unread(
    bench: Bench, read: list[bytes]
) -> None:
    """By the anonymous relay: only its address is read."""
    async with FramePeer(bench.port) as peer:
        await peer.attach("mine", relay=True)
        peer.transfer(0, b"t", message(to="no such node"))
        told = await peer.frame(DISPOSITION)
        assert told.state(4) == 0x25
        assert b"amqp:not-found" in told[4]
        assert not read
        peer.transfer(1, b"u", message(to="orders"))
        assert (await peer.frame(DISPOSITION)).state(4) == 0x24


async def test_a_message_of_a_link_that_has_lost_its_right_is_refused_unread(
    bench: Bench, read: list[bytes]
) -> None:
    async with FramePeer(bench.port) as peer:
        await peer.attach("mine", target="orders")
        await bench.ask(Delete("orders"))
        peer.transfer(0, b"t", message())
        told = await peer.frame(DISPOSITION)
        assert told.state(4) == 0x25
        assert b"amqp:not-found" in told[4]
    assert not read
