"""Answers of push targets that have no end: only little of them is parsed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
from aiohttp.client_proto import ResponseHandler

from qos.core.queue.push import PushSubscriber
from qos.core.rest.forwarding import NoReply, PushReply, PushRequest
from qos.core.rest.push_targets import PushRules
from qos.rest import bounds
from qos.rest.push.client import PushClient
from waiting import limit, until

HINTS = b"HTTP/1.1 103 Early Hints\r\n\r\n"
DONE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
MANY = 10_000

MOST = bounds.PUSH_INFORMATIONAL_MAX


@dataclass
class Target:
    """A target that answers each request with the same bytes.

    Attributes:
        answer: the bytes.
        port: of it.
        connections: that it has accepted.
        writers: of the connections.
    """

    answer: bytes
    port: int = 0
    connections: int = 0
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        self.writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(self.answer)
                await writer.drain()

    def close(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def target(answer: bytes) -> AsyncIterator[Target]:
    found = Target(answer)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        found.close()


@contextlib.asynccontextmanager
async def client_of(
    target: Target,
) -> AsyncIterator[Callable[[], asyncio.Future[PushReply | NoReply]]]:
    """What makes one attempt after another at a target."""
    client = PushClient(PushRules.of((f"127.0.0.1:{target.port}",)))
    href = f"http://127.0.0.1:{target.port}/"
    subscriber = PushSubscriber(
        subscriber_id="s", node="orders", account="bob@x", rel="destination", href=href,
        base="", created_at=0.0,
    )  # fmt: skip

    def attempt() -> asyncio.Future[PushReply | NoReply]:
        made = client.send(PushRequest("GET", href), b"", {}, subscriber)
        return asyncio.ensure_future(made)

    try:
        async with limit():
            yield attempt
    finally:
        await client.aclose()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pieces that aiohttp has parsed."""
    sizes: list[int] = []
    parse = ResponseHandler.data_received

    def noted(self: ResponseHandler, data: bytes) -> None:
        sizes.append(len(data))
        parse(self, data)

    monkeypatch.setattr(ResponseHandler, "data_received", noted)
    return sizes


async def test_informational_answers_without_end_are_a_failed_attempt(
    parsed: list[int],
) -> None:
    """Else a target could hold up everybody until the time of the attempt is over."""
    async with target(HINTS * MANY) as endless, client_of(endless) as attempt:
        for attempts in (1, 2):
            answer = await attempt()
            assert answer == NoReply(
                f"127.0.0.1: more than {MOST} informational answers (1xx)"
            )
            assert endless.connections == attempts
    assert max(parsed) <= 1024
    assert sum(parsed) <= 2 * (MOST * len(HINTS) + 1024)


async def test_informational_answers_that_come_one_by_one_are_counted() -> None:
    """However slowly they come."""
    async with target(HINTS) as slow, client_of(slow) as attempt:
        failed = attempt()
        while not failed.done():
            for writer in slow.writers:
                writer.write(HINTS)
            await asyncio.sleep(0)
        assert isinstance(await failed, NoReply)


async def test_as_many_informational_answers_as_can_be_are_passed_over() -> None:
    """To each request on a connection: they are counted anew."""
    async with target(HINTS * MOST + DONE) as patient, client_of(patient) as attempt:
        for _ in range(3):
            answer = await attempt()
            assert isinstance(answer, PushReply), answer
            assert answer.status == 200
        assert patient.connections == 1


async def test_of_more_answers_than_requests_the_first_counts(
    parsed: list[int],
) -> None:
    """The rest is not parsed, and the next request has a connection of its own."""
    async with target(DONE * MANY) as talking, client_of(talking) as attempt:
        for attempts in (1, 2):
            answer = await attempt()
            assert isinstance(answer, PushReply), answer
            assert talking.connections == attempts
    assert sum(parsed) <= 2 * 1024


@pytest.mark.parametrize(
    "uncalled", [HINTS, DONE, DONE * MANY], ids=["hints", "answer", "many"]
)
async def test_an_answer_that_nobody_has_asked_for_ends_its_connection(
    uncalled: bytes, parsed: list[int]
) -> None:
    """Some servers send one before they close; the next request must not wait on it."""
    async with target(DONE) as talking, client_of(talking) as attempt:
        assert isinstance(await attempt(), PushReply)
        before = len(parsed)
        talking.writers[0].write(uncalled)
        await until(lambda: len(parsed) > before)
        answer = await attempt()
        assert isinstance(answer, PushReply), answer
        assert talking.connections == 2


async def test_of_a_long_body_only_the_beginning_is_parsed(parsed: list[int]) -> None:
    """One in chunks of one byte each is dear."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"1\r\nx\r\n" * bounds.PUSH_ANSWER_BYTES_MAX
    async with target(head + chunks) as long, client_of(long) as attempt:
        answer = await attempt()
        assert isinstance(answer, PushReply), answer
    assert sum(parsed) <= bounds.PUSH_ANSWER_BYTES_MAX + 1024
