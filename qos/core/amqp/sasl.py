"""The server's side of SASL in AMQP 1.0 (security §5.3), before the AMQP layer begins.

    AMQP%d3.1.0.0  ⇄  AMQP%d3.1.0.0      mechanisms  →
                                          ←  init       [challenge →  ← response]
                                          outcome     →

One attempt is allowed for each connection. Proton's build from the package index offers
no PLAIN to a server, so this is ours; whether a password is right is decided elsewhere.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from qos.core.amqp import values
from qos.core.amqp.values import DecodeError, decode, descriptor, elements, end_of
from qos.core.quick_enum import QuickEnum
from qos.core.record import record

__all__ = [
    "AMQP_HEADER",
    "ANONYMOUS",
    "EXTERNAL",
    "FRAME_BYTES_MAX",
    "PLAIN",
    "SASL_HEADER",
    "Attempt",
    "Outcome",
    "SaslServer",
    "WrongProtocol",
]

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"

PLAIN, EXTERNAL, ANONYMOUS = "PLAIN", "EXTERNAL", "ANONYMOUS"

#: The most bytes of a frame: MIN-MAX-FRAME-SIZE, by the standard.
FRAME_BYTES_MAX = 512

_MECHANISMS, _INIT, _CHALLENGE, _RESPONSE, _OUTCOME = range(0x40, 0x45)

_HEAD = struct.Struct(">IBBH")
_SASL_FRAME = 1
#: The data offset without an extended header, in words of four bytes.
_OFFSET = 2


class Outcome(QuickEnum):
    """The end of a login (security §5.3.3.6)."""

    OK = 0
    AUTH = 1
    SYS = 2
    SYS_PERM = 3
    SYS_TEMP = 4


class WrongProtocol(DecodeError):
    """The peer does not begin with SASL: it is answered with our header, and closed."""


class _WrongMechanism(DecodeError):
    """The peer has chosen a mechanism that is not offered."""


class _At(QuickEnum):
    """The part of a login that is expected next."""

    HEADER = "header"
    INIT = "init"
    RESPONSE = "response"
    DECISION = "decision"


@record(frozen=True, slots=True)
class Attempt:
    """The one attempt of a peer to log in.

    Attributes:
        mechanism: one of those offered.
        user: the name it gives; '': none.
        password: with PLAIN.
    """

    mechanism: str
    user: str = ""
    password: str = ""


class SaslServer:
    """The exchange on one connection.

    Attributes:
        output: bytes to send; the caller takes them out.
    """

    def __init__(self, mechanisms: Sequence[str]) -> None:
        """Begin.

        Args:
            mechanisms: those that are offered, the best one first.
        """
        self.output = bytearray()
        self._mechanisms = mechanisms
        self._input = bytearray()
        self._at = _At.HEADER
        self._is_spoken = True

    def receive(self, data: bytes) -> Attempt | None:
        """Take bytes of the peer; returns its attempt when that is complete.

        Then `decided` is to be called.

        Raises:
            WrongProtocol: the first bytes are not the header of SASL.
            DecodeError: a frame is malformed, or comes out of turn, or its mechanism is
                not offered; the outcome is in the output.
        """
        self._input += data
        if self._at is _At.HEADER and self._is_plain_amqp():
            # A peer without any security layer, where that is allowed.
            self._at = _At.DECISION
            self._is_spoken = False
            return Attempt(ANONYMOUS)
        if self._at is _At.HEADER:
            return None
        while self._at is not _At.DECISION:
            try:
                body = self._frame()
                attempt = None if body is None else self._take(body)
            except DecodeError as error:
                # Security §5.3.3.2 names the outcome for a mechanism that is not offered.
                is_known = isinstance(error, _WrongMechanism)
                self.decided(Outcome.AUTH if is_known else Outcome.SYS_PERM)
                raise
            if body is None:
                return None
            if attempt is not None:
                self._at = _At.DECISION
                return attempt
        return None

    @property
    def begun(self) -> bool:
        """Whether the peer has read our header, and so waits for an outcome."""
        return self._at is not _At.HEADER and self._is_spoken

    def decided(self, outcome: Outcome) -> bytes:
        """Answer the attempt; returns the bytes that the peer has sent behind it.

        A peer that has begun without SASL hears nothing of it.
        """
        self._at = _At.DECISION
        if self._is_spoken:
            self._send(_OUTCOME, values.ubyte(outcome.value))
        return bytes(self._input)

    def _is_plain_amqp(self) -> bool:
        """Whether AMQP itself begins; the header of SASL is answered."""
        count = len(SASL_HEADER)
        first = bytes(self._input[:count])
        if first == SASL_HEADER:
            del self._input[:count]
            self.output += SASL_HEADER
            self._send(_MECHANISMS, values.symbols(self._mechanisms))
            self._at = _At.INIT
            return False
        if first == AMQP_HEADER and ANONYMOUS in self._mechanisms:
            return True
        if len(first) == count or not (
            SASL_HEADER.startswith(first) or AMQP_HEADER.startswith(first)
        ):
            raise WrongProtocol("this is not the header of SASL", 0)
        return False

    def _frame(self) -> bytes | None:
        if len(self._input) < _HEAD.size:
            return None
        size, offset, kind, _ = _HEAD.unpack_from(self._input)
        if not _HEAD.size <= size <= FRAME_BYTES_MAX:
            raise DecodeError(f"a SASL frame of {size} bytes", 0)
        if kind != _SASL_FRAME or offset != _OFFSET:
            raise DecodeError("not a SASL frame", 4)
        if len(self._input) < size:
            return None
        body = bytes(self._input[_HEAD.size : size])
        del self._input[:size]
        return body

    def _take(self, body: bytes) -> Attempt | None:
        code, at = descriptor(body, 0)
        if end_of(body, at) != len(body):
            raise DecodeError("more than one performative in a frame", at)
        fields = [decode(field) for field in elements(body[at:])]
        if self._at is _At.RESPONSE:
            if code != _RESPONSE:
                raise DecodeError("a response was expected", 0)
            return _plain(_content(fields, 0))
        if code != _INIT:
            raise DecodeError("an init was expected", 0)
        mechanism = fields[0][1] if fields and fields[0][0] == "symbol" else None
        if mechanism not in self._mechanisms:
            raise _WrongMechanism(f"the mechanism {mechanism!r} is not offered", 0)
        if mechanism != PLAIN:
            return Attempt(str(mechanism))
        if len(fields) < 2 or fields[1][0] == "null":
            self._at = _At.RESPONSE
            self._send(_CHALLENGE, values.binary(b""))
            return None
        return _plain(_content(fields, 1))

    def _send(self, code: int, value: bytes) -> None:
        body = bytes((0x00, 0x53, code)) + values.pack_list([value])
        self.output += _HEAD.pack(_HEAD.size + len(body), _OFFSET, _SASL_FRAME, 0)
        self.output += body


def _content(fields: list[values.Value], place: int) -> bytes:
    content = fields[place][1] if place < len(fields) else None
    if not isinstance(content, bytes):
        raise DecodeError("the response is not binary", 0)
    return content


def _plain(response: bytes) -> Attempt:
    """Read RFC 4616: authorization identity, user, password."""
    try:
        fields = response.decode().split("\0")
    except UnicodeDecodeError as error:
        raise DecodeError("the response is not UTF-8", error.start) from error
    if len(fields) != 3 or fields[0] not in ("", fields[1]):
        raise DecodeError("the response is not that of PLAIN for oneself", 0)
    return Attempt(PLAIN, fields[1], fields[2])
