"""Frames that few clients write: they end no connection, and are taken as they are meant."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

import qos
from amqp_bench import Bench
from frame_peer import (
    ATTACH,
    BEGIN,
    CLOSE,
    DISPOSITION,
    FLOW,
    NULL,
    OPEN,
    TRANSFER,
    FramePeer,
    described,
)
from qos.amqp import bounds
from qos.amqp.broker import Broker, BrokerLost
from qos.amqp.source import OVERSHOOT_MAX, Source
from qos.core.amqp import values
from qos.core.amqp.frames import FrameCutter, fields_of, list_at, number
from qos.core.amqp.sasl import AMQP_HEADER, ANONYMOUS, Outcome, SaslServer
from waiting import limit, until


@pytest.mark.parametrize(
    "annotations", [values.uint(1), values.string("a"), values.pack_list([NULL])]
)
async def test_modified_with_annotations_that_are_no_map_counts(
    bench: Bench, annotations: bytes
) -> None:
    """It cut the connection."""
    await bench.publish("orders", "<x/>")
    async with FramePeer(bench.port) as peer:
        await peer.attach("mine", source="orders", timeout_s=0)
        peer.flow(1)
        await peer.frame(TRANSFER)
        failed = values.boolean(True)
        state = described(0x27, failed, NULL, annotations)
        peer.dispose(0, state, settled=False, receiver=True)
        told = await peer.frame(DISPOSITION, CLOSE)
        assert (told.code, told.state(4)) == (DISPOSITION, 0x27)
        (item,) = (await bench.items("orders")).values()
        assert item.delivery_count == 1


async def test_an_outcome_may_be_described_by_its_symbol(bench: Bench) -> None:
    await bench.publish("orders", "<x/>")
    async with FramePeer(bench.port) as peer:
        await peer.attach("mine", source="orders", timeout_s=0)
        peer.flow(1)
        await peer.frame(TRANSFER)
        state = b"\x00" + values.symbol("amqp:accepted:list") + b"\x45"
        peer.dispose(0, state, settled=True, receiver=True)
        await bench.until_items("orders", 0)


async def test_the_open_tells_product_and_version(bench: Bench) -> None:
    async with FramePeer(bench.port) as peer:
        properties = values.elements((await peer.frame(OPEN))[9])
        told = [values.decode(each)[1] for each in properties]
        assert told == ["product", "xmpp-qos", "version", qos.__version__]


async def test_a_connection_has_64_sessions(bench: Bench) -> None:
    async with FramePeer(bench.port) as peer:
        for channel in range(1, bounds.CHANNELS_MAX):
            peer.begin(channel)
        for channel in range(bounds.CHANNELS_MAX):
            assert (await peer.frame(BEGIN)).value(0) == channel
        peer.begin(bounds.CHANNELS_MAX)
        assert b"framing-error" in (await peer.frame(CLOSE))[0]
        assert bounds.CHANNELS_MAX == 64


def frame(code: int, *fields: bytes, payload: bytes = b"") -> bytes:
    body = described(code, *fields) + payload
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body


class Overshooting:
    """A broker that sends messages, whatever the credit is.

    Attributes:
        credits: each credit that it was granted.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.credits: list[int] = []

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Log in, answer `attach` at once with all messages, and note each flow."""
        sasl, cutter = SaslServer([ANONYMOUS]), FrameCutter(1 << 20)
        while sasl.receive(await reader.read(1000)) is None:
            writer.write(bytes(sasl.output))
            sasl.output.clear()
        read = sasl.decided(Outcome.OK)
        writer.write(bytes(sasl.output))
        while read or (read := await reader.read(1000)):
            for each in cutter.cut(read):
                if each.startswith(b"AMQP") or len(each) <= 8:
                    continue
                code, at = list_at(each)
                fields, _ = fields_of(each, at)
                if code == ATTACH:
                    writer.write(self._all(fields[0]))
                elif code == FLOW and fields[6:] and fields[6] != NULL:
                    self.credits.append(number(fields, 6))
            read = b""
        writer.close()

    def _all(self, name: bytes) -> bytes:
        zero, window = values.uint(0), values.uint(1000)
        source, target = described(0x28, values.string("x")), described(0x29)
        no = values.boolean(False)
        attach = (name, zero, no, NULL, NULL, source, target, NULL, NULL, zero)
        return (
            AMQP_HEADER
            + frame(OPEN, values.string("broker"))
            + frame(BEGIN, b"\x60\x00\x00", zero, window, window)
            + frame(ATTACH, *attach)
            + b"".join(
                frame(
                    TRANSFER,
                    *(zero, values.uint(each), values.binary(b"%d" % each)),
                    payload=b"\x00\x53\x77\x40",
                )
                for each in range(self._count)
            )
        )


@contextlib.asynccontextmanager
async def overshot(broker: Overshooting) -> AsyncIterator[Source]:
    """A link with a credit of 5 to such a broker, which has sent what it sends."""
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    async with server, limit():
        port = server.sockets[0].getsockname()[1]
        link = Source(Broker(host="127.0.0.1", port=port, address="x"), credit=5)
        with contextlib.suppress(BrokerLost):
            await link.open()
        yield link
        await link.close()


async def test_a_broker_that_ignores_credit_loses_the_link() -> None:
    """The bridge holds at most twice as many messages as it has asked for."""
    async with overshot(Overshooting(20)) as link:
        assert "has sent 10 messages that are not settled" in str(await link.lost)
        assert link.messages.qsize() == 5 * OVERSHOOT_MAX == 10


@pytest.mark.parametrize("count", [6, 9, 10])
async def test_a_broker_that_sends_a_little_more_than_the_credit_keeps_the_link(
    count: int,
) -> None:
    """As RabbitMQ does before 4.0. It never has more credit than the link has."""
    broker = Overshooting(count)
    async with overshot(broker) as link:
        for _ in range(count):
            link.settle(await link.messages.get())
        await until(lambda: len(broker.credits) > 1 and broker.credits[-1] >= 3)
        assert not link.lost.done()
    assert all(1 <= credit <= 5 for credit in broker.credits)
