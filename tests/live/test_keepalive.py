"""A link on which anything moves is alive, however slowly.

The time of a slow link passes when a test lets it pass, piece by piece: see passing_time.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from slixmpp import JID

import kept_device
from forked import Forked
from kept_device import INTERVAL_S, NEVER_S, TIMEOUT_S, session
from passing_time import let_pass
from proxy import LinkFault, Proxy, Shape
from qos.stream.keepalive import unsent_bytes, unsent_s
from qos.stream.login import AccountSession
from qos.stream.turns import Turns
from qos.testing import LoopbackServer, friends
from qos.testing.prosody import MakeProsody
from waiting import limit, until

#: What a slow link carries in the time of a piece.
PIECE_S = 1.0
SLOW = Shape(bytes_per_s=600)

#: To carry this takes much longer than to notice that a link is dead.
LARGE = "x" * 80_000

#: For an end whose link is not looked at.
UNWATCHED = {"ping_interval_s": NEVER_S}


@pytest.fixture(autouse=True)
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy._SHAPED_PIECE_S", PIECE_S)


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    async with friends("lamp", "door") as server:
        yield server


@contextlib.asynccontextmanager
async def time_passes() -> AsyncIterator[None]:
    """Time passes quickly, for what comes over a slow link."""

    async def passing() -> None:
        while True:
            await let_pass(PIECE_S / 4)
            await asyncio.sleep(0.002)

    task = asyncio.create_task(passing())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def slow_session(
    proxy: Proxy, user: str, **more: Any
) -> AsyncIterator[AccountSession]:
    """A session over a slow link, once it is online."""
    async with contextlib.AsyncExitStack() as stack:
        async with time_passes():
            made = await stack.enter_async_context(session(proxy.port, user, **more))
        yield made


async def check_carried(
    proxy: Proxy, direction: str, sender: AccountSession, receiver: AccountSession
) -> None:
    """A large message takes its time, and both stay in their first session."""
    came = asyncio.Event()
    lost: list[object] = []
    for each in (sender, receiver):
        each.client.add_event_handler("disconnected", lost.append)
    receiver.client.add_event_handler("message", lambda _message: came.set())
    begun = carried = proxy.carried[direction]
    passed_s = 0.0
    sender.client.send_message(receiver.client.boundjid, LARGE)
    while carried - begun < len(LARGE):
        await let_pass(PIECE_S)
        passed_s += PIECE_S
        # It passes only while the link does what it can.
        await until(lambda: proxy.carried[direction] > carried)  # noqa: B023
        carried = proxy.carried[direction]
    async with limit():
        await came.wait()
    assert not lost
    assert passed_s > 4 * (INTERVAL_S + TIMEOUT_S)


async def test_a_large_message_that_leaves_slowly_is_life(
    server: LoopbackServer,
) -> None:
    """The ping waits behind it for longer than its time-out."""
    async with (
        Proxy(server.port, shape=SLOW) as proxy,
        slow_session(proxy, "lamp") as sender,
        session(server.port, "door", **UNWATCHED) as receiver,
    ):
        await check_carried(proxy, "up", sender, receiver)


async def test_a_large_message_that_comes_slowly_is_life(
    server: LoopbackServer,
) -> None:
    """The answer to the ping comes behind it."""
    async with (
        Proxy(server.port, shape=SLOW) as proxy,
        slow_session(proxy, "door") as receiver,
        session(server.port, "lamp", **UNWATCHED) as sender,
    ):
        await check_carried(proxy, "down", sender, receiver)


@pytest.mark.xmpp
async def test_a_large_message_that_leaves_slowly_over_tls_is_life(
    make_prosody: MakeProsody,
) -> None:
    """There asyncio has two more buffers."""
    accounts = {"lamp": "secret", "door": "secret"}
    prosody = await make_prosody(tls=True, accounts=accounts, rosters={})
    options: dict[str, Any] = {"tls": "starttls", "ca_file": prosody.ca_file}
    async with (
        Proxy(prosody.c2s_port, shape=SLOW) as proxy,
        slow_session(proxy, "lamp", **options) as sender,
        session(prosody.c2s_port, "door", **options, **UNWATCHED) as receiver,
    ):
        await check_carried(proxy, "up", sender, receiver)


async def test_a_link_on_which_nothing_moves_is_dead(server: LoopbackServer) -> None:
    """A large message in the buffers does not keep it alive, and a new one is made."""
    loop = asyncio.get_running_loop()
    async with (
        Proxy(server.port, shape=SLOW) as proxy,
        slow_session(proxy, "lamp") as sender,
    ):
        dead = loop.create_future()
        sender.client.add_event_handler("disconnected", dead.set_result)
        stalled = asyncio.create_task(proxy.inflict(LinkFault.STALL, NEVER_S))
        sender.client.send_message(JID("door@localhost"), LARGE)
        passed_s = 0.0
        while not dead.done():
            await let_pass(PIECE_S)
            passed_s += PIECE_S
            assert passed_s < 4 * (INTERVAL_S + TIMEOUT_S)
        assert passed_s > TIMEOUT_S / 2
        stalled.cancel()
        async with time_passes():
            await sender.online.wait()
        assert unsent_bytes(None) == 0


async def test_a_process_that_was_stopped_does_not_blame_the_server(
    server: LoopbackServer,
) -> None:
    """By its clock, the answer to its ping has been on its way for a day."""
    async with Proxy(server.port) as proxy, session(proxy.port, "lamp") as made:
        lost: list[object] = []
        made.client.add_event_handler("disconnected", lost.append)
        stalled = asyncio.create_task(proxy.inflict(LinkFault.STALL, NEVER_S))
        await let_pass(INTERVAL_S)
        await let_pass(86_400)
        stalled.cancel()
        # The next one is answered, too.
        for _ in range(2):
            async with limit():
                await made.client.plugin["xep_0199"].ping(JID("localhost"))
            await let_pass(INTERVAL_S)
        assert not lost


async def test_a_pause_of_ours_is_not_the_servers_silence(
    server: LoopbackServer,
) -> None:
    """A program without room for more reads nothing, and so sees no answer to a ping.

    It gave the session up, and 120 of 400 messages were lost with it.
    """
    async with session(server.port, "lamp") as made:
        lost: list[object] = []
        made.client.add_event_handler("disconnected", lost.append)
        turns = Turns.of(made.client)
        turns.hold()
        for _ in range(40):
            await let_pass(TIMEOUT_S)
        assert not lost
        turns.release()
        async with limit():
            await made.client.plugin["xep_0199"].ping(JID("localhost"))
        assert not lost


async def test_what_only_receives_says_now_and_then_that_it_is_there(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy in between counts the silence of each end, and would cut the connection."""
    async with (
        session(server.port, "lamp", ping_interval_s=0.5) as lamp,
        session(server.port, "door", **UNWATCHED) as door,
    ):
        pings: list[object] = []
        came: list[object] = []
        ping = lamp.client.plugin["xep_0199"].ping

        async def counted(*words: Any, **named: Any) -> object:
            # Something has come just now: only the silence of this end is a reason.
            pings.append(lamp.client.loop.time() - Turns.of(lamp.client).came_at < 0.25)
            return await ping(*words, **named)

        monkeypatch.setattr(lamp.client.plugin["xep_0199"], "ping", counted)
        lamp.client.add_event_handler("message", came.append)
        async with limit():
            while pings.count(True) < 2:
                door.client.send_message(JID("lamp@localhost/1"), "x")
                await asyncio.sleep(0.02)
        assert came


async def test_the_system_knows_for_how_long_nothing_was_sent() -> None:
    """Of each connection by itself; without one, or of what is no TCP, nothing is known."""
    assert unsent_s(None) == 0.0
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    listening = await asyncio.start_server(
        lambda _, writer: accepted.put_nowait(writer), "127.0.0.1", 0
    )
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        other = await accepted.get()
        writer.write(b"a")
        await until(lambda: unsent_s(writer.transport) >= 0.2)
        other.write(b"b")
        await reader.readexactly(1)
        assert unsent_s(writer.transport) >= 0.2
        writer.write(b"c")
        await until(lambda: unsent_s(writer.transport) < 0.2)
        for end in (writer, other):
            end.close()
            await end.wait_closed()
        assert unsent_s(writer.transport) == 0.0


@pytest.mark.long
async def test_a_process_that_is_stopped_and_goes_on_is_still_online(
    server: LoopbackServer,
) -> None:
    """The same in real time: the answer to its ping waits in its socket.

    This process must answer within a second of the other's time.
    """
    device = await Forked.start(kept_device.until_told, server.port)
    assert await device.stdout.readline() == b"online\n"
    device.send_signal(signal.SIGSTOP)
    await asyncio.sleep(2.0)
    device.send_signal(signal.SIGCONT)
    await asyncio.sleep(0.5)
    out, _ = await device.communicate(b"\n")
    assert out == b"lost: 0\n"
