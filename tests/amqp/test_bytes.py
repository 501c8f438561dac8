"""Bytes on the wire: what leaves is what came, and garbage harms nobody else."""

import asyncio
import random
import select
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from proton import Delivery

from amqp_bench import Bench, gateway
from amqp_messages import sections
from killed_services import services
from qos.core.amqp.messages import read_message
from qos.core.amqp.sections import Section, split
from qos.testing.ports import free_ports
from random_frames import random_stream
from raw_amqp import RawAmqp
from waiting import LIMIT_S

MESSAGES = 1300
STREAMS = 250


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with gateway(tmp_path) as bench:
        # An id is free again when its message has been consumed.
        await bench.create("orders", dedupe_window="0")
        yield bench


def generated(count: int) -> list[bytes]:
    """The same messages in each run."""
    found: list[bytes] = []

    @seed(5)
    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(sections())
    def collect(parts: list[tuple[Section, bytes]]) -> None:
        found.append(b"".join(written for _, written in parts))

    collect()
    return [each for each in found if split(each).bare and lives(each)]


def lives(message: bytes) -> bool:
    """Whether it does not expire on its way, on a machine under load."""
    entry = read_message(message, new_id=str, now=0.0, bytes_max=1 << 20).entry
    return entry.ttl is None or entry.ttl > 100


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_the_bare_message_crosses_the_wire_byte_for_byte(bench: Bench) -> None:
    """All sections, in many encodings and any order: nothing is written anew."""
    messages = generated(MESSAGES)
    assert len(messages) > 1000

    def cross() -> list[bytes]:
        client = RawAmqp(bench.port)
        sender = client.sender("orders")
        receiver = client.receiver("orders", 0)
        found = []
        for each in messages:
            assert client.send(sender, each) == Delivery.ACCEPTED
            found.append(client.receive(receiver))
        client.close()
        return found

    for came, left in zip(messages, await asyncio.to_thread(cross), strict=True):
        before, after = split(came), split(left)
        assert after.bare == before.bare
        assert after.values.get(Section.MESSAGE_ANNOTATIONS) == before.values.get(
            Section.MESSAGE_ANNOTATIONS
        )
        assert Section.DELIVERY_ANNOTATIONS not in after.values


async def test_what_is_no_message_is_rejected(bench: Bench) -> None:
    def send() -> list[int]:
        client = RawAmqp(bench.port)
        sender = client.sender("orders")
        states = [client.send(sender, each) for each in (b"garbage", b"\x00\x53\x77")]
        states.append(client.send(sender, b"\x00\x53\x77\x40"))
        client.close()
        return states

    rejected = int(Delivery.REJECTED)
    assert await asyncio.to_thread(send) == [rejected, rejected, int(Delivery.ACCEPTED)]


def a_session(port: int) -> bytes:
    """The bytes of a client that publishes and consumes."""
    client = RawAmqp(port)
    sender = client.sender("orders")
    receiver = client.receiver("orders", 0)
    for number in range(3):
        client.send(sender, b"\x00\x53\x77\x52" + bytes((number,)))
        client.receive(receiver)
    client.close()
    return bytes(client.written)


@pytest.mark.timeout(400)
async def test_damaged_frames_end_their_connection_and_no_other(tmp_path: Path) -> None:
    """Proton's C code faces the network: it must not end the process either."""
    (port,) = free_ports(1)
    rng = random.Random(11)
    async with services("gateway_process") as start:
        process = await start(tmp_path, port, "orders")
        whole = await asyncio.to_thread(a_session, port)
        login = whole.index(b"AMQP\x00")
        await asyncio.to_thread(damage, port, whole, login, rng)
        # And whoever behaves is served as before.
        assert await asyncio.to_thread(a_session, port)
        # It says so if the process has ended by anything else.
        await process.kill()


@pytest.mark.timeout(400)
async def test_frames_with_any_fields_end_their_connection_and_no_other(
    tmp_path: Path,
) -> None:
    """Among them maps of unsettled deliveries, resumed transfers and huge ranges."""
    (port,) = free_ports(1)
    async with services("gateway_process") as start:
        process = await start(tmp_path, port, "orders")
        whole = await asyncio.to_thread(a_session, port)
        login = whole[: whole.index(b"AMQP\x00")]
        for number in range(STREAMS):
            parts = [login, *random_stream(number)]
            await asyncio.to_thread(send_parts, port, parts, f"stream {number}")
        await asyncio.to_thread(a_session, port)
        await process.kill()


def damage(port: int, whole: bytes, login: int, rng: random.Random) -> None:
    """Send damaged streams; most of them log in first."""
    for number in range(STREAMS):
        stream = bytearray(whole)
        begin = 0 if number % 10 == 0 else login
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(begin, len(stream))
            what = rng.randrange(3)
            if what == 0:
                stream[at] = rng.randrange(256)
            elif what == 1:
                del stream[at : at + rng.randrange(1, 20)]
            else:
                stream[at:at] = rng.randbytes(rng.randrange(1, 20))
        send(port, bytes(stream), f"stream {number}")


def send(port: int, stream: bytes, name: str) -> None:
    """Send a stream, and wait for the end of its connection."""
    # Its login is checked first; what comes behind it waits.
    send_parts(port, [stream], name)


def send_parts(port: int, parts: list[bytes], name: str) -> None:
    """Send a stream, and read what has come after each of its parts."""
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S) as peer:
        try:
            for number, part in enumerate(parts):
                peer.sendall(part)
                # The answer to a login takes time.
                ready = select.select([peer], [], [], 0.02 if number > 1 else 0.5)[0]
                if ready and number + 1 < len(parts) and not peer.recv(65536):
                    return
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(65536):
                pass
        except TimeoutError as error:
            raise AssertionError(f"{name} hangs") from error
        except OSError:
            pass  # the gateway has ended the connection
