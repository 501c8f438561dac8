"""XEP-0198 counts correctly, whichever of our parts are on a stream, and whichever
leave it.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final, Self

import pytest
import pytest_asyncio
from slixmpp import JID, ClientXMPP
from slixmpp.exceptions import IqError
from slixmpp.xmlstream.stanzabase import StanzaBase

from clients import be_available, log_in, make_client
from devices import NO_RETRY, Device, device, outcome_of
from qos.core.message.model import NAMESPACES, Level, OutgoingState
from qos.stream.closing import close
from qos.testing.prosody import Prosody
from queue_service import SERVICE, Served, own_server
from stream_counts import ServerSent
from waiting import LIMIT_S, limit, until
from xep_0254 import XEP_0254, Event, NewItem, QueueService
from xep_qos import XEP_QOS

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Our parts: each takes stanzas out of the stream, and one feeds stanzas in.
ENDPOINT, CHANNEL, QUEUES = "xep_qos", "xep_0254", "queues"
PARTS: Final = (ENDPOINT, CHANNEL, QUEUES)

#: A queue service registers xep_qos if it is missing.
TOGETHER: Final = [
    (ENDPOINT,),
    (CHANNEL,),
    (QUEUES,),
    (ENDPOINT, CHANNEL),
    (CHANNEL, QUEUES),
    PARTS,
]

ORDERS: Final = list(itertools.permutations(PARTS))

ROUNDS: Final = 5

ITEM: Final = "<x xmlns='urn:x'/>"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prosody]:
    """A server for all tests of this module."""
    async with own_server(tmp_path_factory.mktemp("prosody")) as server:
        yield server


class Stream:
    """Alice's stream with XEP-0198, and some of our parts on it."""

    def __init__(self, server: Prosody, folder: Path, parts: Collection[str]) -> None:
        self.server = server
        self.parts: set[str] = set()
        self.client: ClientXMPP = make_client(server, "alice/a", {"xep_0198": {}})
        self.client.auto_authorize = None
        self.sent = ServerSent(self.client)
        self.resumptions = 0
        self.bodies: list[str] = []
        self._folder = folder
        self._numbers = itertools.count(1)
        self._queues: QueueService | None = None
        self.client.add_event_handler("session_resumed", self._resumed)
        self.client.add_event_handler("message", self._message)
        for part in parts:
            self.add(part)

    @property
    def jid(self) -> str:
        return str(self.client.boundjid.full)

    @property
    def management(self) -> Any:
        """slixmpp's XEP-0198, with its counters."""
        return self.client.plugin["xep_0198"]

    # -- the parts ---------------------------------------------------------

    def add(self, part: str) -> None:
        """Have one more part on the stream."""
        if part == QUEUES:
            self._queues = QueueService(self.client, f"sqlite:{self._folder / 'alice'}")
        else:
            self.client.register_plugin(part, NO_RETRY if part == ENDPOINT else {})
        self.parts.add(part)

    async def remove(self, part: str) -> None:
        """Have one part leave the stream."""
        self.parts.remove(part)
        if part == ENDPOINT:
            await XEP_QOS.of(self.client).aclose()
        elif part == CHANNEL:
            self.client.plugin.disable(part)  # type: ignore[attr-defined]
        else:
            assert self._queues is not None
            await self._queues.aclose()

    # -- traffic -----------------------------------------------------------

    async def talk(self, bob: Device, *, without: str = "") -> None:
        """Do everything that the parts can do, in both directions, and something that
        concerns none.
        """
        parts = self.parts - {without}
        doing: list[Awaitable[object]] = [self._plain(bob), self._ask_version(bob)]
        if ENDPOINT in parts:
            for level in (Level.ASSURED, Level.ACKNOWLEDGED):
                doing += [
                    bob.qos.send(self.jid, "to alice", level=level),
                    XEP_QOS.of(self.client).send(bob.jid, "to bob", level=level),
                ]
        if CHANNEL in parts:
            doing.append(self._work(f"alice-{next(self._numbers)}"))
        if QUEUES in parts:
            bob_asks = XEP_0254.of(bob.xmpp)
            doing.append(self._serve(bob_asks, f"bob-{next(self._numbers)}"))
        async with limit():
            await asyncio.gather(*doing)

    async def features(self, bob: Device) -> set[str]:
        """The features of Alice's client, as Bob sees them."""
        disco = bob.client.plugin["xep_0030"]
        answer = await disco.get_info(jid=JID(self.jid), timeout=LIMIT_S)
        return set(answer["disco_info"]["features"])

    async def in_step(self) -> None:
        """Return when the server has handled all earlier stanzas."""
        iq = self.client.make_iq_get("jabber:iq:none", ito=JID(self.server.domain))
        with contextlib.suppress(IqError):
            await iq.send(timeout=LIMIT_S)  # type: ignore[no-untyped-call]

    async def _plain(self, bob: Device) -> None:
        before = self.bodies.count("plain")
        bob.message(self.jid, "plain").send()
        await until(lambda: self.bodies.count("plain") > before)

    async def _ask_version(self, bob: Device) -> None:
        """Ask for something that slixmpp refuses, and make the server refuse it too."""
        iq = bob.xmpp.make_iq_get("jabber:iq:version", ito=JID(self.jid))
        with contextlib.suppress(IqError):
            await iq.send(timeout=LIMIT_S)  # type: ignore[no-untyped-call]
        await self.in_step()

    async def _work(self, node: str) -> None:
        asks = XEP_0254.of(self.client)
        came: asyncio.Future[Event] = self.client.loop.create_future()
        asks.add_listener(SERVICE, node, came.set_result)
        await asks.create(SERVICE, node)
        await asks.subscribe(SERVICE, node, queue_requests=1)
        await asks.publish(SERVICE, node, [NewItem(ITEM, "1")])
        await came
        asks.remove_listener(SERVICE, node, came.set_result)
        await asks.delete(SERVICE, node)

    async def _serve(self, bob: XEP_0254, node: str) -> None:
        assert await bob.supports_queueing(self.jid)
        await bob.create(self.jid, node)
        await bob.publish(self.jid, node, [NewItem(ITEM, "1")])
        assert (await bob.stats(self.jid, node))["available"] == 1
        await bob.subscribe(self.jid, node, queue_requests=1)
        await bob.delete(self.jid, node)

    # -- counts ------------------------------------------------------------

    async def counts_agree(self) -> None:
        """Prove that both ends have counted alike.

        Received stanzas: our count is that of the bytes. After a cut and a resumption,
        the server refuses a count that is too high, and sends again the stanzas that a
        lower count leaves out. Sent stanzas: the server acknowledges all of them.
        """
        await self.in_step()
        assert self.management.handled == self.sent.count
        self.management.request_ack()
        await until(lambda: not self.management.unacked_queue)
        assert self.management.last_ack == self.management.seq
        await self.cut()
        await self.resume()
        await self.in_step()
        assert self.sent.names == ["iq"]
        assert self.management.handled == self.sent.count

    async def cut(self) -> None:
        """Lose the connection."""
        assert self.client.transport is not None
        self.client.transport.abort()
        await until(lambda: not self.client.is_connected())

    async def resume(self) -> None:
        """Resume the session."""
        before = self.resumptions
        self.client.connect(self.server.address, self.server.c2s_port)
        await until(lambda: self.resumptions > before)

    async def __aenter__(self) -> Self:
        await log_in(self.client, self.server)
        await be_available(self.client)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._queues is not None:
            await self._queues.aclose()
        await close(self.client)

    def _resumed(self, _event: object) -> None:
        self.resumptions += 1

    def _message(self, message: StanzaBase) -> None:
        self.bodies.append(str(message["body"]))


@contextlib.asynccontextmanager
async def beside_bob(
    server: Prosody,
    folder: Path,
    parts: Collection[str],
    prepare: Callable[[ClientXMPP], object] = id,
) -> AsyncIterator[tuple[Stream, Device]]:
    """Alice's stream with these parts, a queue service, and Bob, who sends her
    messages.
    """
    queues = Served(server, folder, SERVICE, "anyone")
    await queues.start()
    stream = Stream(server, folder, parts)
    prepare(stream.client)
    try:
        async with (
            device(server, "bob/b", plugins={"xep_0254": {}}, **NO_RETRY) as bob,
            stream,
        ):
            yield stream, bob
    finally:
        await queues.stop()


def look(client: ClientXMPP) -> None:
    """Give the application a filter for received stanzas.

    Then each iq passes the filters.
    """
    client.add_filter("in", lambda stanza: stanza)


@pytest.mark.parametrize("prepare", [id, look], ids=["alone", "with a filter"])
@pytest.mark.parametrize("parts", TOGETHER, ids="+".join)
async def test_both_ends_count_alike_with_any_of_our_parts(
    server: Prosody,
    tmp_path: Path,
    parts: tuple[str, ...],
    prepare: Callable[[ClientXMPP], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A stanza that is taken out is counted once, and one that is fed in is not
    counted.
    """
    async with beside_bob(server, tmp_path, parts, prepare) as (stream, bob):
        with caplog.at_level(logging.WARNING):
            for _ in range(ROUNDS):
                await stream.talk(bob)
            await stream.counts_agree()
            # After the resumption the count continues.
            await stream.talk(bob)
            await stream.counts_agree()
    assert "Inconsistent sequence numbers" not in caplog.text


@pytest.mark.parametrize("order", ORDERS, ids="+".join)
async def test_both_ends_count_alike_when_one_part_after_another_leaves(
    server: Prosody, tmp_path: Path, order: tuple[str, ...]
) -> None:
    """In the middle of the session, and of the work of the others."""
    async with beside_bob(server, tmp_path, PARTS) as (stream, bob):
        await stream.talk(bob)
        for part in order:
            staying = asyncio.create_task(stream.talk(bob, without=part))
            await asyncio.sleep(0.01)
            await stream.remove(part)
            await staying
            await stream.talk(bob)
            await stream.counts_agree()


@pytest.mark.parametrize("resumed", [False, True], ids=["new", "resumed"])
async def test_both_ends_count_alike_when_a_part_comes_in_the_middle(
    server: Prosody, tmp_path: Path, resumed: bool
) -> None:
    """Its filter is then after that of XEP-0198, as for a part that was there from the
    start.
    """
    async with beside_bob(server, tmp_path, []) as (stream, bob):
        if resumed:
            await stream.cut()
            await stream.resume()
        for part in PARTS:
            stream.add(part)
            await stream.talk(bob)
        assert NAMESPACES[0] in await stream.features(bob)
        await stream.counts_agree()
        await stream.talk(bob)
        await stream.counts_agree()


async def test_what_is_sent_again_at_a_resumption_goes_before_what_is_new(
    server: Prosody, tmp_path: Path
) -> None:
    """XEP-0198 §4: `h` counts in the order of the wire.

    Stanzas that came meanwhile are answered in the turn in which the session is
    resumed. If such an answer were written ahead of the old stanzas, the server would
    acknowledge the old ones with it.
    """
    async with beside_bob(server, tmp_path, [ENDPOINT]) as (stream, bob):
        await stream.talk(bob)
        await stream.counts_agree()
        client, send_raw = stream.client, stream.client.send_raw
        lost, written = [], []

        def lose(data: str | bytes) -> None:
            lost.append(data)

        def write(data: str | bytes) -> None:
            written.append(data if isinstance(data, str) else data.decode())
            send_raw(data)

        client.send_raw = lose  # type: ignore[method-assign]
        for number in range(3):
            client.make_message(JID(bob.jid), f"old {number}").send()
        await until(lambda: len(lost) >= 3)
        client.send_raw = write  # type: ignore[method-assign]
        await stream.cut()
        delivery = await bob.qos.submit(bob.message(stream.jid, "meanwhile"))
        await bob.ping()
        await stream.resume()
        outcome = await outcome_of(delivery)
        assert outcome.status is OutgoingState.DELIVERED
        text = "".join(written)
        old = [text.index(f"old {number}") for number in range(3)]
        assert max(old) < text.index("<received")
        await stream.counts_agree()
