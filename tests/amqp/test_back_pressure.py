"""Items are read and rendered for a consumer only while its connection has room."""

import asyncio
from pathlib import Path

import pytest

from amqp_bench import Bench, gateway
from frame_peer import ATTACH, FLOW, NULL, TRANSFER, TRUE, FramePeer, described
from qos.amqp import bounds, outgoing
from qos.core.amqp import values
from qos.core.amqp.item_rendering import render_item
from qos.core.queue.item import Item
from qos.engine.payers import STEP_S, TURN_S
from qos.testing import ManualClock
from waiting import limit, until

#: As text of an item: 140 kB, and 60 of them are many times what a socket takes.
SIZE, COUNT = 140_000, 60


async def filled(bench: Bench, count: int = COUNT) -> None:
    await bench.create("orders")
    for number in range(count):
        payload = f"<work xmlns='urn:x'>{number:05}{'x' * SIZE}</work>"
        await bench.publish_named("orders", {f"item-{number:05}": payload})


def grant(peer: FramePeer, credit: int) -> None:
    window = values.uint(100_000)
    session = (values.uint(0), window, values.uint(0), window)
    peer.send(FLOW, *session, values.uint(0), values.uint(0), values.uint(credit))


async def test_items_for_a_consumer_that_does_not_read_wait_in_the_store(
    tmp_path: Path,
) -> None:
    """126 MB for one took 497 MB of memory."""
    async with gateway(tmp_path) as bench, FramePeer(bench.port) as peer:
        await filled(bench)
        await peer.attach("in", source="orders")
        peer._reader._transport.pause_reading()  # type: ignore[attr-defined]
        grant(peer, 1000)
        await bench.until_locked("orders", COUNT)
        (connection,) = bench.gateway._connections
        (link,) = bench.gateway.consumers.values()
        assert isinstance(link, outgoing.OutgoingLink)
        await until(lambda: connection._full)
        # Others are served; what is there for this one stays where it is.
        async with limit():
            await bench.publish("orders", "<other xmlns='urn:x'/>")
            await bench.engine.payers.turn("bob@queue.example.org")
        assert connection._tcp is not None
        unsent = link._link.session.outgoing_bytes
        unsent += connection._tcp.get_write_buffer_size()
        assert unsent < bounds.SEND_BYTES_MAX + 4 * SIZE
        # It reads after all, and gets everything once, in order.
        peer._reader._transport.resume_reading()  # type: ignore[attr-defined]
        numbers = await numbers_read(peer)
        assert numbers == list(range(COUNT))


async def test_copies_for_a_browser_that_does_not_read_wait_in_the_store(
    tmp_path: Path,
) -> None:
    """It has asked for all of them at once, and none is locked."""
    async with gateway(tmp_path) as bench, FramePeer(bench.port) as peer:
        await filled(bench)
        await look_at_copies(peer)
        peer._reader._transport.pause_reading()  # type: ignore[attr-defined]
        grant(peer, 1000)
        (connection,) = bench.gateway._connections
        await until(lambda: connection._full)
        await bench.items("orders")
        await bench.engine.payers.turn("bob@queue.example.org")
        assert connection._tcp is not None
        (link,) = connection._links._attached
        unsent = link.session.outgoing_bytes + connection._tcp.get_write_buffer_size()
        assert unsent < bounds.SEND_BYTES_MAX + 4 * SIZE
        peer._reader._transport.resume_reading()  # type: ignore[attr-defined]
        numbers = await numbers_read(peer)
        assert numbers == list(range(COUNT))


async def look_at_copies(peer: FramePeer) -> None:
    copy = (values.string("orders"), *5 * (NULL,), values.symbol("copy"))
    peer.send(
        ATTACH,
        *(values.string("look"), values.uint(0), TRUE, NULL, NULL),
        *(described(0x28, *copy), described(0x29)),
    )
    await peer.frame(ATTACH)


async def numbers_read(peer: FramePeer) -> list[int]:
    """The numbers of all items, in the order in which they come."""
    found = b""
    numbers: list[int] = []
    while len(numbers) < COUNT:
        frame = await peer.frame(TRANSFER)
        found += frame.payload
        if not frame.flag(5):
            at = found.index(b"<work xmlns='urn:x'>") + 20
            numbers.append(int(found[at : at + 5]))
            found = b""
    return numbers


async def test_large_items_for_a_reader_leave_no_long_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A credit of 1,000 for such items held everybody up for more than a second.

    By a clock that moves while an item is rendered, as long as a step should take.
    """
    clock = ManualClock()
    render, handle = render_item, asyncio.Handle._run
    turns_s: list[float] = []

    def dear(item: Item, payload: str, now: float) -> bytes:
        clock.advance(STEP_S)
        return render(item, payload, now)

    def run(self: asyncio.Handle) -> None:
        began = clock.now()
        handle(self)
        turns_s.append(clock.now() - began)

    async with gateway(tmp_path) as bench:
        bench.engine.payers.now = clock.now
        await filled(bench)
        async with FramePeer(bench.port) as peer:
            await peer.attach("in", source="orders")
            with monkeypatch.context() as patch:
                patch.setattr(outgoing, "render_item", dear)
                patch.setattr(asyncio.Handle, "_run", run)
                grant(peer, 1000)
                whole = 0
                while whole < COUNT:
                    frame = await peer.frame(TRANSFER)
                    whole += not frame.flag(5)
    assert clock.now() > (COUNT - 0.5) * STEP_S
    # With the step that was begun before its end.
    assert max(turns_s) < TURN_S + 1.5 * STEP_S


async def test_a_consumer_that_goes_gives_its_waiting_items_back(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path) as bench:
        await filled(bench, 20)
        async with FramePeer(bench.port) as peer:
            await peer.attach("in", source="orders", timeout_s=0)
            peer._reader._transport.pause_reading()  # type: ignore[attr-defined]
            grant(peer, 1000)
            await bench.until_locked("orders", 20)
        await bench.until_locked("orders", 0)
        await until(lambda: not bench.engine._outputs._waiting)
