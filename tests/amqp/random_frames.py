"""Streams of frames that are nearly right: each performative, with fields of any kind."""

import random

from frame_peer import ACCEPTED, MODIFIED, NULL, REJECTED, RELEASED, received
from qos.core.amqp import values

__all__ = ["random_stream"]

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
TRUE, FALSE = values.boolean(True), values.boolean(False)

STATES = (ACCEPTED, REJECTED, RELEASED, MODIFIED, NULL, received(0, 3), received(9, 9))
TAGS = tuple(values.binary(b"t%d" % n) for n in range(4))
HUGE = (2**31 - 1, 2**31, 2**32 - 1)


def _described(code: int, *fields: bytes) -> bytes:
    return b"\x00" + values.ulong(code) + values.pack_list(fields)


def _frame(code: int, *fields: bytes, payload: bytes = b"", channel: int = 0) -> bytes:
    body = _described(code, *fields) + payload
    head = (8 + len(body)).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big")
    return head + body


class _Fields:
    """Fields that are right, but for some of them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def __call__(self, *right: bytes) -> bytes:
        rng = self._rng
        if rng.random() < 0.995:
            return rng.choice(right)
        return rng.choice(
            (
                NULL,
                TRUE,
                values.uint(rng.choice(HUGE)),
                values.ulong(2**63),
                values.string("x" * rng.randrange(40)),
                values.binary(rng.randbytes(rng.randrange(40))),
                values.symbol("amqp:accepted:list"),
                values.pack_list([NULL] * rng.randrange(5)),
                values.pack_map([values.binary(b"t"), NULL] * rng.randrange(5)),
                _described(rng.randrange(0x10, 0x80), TRUE),
                b"\xd1\xff\xff\xff\xff\xff\xff\xff\xff",
                b"\xf0\x00\x00\x00\x05\x7f\xff\xff\xff\x40",
                rng.randbytes(rng.randrange(1, 6)),
            )
        )

    def number(self, below: int = 4) -> bytes:
        """A small number."""
        return self(values.uint(self._rng.randrange(below)))

    def flag(self) -> bytes:
        """True or False."""
        return self(TRUE, FALSE, NULL)

    def map(self) -> bytes:
        """A map of unsettled deliveries, or none."""
        pairs = [
            each
            for tag in TAGS[: self._rng.randrange(5)]
            for each in (self(tag), self(*STATES))
        ]
        return self(NULL, values.pack_map(pairs))


def _attach(f: _Fields, handle: int, receives: bool) -> bytes:
    expiry = f(values.symbol("never"), values.symbol("connection-close"), NULL)
    timeout, dynamic = f.number(100), f(FALSE, NULL)
    terminus = f(values.string("orders")), NULL, expiry, timeout, dynamic
    return _frame(
        ATTACH,
        f(values.string(f"link {handle % 3} {receives}")),
        f(values.uint(handle)),
        f(TRUE if receives else FALSE),
        f(NULL, values.ubyte(0), values.ubyte(1)),
        f(NULL, values.ubyte(1)),
        f(_described(0x28, *terminus, NULL, NULL, NULL, f(*STATES))),
        f(_described(0x29, *terminus)),
        f.map(),
        f(NULL, NULL, NULL, TRUE),
        f(values.uint(0)),
    )


def _transfer(
    f: _Fields, rng: random.Random, handle: int, number: int, *, more: bool
) -> bytes:
    payload = b"\x00\x53\x77\xa1\x03one"[: rng.choice((0, 3, 8, 8))]
    fields = [
        f(values.uint(handle)),
        f(values.uint(number)),
        f(*TAGS),
        f(b"\x43", NULL),
    ]
    fields += [f(FALSE, FALSE, TRUE), f(TRUE if more else FALSE), NULL, f(*STATES)]
    fields += [f.flag(), f(FALSE, FALSE, TRUE), NULL]
    return _frame(TRANSFER, *fields[: rng.randrange(6, 12)], payload=payload)


class _Stream:
    """The frames of one client, which knows roughly what is open."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._f = _Fields(self._rng)
        # By handle, whether the client receives.
        self._links: dict[int, bool] = {}
        self._number = 0
        # The link with a delivery that is not complete.
        self._partial: int | None = None

    def opening(self) -> bytes:
        """Up to the session."""
        f = self._f
        size = f(values.uint(512), NULL)
        window = f(values.uint(5000))
        opened = _frame(OPEN, f(values.string("c")), NULL, size)
        begun = _frame(BEGIN, NULL, values.uint(0), window, window)
        return b"AMQP\x00\x01\x00\x00" + opened + begun

    def frame(self) -> bytes:
        """The next one."""
        f, rng = self._f, self._rng
        kind = rng.choice("aatttttttttffffddddddxx" if rng.random() < 0.995 else "e")
        senders = [handle for handle, receives in self._links.items() if not receives]
        if kind == "a" or not self._links:
            handle, receives = rng.randrange(6), rng.random() < 0.5
            if handle in self._links and rng.random() < 0.9:
                return _frame(DETACH, f(values.uint(handle)), f.flag())
            self._links[handle] = receives
            return _attach(f, handle, receives)
        handle = rng.choice(list(self._links))
        if kind == "t" and senders:
            if self._partial not in senders:
                self._partial = rng.choice(senders)
                self._number += 1
            handle, more = self._partial, rng.random() < 0.2
            if not more:
                self._partial = None
            return _transfer(f, rng, handle, self._number - 1, more=more)
        if kind in "tf":
            window = f(values.uint(5000))
            numbers = [f(values.uint(0)), window, f(values.uint(self._number)), window]
            credit = f(values.uint(rng.randrange(50)))
            link = [f(values.uint(handle)), f(values.uint(0)), credit, NULL]
            return _frame(FLOW, *numbers, *link, f.flag(), f.flag())
        if kind == "d":
            last = f(values.uint(rng.randrange(5)), NULL)
            return _frame(
                DISPOSITION, f.flag(), values.uint(0), last, f.flag(), f(*STATES)
            )
        if kind == "x":
            del self._links[handle]
            return _frame(DETACH, f(values.uint(handle)), f.flag())
        return _frame(rng.choice((BEGIN, END, CLOSE)), channel=rng.randrange(40))


def random_stream(seed: int) -> list[bytes]:
    """The input of a client after its login; it reads the answers after each part."""
    stream = _Stream(seed)
    rng = random.Random(f"parts {seed}")
    parts = [stream.opening()]
    parts += [
        b"".join([stream.frame() for _ in range(rng.randrange(1, 6))])
        for _ in range(rng.randrange(1, 15))
    ]
    return parts
