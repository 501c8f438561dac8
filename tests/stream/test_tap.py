"""One tap on each stream.

It is added with our first part, and removed with the last.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP

from qos.core.message.batch import BATCH_NAMESPACE
from qos.core.message.model import MARKS_NAMESPACE, NAMESPACES
from qos.stream import internals
from qos.stream.gate import Gate
from qos.stream.per_stream import is_foreign
from qos.stream.tap import Part, Tap
from qos.testing import LoopbackServer, friends
from qos.testing.clients import close, new_client
from raw_client import RawClient, stanza
from waiting import LIMIT_S
from xep_0254 import QueueService
from xep_qos import XEP_QOS

PARTS = ("xep_qos", "xep_0254", "queues")


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    async with friends("alice", "bob") as server:
        yield server


@pytest.fixture
async def client() -> AsyncIterator[ClientXMPP]:
    """Bob's, not connected yet."""
    client = new_client("bob@localhost/b", "secret", {})
    client.register_plugin("xep_0030")
    client.register_plugin("xep_0115")
    yield client
    await close(client)


def filters(client: ClientXMPP) -> list[tuple[str, Any]]:
    return [
        (mode, each)
        for mode in ("in", "out", "out_sync", "out_sce")
        for each in internals.filters(client, mode)
    ]


def traces(client: ClientXMPP) -> tuple[object, ...]:
    """Everything that a part can add to a stream."""
    inner: Any = client
    events = inner._XMLStream__event_handlers
    return (
        filters(client),
        {name: list(each) for name, each in events.items() if each},
        [each.name for each in inner._XMLStream__handlers],
    )


def part(*, takes: bool = False, log: list[str] | None = None, name: str = "") -> Part:
    """A part that takes everything or nothing, and notes the calls of the tap."""
    notes = [] if log is None else log

    def take(_stanza: object) -> bool:
        notes.append(name)
        return takes

    def started(*, resumed: bool) -> None:
        notes.append(f"{name} started, {resumed}")

    return Part(
        take_iq=take,
        take_message=take,
        session_started=started,
        session_lost=lambda: notes.append(f"{name} lost"),
    )


def iq(client: ClientXMPP) -> ET.Element:
    return client.make_iq_get("urn:x", ito="bob@localhost/b", ifrom="a@b/c").xml


async def connect(client: ClientXMPP, server: LoopbackServer) -> None:
    client.connect(server.host, server.port)
    await client.wait_until("session_start", timeout=LIMIT_S)


def alice(server: LoopbackServer) -> RawClient:
    return RawClient("alice@localhost/a", "secret", port=server.port)


@pytest.mark.parametrize("order", list(itertools.permutations(PARTS)), ids="+".join)
async def test_closing_in_any_order_restores_the_stream(
    client: ClientXMPP, tmp_path: Path, order: tuple[str, ...]
) -> None:
    """And with three parts it has one filter, not three."""
    Gate.of(client)  # it stays, once it is there
    before = traces(client)
    client.register_plugin("xep_qos")
    client.register_plugin("xep_0254")
    queues = QueueService(client, f"sqlite:{tmp_path / 'queues'}")
    assert [
        each.__self__
        for each in internals.filters(client, "in")
        if not each.__module__.startswith("slixmpp.")
    ] == [Tap.of(client)]
    for name in order:
        assert traces(client) != before
        if name == "xep_qos":
            await XEP_QOS.of(client).aclose()
        elif name == "xep_0254":
            client.plugin.disable(name)  # type: ignore[attr-defined]  # slixmpp's lack
        else:
            await queues.aclose()
    assert traces(client) == before


async def test_the_part_that_joined_last_is_asked_first(client: ClientXMPP) -> None:
    """And no further part is asked about a stanza that has been taken."""
    asked: list[str] = []
    tap = Tap.of(client)
    parts = [
        part(name="first", log=asked),
        part(name="second", log=asked, takes=True),
        part(name="third", log=asked),
    ]
    for each in parts:
        tap.join(each)
    client._spawn_event(iq(client))
    assert asked == []  # there is no session, and the gate is shut
    client.event("session_bind", client.boundjid)
    client._spawn_event(iq(client))
    assert asked == ["third", "second"]
    for each in parts:
        tap.leave(each)
        tap.leave(each)


async def test_a_part_may_leave_while_it_is_asked_or_told(client: ClientXMPP) -> None:
    """An application may close a plugin in a handler, or when the session is lost."""
    tap = Tap.of(client)
    told: list[str] = []

    def leave(_stanza: object = None) -> bool:
        tap.leave(leaving)
        return False

    def started(*, resumed: bool) -> None:
        told.append(f"started, {resumed}")

    leaving = Part(
        take_iq=leave, session_started=started, session_lost=lambda: told.append("lost")
    )
    staying = tap.join(part(name="staying", log=told))
    tap.join(leaving)
    client.event("session_bind", client.boundjid)
    client.event("session_start")
    assert told == ["staying started, False", "started, False"]
    client._spawn_event(iq(client))
    client.event("session_resumed")
    client.event("disconnected")
    assert told[2:] == ["staying", "staying started, True", "staying lost"]
    tap.leave(staying)


async def test_what_fails_in_one_part_is_logged_and_the_others_are_asked(
    client: ClientXMPP, caplog: pytest.LogCaptureFixture
) -> None:
    """It must not end the connection.

    A peer would repeat the stanza on the next one.
    """

    def fail(_stanza: object) -> bool:
        raise ArithmeticError

    asked: list[str] = []
    tap = Tap.of(client)
    first = tap.join(part(name="first", log=asked, takes=True))
    failing = tap.join(
        Part(
            take_iq=fail,
            session_started=first.session_started,
            session_lost=first.session_lost,
        )
    )
    client.event("session_bind", client.boundjid)
    client._spawn_event(iq(client))
    assert asked == ["first"]
    assert "could not be looked into" in caplog.text
    tap.leave(failing)
    tap.leave(first)


@pytest.mark.parametrize("foreign", [False, True], ids=["", "with a filter"])
async def test_a_request_that_meets_an_error_may_be_repeated(
    client: ClientXMPP, server: LoopbackServer, foreign: bool
) -> None:
    """slixmpp would answer that it is not implemented, and that is for ever."""
    if foreign:
        client.add_filter("in", lambda each: each)
    await connect(client, server)

    def fail(_stanza: object) -> bool:
        raise MemoryError

    joined = Tap.of(client).join(
        Part(
            take_iq=fail,
            take_message=fail,
            session_started=part().session_started,
            session_lost=part().session_lost,
        )
    )
    bodies: list[str] = []
    client.add_event_handler("message", lambda each: bodies.append(each["body"]))
    async with alice(server) as raw:
        for kind in ("get", "set"):
            await raw.send(
                f"<iq type='{kind}' id='{kind}' to='bob@localhost/b'><x xmlns='u:x'/></iq>"
            )
            answer = await raw.expect(stanza("iq", id=kind))
            (error,) = (each for each in answer if each.tag.endswith("}error"))
            assert answer.get("type") == "error"
            assert error.get("type") == "wait"
            assert error[0].tag.endswith("}internal-server-error")
        # Nobody is told of an answer or a message that could not be looked into.
        for text in (
            "<iq type='result' id='r' to='bob@localhost/b'/>",
            f"<iq type='get' id='{'x' * 2000}' to='bob@localhost/b'><x xmlns='u:x'/></iq>",
            "<message to='bob@localhost/b'><body>plain</body></message>",
            "<iq type='get' id='last' to='bob@localhost/b'><x xmlns='u:x'/></iq>",
        ):
            await raw.send(text)
        await raw.expect(stanza("iq", id="last"))
        assert raw.received(stanza("iq")) == []
    assert bodies == ["plain"]
    Tap.of(client).leave(joined)


async def test_what_is_on_its_way_when_the_last_part_leaves_keeps_its_marks(
    client: ClientXMPP, server: LoopbackServer
) -> None:
    """slixmpp's serialiser leaves out attributes of other namespaces."""
    await connect(client, server)

    async def look(stanza_: Any) -> Any:
        await asyncio.sleep(0.05)
        return stanza_

    client.add_filter("out", look)
    before = filters(client)
    tap = Tap.of(client)
    joined = tap.join(part())
    async with alice(server) as raw:
        marked = f"<x xmlns='urn:x' xmlns:m='{MARKS_NAMESPACE}' m:store='1'/>"
        text = f"<iq type='set' id='1' to='{raw.jid}'>{marked}</iq>"
        assert tap.wire.send(text)
        tap.leave(joined)
        came = await raw.expect(stanza("iq", id="1"))
    assert came[0].get(f"{{{MARKS_NAMESPACE}}}store") == "1"
    assert filters(client) == before


@pytest.mark.parametrize("foreign", [False, True], ids=["", "with a filter"])
async def test_a_service_that_closes_has_no_batch_refused(
    client: ClientXMPP, server: LoopbackServer, tmp_path: Path, foreign: bool
) -> None:
    """slixmpp would answer that batches are not implemented.

    This ends each message in it.
    """
    if foreign:
        client.add_filter("in", lambda each: each)
        assert is_foreign(internals.filters(client, "in")[-1])
    queues = QueueService(client, f"sqlite:{tmp_path / 'queues'}")
    await connect(client, server)
    await queues.aclose()
    message = "<message xmlns='jabber:client'><body>on</body></message>"
    assured = f"<assured xmlns='{NAMESPACES[0]}' msgId='1'>{message}</assured>"
    async with alice(server) as raw:
        for number, content in enumerate(
            (assured, f"<batch xmlns='{BATCH_NAMESPACE}'>{assured}</batch>")
        ):
            await raw.send(
                f"<iq type='set' id='{number}' to='bob@localhost/b'>{content}</iq>"
            )
        ping = "<ping xmlns='urn:xmpp:ping'/>"
        await raw.send(f"<iq type='get' id='p' to='bob@localhost/b'>{ping}</iq>")
        await raw.expect(stanza("iq", id="p"))
        assert raw.received(stanza("iq")) == []


async def test_a_closed_service_leaves_the_xep_qos_of_the_application_alone(
    client: ClientXMPP, server: LoopbackServer, tmp_path: Path
) -> None:
    """It only swallows requests that nothing else would answer."""
    client.register_plugin("xep_qos", {"trust": "anyone"})
    queues = QueueService(client, f"sqlite:{tmp_path / 'queues'}")
    await connect(client, server)
    await queues.aclose()
    message = "<message xmlns='jabber:client'><body>on</body></message>"
    assured = f"<assured xmlns='{NAMESPACES[0]}' msgId='1'>{message}</assured>"
    async with alice(server) as raw:
        await raw.send(f"<iq type='set' id='1' to='bob@localhost/b'>{assured}</iq>")
        answer = await raw.expect(stanza("iq", id="1"))
        assert answer.get("type") == "result"


async def test_a_service_goes_on_when_the_application_closes_its_xep_qos(
    client: ClientXMPP, server: LoopbackServer, tmp_path: Path
) -> None:
    """It does not handle plain messages, and its requests need no xep_qos."""
    queues = QueueService(client, f"sqlite:{tmp_path / 'queues'}", creators="anyone")
    await connect(client, server)
    with contextlib.suppress(LookupError):
        await XEP_QOS.of(client).aclose()
    bodies: list[str] = []
    client.add_event_handler("message", lambda each: bodies.append(each["body"]))
    async with alice(server) as raw:
        await raw.send("<message to='bob@localhost/b'><body>plain</body></message>")
        create = "<create node='n'/>"
        pubsub = f"<pubsub xmlns='http://jabber.org/protocol/pubsub'>{create}</pubsub>"
        await raw.send(f"<iq type='set' id='1' to='bob@localhost/b'>{pubsub}</iq>")
        answer = await raw.expect(stanza("iq", id="1"))
        assert answer.get("type") == "result"
    assert bodies == ["plain"]
    await queues.aclose()
