"""The ends of a request to a push target, and what each says about the message.

The decisions are in tests/core/rest/test_push_progress.py; here are the connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from qos.core.queue.push import PushSubscriber
from qos.core.rest.forwarding import NoReply, PushReply, PushRequest
from qos.core.rest.push_targets import PushRules
from qos.rest import bounds
from qos.rest.push import client as push_client
from qos.rest.push.client import PushClient
from qos.testing import ManualClock
from rest_bench import rest
from test_pushing import ATOM, atom
from turned_time import turned
from waiting import limit, until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
STALE = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

#: Ends of a connection, in place of an answer.
FIN, RST = b"fin", b"rst"


@dataclass
class Target:
    """A target that gives these answers, one a request; then nothing.

    Attributes:
        answers: of the next requests; FIN and RST end the connection instead.
        port: of it.
        connections: that it has accepted.
        requests: the bytes of each request, and on which connection it came.
        writers: of the connections.
        server: accepts them.
    """

    answers: list[bytes]
    port: int = 0
    connections: int = 0
    requests: list[tuple[int, bytes]] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    server: asyncio.Server | None = None

    def close(self) -> None:
        """Take no more connections, and end those that there are."""
        assert self.server is not None
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        number = self.connections
        self.writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                self.requests.append((number, head + body))
                if self.answers:
                    self._answer(writer, self.answers.pop(0))

    def _answer(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        if answer == RST:
            sock = writer.get_extra_info("socket")
            linger = struct.pack("ii", 1, 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if answer in {FIN, RST}:
            writer.transport.close()
            return
        writer.write(answer.removesuffix(FIN))
        if answer.endswith(FIN):
            writer.transport.close()


@contextlib.asynccontextmanager
async def target(*answers: bytes) -> AsyncIterator[Target]:
    found = Target(list(answers))
    found.server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = found.server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        found.close()


@contextlib.asynccontextmanager
async def client_of(port: int) -> AsyncIterator[PushClient]:
    client = PushClient(PushRules.of((f"127.0.0.1:{port}",)))
    try:
        async with limit():
            yield client
    finally:
        await client.aclose()


def push(
    client: PushClient, port: int, *, method: str = "POST", scheme: str = "http"
) -> asyncio.Future[PushReply | NoReply]:
    """Send a message."""
    href = f"{scheme}://127.0.0.1:{port}/in"
    its = PushSubscriber(
        subscriber_id="s", node="orders", account="bob@x", rel="post-message",
        href=href, base="", created_at=0.0,
    )  # fmt: skip
    request = PushRequest(method, href, message=True, key="k-1")
    return asyncio.ensure_future(client.send(request, b"1", {}, its))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The clock by which the time of a request is over."""
    return turned(monkeypatch, push_client)


# -- before the first byte -------------------------------------------------


async def test_a_hand_shake_that_stays_mute_has_sent_nothing(
    clock: ManualClock,
) -> None:
    async with target() as mute, client_of(mute.port) as client:
        sending = push(client, mute.port, scheme="https")
        await until(lambda: mute.connections)
        clock.advance(bounds.PUSH_S)
        answer = await sending
        assert isinstance(answer, NoReply), answer
        assert answer.unsent


async def test_a_connection_that_never_comes_has_sent_nothing(
    clock: ManualClock,
) -> None:
    """Its SYN is dropped, as by a firewall: here by a socket that accepts nobody."""
    with contextlib.ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        for _ in range(8):
            waits = stack.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(("127.0.0.1", port))
        async with client_of(port) as client:
            sending = push(client, port)
            for _ in range(20):
                await asyncio.sleep(0)
            clock.advance(bounds.PUSH_S)
            answer = await sending
    assert isinstance(answer, NoReply), answer
    assert answer.unsent


async def test_a_message_whose_target_is_mute_is_never_dead(
    tmp_path: Path, clock: ManualClock
) -> None:
    """One failed delivery would make it dead here."""
    async with target() as mute, rest(tmp_path, push=["127.0.0.1"]) as bench:
        await bench.create("orders", max_deliveries="1")
        made = await bench.post(
            "/queues/orders/subscribers",
            atom(f"https://127.0.0.1:{mute.port}/"),
            Content_Type=ATOM,
        )
        assert made.status == 201
        await bench.post("/queues/orders/messages", b"1")
        for attempts in range(1, 4):
            await until(lambda most=attempts: mute.connections >= most)
            clock.advance(bounds.PUSH_S)
        counts = bench.rest.pushers.counts("orders")
        assert counts["push_attempts_failed"] == 0
        (item,) = (await bench.items("orders")).values()
        assert item.delivery_count == 0


# -- after the status line -------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\n"
ENDS = {
    "silent": HEAD + b"Content-Length: 5\r\n\r\n",
    "slow": HEAD + b"Content-Length: 5\r\n\r\nab",
    "cut": HEAD + b"Content-Length: 5\r\n\r\nab" + FIN,
    "no chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "cut chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab" + FIN,
    "cut headers": HEAD + b"Content-Le" + FIN,
    "silent headers": HEAD + b"Content-Le",
    "large header": HEAD + b"X: " + b"x" * 20_000 + b"\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
    "no end": HEAD + b"\r\n",
}


@pytest.mark.parametrize("answer", ENDS.values(), ids=ENDS)
async def test_the_status_line_decides_whatever_comes_after_it(
    answer: bytes, clock: ManualClock
) -> None:
    """The target has taken the message: a second one would be a duplicate."""
    async with target(answer) as odd, client_of(odd.port) as client:
        sending = push(client, odd.port)
        await until(lambda: odd.requests)
        while not sending.done():
            await asyncio.sleep(0.01)
            clock.advance(bounds.PUSH_BODY_S)
        reply = await sending
        assert isinstance(reply, PushReply), reply
        assert reply.status == 200
        assert odd.connections == 1


async def test_no_body_keeps_the_next_message_waiting(clock: ManualClock) -> None:
    """It is waited for much shorter than an answer is."""
    silent = HEAD + b"Content-Length: 5\r\n\r\n"
    async with target(silent, OK) as odd, client_of(odd.port) as client:
        sending = push(client, odd.port)
        await until(lambda: odd.requests)
        began = clock.now()
        while not sending.done():
            await asyncio.sleep(0.01)
            clock.advance(0.1)
        assert clock.now() - began <= bounds.PUSH_S / 2
        assert isinstance(await sending, PushReply)
        assert isinstance(await push(client, odd.port), PushReply)
        assert odd.connections == 2


async def test_a_body_that_comes_late_keeps_its_connection() -> None:
    async with target(ENDS["slow"], OK) as late, client_of(late.port) as client:
        sending = push(client, late.port)
        await until(lambda: late.requests)
        late.writers[0].write(b"cde")
        assert isinstance(await sending, PushReply)
        assert isinstance(await push(client, late.port), PushReply)
        assert late.connections == 1


async def test_a_message_that_was_taken_is_posted_once(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with (
        target(ENDS["silent"], ENDS["cut"], ENDS["cut headers"]) as odd,
        rest(tmp_path, push=["127.0.0.1"]) as bench,
    ):
        await bench.create("orders", max_deliveries="1")
        href = f"http://127.0.0.1:{odd.port}/"
        made = await bench.post(
            "/queues/orders/subscribers", atom(href), Content_Type=ATOM
        )
        assert made.status == 201
        for number in range(3):
            await bench.post("/queues/orders/messages", b"%d" % number)

        async def is_empty() -> bool:
            clock.advance(bounds.PUSH_BODY_S)
            return not await bench.items("orders")

        await until(is_empty)
        counts = bench.rest.pushers.counts("orders")
        assert counts["push_attempts_accepted"] == 3
        bodies = [request[-1:] for _, request in odd.requests]
        assert bodies == [b"0", b"1", b"2"]
        assert not await bench.items("orders", "dead")


# -- between them ----------------------------------------------------------


@pytest.mark.parametrize("method", ["POST", "PUT", "HEAD"])
@pytest.mark.parametrize("end", [FIN, RST, STALE, b"HTTP/1.1 408 Request" + FIN])
async def test_a_kept_connection_that_dies_is_replaced_by_a_new_one(
    method: str, end: bytes
) -> None:
    """Once, and by the same request: its key tells the target that it is the same."""
    async with target(OK, end, OK) as busy, client_of(busy.port) as client:
        assert isinstance(await push(client, busy.port), PushReply)
        answer = await push(client, busy.port, method=method)
        assert isinstance(answer, PushReply), answer
        assert answer.status == 200
        (_, _), (first, one), (second, other) = busy.requests
        assert (first, second, one) == (1, 2, other)
        assert b'Idempotency-Key: "k-1"' in one


async def test_no_other_kept_connection_is_tried() -> None:
    """A target that starts again closes them all."""
    async with target() as busy, client_of(busy.port) as client:
        both = [push(client, busy.port) for _ in range(2)]
        await until(lambda: len(busy.requests) == 2)
        for writer in busy.writers:
            writer.write(OK)
        await asyncio.gather(*both)
        busy.answers += [FIN, OK]
        assert isinstance(await push(client, busy.port), PushReply)
        assert busy.connections == 3
        assert busy.requests[-1][0] == 3


@pytest.mark.parametrize("method", ["POST", "PUT", "HEAD"])
async def test_a_new_connection_that_dies_is_not_replaced(method: str) -> None:
    """The message may have arrived: that is counted, and tried again later."""
    async with target(FIN, OK) as busy, client_of(busy.port) as client:
        answer = await push(client, busy.port, method=method)
        assert isinstance(answer, NoReply), answer
        assert not answer.unsent
        assert busy.connections == 1


async def test_the_new_connection_may_die_too() -> None:
    async with target(OK, RST, RST, OK) as busy, client_of(busy.port) as client:
        assert isinstance(await push(client, busy.port), PushReply)
        answer = await push(client, busy.port)
        assert answer == NoReply("127.0.0.1: ClientOSError")
        assert busy.connections == 2


async def test_what_a_kept_connection_has_taken_is_not_unsent() -> None:
    """Without a new connection nobody knows whether it has arrived."""
    async with target(OK) as busy, client_of(busy.port) as client:
        assert isinstance(await push(client, busy.port), PushReply)
        sending = push(client, busy.port)
        await until(lambda: len(busy.requests) == 2)
        busy.close()
        answer = await sending
        assert answer == NoReply("no connection to 127.0.0.1: Connection refused")


async def test_no_answer_in_time_leaves_the_outcome_open(clock: ManualClock) -> None:
    async with target() as mute, client_of(mute.port) as client:
        sending = push(client, mute.port)
        await until(lambda: mute.requests)
        clock.advance(bounds.PUSH_S)
        assert await sending == NoReply("127.0.0.1 does not answer")
