"""Takers: which code of an application counts as having taken a message."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from slixmpp import JID, ClientXMPP
from slixmpp.plugins.xep_0004.stanza.field import FormField
from slixmpp.stanza import Message
from slixmpp.xmlstream.handler import Callback, CoroutineCallback, Waiter
from slixmpp.xmlstream.matcher import (
    MatcherId,
    MatchMany,
    MatchXMLMask,
    MatchXPath,
    StanzaPath,
)
from slixmpp.xmlstream.matcher.base import MatcherBase
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.core.message.model import Level, OutgoingState
from qos.errors import RemoteProtocolError
from qos.stream.tap import Tap
from qos.testing import LoopbackServer, friends, logged_in
from qos.testing.clients import close, new_client
from waiting import until
from xep_qos import XEP_QOS
from xep_qos.takers import Takers

#: A message for which slixmpp itself has a handler that raises an event.
BODY = "<body>one</body><active xmlns='http://jabber.org/protocol/chatstates'/>"

#: By the clock of the loop: it comes when nothing else is left to do.
SEVERAL_RETRIES_S = 2.0

Prepare = Callable[[ClientXMPP], object]


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    async with friends("alice", "bob") as server:
        yield server


@contextlib.asynccontextmanager
async def pair(
    server: LoopbackServer,
    prepare: Prepare | None = None,
    *,
    retry_max_s: float = 0.1,
) -> AsyncIterator[tuple[XEP_QOS, ClientXMPP]]:
    """Alice, who sends, and Bob, with the handlers that `prepare` registers."""
    hasty = {"xep_qos": {"retry_first_s": 0.05, "retry_max_s": retry_max_s}}
    async with (
        logged_in(server, "alice/1", hasty) as alice,
        logged_in(server, "bob/1", {"xep_0085": {}}, prepare=prepare) as bob,
    ):
        yield XEP_QOS.of(alice), bob


async def test_the_plugin_alone_leaves_plain_messages_of_strangers_alone() -> None:
    """They are those of another application; `qos.connect` asks whom `trust` names."""
    bodies: list[str] = []

    def prepare(client: ClientXMPP) -> None:
        client.add_event_handler(
            "message", lambda message: bodies.append(message["body"])
        )

    accounts = dict.fromkeys(("bob", "mallory"), "secret")
    async with (
        LoopbackServer(accounts=accounts) as server,
        logged_in(server, "bob/1", prepare=prepare),
        logged_in(server, "mallory/1") as mallory,
    ):
        mallory.send_message(JID("bob@localhost/1"), "plain")
        await until(lambda: bodies == ["plain"])


async def test_an_address_and_a_text_are_submitted_as_they_are_sent(
    server: LoopbackServer,
) -> None:
    bodies: list[str] = []

    def prepare(client: ClientXMPP) -> None:
        client.add_event_handler(
            "message", lambda message: bodies.append(message["body"])
        )

    async with pair(server, prepare) as (alice, _):
        delivery = await alice.submit("bob@localhost/1", "one")
        assert (await delivery.outcome()).status is OutgoingState.DELIVERED
    assert bodies == ["one"]


async def status(
    alice: XEP_QOS, level: Level = Level.ASSURED, deadline_s: float = 60.0
) -> OutgoingState:
    """The outcome of a message to Bob."""
    message = alice.xmpp.make_message("bob@localhost/1")
    for each in _children(BODY):
        message.append(each)
    delivery = await alice.submit(message, level=level, deadline_s=deadline_s)
    return (await delivery.outcome()).status


def _children(text: str) -> list[Any]:
    from xml.etree import ElementTree as ET

    return list(ET.fromstring(f"<x xmlns='jabber:client'>{text}</x>"))  # noqa: S314


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    """Wait until this text is in the log."""
    await until(lambda: text in caplog.text)


def ignore(*_arguments: object) -> None:
    """Take a message."""


async def ignore_later(*_arguments: object) -> None:
    """Take a message, as a coroutine."""


def with_event(client: ClientXMPP) -> None:
    client.add_event_handler("message", ignore)


def with_later_event(client: ClientXMPP) -> None:
    client.add_event_handler("chatstate_active", ignore_later)


def with_partial(client: ClientXMPP) -> None:
    client.add_event_handler("message", functools.partial(ignore, 1))


def with_handler(client: ClientXMPP) -> None:
    client.register_handler(Callback("x", StanzaPath("message"), ignore))


def with_later_handler(client: ClientXMPP) -> None:
    path = StanzaPath("message")
    client.register_handler(CoroutineCallback("x", path, ignore_later))


def with_waiter(client: ClientXMPP) -> None:
    client.register_handler(Waiter("x", StanzaPath("message")))


def with_wait_until(client: ClientXMPP) -> None:
    waiting = asyncio.ensure_future(client.wait_until("message"))
    waiting.add_done_callback(ignore)


def with_filter(client: ClientXMPP) -> None:
    client.add_filter("in", lambda got: None if got.name == "message" else got)


@pytest.mark.parametrize("level", [Level.ASSURED, Level.ACKNOWLEDGED])
@pytest.mark.parametrize(
    "prepare",
    [
        with_event,
        with_later_event,
        with_partial,
        with_handler,
        with_later_handler,
        with_waiter,
        with_wait_until,
        with_filter,
    ],
)
async def test_whatever_the_application_takes_messages_by_is_a_taker(
    server: LoopbackServer, prepare: Prepare, level: Level
) -> None:
    """slixmpp has many ways, and a message that was taken must not come again."""
    async with pair(server, prepare) as (alice, _bob):
        assert await status(alice, level) is OutgoingState.DELIVERED


# -- coroutines ------------------------------------------------------------


class Slow:
    """Handlers that are coroutines: one of an event, and one of a stanza."""

    def __init__(self) -> None:
        self.begun: list[bool] = []
        self.may_end = asyncio.Event()
        self.failure: Exception | None = None

    async def work(self, message: StanzaBase) -> None:
        assert isinstance(message.stream, ClientXMPP)
        info = XEP_QOS.of(message.stream).incoming(message)
        assert info is not None
        self.begun.append(info.redelivered)
        await self.may_end.wait()
        if self.failure is not None:
            raise self.failure

    def by_event(self, client: ClientXMPP) -> None:
        client.add_event_handler("message", self.work)

    def by_handler(self, client: ClientXMPP) -> None:
        path = StanzaPath("message")
        client.register_handler(CoroutineCallback("x", path, self.work))


@pytest.mark.parametrize("way", ["by_event", "by_handler"])
async def test_a_coroutine_has_taken_a_message_when_it_ends(
    server: LoopbackServer, way: str
) -> None:
    """It counted as done when it began, and a kill in the middle lost the message."""
    slow = Slow()
    async with pair(server, getattr(slow, way)) as (alice, bob):
        sending = asyncio.create_task(status(alice))
        await until(lambda: slow.begun)
        await asyncio.sleep(SEVERAL_RETRIES_S)
        assert not sending.done()
        assert len(list(XEP_QOS.of(bob).store.incoming())) == 1
        slow.may_end.set()
        assert await sending is OutgoingState.DELIVERED
        assert slow.begun == [False]
        assert bob.loop.get_task_factory() is None


async def test_a_message_waits_for_each_of_its_coroutines(
    server: LoopbackServer,
) -> None:
    one, two = Slow(), Slow()

    def prepare(client: ClientXMPP) -> None:
        one.by_event(client)
        two.by_handler(client)
        client.add_event_handler("message", ignore)

    one.may_end.set()
    async with pair(server, prepare) as (alice, _bob):
        sending = asyncio.create_task(status(alice))
        await until(lambda: one.begun and two.begun)
        await asyncio.sleep(SEVERAL_RETRIES_S)
        assert not sending.done()
        two.may_end.set()
        assert await sending is OutgoingState.DELIVERED


@pytest.mark.parametrize("way", ["by_event", "by_handler"])
async def test_a_coroutine_that_fails_has_not_taken_the_message(
    server: LoopbackServer,
    tmp_path: Path,
    way: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It comes again after a restart, as from a future of `take_until` that fails."""
    slow = Slow()
    slow.may_end.set()
    slow.failure = ZeroDivisionError("no lamp")
    plugins = {"xep_qos": {"store": f"sqlite:{tmp_path / 'bob.db'}"}}
    quick = {"xep_qos": {"retry_first_s": 0.05, "retry_max_s": 0.1}}
    async with logged_in(server, "alice/1", quick) as alice:
        sender = XEP_QOS.of(alice)
        prepare = getattr(slow, way)
        async with logged_in(server, "bob/1", plugins, prepare=prepare):
            sending = asyncio.create_task(status(sender))
            await logged(caplog, "a message could not be taken: no lamp")
            assert not sending.done()
        slow.failure = None
        async with logged_in(server, "bob/1", plugins, prepare=prepare):
            assert await sending is OutgoingState.DELIVERED
    assert slow.begun == [False, True]


async def test_a_coroutine_may_reject_a_message(server: LoopbackServer) -> None:
    """As a consumer does."""
    slow = Slow()
    slow.may_end.set()
    slow.failure = RemoteProtocolError("broken", condition="bad-request", type="modify")
    async with pair(server, slow.by_event) as (alice, _bob):
        assert await status(alice) is OutgoingState.NOT_DELIVERED


def for_others(client: ClientXMPP) -> None:
    """Handlers and events that are not for the message."""
    client.register_handler(Callback("x", StanzaPath("message/thread"), ignore))
    client.register_handler(Callback("y", StanzaPath("presence"), ignore))
    client.add_event_handler("chatstate_gone", ignore)
    client.add_event_handler("groupchat_message", ignore)


@pytest.mark.parametrize("level", [Level.ASSURED, Level.ACKNOWLEDGED])
async def test_handlers_of_slixmpp_alone_take_nothing(
    server: LoopbackServer, level: Level, caplog: pytest.LogCaptureFixture
) -> None:
    """They raise an event for an application, and no application listens."""
    expected = {
        Level.ASSURED: OutgoingState.IN_DOUBT,
        Level.ACKNOWLEDGED: OutgoingState.NOT_DELIVERED,
    }
    # By the clock of the loop each attempt is answered at once, so when the deadline comes
    # none is on its way.
    async with pair(server, for_others, retry_max_s=5.0) as (alice, _bob):
        for _ in range(2):
            assert await status(alice, level, 2.0) is expected[level]
        said = [each for each in caplog.messages if "no handler has taken" in each]
        assert len(said) == 1, "once for each sender"
        assert "of alice@localhost/1" in said[0]
        assert "add_event_handler" in said[0]


@pytest.mark.parametrize("level", [Level.ASSURED, Level.ACKNOWLEDGED])
async def test_an_application_that_comes_later_than_its_session_gets_the_message(
    server: LoopbackServer, level: Level, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, and without the redelivered mark: nobody has had it before."""
    got: list[bool] = []
    async with pair(server) as (alice, bob):

        def take(message: Message) -> None:
            info = XEP_QOS.of(bob).incoming(message)
            assert info is not None
            got.append(info.redelivered)

        sending = asyncio.create_task(status(alice, level))
        await logged(caplog, "no handler has taken")
        bob.add_event_handler("message", take)
        assert await sending is OutgoingState.DELIVERED
        assert got == [False]


class Broken(Exception):
    """An error of the application."""


def fail(*_arguments: object) -> None:
    raise Broken


def fails_in_the_stream(client: ClientXMPP) -> None:
    path = StanzaPath("message")
    client.register_handler(Callback("x", path, fail, instream=True))


def fails_as_a_handler(client: ClientXMPP) -> None:
    client.register_handler(Callback("x", StanzaPath("message"), fail))


def fails_as_an_event(client: ClientXMPP) -> None:
    client.add_event_handler("message", fail)


@pytest.mark.parametrize(
    "prepare", [fails_in_the_stream, fails_as_a_handler, fails_as_an_event]
)
async def test_a_message_on_which_its_handler_fails_is_not_taken(
    server: LoopbackServer, prepare: Prepare, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler has had it, and may have acted: its sender is in doubt.

    It comes again after a restart; later messages are not held up by it.
    """
    async with pair(server, prepare) as (alice, bob):
        assert await status(alice, deadline_s=1.0) is OutgoingState.IN_DOUBT
        assert "a message could not be taken: Broken" in caplog.text
        bob.remove_handler("x")
        bob.del_event_handler("message", fail)
        with_event(bob)
        assert await status(alice) is OutgoingState.DELIVERED, "it goes on"


class BrokenPath(StanzaPath):
    """A matcher of an application that fails on messages."""

    def match(self, xml: Any) -> bool:
        if xml.name == "message":
            raise Broken
        return False


async def test_a_message_is_not_taken_if_a_matcher_fails_and_no_handler_runs(
    server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    """slixmpp asks all matchers before it runs a handler."""
    got: list[object] = []

    def prepare(client: ClientXMPP) -> None:
        client.register_handler(Callback("x", StanzaPath("message"), got.append))
        client.register_handler(Callback("y", BrokenPath("message"), ignore))

    async with pair(server, prepare) as (alice, bob):
        sending = asyncio.create_task(status(alice))
        await logged(caplog, "Broken")
        assert not sending.done()
        assert not got
        bob.remove_handler("y")
        assert await sending is OutgoingState.DELIVERED
        assert len(got) == 1


@pytest.fixture
async def client() -> AsyncIterator[ClientXMPP]:
    """Bob's, never connected."""
    client = new_client("bob@localhost/b", "secret", {})
    yield client
    await close(client)


def message_to(client: ClientXMPP) -> Message:
    message = client.make_message("bob@localhost/b", "one", mtype="chat")
    message["id"] = "m1"
    return message


NS = "{jabber:client}"

MATCHERS: list[MatcherBase] = [
    *map(StanzaPath, ("message", "message/body", "message@type=chat", "message/form")),
    *map(StanzaPath, (f"{NS}message", "message@type=error", "age", "body")),
    *map(MatchXPath, (f"{NS}message", f"{NS}message/{NS}body", "*", f"*/{NS}body")),
    *map(MatchXPath, ("{*}message", f"{NS}*", f".//{NS}body", "message")),
    *map(MatchXPath, (f"{NS}message[@type='chat']", f"{NS}message[@id]")),
    *map(MatchXPath, (f"{NS}message/{NS}error", f"{NS}message/{NS}thread")),
    *map(MatchXPath, (f"{NS}message/{NS}body/..", f"{NS}message/{NS}body[1]")),
    *map(
        StanzaPath, ("message/subject", f"message/{NS}body", "message/form@type=form")
    ),
    *map(StanzaPath, ("message/{jabber:x:data}form", "message/field")),
    MatchXMLMask("<message xmlns='jabber:client'><body/></message>"),
    MatcherId("m1"),
    MatchMany([StanzaPath("iq"), StanzaPath("message")]),
]

OTHERS: list[MatcherBase] = [
    *map(StanzaPath, ("iq", "iq@type=set/roster", f"{NS}iq", "presence")),
    *map(MatchXPath, (f"{NS}presence", f"{NS}iq/{NS}body", "{urn:x}message")),
]


def plain(_message: Message) -> None:
    """No plugin of slixmpp has a part of it."""


def with_form(message: Message) -> None:
    message["form"]["type"] = "form"


def with_thread_and_subject(message: Message) -> None:
    message["thread"], message["subject"] = "1", "two"


def with_one_of_many(message: Message) -> None:
    """A plugin of which a stanza may have several: its element is in no path."""
    message.append(FormField())


@pytest.mark.parametrize(
    "change", [plain, with_form, with_thread_and_subject, with_one_of_many]
)
async def test_the_handlers_that_slixmpp_would_run_are_run_in_its_order(
    client: ClientXMPP,
    change: Callable[[Message], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A handler that is left out would lose messages.

    And those for other stanzas are not asked: that would cost more than all the rest.
    """
    ran: list[int] = []
    every = [*MATCHERS, *OTHERS]
    for number, matcher in enumerate(every):
        take = functools.partial(lambda number, _: ran.append(number), number)
        client.register_handler(Callback(f"{number}", matcher, take))
    client.register_plugin("xep_0004")
    message, same = message_to(client), message_to(client)
    for each in (message, same):
        change(each)
    client.recv_stanza(message)
    expected = ran.copy()
    assert len(expected) > 10
    ran.clear()
    takers = Takers(client, Tap.of(client))
    assert takers.hand_over(same, "m1")
    assert ran == expected
    asked: list[MatcherBase] = []

    def noted(
        match: Callable[..., bool], matcher: MatcherBase, stanza: StanzaBase
    ) -> bool:
        asked.append(matcher)
        return match(matcher, stanza)

    for kind in (StanzaPath, MatchXPath):
        method = functools.partialmethod(functools.partial(noted, kind.match))
        monkeypatch.setattr(kind, "match", method)
    assert takers.hand_over(message_to(client), "m2")
    assert asked
    assert not any(each in asked for each in OTHERS)


async def test_every_handler_is_asked_about_a_message_that_is_not_usual(
    client: ClientXMPP,
) -> None:
    """A filter may make something else of it; and a path may begin with a plugin."""
    got: list[object] = []
    client.register_handler(Callback("x", StanzaPath("iq"), got.append))
    takers = Takers(client, Tap.of(client))
    message = message_to(client)
    assert not takers.hand_over(message, "m1")
    assert not got
    message.loaded_plugins.add("iq")
    assert takers.hand_over(message, "m1")
    client.add_filter("in", lambda _: client.make_iq_result("1"))
    assert takers.hand_over(message_to(client), "m1")
    assert len(got) == 2


async def test_handlers_may_come_and_go_between_two_messages_and_while_one_runs(
    client: ClientXMPP,
) -> None:
    """An application registers them at run time, and some remove themselves."""
    ran: list[str] = []

    def add(name: str, *, once: bool = False) -> None:
        def take(_message: object) -> None:
            ran.append(name)
            if name == "first":
                client.remove_handler("first")
                add("second", once=True)

        client.register_handler(Callback(name, StanzaPath("message"), take, once))

    takers = Takers(client, Tap.of(client))
    assert not takers.hand_over(message_to(client), "m1")
    add("first")
    for _ in range(2):
        assert takers.hand_over(message_to(client), "m1")
    assert ran == ["first", "second"]
    assert not takers.hand_over(message_to(client), "m1")
    add("third")
    assert takers.hand_over(message_to(client), "m1")
    assert ran == ["first", "second", "third"]


async def test_the_stream_is_as_it_was_after_a_hand_over(client: ClientXMPP) -> None:
    """Its method `event` is watched only meanwhile, also if the application has its own."""
    takers = Takers(client, Tap.of(client))
    inner: Any = client
    before = dict(vars(inner))
    takers.hand_over(message_to(client), "m1")
    assert vars(inner) == before
    events: list[str] = []
    own = inner.event = lambda name, *data: events.append(name)
    takers.hand_over(message_to(client), "m1")
    assert inner.event is own
    assert "message" in events
