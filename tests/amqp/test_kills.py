"""The gateway under `kill -9` while clients publish and consume through it.

Whatever was accepted is consumed once, or dead; whatever comes twice says so by a higher
delivery-count. Clients are proton's own, and try again as an application would.
"""

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from proton import (
    ConnectionException,
    Delivery,
    LinkException,
    Message,
    ProtonException,
)
from proton.utils import BlockingConnection, SendException

from amqp_bench import gateway
from frame_peer import (
    ACCEPTED,
    ATTACH,
    DISPOSITION,
    FLOW,
    NULL,
    TRANSFER,
    FramePeer,
    described,
)
from killed_services import Start, services
from qos.core.amqp import values
from qos.testing.ports import free_ports
from waiting import LIMIT_S, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(400)]

MESSAGES = 1500
KILLS = 6
REJECT_EVERY = 100
FAIL_EVERY = 70

_LOST = (ConnectionException, LinkException, ProtonException, OSError)


class Clients:
    """Publishers and consumers, each in a thread, and what they have seen."""

    def __init__(self, port: int) -> None:
        self._url = f"amqp://alice:secret@127.0.0.1:{port}"
        self.published: list[str] = []
        # Each delivery, in order: the id and its delivery-count.
        self.deliveries: dict[str, list[int]] = {}
        self.done: set[str] = set()
        self.rejected: set[str] = set()
        self.ended = threading.Event()

    def have_all(self) -> bool:
        """Whether each message has had its last outcome from a consumer."""
        return len(self.done) + len(self.rejected) == MESSAGES

    def _connect(self) -> BlockingConnection:
        return BlockingConnection(self._url, allowed_mechs="PLAIN", timeout=LIMIT_S)

    def _again(self, work: Callable[[BlockingConnection], None]) -> None:
        """Let it work on a new connection until it is done."""
        while not self.ended.is_set():
            connection = None
            try:
                connection = self._connect()
                work(connection)
            except SendException:
                raise
            except _LOST:
                self.ended.wait(0.1)
            else:
                return
            finally:
                if connection is not None:
                    with contextlib.suppress(*_LOST):
                        connection.close()

    def publish(self) -> None:
        """Publish all; what was not accepted is sent again, under its id."""

        def work(connection: BlockingConnection) -> None:
            sender = connection.create_sender("orders")
            while len(self.published) < MESSAGES:
                name = f"m{len(self.published)}"
                sender.send(Message(id=name, body=name * 10))
                self.published.append(name)

        self._again(work)

    def consume(self) -> None:
        """Consume until the end: most is accepted, some rejected, some fails first."""

        def work(connection: BlockingConnection) -> None:
            receiver = connection.create_receiver("orders", credit=20)
            while not self.ended.is_set():
                message = receiver.receive(timeout=60)
                name, number = str(message.id), int(str(message.id)[1:])
                seen = self.deliveries.setdefault(name, [])
                seen.append(message.delivery_count)
                if number % REJECT_EVERY == 0:
                    receiver.reject()
                    self.rejected.add(name)
                elif number % FAIL_EVERY == 0 and len(seen) == 1:
                    # Its own release(delivered=True) leaves the flag out.
                    assert receiver.fetcher is not None
                    receiver.fetcher.unsettled[0].local.failed = True
                    receiver.settle(Delivery.MODIFIED)
                else:
                    receiver.accept()
                    self.done.add(name)

        self._again(work)


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Start a gateway with a node `orders`."""
    async with services("gateway_process") as start:
        yield start


@pytest.mark.long
async def test_nothing_is_lost_or_comes_twice_without_saying_so(
    tmp_path: Path, start: Start
) -> None:
    (port,) = free_ports(1)
    clients = Clients(port)
    rng = random.Random(7)
    process = await start(tmp_path, port, "orders")
    threads = [
        asyncio.create_task(asyncio.to_thread(work))
        for work in (clients.publish, clients.consume, clients.consume)
    ]
    kills = 0
    try:
        async with asyncio.timeout(6 * LIMIT_S):
            while len(clients.published) < MESSAGES or kills < KILLS:
                await asyncio.sleep(rng.uniform(0.3, 0.9))
                assert not threads[0].done() or not threads[0].exception()
                if kills < KILLS:
                    await process.kill()
                    kills += 1
                    process = await start(tmp_path, port, "orders")
            # Locks of killed processes have ended at the start of the next one.
            while not clients.have_all():  # noqa: ASYNC110 - threads count them
                await asyncio.sleep(0.05)
            # The last outcomes have come, too.
            await until(lambda: is_empty(port, "orders"))
    finally:
        clients.ended.set()
        await process.kill()
        await asyncio.gather(*threads, return_exceptions=True)
    assert len(set(clients.published)) == MESSAGES
    async with gateway(tmp_path) as bench:
        assert not await bench.items("orders")
        letters = {
            item.origin_id.removeprefix("string:")
            for item in (await bench.items("letters")).values()
        }
        node = bench.engine
        stats: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        assert node.stats("orders", "alice@queue.example.org/x", stats.set_result)
        found = await stats
        assert isinstance(found, dict)
    assert letters == clients.rejected
    assert found["accepted"] + len(letters) == MESSAGES
    again = {name: seen for name, seen in clients.deliveries.items() if len(seen) > 1}
    assert again, "no delivery was interrupted: the kills came too late"
    for name, seen in again.items():
        assert sorted(set(seen)) == sorted(seen), (name, seen)


async def test_a_resumed_link_loses_nothing_when_the_gateway_is_killed(
    tmp_path: Path, start: Start
) -> None:
    """Killed between transfer and disposition, at either end of the queue.

    The maps of the new process are empty. So what the publisher has not settled comes
    again and is known by its message-id, and what the consumer has not settled comes
    again with a higher delivery-count.
    """
    (port,) = free_ports(1)
    properties = b"\x00\x53\x73" + values.pack_list([values.string("order-1")])
    message = properties + b"\x00\x53\x77\xa1\x03one"
    process = await start(tmp_path, port, "orders")
    try:
        async with FramePeer(port, container="p") as peer, FramePeer(port) as taker:
            await peer.attach("pub", target="orders", second=True)
            await taker.attach("mine", source="orders")
            taker.flow(5)
            await peer.frame(FLOW)
            peer.transfer(0, b"t1", message)
            # It is in the store, and the publisher does not get to know that.
            tag = (await taker.frame(TRANSFER)).value(2)
            await process.kill()
        assert isinstance(tag, bytes)
        process = await start(tmp_path, port, "orders")
        async with FramePeer(port, container="p") as peer, FramePeer(port) as taker:
            answer = await peer.attach(
                "pub", target="orders", second=True, unsettled={b"t1": NULL}
            )
            assert answer.unsettled == {}
            peer.transfer(0, b"t1", message)
            assert (await peer.frame(DISPOSITION)).state(4) == 0x24
            # Its outcome came too late.
            answer = await taker.attach(
                "mine", source="orders", unsettled={tag: ACCEPTED}
            )
            assert answer.unsettled == {}
            taker.flow(5)
            again = await taker.frame(TRANSFER)
            assert again.value(2) != tag
            assert not again.flag(8)
            # The header: durable, priority, ttl, first-acquirer, delivery-count.
            _, at = values.descriptor(again.payload, 0)
            end = values.end_of(again.payload, at)
            header = values.elements(again.payload[at:end])
            assert values.decode(header[4]) == ("unsigned", 1)
            taker.dispose(0, ACCEPTED, settled=True, receiver=True)
            # The answer to this comes after the commit of that.
            peer.transfer(1, b"t2", message.replace(b"order-1", b"order-2"))
            assert (await peer.frame(DISPOSITION)).state(4) == 0x24
    finally:
        await process.kill()
    async with gateway(tmp_path) as bench:
        assert [*await bench.items("orders")] == ["string:order-2"]


async def test_a_durable_link_is_resumed_after_a_kill(
    tmp_path: Path, start: Start
) -> None:
    """Killed between transfer and disposition: what was worked through does not come again.

    The consumer has done one of two items, and could not tell. The durable terminus of
    the new process still holds both, and applies the outcome that the attach tells.
    """
    (port,) = free_ports(1)
    process = await start(tmp_path, port, "orders")
    try:
        async with FramePeer(port, container="p") as peer, FramePeer(port) as taker:
            await peer.attach("pub", target="orders")
            await taker.attach("mine", source="orders", durable=True, second=True)
            taker.flow(5)
            await peer.frame(FLOW)
            tags = []
            for number in range(2):
                peer.transfer(number, b"t%d" % number, b"\x00\x53\x77\xa1\x01x")
                tags.append((await taker.frame(TRANSFER)).value(2))
            await process.kill()
        done, waits = tags
        assert isinstance(done, bytes)
        process = await start(tmp_path, port, "orders")
        async with FramePeer(port) as taker:
            answer = await taker.attach(
                "mine",
                source="orders",
                durable=True,
                second=True,
                unsettled={done: ACCEPTED},
            )
            assert answer.unsettled == {done: NULL, waits: NULL}
            taker.flow(5)
            found = {}
            for _ in range(2):
                each = await taker.frame(TRANSFER)
                found[each.value(2)] = each
            restated = found[done]
            assert (restated.flag(8), restated.flag(4)) == (True, True)
            assert (restated.state(7), restated.payload) == (0x24, b"")
            assert not found[waits].flag(8)
            delivery = found[waits].value(1)
            assert isinstance(delivery, int)
            taker.dispose(delivery, ACCEPTED, settled=False, receiver=True)
            assert (await taker.frame(DISPOSITION)).flag(3)
    finally:
        await process.kill()
    async with gateway(tmp_path) as bench:
        assert not await bench.items("orders")
        assert not await bench.items("letters")


async def is_empty(port: int, node: str) -> bool:
    """Whether a browser is shown nothing."""
    source = (values.string(node), *5 * (NULL,), values.symbol("copy"))
    async with FramePeer(port, container="looks") as peer:
        peer.send(
            ATTACH,
            *(values.string("look"), values.uint(0), values.boolean(True), NULL, NULL),
            *(described(0x28, *source), described(0x29)),
        )
        await peer.frame(ATTACH)
        peer.flow(1, drain=True)
        return (await peer.frame(TRANSFER, FLOW)).code == FLOW
