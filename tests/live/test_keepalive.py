"""A link on which anything moves is alive, however slowly."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from slixmpp import JID

import kept_device
from forked import Forked
from kept_device import session
from proxy import LinkFault, Proxy, Shape
from qos.stream.keepalive import unsent_bytes
from qos.stream.login import AccountSession
from qos.testing import LoopbackServer, friends
from qos.testing.prosody import MakeProsody

SLOW = Shape(bytes_per_s=20_000)


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    async with friends("lamp", "door") as server:
        yield server


async def carried_s(sender: AccountSession, receiver: AccountSession) -> float:
    """The time that a message of 80 kB takes; both stay in their first session."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    lost: list[object] = []
    for each in (sender, receiver):
        each.client.add_event_handler("disconnected", lost.append)
    receiver.client.add_event_handler("message", lambda _message: came.set())
    begun = loop.time()
    sender.client.send_message(receiver.client.boundjid, "x" * 80_000)
    await came.wait()
    assert not lost
    return loop.time() - begun


async def test_a_large_message_that_leaves_slowly_is_life(
    server: LoopbackServer,
) -> None:
    """The ping waits behind it for longer than its time-out."""
    async with (
        Proxy(server.port, shape=SLOW) as proxy,
        session(server.port, "door") as receiver,
        session(proxy.port, "lamp") as sender,
    ):
        assert await carried_s(sender, receiver) > 2.0


async def test_a_large_message_that_comes_slowly_is_life(
    server: LoopbackServer,
) -> None:
    """The answer to the ping comes behind it."""
    async with (
        Proxy(server.port, shape=SLOW) as proxy,
        session(proxy.port, "door") as receiver,
        session(server.port, "lamp") as sender,
    ):
        assert await carried_s(sender, receiver) > 2.0


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
        session(prosody.c2s_port, "door", **options) as receiver,
        session(proxy.port, "lamp", **options) as sender,
    ):
        assert await carried_s(sender, receiver) > 2.0


async def test_a_link_on_which_nothing_moves_is_dead(server: LoopbackServer) -> None:
    """A large message in the buffers does not keep it alive, and a new one is made."""
    loop = asyncio.get_running_loop()
    async with (
        Proxy(server.port, shape=SLOW) as proxy,
        session(proxy.port, "lamp") as sender,
    ):
        dead = loop.create_future()
        sender.client.add_event_handler("disconnected", dead.set_result)
        stalled = asyncio.create_task(
            proxy.inflict(LinkFault.STALL, kept_device.LIMIT_S)
        )
        begun = loop.time()
        sender.client.send_message(JID("door@localhost"), "x" * 80_000)
        await dead
        assert 0.5 < loop.time() - begun < 10.0
        stalled.cancel()
        await sender.online.wait()
        assert unsent_bytes(None) == 0


async def test_a_process_that_was_stopped_does_not_blame_the_server(
    server: LoopbackServer,
) -> None:
    """The answer to its ping waits in its socket."""
    device = await Forked.start(kept_device.until_told, server.port)
    assert await device.stdout.readline() == b"online\n"
    device.send_signal(signal.SIGSTOP)
    await asyncio.sleep(2.0)
    device.send_signal(signal.SIGCONT)
    await asyncio.sleep(0.5)
    out, _ = await device.communicate(b"\n")
    assert out == b"lost: 0\n"
