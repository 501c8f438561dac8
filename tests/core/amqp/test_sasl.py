"""SASL in AMQP 1.0: one attempt, by the mechanisms that are offered."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_messages import read_or_refused
from qos.core.amqp import values
from qos.core.amqp.sasl import (
    AMQP_HEADER,
    SASL_HEADER,
    Attempt,
    Outcome,
    SaslServer,
    WrongProtocol,
)
from qos.core.amqp.values import DecodeError

ALL = ("EXTERNAL", "PLAIN", "ANONYMOUS")
ALICE = Attempt("PLAIN", "alice", "secret")


def frame(code: int, *fields: bytes, head: bytes = b"") -> bytes:
    body = bytes((0x00, 0x53, code)) + values.pack_list(fields)
    return (head or struct.pack(">IBBH", 8 + len(body), 2, 1, 0)) + body


def init(mechanism: str, *fields: bytes) -> bytes:
    return frame(0x41, values.symbol(mechanism), *fields)


PLAIN = init("PLAIN", values.binary(b"\0alice\0secret"), values.string("host"))


def opened(mechanisms: tuple[str, ...] = ALL) -> SaslServer:
    server = SaslServer(mechanisms)
    assert server.receive(SASL_HEADER) is None
    assert server.output == SASL_HEADER + frame(0x40, values.symbols(mechanisms))
    server.output.clear()
    return server


def test_an_outcome_is_waited_for_from_the_header_on() -> None:
    assert not SaslServer(ALL).begun
    assert opened().begun
    plain = SaslServer(ALL)
    assert plain.receive(AMQP_HEADER) == Attempt("ANONYMOUS")
    assert not plain.begun


@pytest.mark.parametrize(
    ("sent", "attempt"),
    [
        (PLAIN, ALICE),
        (init("PLAIN", values.binary(b"alice\0alice\0secret")), ALICE),
        (init("EXTERNAL", values.binary(b"")), Attempt("EXTERNAL")),
        (init("ANONYMOUS"), Attempt("ANONYMOUS")),
    ],
)
def test_an_attempt_is_read(sent: bytes, attempt: Attempt) -> None:
    assert opened().receive(sent) == attempt


@pytest.mark.parametrize("empty", [(), (values.NULL,)])
def test_the_password_may_come_in_a_response(empty: tuple[bytes, ...]) -> None:
    server = opened()
    assert server.receive(init("PLAIN", *empty)) is None
    assert server.output == frame(0x42, values.binary(b""))
    assert server.receive(frame(0x43, values.binary(b"\0alice\0secret"))) == ALICE


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.OK, 0),
        (Outcome.AUTH, 1),
        (Outcome.SYS_PERM, 3),
        (Outcome.SYS_TEMP, 4),
    ],
)
def test_the_outcome_is_told_and_the_rest_is_handed_on(
    outcome: Outcome, code: int
) -> None:
    server = opened()
    assert server.receive(PLAIN + AMQP_HEADER) == ALICE
    assert server.receive(b"more") is None
    assert server.decided(outcome) == AMQP_HEADER + b"more"
    assert server.output == frame(0x44, values.ubyte(code))


def test_bytes_may_come_one_by_one() -> None:
    server = SaslServer(ALL)
    found = [server.receive(bytes((each,))) for each in SASL_HEADER + PLAIN]
    assert found == [None] * (len(found) - 1) + [ALICE]


def test_a_peer_without_sasl_is_anonymous_where_that_is_allowed() -> None:
    server = SaslServer(ALL)
    assert server.receive(AMQP_HEADER[:3]) is None
    assert server.receive(AMQP_HEADER[3:]) == Attempt("ANONYMOUS")
    assert server.decided(Outcome.OK) == AMQP_HEADER
    assert not server.output


@pytest.mark.parametrize(
    "first", [AMQP_HEADER, b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", b"GET / H"]
)
def test_any_other_protocol_is_refused(first: bytes) -> None:
    with pytest.raises(WrongProtocol):
        SaslServer(("PLAIN",)).receive(first)


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (struct.pack(">IBBH", 7, 2, 1, 0), "7 bytes"),
        (struct.pack(">IBBH", 513, 2, 1, 0), "513 bytes"),
        (struct.pack(">IBBH", 9, 2, 0, 0), "not a SASL frame"),
        (struct.pack(">IBBH", 9, 3, 1, 0), "not a SASL frame"),
        (frame(0x43, values.binary(b"")), "an init was expected"),
        (init("SCRAM-SHA-1"), "'SCRAM-SHA-1' is not offered"),
        (frame(0x41), "None is not offered"),
        (frame(0x41, values.string("PLAIN")), "None is not offered"),
        (init("PLAIN", values.string("x")), "not binary"),
        (init("PLAIN", values.binary(b"\0\xff\0x")), "not UTF-8"),
        (init("PLAIN", values.binary(b"\0alice")), "not that of PLAIN"),
        (init("PLAIN", values.binary(b"bob\0alice\0secret")), "for oneself"),
        (
            struct.pack(">IBBH", 13, 2, 1, 0) + b"\x00\x53\x41\x45\x45",
            "more than one performative",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_an_outcome(sent: bytes, says: str) -> None:
    """Security §5.3.3.2: `auth` if the mechanism is not offered; else a client is wrong."""
    server = opened()
    with pytest.raises(DecodeError, match=says):
        server.receive(sent)
    code = 1 if "not offered" in says else 3
    assert server.output == frame(0x44, values.ubyte(code))
    assert server.receive(sent) is None


@pytest.mark.parametrize("sent", [PLAIN, frame(0x43), frame(0x43, values.string("x"))])
def test_after_a_challenge_comes_a_response(sent: bytes) -> None:
    server = opened()
    server.receive(init("PLAIN"))
    with pytest.raises(DecodeError):
        server.receive(sent)


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_an_attempt_or_refused(data: bytes, begun: bool) -> None:
    server = opened() if begun else SaslServer(("PLAIN",))
    read_or_refused(lambda some: server.receive(some) or b"", data)
