"""An AMQP client that is nothing but frames: each field is what the test gives.

async with FramePeer(port) as peer:
    await peer.attach("mine", source="orders", unsettled={b"t": values.NULL})
    found = await peer.frame(TRANSFER)
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from qos.core.amqp import values
from qos.core.amqp.frames import FrameCutter, fields_of, list_at
from qos.core.amqp.values import NULL, decode
from waiting import limit

__all__ = [
    "ACCEPTED",
    "ATTACH",
    "BEGIN",
    "CLOSE",
    "DETACH",
    "DISPOSITION",
    "END",
    "FLOW",
    "MODIFIED",
    "NULL",
    "OPEN",
    "REJECTED",
    "RELEASED",
    "TRANSFER",
    "Frame",
    "FramePeer",
    "described",
    "received",
]

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
TRUE, FALSE = values.boolean(True), values.boolean(False)

_HEARTBEAT = b"\x00\x00\x00\x08\x02\x00\x00\x00"


def described(code: int, *fields: bytes) -> bytes:
    """A described list."""
    return b"\x00" + values.ulong(code) + values.pack_list(fields)


ACCEPTED, REJECTED, RELEASED = described(0x24), described(0x25), described(0x26)
MODIFIED = described(0x27, TRUE)


def received(section: int, offset: int) -> bytes:
    """The state `received`."""
    return described(0x23, values.uint(section), values.ulong(offset))


@dataclass(frozen=True)
class Frame:
    """A frame that has come.

    Attributes:
        code: of its performative.
        fields: encoded.
        payload: the bytes behind the performative.
        channel: of the gateway's session.
    """

    code: int
    fields: list[bytes]
    payload: bytes
    channel: int = 0

    def __getitem__(self, place: int) -> bytes:
        return self.fields[place] if place < len(self.fields) else NULL

    def flag(self, place: int) -> bool:
        """A boolean, False by default."""
        return self[place] == TRUE

    def value(self, place: int) -> object:
        """A decoded field."""
        return decode(self[place])[1]

    def state(self, place: int) -> int:
        """The code of the delivery state; 0: there is none."""
        return 0 if self[place] == NULL else self[place][2]

    @property
    def unsettled(self) -> dict[bytes, bytes] | None:
        """The map of unsettled deliveries of an attach; encoded states by their tags."""
        if self[7] == NULL:
            return None
        pairs = values.elements(self[7])
        tags = [decode(each)[1] for each in pairs[::2]]
        assert all(isinstance(each, bytes) for each in tags)
        return dict(zip(tags, pairs[1::2], strict=True))  # type: ignore[arg-type]  # just checked


class FramePeer:
    """One connection with one session, on channel 0; `begin` makes more.

    Attributes:
        dropped: the frames that came before one that was waited for.
        beats: how many empty frames have come.
    """

    def __init__(
        self,
        port: int,
        *,
        frame_bytes_max: int = 65536,
        container: str = "frames",
        idle_ms: int = 0,
    ) -> None:
        self._port = port
        self._idle = values.uint(idle_ms) if idle_ms else NULL
        self._frame_bytes_max = frame_bytes_max
        self._container = container
        self._cutter = FrameCutter(1 << 20)
        self._frames: list[bytes] = []
        self.dropped: list[Frame] = []
        self.beats = 0
        # Of the next ping; tests use lower ones.
        self._channel = 40
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        """Log in as alice; open a connection and a session."""
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port
        )
        try:
            await self._log_in()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _log_in(self) -> None:
        self._writer.write(b"AMQP\x03\x01\x00\x00")
        plain = values.binary(b"\0alice\0secret")
        init = described(0x41, values.symbol("PLAIN"), plain)
        self._write(init, kind=1)
        # The header, the mechanisms and the outcome, which is ok.
        sasl = await self._reader.readexactly(8)
        for _ in range(2):
            head = await self._reader.readexactly(4)
            sasl = await self._reader.readexactly(int.from_bytes(head, "big") - 4)
        assert sasl.endswith(b"\x50\x00")
        self._writer.write(b"AMQP\x00\x01\x00\x00")
        name = values.string(self._container)
        size = values.uint(self._frame_bytes_max)
        self.send(OPEN, name, NULL, size, NULL, self._idle)
        self.begin(0)

    def begin(self, channel: int) -> None:
        """Begin a session."""
        window = values.uint(5000)
        self.send(BEGIN, NULL, values.uint(0), window, window, channel=channel)

    async def __aexit__(self, *_: object) -> None:
        """Go without a word."""
        self._writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    def write(self, data: bytes) -> None:
        """Send these bytes."""
        self._writer.write(data)

    def _write(self, body: bytes, *, kind: int = 0, channel: int = 0) -> None:
        size = (8 + len(body)).to_bytes(4, "big")
        head = size + bytes((2, kind)) + channel.to_bytes(2, "big")
        self._writer.write(head + body)

    def send(
        self, code: int, *fields: bytes, payload: bytes = b"", channel: int = 0
    ) -> None:
        """Send a frame."""
        self._write(described(code, *fields) + payload, channel=channel)

    async def frame(self, *codes: int) -> Frame:
        """The next frame with one of these performatives; others are `dropped`."""
        async with limit():
            while True:
                while self._frames:
                    frame = self._frames.pop(0)
                    self.beats += frame == _HEARTBEAT
                    found = _frame(frame)
                    if found is not None and found.code in codes:
                        return found
                    if found is not None:
                        self.dropped.append(found)
                data = await self._reader.read(65536)
                assert data, "the gateway has closed the connection"
                self._frames += self._cutter.cut(data)

    async def ping(self) -> None:
        """Begin one more session, and wait for the answer.

        All frames that were sent before are handled then, and what was written before
        has come.
        """
        channel = self._channel
        self._channel += 1
        self.begin(channel)
        while (await self.frame(BEGIN)).value(0) != channel:
            pass

    async def attach(
        self,
        name: str,
        *,
        source: str | None = None,
        target: str | None = None,
        unsettled: Mapping[bytes, bytes] | None = None,
        incomplete: bool = False,
        second: bool = False,
        default: bytes = NULL,
        timeout_s: int = 60,
        handle: int = 0,
        durable: bool = False,
        relay: bool = False,
        channel: int = 0,
    ) -> Frame:
        """Attach as a receiver (source) or sender (target); the answer."""
        expiry = values.symbol("connection-close"), values.uint(timeout_s)
        receives = source is not None
        named = values.string(source if source is not None else target or "")
        address = NULL if relay else named
        durability = values.uint(2) if durable else NULL
        terminus = (address, durability, *expiry)
        entries = NULL
        if unsettled is not None:
            pairs = [
                each
                for tag, state in unsettled.items()
                for each in (values.binary(tag), state)
            ]
            entries = values.pack_map(pairs)
        source_fields = (*terminus, NULL, NULL, NULL, NULL, default)
        self.send(
            ATTACH,
            values.string(name),
            values.uint(handle),
            TRUE if receives else FALSE,
            NULL,
            values.ubyte(1) if second else NULL,
            described(0x28, *source_fields) if receives else described(0x28),
            described(0x29) if receives else described(0x29, *terminus),
            entries,
            TRUE if incomplete else NULL,
            NULL if receives else values.uint(0),
            channel=channel,
        )
        return await self.frame(ATTACH)

    def detach(self, *, closed: bool = True, handle: int = 0, channel: int = 0) -> None:
        """Detach a link."""
        end = TRUE if closed else FALSE
        self.send(DETACH, values.uint(handle), end, channel=channel)

    def flow(
        self, credit: int, *, drain: bool = False, handle: int = 0, channel: int = 0
    ) -> None:
        """Grant credit on a link that has had no deliveries yet."""
        window = values.uint(0), values.uint(5000), values.uint(0), values.uint(5000)
        link = values.uint(handle), values.uint(0), values.uint(credit)
        self.send(FLOW, *window, *link, NULL, TRUE if drain else NULL, channel=channel)

    def transfer(
        self,
        number: int,
        tag: bytes,
        payload: bytes = b"",
        *,
        message_format: int = 0,
        settled: bool = False,
        more: bool = False,
        state: bytes = NULL,
        resume: bool = False,
        aborted: bool = False,
        handle: int = 0,
        channel: int = 0,
    ) -> None:
        """Send a transfer."""
        flags = [TRUE if each else FALSE for each in (settled, more)]
        self.send(
            TRANSFER,
            values.uint(handle),
            values.uint(number),
            values.binary(tag),
            values.uint(message_format),
            *flags,
            NULL,
            state,
            TRUE if resume else FALSE,
            TRUE if aborted else FALSE,
            payload=payload,
            channel=channel,
        )

    def dispose(
        self,
        number: int,
        state: bytes = NULL,
        *,
        settled: bool,
        receiver: bool,
        channel: int = 0,
    ) -> None:
        """Tell the state of one delivery."""
        self.send(
            DISPOSITION,
            TRUE if receiver else FALSE,
            values.uint(number),
            values.uint(number),
            TRUE if settled else FALSE,
            state,
            channel=channel,
        )


def _frame(frame: bytes) -> Frame | None:
    if frame.startswith(b"AMQP"):
        return None
    code, at = list_at(frame)
    if code < 0:
        return None
    fields, end = fields_of(frame, at)
    return Frame(code, fields, frame[end:], int.from_bytes(frame[6:8], "big"))
