"""AMQP 1.0 as frames: a client that says exactly what a test or an attack wants to say.

It follows none of the rules of a session or a link by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from qos.core.amqp import values
from qos.core.amqp.frames import FrameCutter, fields_of, list_at
from qos.core.amqp.values import NULL, decode

__all__ = [
    "ATTACH",
    "BEGIN",
    "CLOSE",
    "DETACH",
    "DISPOSITION",
    "END",
    "FALSE",
    "FLOW",
    "OPEN",
    "TRANSFER",
    "TRUE",
    "WINDOW",
    "Frame",
    "Frames",
    "described",
    "frame",
    "selecting",
    "transfer",
]

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
TRUE, FALSE = values.boolean(True), values.boolean(False)

#: A window of a session that is never full.
WINDOW = values.uint(2**31 - 1)

_SELECTOR = "apache.org:selector-filter:string"

_SASL_HEADER, _AMQP_HEADER = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
_SASL_INIT = 0x41

#: The end of a SASL outcome that is ok.
_OK = b"\x50\x00"

#: The bytes of a read, those of a message in one frame, and the most of a frame.
_READ, _PART, _FRAME_BYTES_MAX = 65536, 60_000, 1 << 20


def described(code: int, *fields: bytes) -> bytes:
    """A described list."""
    return b"\x00" + values.ulong(code) + values.pack_list(fields)


def frame(body: bytes, *, kind: int = 0, channel: int = 0) -> bytes:
    """A frame; kind 1 is SASL."""
    head = (8 + len(body)).to_bytes(4, "big") + bytes((2, kind))
    return head + channel.to_bytes(2, "big") + body


def transfer(
    number: int, message: bytes, *, handle: int = 0, channel: int = 0
) -> bytes:
    """The frames of a message: its delivery-id and its tag are this number."""
    tag = values.binary(number.to_bytes(4, "big"))
    head = (values.uint(handle), values.uint(number), tag, values.uint(0), FALSE)
    frames = []
    for at in range(0, len(message), _PART):
        more = TRUE if at + _PART < len(message) else FALSE
        body = described(TRANSFER, *head, more) + message[at : at + _PART]
        frames.append(frame(body, channel=channel))
    return b"".join(frames)


def selecting(selector: str) -> bytes:
    """The filter of a source that has this selector."""
    name = values.symbol(_SELECTOR)
    return values.pack_map((name, b"\x00" + name + values.string(selector)))


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that has come.

    Attributes:
        channel: of its session.
        code: of its performative.
        fields: encoded.
        payload: the bytes behind the performative.
    """

    channel: int
    code: int
    fields: list[bytes]
    payload: bytes

    def field(self, place: int) -> bytes:
        """An encoded field; null if the list is shorter."""
        return self.fields[place] if place < len(self.fields) else NULL

    def number(self, place: int, default: int = 0) -> int:
        """A number; null is the default."""
        _, value = decode(self.field(place))
        return value if isinstance(value, int) else default

    def flag(self, place: int) -> bool:
        """A boolean; null is False."""
        return self.field(place) == TRUE

    def state(self, place: int) -> int:
        """The code of a delivery state; 0: there is none."""
        field = self.field(place)
        return 0 if field == NULL else field[2]


class Frames:
    """One connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._cutter = FrameCutter(_FRAME_BYTES_MAX)

    async def log_in(self, user: str, password: str) -> bool:
        """Log in by PLAIN; False: refused."""
        self._writer.write(_SASL_HEADER)
        plain = values.binary(f"\0{user}\0{password}".encode())
        init = described(_SASL_INIT, values.symbol("PLAIN"), plain)
        self._writer.write(frame(init, kind=1))
        # The header, the mechanisms and the outcome.
        await self._reader.readexactly(len(_SASL_HEADER))
        outcome = b""
        for _ in range(2):
            head = await self._reader.readexactly(4)
            outcome = await self._reader.readexactly(int.from_bytes(head, "big") - 4)
        return outcome.endswith(_OK)

    def open(self, container: str, *, channels: int = 1) -> None:
        """Open the connection, and begin a session on each of the first channels."""
        self._writer.write(_AMQP_HEADER)
        self.send(OPEN, values.string(container), values.string("localhost"))
        for channel in range(channels):
            self.send(BEGIN, NULL, values.uint(0), WINDOW, WINDOW, channel=channel)

    def send(
        self, code: int, *fields: bytes, payload: bytes = b"", channel: int = 0
    ) -> None:
        """Send a frame."""
        self.write(frame(described(code, *fields) + payload, channel=channel))

    def write(self, data: bytes) -> None:
        """Send these bytes."""
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until not too much waits to be sent."""
        await self._writer.drain()

    async def read(self, size: int) -> bytes:
        """So many bytes, before there are frames."""
        return await self._reader.readexactly(size)

    async def frames(self) -> AsyncIterator[Frame]:
        """The frames that come, until the connection is lost.

        Raises:
            OSError: it was not closed in order.
        """
        while data := await self._reader.read(_READ):
            for each in self._cutter.cut(data):
                found = _frame(each)
                if found is not None:
                    yield found

    def attach_sender(
        self, name: str, node: str, *, handle: int = 0, channel: int = 0
    ) -> None:
        """Attach to a target."""
        source, target = described(0x28), described(0x29, values.string(node))
        self.send(
            *(ATTACH, values.string(name), values.uint(handle), FALSE, NULL, NULL),
            *(source, target, NULL, NULL, values.uint(0)),
            channel=channel,
        )

    def attach_receiver(
        self,
        name: str,
        node: str,
        *,
        credit: int,
        filters: bytes = NULL,
        handle: int = 0,
        channel: int = 0,
    ) -> None:
        """Attach to a source, and grant credit."""
        source = described(0x28, values.string(node), *(NULL,) * 6, filters)
        self.send(
            *(ATTACH, values.string(name), values.uint(handle), TRUE, NULL, NULL),
            *(source, described(0x29)),
            channel=channel,
        )
        self.flow(credit, handle=handle, channel=channel)

    def flow(
        self, credit: int, *, count: int = 0, handle: int = 0, channel: int = 0
    ) -> None:
        """Grant credit to a link that has sent so many messages."""
        window = (values.uint(0), WINDOW, values.uint(0), WINDOW)
        link = (values.uint(handle), values.uint(count), values.uint(credit))
        self.send(FLOW, *window, *link, channel=channel)

    def detach(self, *, handle: int = 0, channel: int = 0) -> None:
        """End a link."""
        self.send(DETACH, values.uint(handle), TRUE, channel=channel)

    def abort(self) -> None:
        """Go without a word."""
        self._writer.transport.abort()


def _frame(data: bytes) -> Frame | None:
    if data.startswith(b"AMQP"):
        return None
    code, at = list_at(data)
    if code < 0:
        return None
    fields, end = fields_of(data, at)
    return Frame(int.from_bytes(data[6:8], "big"), code, fields, data[end:])
