"""Commands at a machine whose clock is wrong, and at the same machine later."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import turned_clock
from qos.testing.clients import close, new_client
from turned_clock import HOUR_S
from waiting import LIMIT_S, limit
from xep_0254.events import Event
from xep_0254.queueing import XEP_0254

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from slixmpp import ClientXMPP

    from qos.testing.server import LoopbackServer
    from tests.cli.conftest import Commands

QUEUE = ("queue.localhost", "orders")

#: By how much a clock is ahead that shows 1970.
TO_1970_S = -50 * 365 * 86_400.0


@contextlib.asynccontextmanager
async def session(server: LoopbackServer, jid: str) -> AsyncIterator[ClientXMPP]:
    """A client that is written by hand."""
    user = jid.partition("@")[0]
    client = new_client(jid, f"secret of {user}", {"xep_0254": {"timeout_s": 60.0}})
    # The server of these tests has nothing else.
    client.plugin["feature_mechanisms"].unencrypted_plain = True
    client.connect(server.host, server.port)
    try:
        await client.wait_until("session_start", timeout=int(LIMIT_S))
        client.send_presence()
        yield client
    finally:
        await close(client)


async def ask(client: ClientXMPP, text: str) -> ET.Element:
    """Send an iq with this content to Bob's `listen`, and return its answer."""
    iq = client.make_iq_set(ito="bob@localhost/1")
    iq.append(ET.fromstring(text))  # noqa: S314 - of this test
    answer = await iq.send(timeout=LIMIT_S)  # type: ignore[no-untyped-call]
    content: ET.Element = answer.xml
    return content


def machine(commands: Commands, *, ahead_s: float) -> None:
    """Let commands start with a clock that is wrong by this."""
    commands.function = functools.partial(turned_clock.wrong, ahead_s=ahead_s)


async def test_what_listen_has_held_in_1970_is_printed_when_the_clock_is_right(
    commands: Commands, server: LoopbackServer
) -> None:
    """Its sender was told that it is held, and its line was never printed."""
    async with session(server, "alice@localhost/raw") as alice:
        machine(commands, ahead_s=TO_1970_S)
        first = await commands.listen("bob")
        held = await ask(
            alice,
            "<assured xmlns='urn:xmpp:qos' msgId='m1'><message><body>x</body></message>"
            "</assured>",
        )
        assert [each.tag.rpartition("}")[2] for each in held] == ["received"]
        first.process.kill()
        await first.process.wait()
        machine(commands, ahead_s=0.0)
        second = await commands.listen("bob")
        release = asyncio.create_task(
            ask(alice, "<deliver xmlns='urn:xmpp:qos' msgId='m1'/>")
        )
        assert (await second.line())["body"] == "x"
        async with limit():
            assert (await release).get("type") == "result"


async def test_a_lock_of_a_clock_that_was_ahead_lasts_no_longer_than_its_time_out(
    commands: Commands, server: LoopbackServer
) -> None:
    """Its item was nobody's for five hours. Here an hour passes after the restart."""
    machine(commands, ahead_s=5 * HOUR_S)
    wrong = await commands.serve()
    options = ("--set", "access_model=open", "--set", "lock_timeout=600")
    assert (await commands.queue("create", *options)).status == 0
    events: asyncio.Queue[Event] = asyncio.Queue()
    async with session(server, "bob@localhost/bee") as bee:
        XEP_0254.of(bee).add_listener(*QUEUE, events.put_nowait)
        await XEP_0254.of(bee).subscribe(*QUEUE, queue_requests=1)
        assert (await commands.queue("publish", "--text", "x")).status == 0
        async with limit():
            (item,) = (await events.get()).items
        wrong.process.kill()
        await wrong.process.wait()
        machine(commands, ahead_s=0.0)
        right = await commands.serve()
        given = [item]
        async with limit():
            # The item that it holds comes once more, under the token that it knows.
            while given[-1].token == item.token:
                # It has read its store, and knows who is there: an hour of silence may
                # have ended its session.
                await XEP_0254.of(bee).stats(*QUEUE)
                # Once more if it was writing: that time would not count.
                right.turn_clock()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(2.0):
                        given += (await events.get()).items
        assert {each.item_id for each in given} == {item.item_id}


async def test_what_was_published_in_1970_is_not_published_again(
    commands: Commands, server: LoopbackServer
) -> None:
    """A publisher that has not heard the answer repeats it, and it made a second item."""
    machine(commands, ahead_s=TO_1970_S)
    wrong = await commands.serve()
    assert (await commands.queue("create", "--set", "access_model=open")).status == 0
    publish = ("publish", "--text", "x", "--id", "i")
    events: asyncio.Queue[Event] = asyncio.Queue()
    async with session(server, "bob@localhost/bee") as bee:
        XEP_0254.of(bee).add_listener(*QUEUE, events.put_nowait)
        await XEP_0254.of(bee).subscribe(*QUEUE, queue_requests=1)
        assert (await commands.queue(*publish)).status == 0
        async with limit():
            (item,) = (await events.get()).items
        await XEP_0254.of(bee).retract(*QUEUE, item.item_id, item.token)
        wrong.process.kill()
        await wrong.process.wait()
        machine(commands, ahead_s=0.0)
        await commands.serve()
        assert (await commands.queue(*publish)).status == 0
    (stats,) = (await commands.queue("stats")).out
    assert (stats["accepted"], stats["available"], stats["acquired"]) == (1, 0, 0)
