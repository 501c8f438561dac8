"""XEP_QOS as slixmpp loads it: options, beginning and end, trust, discovery, limits.

Unconnected, or at the embedded server; what other servers see is in `tests/live`.
"""

import asyncio
import base64
import contextlib
import gc
import hashlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree as ET

import pytest
from slixmpp import JID, ClientXMPP, ComponentXMPP, Iq, Message, Presence
from slixmpp.basexmpp import BaseXMPP
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.core.message.batch import BATCH_NAMESPACE
from qos.core.message.model import MARKS_NAMESPACE, NAMESPACES, Level, OutgoingState
from qos.errors import (
    InvalidArgument,
    LocalProtocolError,
    MessageTooLarge,
    OutboxFull,
    QosError,
    StoreError,
    StoreInUse,
    UnknownMessage,
)
from qos.stores import MemoryStore
from qos.stores.base import Change
from qos.stream.gate import Gate
from qos.testing.clients import close
from qos.testing.server import LoopbackServer
from raw_client import RawClient, stanza
from test_raw_peers import (
    CLIENT,
    DISCO,
    NEURON,
    QOS,
    acknowledged,
    answer_to,
    ask,
    asks,
    assured,
    deliver,
    discoverable,
    error_of,
    is_empty,
    received,
    request_text,
    say_done,
    say_received,
    synced,
)
from waiting import LIMIT_S, limit, until
from xep_qos import XEP_QOS, IncomingInfo, Settings
from xep_qos.guard import Guard

USERS = ("alice", "bob", "carol", "mallory")
PASSWORD = "secret"  # noqa: S105 - of accounts that only exist inside a test
FRIENDS = {"bob": {"alice@localhost": "both", "carol@localhost": "both"}}
COMPONENTS = {"comp.localhost": "hush"}
CAPS = "http://jabber.org/protocol/caps"
MUC_USER = "http://jabber.org/protocol/muc#user"
LANG = "{http://www.w3.org/XML/1998/namespace}lang"
FEATURES = {*NAMESPACES, MARKS_NAMESPACE, BATCH_NAMESPACE}
NEVER_S = 60.0

Options = dict[str, Any]


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    """Bob has Alice and Carol in his roster; Mallory is a stranger."""
    async with LoopbackServer(
        accounts=dict.fromkeys(USERS, PASSWORD),
        rosters=FRIENDS,
        components=COMPONENTS,
    ) as server:
        yield server


@pytest.fixture
async def stack() -> AsyncIterator[contextlib.AsyncExitStack]:
    async with contextlib.AsyncExitStack() as stack:
        yield stack


def make_client(jid: str = "bob@localhost/b") -> ClientXMPP:
    """A client without the plugin."""
    client = ClientXMPP(
        jid,
        PASSWORD,
        plugin_config={"feature_mechanisms": {"unencrypted_scram": True}},
    )
    client.enable_plaintext = True
    client.enable_starttls = client.enable_direct_tls = False
    return client


def takes(_message: Message) -> None:
    """An application that takes each message with a body."""


def register(xmpp: BaseXMPP, **options: Any) -> XEP_QOS:
    xmpp.register_plugin("xep_qos", options)
    return XEP_QOS.of(xmpp)


async def log_in(xmpp: ClientXMPP | ComponentXMPP, server: LoopbackServer) -> None:
    component = isinstance(xmpp, ComponentXMPP)
    xmpp.connect(server.host, server.component_port if component else server.port)
    await xmpp.wait_until("session_start", timeout=LIMIT_S)


@contextlib.asynccontextmanager
async def unconnected(
    jid: str = "bob@localhost/b", **options: Any
) -> AsyncIterator[ClientXMPP]:
    client = make_client(jid)
    client.add_event_handler("message", takes)
    try:
        register(client, **options)
        yield client
    finally:
        await close(client)


@contextlib.asynccontextmanager
async def online(
    server: LoopbackServer, jid: str = "bob@localhost/b", **options: Any
) -> AsyncIterator[ClientXMPP]:
    """A client with the plugin, in session; it has sent no presence."""
    async with unconnected(jid, **options) as client:
        await log_in(client, server)
        yield client


def raw(server: LoopbackServer, name: str) -> RawClient:
    user, _, resource = name.partition("/")
    return RawClient(f"{user}@localhost/{resource}", PASSWORD, port=server.port)


def bodies_of(client: BaseXMPP) -> list[str]:
    """The bodies of all messages that come from now on."""
    found: list[str] = []

    def put(got: Message) -> None:
        found.append(got["body"])

    client.add_event_handler("message", put)
    return found


async def features_of(client: ClientXMPP) -> set[str]:
    """The client's own answer to disco#info."""
    disco = client.plugin["xep_0030"]
    info = await disco.get_info(jid=client.boundjid, local=True)
    return set((info if info.name == "query" else info["disco_info"])["features"])


async def features_seen(peer: RawClient, jid: str) -> list[str]:
    """The features in the answer on the wire, with repetitions."""
    await peer.send(
        f"<iq type='get' id='disco' to='{jid}'><query xmlns='{DISCO}'/></iq>"
    )
    reply = await answer_to(peer, "disco")
    assert reply.get("type") == "result"
    return [each.get("var", "") for each in reply.iter(f"{{{DISCO}}}feature")]


def traces(xmpp: BaseXMPP) -> dict[str, list[Any]]:
    """All that a plugin can hang into a stream."""
    inner: Any = xmpp
    return {
        "filters": [
            (mode, each)
            for mode, filters in inner._XMLStream__filters.items()
            for each in filters
        ],
        "events": sorted(
            (name, repr(handler))
            for name, handlers in inner._XMLStream__event_handlers.items()
            for handler in handlers
        ),
        "handlers": [each.name for each in inner._XMLStream__handlers],
        "schedules": sorted(xmpp.scheduled_events),
    }


def timers() -> list[Any]:
    """Callbacks of ours that the loop will call at some time."""
    loop: Any = asyncio.get_running_loop()
    return [
        handle
        for handle in loop._scheduled
        if not handle.cancelled() and "qos." in repr(handle._callback)
    ]


@contextlib.contextmanager
def no_loop_errors() -> Iterator[None]:
    """Nothing may fail where nobody sees it."""
    loop = asyncio.get_running_loop()
    found: list[dict[str, Any]] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: found.append(context))
    try:
        yield
        gc.collect()
    finally:
        loop.set_exception_handler(before)
    assert not found


class GatedStore(MemoryStore):
    """Writes when it is told, as a slow disk does; refuses when it is closed."""

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[tuple[Sequence[Change], asyncio.Future[None]]] = []
        self.gate = False

    def write(self, changes: Sequence[Change]) -> Any:
        if not self.gate:
            return super().write(changes)
        self._need_open()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((changes, future))
        return future

    async def close(self) -> None:
        """As the contract says: finish what was written, then let go."""
        for changes, future in self.waiting:
            super().write(changes)
            future.set_result(None)
        self.waiting.clear()
        await super().close()


# -- options ---------------------------------------------------------------


async def test_an_unknown_option_is_named_and_so_are_the_known_ones() -> None:
    """A misspelt option that is ignored is found when it is too late."""
    client = make_client()
    with pytest.raises(ValueError, match=r"'retry_frist_s'.*\bretry_first_s\b"):
        register(client, retry_frist_s=1.0)


@pytest.mark.parametrize("store", [None, "memory:"])
async def test_a_store_that_nobody_chose_is_warned_of_once(
    store: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """What is lost with the process is nothing to find out by losing it."""
    client = make_client()
    register(client, **({} if store is None else {"store": store}))
    warnings = [line for line in caplog.messages if "kept in memory" in line]
    assert len(warnings) == (store is None)
    assert all("store='sqlite:PATH'" in line for line in warnings)
    await close(client)


NUMBERS = (
    *("retry_first_s", "retry_max_s", "hold_ttl_s", "tombstone_ttl_s"),
    *("quota_messages", "quota_bytes", "quota_total_messages"),
    *("quota_total_bytes", "tombstones_max", "window_max", "outbox_messages_max"),
    *("outbox_bytes_max", "stanza_bytes_max", "event_interval_s", "deadline_s"),
    "batch_max",
)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, float("nan"), "2", [], True])
async def test_a_number_that_cannot_be_is_refused_by_its_name(
    name: str, value: object
) -> None:
    """A clear error: the user looks for the word that he wrote."""
    client = make_client()
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        register(client, **{name: value})
    with pytest.raises(LookupError):
        XEP_QOS.of(client)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retry_first_s", 0),
        ("hold_ttl_s", 0),
        ("deadline_s", 0),
        ("window_max", 0),
        ("batch_max", 0),
        ("batch_max", 257),
        ("namespaces", ()),
        ("namespaces", "urn:xmpp:qos"),
        ("namespaces", ["urn:xmpp:qos:99"]),
        ("trust", ""),
        ("trust", " , "),
        ("trust", 5),
        ("accepts", ""),
        ("accepts", 5),
        ("accepts", "nobody"),
        ("event_log_to", "@@"),
        ("event_log_to", "a b@c/d\x00"),
        ("store", ""),
        ("store", "bogus:x"),
        ("store", "sqlite:"),
    ],
)
async def test_a_value_that_cannot_be_is_refused_by_the_options_name(
    name: str, value: object
) -> None:
    """At once, and not at the first message or the first abuse."""
    client = make_client()
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        register(client, **{name: value})


async def test_delays_that_contradict_each_other_are_refused() -> None:
    """A cap below the first delay can only be a mistake."""
    client = make_client()
    with pytest.raises(ValueError, match=r"retry_max_s.*retry_first_s"):
        register(client, retry_first_s=5.0, retry_max_s=1.0)


async def test_what_was_refused_leaves_nothing_and_may_be_tried_again(
    tmp_path: Path,
) -> None:
    """slixmpp has the plugin on its list before it is asked whether it can start."""
    client = make_client()
    client.register_plugin("xep_0030")
    client.register_plugin("xep_0115")
    before = traces(client)
    attempts: list[tuple[type[Exception], Options]] = [
        (ValueError, {"window_max": 0}),
        (ValueError, {"no_such_option": 1}),
        (StoreError, {"store": f"sqlite:{tmp_path}"}),
        (StoreError, {"store": f"sqlite:{tmp_path / 'no' / 'such' / 'file.db'}"}),
    ]
    for error, options in attempts:
        with pytest.raises(error):
            register(client, **options)
        with pytest.raises(LookupError, match="xep_qos"):
            XEP_QOS.of(client)
        assert traces(client) == before
    store = f"sqlite:{tmp_path / 'bob.db'}"
    assert register(client, store=store).store.url == store
    await close(client)


async def test_a_store_that_is_in_use_is_left_to_its_user(tmp_path: Path) -> None:
    """The error names it (issue, exit status 5); nothing that is stored suffers."""
    store = f"sqlite:{tmp_path / 'bob.db'}"
    async with unconnected(store=store):
        other = make_client("carol@localhost")
        with pytest.raises(StoreInUse, match=r"bob\.db"):
            register(other, store=store)
    async with unconnected(store=store):
        pass


async def test_every_option_has_a_default_and_takes_what_its_text_says() -> None:
    """Settings are the documentation; they are read as they are written."""
    store = MemoryStore()
    options: Options = {
        "store": store,
        "retry_first_s": 1,
        "retry_max_s": 1.0,
        "deadline_s": 3600,
        "ordered": True,
        "namespaces": [NEURON],
        "trust": ["alice@localhost", "carol@localhost/c"],
        "accepts": "anyone",
        "quota_messages": 0,
        "event_log_to": "log@localhost",
    }
    settings = Settings.from_config(options)
    assert settings.quota_messages == 0
    assert settings.backoff.delay_s(9, 0.9) == 1.0
    async with unconnected(**options) as client:
        assert XEP_QOS.of(client).store is store
    async with unconnected():
        pass


# -- of --------------------------------------------------------------------


async def test_of_says_what_to_do_when_the_plugin_is_not_registered() -> None:
    """A typed accessor with a clear error."""
    client = make_client()
    with pytest.raises(LookupError, match="register_plugin"):
        XEP_QOS.of(client)
    qos = register(client)
    assert XEP_QOS.of(client) is qos
    await qos.aclose()
    with pytest.raises(LookupError, match="register_plugin"):
        XEP_QOS.of(client)
    await close(client)


async def test_importing_the_package_makes_the_plugin_known() -> None:
    """docs/design/protocol.md §5.6: slixmpp swallows an ImportError of a plugin."""
    client = make_client()
    client.register_plugin("xep_qos")
    qos = XEP_QOS.of(client)
    assert type(qos).__module__ == "xep_qos.plugin"
    assert qos.store.url == "memory:"
    await close(client)


# -- the end ---------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["memory", "sqlite", "files"])
async def test_plugin_end_undoes_all_that_plugin_init_did(
    tmp_path: Path, scheme: str
) -> None:
    """Again and again, on a client that was never connected."""
    path = "" if scheme == "memory" else str(tmp_path / "bob")
    client = make_client()
    client.register_plugin("xep_0030")
    client.register_plugin("xep_0115")
    client.register_plugin("xep_0198")
    Gate.of(client)  # it stays, once it is there
    before, tasks = traces(client), asyncio.all_tasks()
    for _ in range(3):
        qos = register(client, store=f"{scheme}:{path}")
        await qos.submit(client.make_message("alice@localhost", "x"))
        assert traces(client) != before
        await qos.aclose()
        await qos.aclose()
        assert traces(client) == before
        assert asyncio.all_tasks() == tasks
        assert not timers()
        with pytest.raises(StoreError, match="not open"):
            qos.store.next_expiry()
    await close(client)


async def test_plugin_end_in_session_leaves_a_client_like_any_other(
    server: LoopbackServer,
) -> None:
    """Its features go, its requests are answered as unknown, and it can come back."""
    async with (
        raw(server, "alice/a") as alice,
        discoverable(alice, [QOS]),
        online(server) as bob,
    ):
        jid = bob.boundjid.full
        bob.register_plugin("xep_0199")
        qos = XEP_QOS.of(bob)
        received(await ask(alice, jid, assured("1", "x")))
        delivery = await qos.submit(bob.make_message(alice.jid, "y"))
        await alice.expect(asks("assured"))
        assert await features_of(bob) >= FEATURES
        with no_loop_errors():
            await qos.aclose()
            assert not await features_of(bob) & FEATURES
            assert not set(await features_seen(alice, jid)) & FEATURES
            assert not timers()
            assert error_of(await ask(alice, jid, deliver("1")))[0] in {
                "feature-not-implemented",
                "service-unavailable",
            }
            bodies = bodies_of(bob)
            await alice.send(f"<message to='{jid}'><body>plain</body></message>")
            await until(lambda: bodies == ["plain"])
            assert not delivery.ended
        again = register(bob)
        assert again is not qos
        assert await features_of(bob) >= FEATURES
        received(await ask(alice, jid, assured("1", "z")))
        assert is_empty(await ask(alice, jid, deliver("1")))
        assert bodies == ["plain", "z"]
        sending = asyncio.create_task(again.send(alice.jid, "w"))
        await say_received(await alice.expect(asks("assured")), alice)
        await say_done(await alice.expect(asks("deliver")), alice)
        assert (await sending).status is OutgoingState.DELIVERED


async def test_traces_are_gone_after_a_session_too(server: LoopbackServer) -> None:
    """All that a session adds: the resource, the roster, what is known of peers."""
    client = make_client()
    client.register_plugin("xep_0030")
    client.register_plugin("xep_0115")
    try:
        Gate.of(client)  # it stays, once it is there
        await log_in(client, server)
        before, tasks = traces(client), asyncio.all_tasks()
        async with raw(server, "alice/a") as alice:
            qos = register(client)
            await qos.roster_known()
            for msg_id in ("1", "2"):
                received(await ask(alice, client.boundjid.full, assured(msg_id)))
            await qos.aclose()
        assert traces(client) == before
        assert asyncio.all_tasks() <= tasks | {asyncio.current_task()}
    finally:
        await close(client)


async def test_a_write_under_way_at_the_end_wakes_nothing_up() -> None:
    """The store finishes it; its callbacks must not begin anything more."""
    store = GatedStore()
    client = make_client()
    qos = register(client, store=store, retry_first_s=0.01, retry_max_s=0.01)
    store.gate = True
    submitted = asyncio.create_task(
        qos.submit(client.make_message("alice@localhost/a", "x"), deadline_s=0.05)
    )
    await until(lambda: store.waiting)
    with no_loop_errors():
        await qos.aclose()
        await asyncio.wait([submitted])
        assert not timers()
        await asyncio.sleep(0.1)  # longer than all that could be due
    await close(client)


async def test_a_request_being_written_at_the_end_wakes_nothing_up(
    server: LoopbackServer,
) -> None:
    """The same for what others have sent."""
    store = GatedStore()
    async with raw(server, "alice/a") as alice:
        client = make_client()
        qos = register(client, store=store, hold_ttl_s=0.05)
        await log_in(client, server)
        await qos.roster_known()
        store.gate = True
        for content in (assured("1"), acknowledged("x")):
            await alice.send(request_text(client.boundjid.full, content)[0])
        await until(lambda: len(store.waiting) == 2)
        with no_loop_errors():
            await qos.aclose()
            assert not timers()
            await asyncio.sleep(0.1)  # longer than it would be held
            assert not alice.received(stanza("iq"))
        await close(client)


async def test_a_handler_may_end_the_plugin(server: LoopbackServer) -> None:
    """An application that has what it wanted; the message stays handed over."""
    async with raw(server, "alice/a") as alice, online(server) as bob:

        def stop(_: Message) -> None:
            bob.plugin.disable("xep_qos")  # type: ignore[attr-defined]

        bob.add_event_handler("message", stop)
        with no_loop_errors():
            received(await ask(alice, bob.boundjid.full, assured("1", "x")))
            text, _ = request_text(bob.boundjid.full, deliver("1"))
            await alice.send(text)
            await until(lambda: "xep_qos" not in bob.plugin)
            assert DISCO in await features_seen(alice, bob.boundjid.full)
        with pytest.raises(LookupError):
            XEP_QOS.of(bob)


async def test_after_the_end_sending_is_a_clear_error() -> None:
    """Not a wait for ever."""
    client = make_client()
    qos = register(client)
    await qos.aclose()
    for level in (Level.ASSURED, Level.ACKNOWLEDGED):
        with pytest.raises(QosError):
            async with limit():
                await qos.send("alice@localhost", "x", level=level)
    with pytest.raises((UnknownMessage, StoreError)):
        qos.delivery("m1")
    await close(client)


async def test_disconnected_without_a_session_is_no_session_lost() -> None:
    """slixmpp says `disconnected` for a connection that never came about, too."""
    async with unconnected() as client:
        for event in ("disconnected", "session_end", "disconnected"):
            client.event(event)
        await XEP_QOS.of(client).submit(client.make_message("alice@localhost", "x"))
        assert len(XEP_QOS.of(client).outstanding()) == 1


# -- what is not accepted --------------------------------------------------


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize(
    "to", ["", "@", "a@@b", "a@b@c", "x\x00@localhost", "a b@c", "/r", "a@b/\ud800"]
)
async def test_what_is_no_jid_is_refused_at_once(level: Level, to: str) -> None:
    """Accepted, it would wait for ever, and again after each restart."""
    async with unconnected() as client:
        qos = XEP_QOS.of(client)
        with pytest.raises(LocalProtocolError):
            async with limit():
                await qos.send(to, "x", level=level)
        assert len(qos.outstanding()) == 0
        assert not list(qos.store.outgoing())


@pytest.mark.parametrize("level", Level)
async def test_what_xml_cannot_carry_is_refused_at_once(level: Level) -> None:
    """The server would close the stream over it, at each attempt anew."""
    async with unconnected() as client:
        qos = XEP_QOS.of(client)
        messages = [client.make_message("a@localhost", "\x00") for _ in range(3)]
        messages[1]["body"] = "b"
        messages[1].xml.append(ET.Element("{urn:x}no name"))
        messages[2]["body"] = "b"
        messages[2].xml.append(ET.Element("{urn:x}x", {"a": "\ud800"}))
        for each in messages:
            with pytest.raises(LocalProtocolError):
                await qos.submit(each, level=level)
        for body, payload in (("\x1b", None), ("", "<a>"), ("", "")):
            with pytest.raises(LocalProtocolError):
                await qos.send("a@localhost", body, payload=payload, level=level)
        assert len(qos.outstanding()) == 0


async def test_a_deadline_that_is_no_time_is_refused_at_once() -> None:
    """Among the timers of all messages it would compare with none of them."""
    async with unconnected() as client:
        qos = XEP_QOS.of(client)
        with pytest.raises((LocalProtocolError, ValueError)):
            async with limit():
                await qos.send("a@localhost/r", "x", deadline_s=float("nan"))
        assert len(qos.outstanding()) == 0


async def test_the_applications_stanza_stays_as_it_is() -> None:
    """It may be sent again, at another level or to another."""
    async with unconnected() as client:
        sent = client.make_message("alice@localhost/a", "x", mtype="chat")
        sent["from"] = "bob@localhost/b"
        before = str(sent)
        await XEP_QOS.of(client).submit(sent)
        assert str(sent) == before


async def test_a_message_over_the_servers_limit_is_refused_to_the_byte() -> None:
    """Refuse it before sending, counted as it stands on the wire.

    docs/design/protocol.md §5.9.
    """
    bytes_max = 2_000
    async with unconnected(stanza_bytes_max=bytes_max) as client:
        qos = XEP_QOS.of(client)
        fits = bytes_max
        while not qos.outstanding():
            got = client.make_message("a@localhost/r", "x" * fits)
            with contextlib.suppress(MessageTooLarge):
                await qos.submit(got)
                break
            fits -= 1
        with pytest.raises(MessageTooLarge) as caught:
            await qos.submit(client.make_message("a@localhost/r", "x" * (fits + 1)))
        assert (caught.value.limit, caught.value.to) == (bytes_max, "a@localhost/r")
        assert caught.value.size == bytes_max + 1
        # Room for what is around it, and no more waste than that.
        assert 1_000 < fits < bytes_max - 200
        (record,) = qos.store.outgoing()
        assert len(record.payload.encode()) < bytes_max
        # Bytes are counted, not characters, and as they are written.
        for body in ("ä" * fits, "<" * fits):
            with pytest.raises(MessageTooLarge):
                await qos.submit(client.make_message("a@localhost/r", body))
        assert len(qos.outstanding()) == 1


async def test_what_is_accepted_never_exceeds_the_limit_on_the_wire(
    server: LoopbackServer,
) -> None:
    """With every mark and the longest ids of ours, in its longest namespace."""
    bytes_max = 3_000
    sent: list[str] = []
    async with (
        raw(server, "alice/a") as alice,
        discoverable(alice, [NAMESPACES[1], MARKS_NAMESPACE]),
        online(
            server,
            stanza_bytes_max=bytes_max,
            retry_first_s=NEVER_S,
            retry_max_s=NEVER_S,
        ) as bob,
    ):
        qos = XEP_QOS.of(bob)
        original = bob.send_raw

        def send_raw(data: str | bytes) -> None:
            sent.append(data if isinstance(data, str) else data.decode())
            original(data)

        bob.send_raw = send_raw  # type: ignore[method-assign]
        size = bytes_max
        while True:
            try:
                delivery = await qos.submit(bob.make_message(alice.jid, "x" * size))
                break
            except MessageTooLarge:
                size -= 1
        iq = await alice.expect(asks("assured"))
        hold = "h" * 1_024
        await say_received(iq, alice, hold=hold)
        await say_done(await alice.expect(asks("deliver")), alice, hold=hold)
        async with limit():
            assert (await delivery.outcome()).status is OutgoingState.DELIVERED
        # The receiving server adds our JID.
        added = len(f" from='{bob.boundjid.full}'")
        assert max(map(len, sent)) + added <= bytes_max


@pytest.mark.parametrize(
    ("options", "unit"),
    [({"outbox_messages_max": 2}, "messages"), ({"outbox_bytes_max": 2_900}, "bytes")],
)
async def test_a_full_outbox_is_a_clear_error_and_takes_nothing(
    options: Options, unit: str
) -> None:
    """docs/design/protocol.md §4.14: bounded; what was withdrawn makes room."""
    async with unconnected(**options) as client:
        qos = XEP_QOS.of(client)
        first = await qos.submit(client.make_message("a@localhost", "x" * 1_000))
        await qos.submit(client.make_message("a@localhost", "y" * 1_000))
        with pytest.raises(OutboxFull) as caught:
            await qos.submit(client.make_message("a@localhost", "z" * 1_000))
        assert caught.value.unit == unit
        assert len(qos.outstanding()) == 2
        await first.withdraw()
        await qos.submit(client.make_message("a@localhost", "z" * 1_000))


# -- discovery -------------------------------------------------------------


async def test_every_namespace_and_the_marks_are_listed_once(
    server: LoopbackServer,
) -> None:
    """Serve and advertise all three, whatever is used to send.

    docs/design/protocol.md §2.1.
    """
    async with raw(server, "alice/a") as alice:
        for namespaces in (NAMESPACES, (NEURON,)):
            async with online(server, namespaces=namespaces) as bob:
                seen = await features_seen(alice, bob.boundjid.full)
                assert set(seen) >= FEATURES
                assert len(seen) == len(set(seen))


async def caps_are_those_of(
    client: ClientXMPP, peer: RawClient, caps: ET.Element
) -> bool:
    """Whether a presence's capabilities hold, and say that we support QoS."""
    node = f"{caps.get('node')}#{caps.get('ver')}"
    await peer.send(
        f"<iq type='get' id='caps' to='{client.boundjid.full}'>"
        f"<query xmlns='{DISCO}' node='{node}'/></iq>"
    )
    reply = await answer_to(peer, "caps")
    assert reply.get("type") == "result"
    features = sorted(each.get("var", "") for each in reply.iter(f"{{{DISCO}}}feature"))
    identities = sorted(
        "/".join(each.get(name, "") for name in ("category", "type", LANG, "name"))
        for each in reply.iter(f"{{{DISCO}}}identity")
    )
    # XEP-0115 §5.1.
    text = "".join(f"{each}<" for each in [*identities, *features])
    ver = base64.b64encode(hashlib.sha1(text.encode()).digest()).decode()  # noqa: S324
    return ver == caps.get("ver") and set(features) >= FEATURES


async def presence_from(peer: RawClient, client: ClientXMPP) -> ET.Element:
    return await peer.expect(stanza("presence", from_=client.boundjid.full))


async def test_presence_says_that_we_support_qos(server: LoopbackServer) -> None:
    """The text: where possible it SHOULD use XEP-0115; so we have to offer it."""
    async with raw(server, "alice/a") as alice, online(server) as bob:
        await alice.send_presence()
        bob.send_presence()
        presence = await presence_from(alice, bob)
        caps = presence.find(f"{{{CAPS}}}c")
        assert caps is not None
        assert await caps_are_those_of(bob, alice, caps)


async def test_presence_follows_what_is_loaded_and_unloaded(
    server: LoopbackServer,
) -> None:
    """Peers believe the capabilities until they change."""
    client = make_client()
    client.register_plugin("xep_0115")
    try:
        async with raw(server, "alice/a") as alice:
            await alice.send_presence()
            await log_in(client, server)
            client.send_presence()
            await presence_from(alice, client)
            qos = register(client)
            with_qos = (await presence_from(alice, client)).find(f"{{{CAPS}}}c")
            assert with_qos is not None
            assert await caps_are_those_of(client, alice, with_qos)
            await qos.aclose()
            without = (await presence_from(alice, client)).find(f"{{{CAPS}}}c")
            assert without is None or without.get("ver") != with_qos.get("ver")
    finally:
        await close(client)


def filters_out(client: ClientXMPP) -> list[Any]:
    filters: dict[str, list[Any]] = client.__dict__["_XMLStream__filters"]
    return list(filters["out"])


async def test_no_stanza_waits_for_a_coroutine(server: LoopbackServer) -> None:
    """Each of an application's own stanzas would cost a third more, for XEP-0115."""
    client = make_client()
    client.register_plugin("xep_0115")
    before = filters_out(client)
    assert any(map(asyncio.iscoroutinefunction, before))
    try:
        await log_in(client, server)
        qos = register(client)
        assert not any(map(asyncio.iscoroutinefunction, filters_out(client)))
        await qos.aclose()
        assert filters_out(client) == before
    finally:
        await close(client)


async def test_presence_waits_for_capabilities_that_take_their_time(
    server: LoopbackServer,
) -> None:
    """slixmpp lets an application keep them elsewhere, behind a coroutine."""

    async def slowly(*_: object) -> str:
        await asyncio.sleep(0.02)
        return "slow"

    async with raw(server, "alice/a") as alice, online(server) as bob:
        bob.plugin["xep_0115"].api.register(slowly, "get_verstring")
        await alice.send_presence()
        bob.send_presence(pstatus="here")
        presence = await presence_from(alice, bob)
        caps = presence.find(f"{{{CAPS}}}c")
        assert caps is not None
        assert caps.get("ver") == "slow"
        assert presence.findtext(f"{{{presence.tag[1:].partition('}')[0]}}}status") == (
            "here"
        )


async def test_registering_in_a_session_shows_nobody_who_hides(
    server: LoopbackServer,
) -> None:
    """A client that has sent no presence stays as it is."""
    client = make_client()
    try:
        async with raw(server, "alice/a") as alice:
            await alice.send_presence()
            await log_in(client, server)
            register(client)
            assert set(await features_seen(alice, client.boundjid.full)) >= FEATURES
            await alice.ping()
            assert not alice.received(stanza("presence", from_=client.boundjid.full))
    finally:
        await close(client)


# -- the own resource ------------------------------------------------------


async def test_the_resource_last_bound_is_asked_for_again(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """A peer that is not ours knows us by our full JID.

    docs/design/protocol.md §4.4.
    """
    store = f"sqlite:{tmp_path / 'bob.db'}"
    async with online(server, "bob@localhost", store=store) as bob:
        jid = bob.boundjid.full
        assert JID(jid).resource
    async with online(server, "bob@localhost", store=store) as bob:
        assert bob.boundjid.full == jid
    # Who asks for one gets it, and that is the one to keep.
    async with online(server, "bob@localhost/mine", store=store) as bob:
        assert bob.boundjid.resource == "mine"
    async with online(server, "bob@localhost", store=store) as bob:
        assert bob.boundjid.resource == "mine"
    # It is that of an account.
    async with online(server, "carol@localhost", store=store) as carol:
        assert carol.boundjid.resource != "mine"


async def test_a_resource_that_the_server_changes_is_told_and_does_not_grow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that lengthened it at each login made 1,002 characters of 12."""
    store = f"files:{tmp_path}"
    async with unconnected("bob@localhost/lamp", store=store) as bob:
        bob.boundjid = JID("bob@localhost/lamp")
        bob.event("session_start", {})
        await XEP_QOS.of(bob).flush()
        assert "instead of" not in caplog.text
    for _ in range(5):
        async with unconnected("bob@localhost", store=store) as bob:
            asked = bob.requested_jid.resource
            assert asked == "lamp"
            bob.boundjid = JID(f"bob@localhost/{asked}.1a2b")
            for _ in range(2):
                bob.event("session_start", {})
            await XEP_QOS.of(bob).flush()
            assert caplog.text.count("'lamp.1a2b' instead of 'lamp'") == 1
            caplog.clear()


# -- trust -----------------------------------------------------------------


async def test_nobody_is_refused_before_the_roster_is_known(
    server: LoopbackServer,
) -> None:
    """It waits."""
    held: list[StanzaBase] = []

    def hold_roster(got: StanzaBase) -> StanzaBase | None:
        if got.xml.find("{jabber:iq:roster}query") is None:
            return got
        held.append(got)
        return None

    async with (
        raw(server, "alice/a") as alice,
        raw(server, "mallory/m") as mallory,
        unconnected() as bob,
    ):
        bob.add_filter("in", hold_roster)
        await log_in(bob, server)
        jid, qos = bob.boundjid.full, XEP_QOS.of(bob)
        waiting = asyncio.create_task(qos.roster_known())
        for peer in (alice, mallory):
            await peer.send(request_text(jid, assured("1"), iq_id="1")[0])
            await peer.send(request_text(jid, acknowledged("x"), iq_id="2")[0])
            await synced(peer, jid)
            assert not peer.received(stanza("iq"))
        await until(lambda: held)
        assert not waiting.done()
        bob.del_filter("in", hold_roster)
        for each in held:
            bob.recv_stanza(each)
        received(await answer_to(alice, "1"))
        assert is_empty(await answer_to(alice, "2"))
        for iq_id in ("1", "2"):
            assert error_of(await answer_to(mallory, iq_id))[0] == "not-allowed"
        async with limit():
            await waiting


async def test_a_change_that_comes_with_the_roster_is_not_lost(
    server: LoopbackServer,
) -> None:
    """A server may push one right behind the result, in the same segment."""
    async with raw(server, "mallory/m") as mallory, unconnected() as bob:

        def push() -> None:
            bob.recv_stanza(
                Iq(  # type: ignore[no-untyped-call]
                    bob,
                    xml=ET.fromstring(  # noqa: S314
                        f"<iq xmlns='{CLIENT}' type='set' id='push'>"
                        "<query xmlns='jabber:iq:roster'><item "
                        "jid='mallory@localhost' subscription='both'/></query></iq>"
                    ),
                )
            )

        def follow(got: StanzaBase) -> StanzaBase:
            query = got.xml.find("{jabber:iq:roster}query")
            if got["type"] == "result" and query is not None:
                bob.loop.call_soon(push)
            return got

        bob.add_filter("in", follow)
        await log_in(bob, server)
        async with limit():
            await XEP_QOS.of(bob).roster_known()
        received(await ask(mallory, bob.boundjid.full, assured("1")))


async def test_a_number_without_end_does_not_wait_for_the_roster(
    server: LoopbackServer,
) -> None:
    """Bounded: whoever has to come again is told so at once."""
    held: list[StanzaBase] = []

    def hold_roster(got: StanzaBase) -> StanzaBase | None:
        if got.xml.find("{jabber:iq:roster}query") is None:
            return got
        held.append(got)
        return None

    async with (
        raw(server, "alice/a") as alice,
        unconnected(quota_messages=5_000) as bob,
    ):
        bob.add_filter("in", hold_roster)
        await log_in(bob, server)
        jid = bob.boundjid.full
        for number in range(1_200):
            await alice.send(request_text(jid, assured(str(number)))[0])
        await synced(alice, jid)
        refused = alice.received(stanza("iq"))
        assert len(refused) == 200
        no_room = ("resource-constraint", "wait")
        assert {error_of(each)[:2] for each in refused} == {no_room}
        bob.del_filter("in", hold_roster)
        for each in held:
            bob.recv_stanza(each)
        await XEP_QOS.of(bob).roster_known()
        assert is_empty(await ask(alice, jid, acknowledged("y")))
        assert len(alice.received(stanza("iq"))) == 1_200
        received(await ask(alice, jid, assured("0")))


async def test_the_function_gets_the_full_jid_and_is_not_asked_without_end(
    server: LoopbackServer,
) -> None:
    """One that never decides must not keep all that comes meanwhile."""
    asked: list[str] = []
    decide = asyncio.Event()

    async def trust(jid: str) -> bool:
        asked.append(jid)
        await decide.wait()
        return True

    async with (
        raw(server, "mallory/m") as mallory,
        online(server, trust=trust, quota_messages=5_000) as bob,
    ):
        jid = bob.boundjid.full
        for number in range(1_200):
            await mallory.send(request_text(jid, assured(str(number)))[0])
        await synced(mallory, jid)
        assert set(asked) == {mallory.jid}
        assert len(asked) <= 1_000
        refused = mallory.received(stanza("iq"))
        assert len(asked) + len(refused) == 1_200, (
            "each has an answer, or will have one"
        )
        decide.set()
        received(await ask(mallory, jid, assured("last")))


@pytest.mark.parametrize("trust", ["anyone", "callback"])
async def test_a_room_that_was_joined_before_the_plugin_came_is_a_room(
    server: LoopbackServer, trust: str
) -> None:
    """Its presences went by unseen; xep_0045 knows it."""
    rule: Any = "anyone" if trust == "anyone" else (lambda _: True)
    room = "alice@localhost"  # for bob, this is the room
    client = make_client()
    client.register_plugin("xep_0045")
    rooms: Any = client.plugin["xep_0045"]
    rooms.rooms[None] = {JID(room): {}}
    try:
        await log_in(client, server)
        register(client, trust=rule)
        async with raw(server, "alice/nick") as occupant:
            refused = await ask(occupant, client.boundjid.full, assured("1"))
            assert error_of(refused)[0] == "not-allowed"
        async with raw(server, "carol/c") as carol:
            received(await ask(carol, client.boundjid.full, assured("1")))
    finally:
        await close(client)


async def test_rooms_that_a_component_is_in_as_many_are_rooms_of_each(
    server: LoopbackServer,
) -> None:
    """With `multi_from` xep_0045 wants to know for whom it is asked, or raises."""
    component = ComponentXMPP(  # type: ignore[no-untyped-call]
        "comp.localhost",
        COMPONENTS["comp.localhost"],
        server.host,
        server.component_port,
    )
    try:
        component.register_plugin("xep_0045", {"multi_from": True})
        rooms: Any = component.plugin["xep_0045"]
        rooms.rooms[JID("one@comp.localhost")] = {JID("alice@localhost"): {}}
        register(component, trust="anyone")
        await log_in(component, server)
        async with raw(server, "alice/nick") as alice:  # for one, this is a room
            refused = await ask(alice, "one@comp.localhost/x", assured("1"))
            assert error_of(refused)[0] == "not-allowed"
        async with raw(server, "mallory/m") as mallory:
            received(await ask(mallory, "one@comp.localhost/x", assured("1")))
    finally:
        await close(component)


async def test_presences_of_occupants_are_remembered_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever invents rooms costs us no more memory than that, and no room of ours."""
    monkeypatch.setattr("xep_qos.guard._ROOMS_MAX", 100)
    async with unconnected() as client:

        def comes(room: str) -> None:
            presence = Presence(client)
            presence["from"] = f"{room}@rooms.localhost/nick"
            ET.SubElement(presence.xml, f"{{{MUC_USER}}}x")
            client.recv_stanza(presence)

        guard: Any = XEP_QOS.of(client)._endpoint.guard
        guard.saw_occupant("hall@rooms.localhost/nick", stranger=False)
        for number in range(500):
            comes(f"room{number}")
        assert len(guard._rooms) <= 101
        assert "hall@rooms.localhost" in guard._rooms
        assert "room499@rooms.localhost" in guard._rooms


async def test_another_device_of_the_own_account_is_trusted(
    server: LoopbackServer,
) -> None:
    """It is nobody's roster item, and as near as can be."""
    async with raw(server, "bob/other") as other:
        for trust in ("contacts", "nobody@localhost"):
            async with online(server, trust=trust) as bob:
                received(await ask(other, bob.boundjid.full, assured("1")))


async def test_that_everybody_gets_into_the_roster_is_said(
    server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    """slixmpp accepts every subscription request unless it is told not to."""
    async with online(server, trust="anyone"):
        assert "auto_authorize" not in caplog.text
    async with online(server) as bob:
        assert "auto_authorize" in caplog.text
        assert bob.auto_authorize
    caplog.clear()
    for choice in (None, False):
        async with unconnected() as bob:
            bob.auto_authorize = choice
            await log_in(bob, server)
    assert "auto_authorize" not in caplog.text


async def test_requests_to_invented_addresses_leave_nothing_behind(
    server: LoopbackServer,
) -> None:
    """A component answers for all of its domain: a stranger can make addresses up."""
    component = ComponentXMPP(  # type: ignore[no-untyped-call]
        "comp.localhost",
        COMPONENTS["comp.localhost"],
        server.host,
        server.component_port,
    )
    try:
        register(component)
        await log_in(component, server)
        async with raw(server, "mallory/m") as mallory:
            before = len(list(component.roster.keys()))
            for number in range(50):
                to = f"x{number}@comp.localhost"
                refused = await ask(mallory, to, assured("1"))
                assert error_of(refused)[0] == "not-allowed"
            assert len(list(component.roster.keys())) == before
    finally:
        await close(component)


# -- the edge --------------------------------------------------------------


@pytest.mark.parametrize("name", ["decision", "saw_occupant"])
async def test_a_mistake_of_ours_does_not_end_the_connection(
    server: LoopbackServer, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """docs/design/protocol.md §5.8: catch everything at the edge.

    What leaves a filter leaves `data_received`, and asyncio then closes the transport.
    """
    async with raw(server, "alice/a") as alice, online(server) as bob:
        jid = bob.boundjid.full
        with mock.patch.object(Guard, name, side_effect=ZeroDivisionError):
            stanzas = {
                "decision": request_text(jid, assured("1"), iq_id="1")[0],
                "saw_occupant": f"<presence to='{jid}'><x xmlns='{MUC_USER}'/></presence>",
            }
            await alice.send(stanzas[name])
            assert DISCO in await features_seen(alice, jid)
        assert "ZeroDivisionError" in caplog.text
        received(await ask(alice, jid, assured("2")))


# -- events ----------------------------------------------------------------


async def test_without_an_event_log_xep_0337_is_not_loaded() -> None:
    """Plugins that nobody asked for are not loaded, nor advertised."""
    async with unconnected() as client:
        assert "xep_0337" not in client.plugin
    async with unconnected(event_log_to="log@localhost") as client:
        assert "xep_0337" in client.plugin


async def test_a_report_never_gets_in_the_way(server: LoopbackServer) -> None:
    """Without the plugin that sends it, it is a line in the log, and no more."""
    async with (
        raw(server, "mallory/m") as mallory,
        online(
            server, event_log_to="carol@localhost/log", event_interval_s=0.001
        ) as bob,
    ):
        bob.plugin.disable("xep_0337")  # type: ignore[attr-defined]
        for msg_id in ("1", "1", "2"):
            refused = await ask(mallory, bob.boundjid.full, assured(msg_id))
            assert error_of(refused)[0] == "not-allowed"
        malformed = await ask(mallory, bob.boundjid.full, f"<assured xmlns='{QOS}'/>")
        assert error_of(malformed)[0] == "bad-request"


async def test_events_of_one_source_keep_to_the_interval(
    server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Or an attacker turns our log into his amplifier.

    docs/design/protocol.md §3.16.
    """
    with caplog.at_level(logging.WARNING, "xep_qos"):
        async with (
            raw(server, "carol/log") as log,
            raw(server, "mallory/m") as mallory,
            online(server, event_log_to="carol@localhost/log") as bob,
        ):
            for number in range(100):
                await ask(mallory, bob.boundjid.full, assured(str(number)))
            await features_seen(mallory, bob.boundjid.full)
            await log.ping()
            assert len(log.received(stanza("message"))) == 1
    assert len([r for r in caplog.records if "mallory" in r.getMessage()]) == 1


# -- more than one ---------------------------------------------------------


async def test_two_clients_in_one_process_have_nothing_in_common(
    server: LoopbackServer,
) -> None:
    """`default_config` is copied shallowly by slixmpp: nothing is shared.

    docs/design/protocol.md §5.6.
    """
    async with (
        online(server, "bob@localhost/1", namespaces=[NEURON], quota_messages=1) as one,
        online(server, "bob@localhost/2", trust="anyone") as two,
        raw(server, "alice/a") as alice,
        raw(server, "mallory/m") as mallory,
    ):
        first, second = XEP_QOS.of(one), XEP_QOS.of(two)
        assert first.store is not second.store
        assert first.store.store_id != second.store.store_id
        got = bodies_of(one), bodies_of(two)
        for client, body in ((one, "to 1"), (two, "to 2")):
            received(await ask(alice, client.boundjid.full, assured("1", body)))
        full = await ask(alice, one.boundjid.full, assured("2"))
        assert error_of(full)[0] == "resource-constraint"
        received(await ask(alice, two.boundjid.full, assured("2")))
        refused = await ask(mallory, one.boundjid.full, assured("1"))
        assert error_of(refused)[0] == "not-allowed"
        received(await ask(mallory, two.boundjid.full, assured("1")))
        await first.aclose()
        assert is_empty(await ask(alice, two.boundjid.full, deliver("1")))
        assert got == ([], ["to 2"])
        async with discoverable(alice, NAMESPACES):
            sending = asyncio.create_task(second.send(alice.jid, "x"))
            iq = await alice.expect(asks("assured"))
            assert iq[0].tag == f"{{{QOS}}}assured"
            await say_received(iq, alice)
            await say_done(await alice.expect(asks("deliver")), alice)
            await sending


async def test_two_clients_send_to_each_other(server: LoopbackServer) -> None:
    """Both sides of both levels, in one process."""
    async with (
        online(server, "bob@localhost/b") as bob,
        online(server, "carol@localhost/c", trust="anyone") as carol,
    ):
        infos: list[IncomingInfo | None] = []
        carol.add_event_handler(
            "message", lambda got: infos.append(XEP_QOS.of(carol).incoming(got))
        )
        for level in (Level.ASSURED, Level.ACKNOWLEDGED):
            outcome = await XEP_QOS.of(bob).send("carol@localhost/c", "x", level=level)
            assert outcome.status is OutgoingState.DELIVERED
            await until(lambda: infos)
            info = infos.pop()
            assert info is not None
            assert (info.level, info.redelivered) == (level, False)
            if level is Level.ASSURED:
                assert info.msg_id == outcome.msg_id
                assert info.identity == f"bob@localhost\0{outcome.msg_id}"
        assert XEP_QOS.of(bob).incoming(bob.make_message("x@y", "z")) is None


async def test_a_message_that_has_ended_is_not_handed_over_again_under_its_id(
    server: LoopbackServer,
) -> None:
    """A job that is done again from its start says again what it had said."""
    async with (
        online(server, "bob@localhost/b") as bob,
        online(server, "carol@localhost/c", trust="anyone") as carol,
    ):
        ids: list[str] = []

        def note(got: Message) -> None:
            info = XEP_QOS.of(carol).incoming(got)
            assert info is not None
            ids.append(info.msg_id)

        carol.add_event_handler("message", note)
        for msg_id in ("row-1", "row-1", "row-2"):
            outcome = await XEP_QOS.of(bob).send(
                "carol@localhost/c", "x", msg_id=msg_id
            )
            assert (outcome.status, outcome.msg_id) == (OutgoingState.DELIVERED, msg_id)
        assert ids == ["row-1", "row-2"]
        for bad in ("", "x" * 1025):
            with pytest.raises(LocalProtocolError, match="1 to 1024 characters"):
                await XEP_QOS.of(bob).send("carol@localhost/c", "x", msg_id=bad)


async def test_what_was_never_sent_is_not_delivered_and_not_in_doubt(
    server: LoopbackServer,
) -> None:
    """The connection was lost a moment before, and does not come back."""
    async with (
        online(server, "bob@localhost/b", batch_max=1) as bob,
        online(server, "carol@localhost/c"),
    ):
        await XEP_QOS.of(bob).send("carol@localhost/c", "x", level=Level.ACKNOWLEDGED)
        assert bob.transport is not None
        bob.transport.close()
        delivery = await XEP_QOS.of(bob).submit(
            bob.make_message("carol@localhost/c", "x"),
            level=Level.ACKNOWLEDGED,
            deadline_s=0.3,
        )
        assert (await delivery.outcome()).status is OutgoingState.NOT_DELIVERED


async def test_a_message_is_taken_when_its_handler_says_so(
    server: LoopbackServer,
) -> None:
    """Its sender waits for what takes time, as a write of the application does."""
    async with (
        online(server, "bob@localhost/b") as bob,
        online(server, "carol@localhost/c", trust="anyone") as carol,
    ):
        taken: list[asyncio.Future[None]] = []

        def take(got: Message) -> None:
            taken.append(asyncio.get_running_loop().create_future())
            XEP_QOS.of(carol).take_until(got, taken[-1])

        carol.add_event_handler("message", take)
        sending = asyncio.create_task(XEP_QOS.of(bob).send("carol@localhost/c", "x"))
        await until(lambda: taken)
        await asyncio.sleep(10.0)  # time for retries, by the clock of the loop
        assert not sending.done()
        taken[0].set_result(None)
        assert (await sending).status is OutgoingState.DELIVERED


@pytest.mark.parametrize("kind", ["coroutine", "consumer"])
async def test_to_say_too_late_when_a_message_is_taken_is_an_error(
    server: LoopbackServer, kind: str
) -> None:
    """Its sender has been told, or will be: silence would look like a promise."""
    async with (
        online(server, "bob@localhost/b") as bob,
        unconnected("carol@localhost/c", trust="anyone") as carol,
    ):
        qos = XEP_QOS.of(carol)
        errors: list[LocalProtocolError] = []

        def take(got: Message) -> None:
            done = asyncio.get_running_loop().create_future()
            try:
                qos.take_until(got, done)
            except LocalProtocolError as error:
                errors.append(error)

        async def take_later(got: Message, *_handover: object) -> None:
            take(got)

        if kind == "coroutine":
            carol.add_event_handler("message", take_later)
        else:
            qos.consumer()(take_later)
        await log_in(carol, server)
        sent = await XEP_QOS.of(bob).send("carol@localhost/c", "x", msg_id="m1")
        await until(lambda: errors)
        assert sent.status is OutgoingState.DELIVERED
        assert "'m1' comes too late" in str(errors[0])
        assert not qos._endpoint.feed._until
        # What came as a plain message is nobody's to take.
        qos.take_until(carol.make_message("x@y", "z"), asyncio.Future())


@pytest.mark.parametrize("msg_id", ["scan\x1d42", "\x00", "\ufffe", "\ud800"])
async def test_an_id_that_xml_cannot_carry_is_refused(msg_id: str) -> None:
    """A stored message that can never be sent would not end, nor could it be withdrawn."""
    async with unconnected() as bob:
        qos = XEP_QOS.of(bob)
        for level in Level:
            sending = qos.send("carol@localhost/c", "x", level=level, msg_id=msg_id)
            with pytest.raises(
                LocalProtocolError, match="msg_id must be a string that XML can carry"
            ) as raised:
                async with limit():
                    await sending
            assert repr(msg_id) in str(raised.value)
        assert len(qos.outstanding()) == 0


async def test_a_message_that_is_made_anew_can_be_submitted_again_after_a_restart(
    tmp_path: Path,
) -> None:
    """The act of an application that was killed before it knew the acceptance."""
    store = f"sqlite:{tmp_path / 'bob.db'}"
    stanza_ids = set()
    for _ in range(3):
        async with unconnected(store=store) as bob:
            message = bob.make_message("carol@localhost/c", "on", mtype="chat")
            stanza_ids.add(message["id"])
            qos = XEP_QOS.of(bob)
            for _ in range(2):
                delivery = await qos.submit(message, msg_id="order 1")
            assert delivery.msg_id == "order 1"
            (outstanding,) = qos.outstanding()
            assert outstanding.msg_id == "order 1"
            assert outstanding.state is OutgoingState.QUEUED
            other = bob.make_message("carol@localhost/c", "off", mtype="chat")
            with pytest.raises(LocalProtocolError, match="'order 1' is the id of"):
                await qos.submit(other, msg_id="order 1")
    assert len(stanza_ids) == 3, "or nothing was tested"


# -- the application's filters ---------------------------------------------


async def test_an_application_that_watches_what_goes_out_sees_it_all_and_unchanged(
    server: LoopbackServer,
) -> None:
    """Its filter gets stanza objects; on the wire stands what stands without it."""
    seen: list[StanzaBase] = []

    def watch(sent: StanzaBase) -> StanzaBase:
        seen.append(sent)
        return sent

    payload = (
        "<message xmlns='jabber:client'><body>b</body><x xmlns='urn:x' "
        "xmlns:y='urn:y' y:a='1'/></message>"
    )
    async with (
        raw(server, "alice/a") as alice,
        discoverable(alice, [QOS]),
        online(server, retry_first_s=0.05, retry_max_s=0.05) as bob,
    ):
        bob.add_filter("out", watch)
        sending = asyncio.create_task(XEP_QOS.of(bob).send(alice.jid, payload=payload))
        offers = [await alice.expect(asks("assured")) for _ in range(3)]
        assert len({ET.tostring(iq) for iq in offers}) == 1
        assert offers[0][0][0].find("{urn:x}x").get("{urn:y}a") == "1"  # type: ignore[union-attr]
        await say_received(offers[0], alice)
        await say_done(await alice.expect(asks("deliver")), alice)
        await sending
        kinds = [each.xml[0].tag.rpartition("}")[2] for each in seen if len(each.xml)]
        assert kinds.count("assured") >= 3
        assert kinds.count("deliver") >= 1
        received(await ask(alice, bob.boundjid.full, assured("1")))
        bob.del_filter("out", watch)


async def test_an_application_that_swallows_what_comes_in_has_it_so(
    server: LoopbackServer,
) -> None:
    """A delivered message passes the filters of any; what they drop is dropped."""

    def swallow(got: StanzaBase) -> StanzaBase | None:
        return None if got.name == "message" else got

    async with raw(server, "alice/a") as alice, online(server) as bob:
        bob.add_filter("in", swallow)
        bodies = bodies_of(bob)
        received(await ask(alice, bob.boundjid.full, assured("1")))
        assert is_empty(await ask(alice, bob.boundjid.full, deliver("1")))
        bob.del_filter("in", swallow)
        received(await ask(alice, bob.boundjid.full, assured("1", "x")))
        assert is_empty(await ask(alice, bob.boundjid.full, deliver("1")))
        assert bodies == ["x"]


async def test_plain_messages_wait_for_a_session_up_to_a_bound(
    server: LoopbackServer,
) -> None:
    """slixmpp keeps them in memory, and sends all of them when it is online."""
    async with online(server, "carol@localhost/c") as carol, unconnected() as bob:
        bodies, qos = bodies_of(carol), XEP_QOS.of(bob)

        async def send(body: str) -> None:
            await qos.send(carol.boundjid.full, body, level="unacknowledged")

        for number in range(1000):
            await send(str(number))
        with pytest.raises(OutboxFull, match="1000 messages at level unacknowledged"):
            await send("one too many")
        await log_in(bob, server)
        await send("online")
        await until(lambda: "online" in bodies)
        assert bodies == [*map(str, range(1000)), "online"]


async def test_nesting_of_50_000_levels_does_no_harm() -> None:
    """Some server lets it pass; a recursion over it would end the process."""
    depth = 50_000
    deep = "<a>" * depth + "</a>" * depth
    content = (
        f"<assured xmlns='{QOS}' msgId='1'><message xmlns='{CLIENT}'>"
        f"<body>deep</body><x xmlns='urn:x'>{deep}</x></message></assured>"
    )
    async with unconnected(trust="anyone") as bob:
        qos, bodies = XEP_QOS.of(bob), bodies_of(bob)
        for text in (content, deliver("1")):
            xml = f"<iq xmlns='{CLIENT}' type='set' id='1' from='a@localhost/a'>{text}</iq>"
            bob.recv_stanza(Iq(bob, xml=ET.fromstring(xml)))  # type: ignore[no-untyped-call]  # noqa: S314
        assert bodies == ["deep"]
        with pytest.raises(MessageTooLarge):
            await qos.send("a@localhost", payload=f"<x xmlns='urn:x'>{deep}</x>")
        # In a stanza of 64 levels there are iq, batch, assured and message around it.
        for levels, is_taken in ((60, True), (61, False)):
            payload = "<x xmlns='urn:x'>" + "<a>" * (levels - 1) + "</a>" * (levels - 1)
            text = f"{payload}</x>"
            if is_taken:
                await qos.submit("a@localhost", payload=text)
            else:
                with pytest.raises(InvalidArgument, match="at most 60 deep"):
                    await qos.submit("a@localhost", payload=text)


def test_options_are_a_mapping_that_nobody_changes() -> None:
    """A given dict is read, not kept: its caller may use it again."""
    options: Mapping[str, Any] = {"namespaces": [QOS], "trust": "anyone"}
    before = dict(options)
    Settings.from_config(options)
    assert dict(options) == before
