"""A message that is too large for the server: refused where the limit is known, learned elsewhere.

The embedded server ends the stream at a stanza over its limit, as every server does. What a
real one does is in `tests/live/test_stanza_limits.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP, Message

from qos.core.message.model import Level, OutgoingState
from qos.engine import Delivery
from qos.errors import MessageTooLarge, NotDelivered
from qos.stream.gate import Gate
from qos.stream.stream_limits import StreamLimits
from qos.testing import friends, logged_in
from qos.testing.session import ClientSession
from waiting import limit, until
from xep_qos import XEP_QOS

BOB = "bob@localhost/b"
LIMIT = 20_000
LARGE = "x" * 30_000
LIMITS = "<limits xmlns='urn:xmpp:stream-limits:0'>{}</limits></stream:features>"
DELIVERED, NOT_DELIVERED = OutgoingState.DELIVERED, OutgoingState.NOT_DELIVERED


@pytest.fixture
def bodies() -> list[str]:
    """The bodies that have come to Bob."""
    return []


class Sender:
    """Alice, and how often she has had a session."""

    def __init__(self, client: ClientXMPP) -> None:
        self.client = client
        self.qos = XEP_QOS.of(client)
        self.sessions = 1
        client.add_event_handler("session_start", self._started)

    def _started(self, _event: object) -> None:
        self.sessions += 1

    async def submit(self, body: str, **options: Any) -> Delivery:
        return await self.qos.submit(BOB, body, **options)


@contextlib.asynccontextmanager
async def pair(bodies: list[str], **options: Any) -> AsyncIterator[Sender]:
    """Alice and Bob at a server with a limit."""

    def put(message: Message) -> None:
        bodies.append(message["body"])

    async with (
        friends("alice", "bob", stanza_bytes_max=LIMIT) as server,
        logged_in(
            server, "bob/b", prepare=lambda bob: bob.add_event_handler("message", put)
        ),
        logged_in(server, "alice/a", {"xep_qos": options}) as alice,
    ):
        yield Sender(alice)


async def ends_of(deliveries: list[Delivery]) -> list[OutgoingState]:
    async with limit():
        outcomes = await asyncio.gather(*(each.outcome() for each in deliveries))
    return [each.status for each in outcomes]


def announce(monkeypatch: pytest.MonkeyPatch, *, before: str, after: str) -> None:
    """Let the server announce limits before and after the login (XEP-0478)."""
    send = ClientSession.send

    def announcing(self: ClientSession, data: bytes) -> None:
        if b"</stream:features>" in data:
            offered = LIMITS.format(before if b"<mechanisms" in data else after)
            data = data.replace(b"</stream:features>", offered.encode())
        send(self, data)

    monkeypatch.setattr(ClientSession, "send", announcing)


# -- learned ---------------------------------------------------------------


@pytest.mark.parametrize("level", [Level.ACKNOWLEDGED, Level.ASSURED])
async def test_twenty_messages_arrive_beside_one_that_is_too_large(
    bodies: list[str], level: Level
) -> None:
    """The server says nothing of its limit. Before, none arrived, for good."""
    async with pair(bodies) as alice:
        small = [await alice.submit(f"{number}", level=level) for number in range(10)]
        large = await alice.submit(LARGE, level=level)
        small += [
            await alice.submit(f"{number}", level=level) for number in range(10, 20)
        ]
        assert await ends_of(small) == [DELIVERED] * 20
        assert await ends_of([large]) == [NOT_DELIVERED]
        outcome = await large.outcome()
        assert (outcome.condition, outcome.by) == ("policy-violation", "localhost")
        assert set(bodies) >= {f"{number}" for number in range(20)}
        assert alice.sessions <= 3


async def test_what_was_learned_is_told_to_the_next_message(bodies: list[str]) -> None:
    """And a smaller one goes through as before."""
    async with pair(bodies) as alice:
        with pytest.raises(NotDelivered, match="policy-violation"):
            async with limit():
                await alice.qos.send(BOB, LARGE)
        with pytest.raises(MessageTooLarge) as caught:
            await alice.submit(LARGE)
        assert caught.value.size > caught.value.limit >= len(LARGE)
        assert (await alice.qos.send(BOB, "x" * 15_000)).status is DELIVERED
        assert alice.sessions <= 3


async def test_many_that_are_too_large_cost_few_sessions(bodies: list[str]) -> None:
    """Two for each window of them at most, though each is smaller than the one before."""
    async with pair(bodies) as alice:
        large = [
            await alice.submit("x" * (40_000 - 1_000 * number)) for number in range(8)
        ]
        small = await alice.submit("small")
        assert await ends_of([small]) == [DELIVERED]
        assert await ends_of(large) == [NOT_DELIVERED] * 8
        assert alice.sessions <= 6


async def test_batches_that_are_too_large_are_made_smaller(bodies: list[str]) -> None:
    """No message in them is too large, so each arrives."""
    async with pair(bodies) as alice:
        await alice.qos.send(BOB, "so that batches are known to be accepted")
        many = [await alice.submit("x" * 1_000) for _ in range(60)]
        assert await ends_of(many) == [DELIVERED] * 60
        assert alice.sessions <= 3


async def test_a_plain_message_that_ends_the_stream_is_sent_once(
    bodies: list[str],
) -> None:
    """It is lost, as level unacknowledged allows; the others are not."""
    async with pair(bodies) as alice:
        await alice.submit(LARGE, level=Level.UNACKNOWLEDGED)
        small = [await alice.submit(f"{number}") for number in range(3)]
        assert await ends_of(small) == [DELIVERED] * 3
        assert alice.sessions <= 2


async def test_a_killed_process_goes_on_after_the_first_end(
    bodies: list[str], tmp_path: Path
) -> None:
    """What ended the stream before is not the first that the next process sends."""
    store = f"sqlite:{tmp_path}/a.db"
    plugins = {"xep_qos": {"store": store}}
    async with friends("alice", "bob", stanza_bytes_max=LIMIT) as server:
        async with logged_in(server, "alice/a", plugins) as client:
            alice = Sender(client)
            large = await alice.submit(LARGE)
            small = [await alice.submit(f"{number}") for number in range(3)]
            async with limit():
                await until(lambda: alice.sessions == 2)
            client.del_event_handler("session_start", alice._started)
            assert not large.ended
        async with (
            logged_in(
                server,
                "bob/b",
                prepare=lambda bob: bob.add_event_handler("message", lambda _: None),
            ),
            logged_in(server, "alice/a", plugins) as client,
        ):
            alice = Sender(client)
            assert StreamLimits.of(client).sizes.careful
            ids = [each.msg_id for each in small]
            async with limit():
                ends = [await alice.qos.outcome(each) for each in ids]
                last = await alice.qos.outcome(large.msg_id)
            assert [each.status for each in ends] == [DELIVERED] * 3
            assert last.status is NOT_DELIVERED
            assert alice.sessions == 2


# -- announced -------------------------------------------------------------


async def test_an_announced_limit_refuses_to_the_byte(
    bodies: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted on what really goes out; the limit after the login is the one that counts."""
    announce(
        monkeypatch,
        before="<max-bytes>10000</max-bytes>",
        after="<max-bytes> 15000 </max-bytes><idle-seconds>1800</idle-seconds>",
    )
    async with pair(bodies) as alice:
        limits = StreamLimits.of(alice.client)
        assert (limits.sizes.limit, limits.idle_s) == (15_000, 1800)
        sent: list[int] = []
        original = alice.client.send_raw

        def send_raw(data: str | bytes) -> None:
            sent.append(len(data if isinstance(data, bytes) else data.encode()))
            original(data)

        monkeypatch.setattr(alice.client, "send_raw", send_raw)
        for level in (Level.ACKNOWLEDGED, Level.ASSURED, Level.UNACKNOWLEDGED):
            sent.clear()
            with pytest.raises(MessageTooLarge) as caught:
                await alice.submit("ä" + "x" * 15_000, level=level)
            assert caught.value.limit == 15_000
            fits = 30_000 - caught.value.size
            with pytest.raises(MessageTooLarge) as caught:
                await alice.submit("ä" + "x" * (fits + 1), level=level)
            assert caught.value.size == 15_001
            delivery = await alice.submit("ä" + "x" * fits, level=level)
            if level is not Level.UNACKNOWLEDGED:
                assert await ends_of([delivery]) == [DELIVERED]
            async with limit():
                await until(lambda: bool(sent))
            assert max(sent) == 15_000
        assert alice.sessions == 1


async def test_a_limit_that_is_smaller_than_what_waits_ends_it_without_a_try(
    bodies: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Accepted while nothing was known."""
    announce(monkeypatch, before="", after="<max-bytes>15000</max-bytes>")
    store = f"sqlite:{tmp_path}/a.db"
    early = ClientXMPP("alice@localhost/a", "secret")
    early.register_plugin("xep_qos", {"store": store})
    large = await XEP_QOS.of(early).submit(BOB, LARGE)
    await XEP_QOS.of(early).aclose()
    async with pair(bodies, store=store) as alice:
        async with limit():
            outcome = await alice.qos.outcome(large.msg_id)
        assert (outcome.status, outcome.attempts) == (NOT_DELIVERED, 0)
        assert outcome.condition == "policy-violation"
        assert outcome.text is not None
        assert "and the server takes 15000" in outcome.text
        assert alice.sessions == 1


@pytest.mark.parametrize(
    "announced",
    [
        "<max-bytes/>",
        "<max-bytes>0</max-bytes>",
        "<max-bytes>-5</max-bytes>",
        "<max-bytes>many</max-bytes>",
        "<max-bytes>\u0665\u0660</max-bytes>",
        f"<max-bytes>{'9' * 5000}</max-bytes>",
        "<idle-seconds>600</idle-seconds>",
        "",
    ],
)
async def test_a_limit_that_is_no_number_is_none(
    bodies: list[str], monkeypatch: pytest.MonkeyPatch, announced: str
) -> None:
    announce(monkeypatch, before="", after=announced)
    async with pair(bodies) as alice:
        assert StreamLimits.of(alice.client).sizes.limit is None


async def test_what_is_offered_before_tls_is_not_believed() -> None:
    """Anybody on the network path may have written it."""
    client = ClientXMPP("alice@localhost/a", "secret")
    client.register_plugin("xep_qos", {"store": "memory:"})
    features = ET.fromstring(  # noqa: S314 - our own
        "<f><limits xmlns='urn:xmpp:stream-limits:0'><max-bytes>9</max-bytes></limits></f>"
    )
    Gate.of(client)._offered(features)
    assert StreamLimits.of(client).sizes.limit is None
    await XEP_QOS.of(client).aclose()
