"""The embedded server behaves like a real one for its clients, over real sockets."""

import asyncio
import base64
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest
from slixmpp import JID, ClientXMPP, ComponentXMPP
from slixmpp.exceptions import IqError

from qos.testing.link import Link
from qos.testing.server import LoopbackServer
from waiting import LIMIT_S, limit

STREAMS = "http://etherx.jabber.org/streams"
ERRORS = "{urn:ietf:params:xml:ns:xmpp-stanzas}"
STREAM_ERRORS = "{urn:ietf:params:xml:ns:xmpp-streams}"
SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
BIND = "urn:ietf:params:xml:ns:xmpp-bind"
ROSTER = "jabber:iq:roster"
CLIENT = "{jabber:client}"
COMPONENT = "{jabber:component:accept}"

ACCOUNTS = {"alice": "secret", "bob": "geheim, =ß", "carol": "x"}
COMPONENTS = {"comp.localhost": "hush"}

Start = Callable[..., Awaitable[LoopbackServer]]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start(stack: AsyncExitStack) -> Start:
    """Start a server that ends with the test."""

    async def start(**options: Any) -> LoopbackServer:
        options = {"accounts": ACCOUNTS, "components": COMPONENTS} | options
        return await stack.enter_async_context(LoopbackServer(**options))

    return start


@pytest.fixture
async def server(start: Start) -> LoopbackServer:
    return await start()


class Raw:
    """A stream by hand: sends any bytes, and reads whole elements."""

    def __init__(self, port: int, *, namespace: str = "jabber:client") -> None:
        self.jid = ""
        self.header = (
            f"<stream:stream xmlns='{namespace}' xmlns:stream='{STREAMS}' "
            "to='localhost' version='1.0'>"
        )
        self._port = port

    async def __aenter__(self) -> "Raw":
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port
        )
        self._restart()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()

    def _restart(self) -> None:
        self._parser: ET.XMLPullParser[ET.Element] = ET.XMLPullParser(("start", "end"))
        self._depth = 0

    def send(self, text: str | bytes) -> None:
        self._writer.write(text.encode() if isinstance(text, str) else text)

    async def open(self) -> ET.Element:
        """Open the stream, and return the server's features."""
        self._restart()
        self.send(self.header)
        return await self.next()

    async def next(self, depth: int = 1) -> ET.Element:
        """Return the next child of the stream's root; at depth 0, the root."""
        async with limit():
            while True:
                # Not closed: the generator leaves the rest in its place.
                for event, element in self._events():
                    self._depth += 1 if event == "start" else -1
                    if self._depth == 1 and (event == "start") == (depth == 0):
                        return element
                data = await self._reader.read(65536)
                if not data:
                    raise EOFError
                self._parser.feed(data)
                if hasattr(self._parser, "flush"):  # expat 2.6 would defer this
                    self._parser.flush()

    def _events(self) -> Iterator[tuple[str, ET.Element]]:
        return cast("Iterator[tuple[str, ET.Element]]", self._parser.read_events())

    async def until(self, name: str, **attributes: str) -> ET.Element:
        """Return the next one of this kind, dropping what comes before it."""
        while True:
            element = await self.next()
            if (
                element.tag.endswith(name)
                and attributes.items() <= element.attrib.items()
            ):
                return element

    async def end(self) -> str | None:
        """Wait for the end of the stream and of TCP; return the stream error."""
        condition = None
        try:
            while True:
                element = await self.next()
                if element.tag == f"{{{STREAMS}}}error":
                    condition = element[0].tag.removeprefix(STREAM_ERRORS)
        except (EOFError, ConnectionResetError):
            return condition

    async def authenticate(self, user: str, password: str) -> ET.Element:
        token = base64.b64encode(f"\0{user}\0{password}".encode()).decode()
        self.send(f"<auth xmlns='{SASL}' mechanism='PLAIN'>{token}</auth>")
        return await self.next()

    async def login(self, user: str, resource: str = "") -> "Raw":
        await self.open()
        success = await self.authenticate(user, ACCOUNTS[user])
        assert success.tag == f"{{{SASL}}}success"
        await self.open()
        asked = f"<resource>{resource}</resource>" if resource else ""
        self.send(f"<iq type='set' id='bind'><bind xmlns='{BIND}'>{asked}</bind></iq>")
        result = await self.next()
        self.jid = result.findtext(f"{{{BIND}}}bind/{{{BIND}}}jid") or ""
        return self

    async def available(self, inside: str = "") -> "Raw":
        self.send(f"<presence>{inside}</presence>")
        await self.until("presence", **{"from": self.jid})
        return self


Login = Callable[..., Awaitable[Raw]]


@pytest.fixture
def login(server: LoopbackServer, stack: AsyncExitStack) -> Login:
    """Log in at the server of the fixture ``server``."""

    async def login(user: str, resource: str = "1") -> Raw:
        raw = await stack.enter_async_context(Raw(server.port))
        return await raw.login(user, resource)

    return login


@pytest.fixture
async def raw(server: LoopbackServer, stack: AsyncExitStack) -> Raw:
    """A TCP connection without any data yet."""
    return await stack.enter_async_context(Raw(server.port))


async def component(
    server: LoopbackServer,
    stack: AsyncExitStack,
    secret: str = COMPONENTS["comp.localhost"],
) -> Raw:
    raw = Raw(server.component_port, namespace="jabber:component:accept")
    await stack.enter_async_context(raw)
    raw.send(raw.header.replace("to='localhost'", "to='comp.localhost'"))
    stream_id = (await raw.next(depth=0)).attrib["id"]
    token = hashlib.sha1(
        (stream_id + secret).encode(), usedforsecurity=False
    ).hexdigest()
    raw.send(f"<handshake>{token}</handshake>")
    return raw


def condition(stanza: ET.Element) -> tuple[str, str]:
    """Return type and condition of a stanza error."""
    assert stanza.get("type") == "error"
    (error,) = (child for child in stanza if child.tag.endswith("}error"))
    return error.attrib["type"], error[0].tag.removeprefix(ERRORS)


# ---- login


async def test_it_listens_on_loopback_only(server: LoopbackServer) -> None:
    assert server.host == "127.0.0.1"
    assert 0 < server.port != server.component_port > 0
    for listener in server._listeners:
        assert [s.getsockname()[0] for s in listener.sockets] == ["127.0.0.1"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user", ["alice", "bob"])
async def test_slixmpp_logs_in_by_each_mechanism(
    server: LoopbackServer, stack: AsyncExitStack, mechanism: str, user: str
) -> None:
    client = await slix(server, stack, f"{user}@localhost/desk", mechanism=mechanism)
    assert client.boundjid.full == f"{user}@localhost/desk"
    assert server.online == {f"{user}@localhost/desk"}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256"])
@pytest.mark.parametrize("user", ["alice", "nobody"])
async def test_a_wrong_password_is_not_authorized(
    server: LoopbackServer, stack: AsyncExitStack, mechanism: str, user: str
) -> None:
    client = new_slix(stack, f"{user}@localhost", "wrong", mechanism=mechanism)
    failed = asyncio.get_running_loop().create_future()
    client.add_event_handler("failed_auth", failed.set_result)
    client.connect(server.host, server.port)
    failure = await asyncio.wait_for(failed, LIMIT_S)
    assert failure["condition"] == "not-authorized"


async def test_there_are_a_few_attempts_and_then_no_more(raw: Raw) -> None:
    await raw.open()
    for _ in range(4):
        failure = await raw.authenticate("alice", "wrong")
        assert failure[0].tag == f"{{{SASL}}}not-authorized"
    await raw.authenticate("alice", "wrong")
    assert await raw.end() == "policy-violation"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<auth xmlns='{0}' mechanism='X'>=</auth>", "invalid-mechanism"),
        ("<auth xmlns='{0}' mechanism='PLAIN'>!</auth>", "incorrect-encoding"),
        ("<auth xmlns='{0}' mechanism='PLAIN'>=</auth>", "malformed-request"),
        ("<auth xmlns='{0}' mechanism='SCRAM-SHA-1'>/w==</auth>", "malformed-request"),
        (
            "<auth xmlns='{0}' mechanism='PLAIN'>eABhbGljZQBzZWNyZXQ=</auth>",  # as x
            "invalid-authzid",
        ),
        (
            "<auth xmlns='{0}' mechanism='SCRAM-SHA-1'>cD14LCxuPWEscj1i</auth>",  # p=x
            "malformed-request",
        ),
        (
            "<auth xmlns='{0}' mechanism='SCRAM-SHA-1'>biwsbj1hbGljZQ==</auth>",  # no r=
            "malformed-request",
        ),
        ("<response xmlns='{0}'>=</response>", "malformed-request"),
        ("<abort xmlns='{0}'/>", "aborted"),
    ],
)
async def test_a_bad_login_is_answered_and_another_one_is_possible(
    raw: Raw, text: str, expected: str
) -> None:
    await raw.open()
    raw.send(text.format(SASL))
    assert (await raw.next())[0].tag == f"{{{SASL}}}{expected}"
    assert (await raw.authenticate("alice", "secret")).tag == f"{{{SASL}}}success"


async def test_the_initial_response_may_come_late(raw: Raw) -> None:
    await raw.open()
    raw.send(f"<auth xmlns='{SASL}' mechanism='PLAIN'/>")
    assert (await raw.next()).tag == f"{{{SASL}}}challenge"
    raw.send(f"<response xmlns='{SASL}'>AGFsaWNlAHNlY3JldA==</response>")
    assert (await raw.next()).tag == f"{{{SASL}}}success"


async def test_scram_refuses_an_exchange_that_was_tampered_with(raw: Raw) -> None:
    await raw.open()
    for final in ("c=eSws,r={},p=AAAA", "c=biws,r={}x,p=AAAA", "c=biws,r={},p=AAAA"):
        raw.send(
            f"<auth xmlns='{SASL}' mechanism='SCRAM-SHA-256'>"
            f"{base64.b64encode(b'n,,n=alice,r=abc').decode()}</auth>"
        )
        challenge = base64.b64decode((await raw.next()).text or "").decode()
        nonce = challenge.removeprefix("r=").partition(",")[0]
        assert nonce.startswith("abc")
        assert len(nonce) > 20
        token = base64.b64encode(final.format(nonce).encode()).decode()
        raw.send(f"<response xmlns='{SASL}'>{token}</response>")
        assert (await raw.next())[0].tag == f"{{{SASL}}}not-authorized"


async def test_nothing_but_binding_is_done_before_a_resource_is_bound(raw: Raw) -> None:
    await raw.open()
    await raw.authenticate("alice", "secret")
    await raw.open()
    raw.send(
        f"<iq type='set' id='1'><bind xmlns='{BIND}'><resource>{'x' * 2000}</resource>"
        "</bind></iq>"
    )
    assert condition(await raw.next()) == ("modify", "bad-request")
    raw.send("<iq type='get' id='1'><ping xmlns='urn:xmpp:ping'/></iq>")
    assert await raw.end() == "not-authorized"


async def test_nothing_is_done_for_who_has_not_logged_in(raw: Raw) -> None:
    await raw.open()
    raw.send("<message to='bob@localhost'/>")
    assert await raw.end() == "not-authorized"


async def test_a_stream_to_another_host_is_refused(raw: Raw) -> None:
    raw.send(raw.header.replace("localhost", "example.org"))
    assert await raw.end() == "host-unknown"


async def test_a_component_at_the_clients_port_is_told_so(raw: Raw) -> None:
    raw.send(raw.header.replace("jabber:client", "jabber:component:accept"))
    assert await raw.end() == "invalid-namespace"


async def test_the_resource_is_the_one_asked_for_or_a_new_one(
    login: Login, stack: AsyncExitStack, server: LoopbackServer
) -> None:
    assert (
        await login("alice", "lamp &amp; söhne")
    ).jid == "alice@localhost/lamp & söhne"
    two = {(await login("alice", "")).jid for _ in range(2)}
    assert len(two) == 2
    assert two < server.online


async def test_a_second_login_under_a_resource_ends_the_first(
    server: LoopbackServer, login: Login
) -> None:
    first = await (await login("alice")).available()
    second = await login("alice")
    assert await first.end() == "conflict"
    assert server.online == {second.jid}
    second.send("<iq type='get' id='1'><ping xmlns='urn:xmpp:ping'/></iq>")
    assert (await second.until("iq", id="1")).get("type") == "result"


async def test_a_hundred_clients_log_in_and_talk_at_once(
    server: LoopbackServer, login: Login
) -> None:
    clients = await asyncio.gather(*(login("alice", str(n)) for n in range(100)))
    assert len(server.online) == 100
    for n, client in enumerate(clients):
        client.send(f"<message to='alice@localhost/{(n + 1) % 100}' id='{n}'/>")
    seen = await asyncio.gather(*(client.next() for client in clients))
    assert [(m.get("from"), m.get("id")) for m in seen] == [
        (f"alice@localhost/{(n - 1) % 100}", str((n - 1) % 100)) for n in range(100)
    ]
    assert server.counts["message"] == 100


# ---- routing


async def test_an_iq_goes_to_its_full_jid_and_the_answer_comes_back(
    login: Login, server: LoopbackServer
) -> None:
    alice, bob = await login("alice"), await login("bob")
    alice.send(
        f"<iq type='set' id='7' to='{bob.jid}' from='x@y'><a xmlns='urn:a'/></iq>"
    )
    asked = await bob.next()
    assert (asked.get("from"), asked.get("to")) == (alice.jid, bob.jid)
    assert asked[0].tag == "{urn:a}a"
    bob.send(f"<iq type='result' id='7' to='{alice.jid}'/>")
    answer = await alice.next()
    assert (answer.get("from"), answer.get("id")) == (bob.jid, "7")
    assert server.counts == {"iq": 2}


@pytest.mark.parametrize(
    ("to", "error"),
    [
        ("bob@localhost/1", ("cancel", "service-unavailable")),
        ("nobody@localhost/1", ("cancel", "service-unavailable")),
        ("nobody@localhost", ("cancel", "service-unavailable")),
        ("localhost/x", ("cancel", "service-unavailable")),
        ("bob@localhost", ("cancel", "service-unavailable")),
        ("localhost", ("cancel", "service-unavailable")),
        ("comp.localhost", ("wait", "service-unavailable")),
        ("x@comp.localhost/y", ("wait", "service-unavailable")),
        ("bob@example.org/1", ("cancel", "remote-server-not-found")),
        ("bob@localhost/", ("modify", "jid-malformed")),
        ("@localhost", ("modify", "jid-malformed")),
    ],
)
async def test_an_iq_that_finds_nobody_is_refused_in_the_name_of_whom_it_was_for(
    login: Login, server: LoopbackServer, to: str, error: tuple[str, str]
) -> None:
    alice = await login("alice")
    for type_ in ("result", "error", "set"):
        alice.send(f"<iq type='{type_}' id='{type_}' to='{to}'><a xmlns='urn:a'/></iq>")
    answer = await alice.next()
    assert answer.get("id") == "set"  # an answer is never answered
    assert (answer.get("from"), answer.get("to")) == (to, alice.jid)
    assert condition(answer) == error
    assert server.counts == {"refused": 1}


@pytest.mark.parametrize("attributes", ["type='get'", "id='1'", "type='x' id='1'"])
async def test_an_iq_without_type_or_id_is_a_bad_request(
    login: Login, attributes: str
) -> None:
    alice = await login("alice")
    alice.send(f"<iq {attributes} to='localhost'><ping xmlns='urn:xmpp:ping'/></iq>")
    assert condition(await alice.next()) == ("modify", "bad-request")


async def test_a_message_for_a_resource_that_has_gone_goes_to_another(
    login: Login,
) -> None:
    alice = await login("alice")
    await (await login("bob", "low")).available("<priority>1</priority>")
    high = await (await login("bob", "high")).available("<priority>5</priority>")
    await (await login("bob", "never")).available("<priority>-1</priority>")
    await login("bob", "silent")
    for n, to in enumerate(("bob@localhost/gone", "bob@localhost", "BOB@localhost")):
        alice.send(f"<message to='{to}' id='{n}' type='chat'/>")
        message = await high.until("message")
        assert (message.get("id"), message.get("to")) == (str(n), to)


@pytest.mark.parametrize("to", ["bob@localhost", "bob@localhost/1", "no@localhost"])
async def test_a_message_to_who_is_offline_is_refused_but_an_error_is_not(
    login: Login, to: str
) -> None:
    alice = await login("alice")
    alice.send(f"<message to='{to}' type='error' id='0'/>")
    alice.send(f"<message to='{to}' id='1'><body>x</body></message>")
    answer = await alice.next()
    assert (answer.get("id"), answer.get("from")) == ("1", to)
    assert condition(answer) == ("cancel", "service-unavailable")


async def test_a_message_to_nobody_in_particular_is_for_oneself(login: Login) -> None:
    alice = await (await login("alice")).available()
    alice.send("<message id='1'/>")
    assert (await alice.until("message")).get("from") == alice.jid


async def test_a_prefix_from_the_stream_root_arrives_with_its_meaning(
    server: LoopbackServer, stack: AsyncExitStack, login: Login
) -> None:
    alice = await stack.enter_async_context(Raw(server.port))
    alice.header = alice.header.replace(" to=", " xmlns:q='urn:xmpp:qos' to=")
    await alice.login("alice", "1")
    bob = await login("bob")
    alice.send(f"<iq type='set' id='1' to='{bob.jid}'><q:assured/></iq>")
    assert (await bob.next())[0].tag == "{urn:xmpp:qos}assured"


# ---- what the server answers itself


async def test_the_server_answers_disco_ping_and_session(
    login: Login, server: LoopbackServer
) -> None:
    alice = await login("alice")
    info = "<query xmlns='http://jabber.org/protocol/disco#info'/>"
    items = "<query xmlns='http://jabber.org/protocol/disco#items'/>"
    ping = "<ping xmlns='urn:xmpp:ping'/>"
    session = "<session xmlns='urn:ietf:params:xml:ns:xmpp-session'/>"

    async def ask(type_: str, to: str, content: str) -> ET.Element:
        alice.send(f"<iq type='{type_}' id='1' {to}>{content}</iq>")
        answer = await alice.next()
        assert answer.get("type") == "result"
        return answer

    for to, category in (
        ("to='localhost'", "server"),
        ("to='bob@localhost'", "account"),
        ("", "account"),
    ):
        query = (await ask("get", to, info))[0]
        assert query[0].get("category") == category
        assert "urn:xmpp:ping" in [feature.get("var") for feature in query[1:]]
        assert len(await ask("get", to, ping)) == 0
    (item,) = (await ask("get", "to='localhost'", items))[0]
    assert item.get("jid") == "comp.localhost"
    assert len((await ask("get", "to='bob@localhost'", items))[0]) == 0
    assert len(await ask("set", "", session)) == 0
    assert not server.counts


# ---- rosters and presence


async def test_the_roster_is_got_set_and_pushed(
    start: Start, stack: AsyncExitStack
) -> None:
    server = await start(rosters={"alice": {"bob@localhost": "to"}})
    one, two, silent = [
        await (await stack.enter_async_context(Raw(server.port))).login(
            "alice", resource
        )
        for resource in ("1", "2", "silent")
    ]
    for raw in (one, two):
        raw.send(f"<iq type='get' id='get'><query xmlns='{ROSTER}'/></iq>")
        (item,) = (await raw.next())[0]
        assert item.attrib == {"jid": "bob@localhost", "subscription": "to"}
    one.send(
        f"<iq type='set' id='set'><query xmlns='{ROSTER}'>"
        "<item jid='Carol@localhost' name='C &amp; D'><group>g</group></item></query></iq>"
    )
    for raw in (one, two):
        (item,) = (await raw.next())[0]
        assert (item.get("jid"), item.get("name")) == ("carol@localhost", "C & D")
        assert [group.text for group in item] == ["g"]
    assert (await one.next()).get("id") == "set"
    one.send(
        f"<iq type='set' id='gone'><query xmlns='{ROSTER}'>"
        "<item jid='bob@localhost' subscription='remove'/></query></iq>"
    )
    while (item := (await two.next())[0][0]).get("subscription") != "remove":
        pass
    assert item.get("jid") == "bob@localhost"
    assert (await one.until("iq", id="gone")).get("type") == "result"
    for content in ("", "<item/>", "<item jid='a@b'/><item jid='c@d'/>"):
        silent.send(
            f"<iq type='set' id='bad'><query xmlns='{ROSTER}'>{content}</query></iq>"
        )
        assert condition(await silent.next()) == ("modify", "bad-request")


async def test_somebody_elses_roster_is_not_served(login: Login) -> None:
    alice = await login("alice")
    alice.send(
        f"<iq type='get' id='1' to='bob@localhost'><query xmlns='{ROSTER}'/></iq>"
    )
    assert condition(await alice.next()) == ("cancel", "service-unavailable")


@pytest.mark.parametrize(
    ("rosters", "message"),
    [
        ({"nobody": {}}, "nobody"),
        ({"alice": {"bob@localhost": "friend"}}, "friend"),
    ],
)
def test_impossible_rosters_are_named(
    rosters: dict[str, dict[str, str]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        LoopbackServer(accounts=ACCOUNTS, rosters=rosters)


async def test_presence_goes_to_who_may_see_it_at_login_and_at_the_end(
    start: Start, stack: AsyncExitStack
) -> None:
    """The subscription is set at one end only; the other end follows from it."""
    server = await start(rosters={"alice": {"bob@localhost": "from"}})

    async def login(user: str) -> Raw:
        raw = await stack.enter_async_context(Raw(server.port))
        return await raw.login(user, "1")

    alice = await (await login("alice")).available("<show>dnd</show>")
    carol = await (await login("carol")).available()
    bob = await login("bob")
    bob.send("<presence/>")
    seen = {(await bob.next()).attrib["from"] for _ in range(2)}
    assert seen == {alice.jid, bob.jid}  # by the probe, and his own
    alice.send("<presence><status>x</status></presence>")
    assert (await bob.next()).findtext(f"{CLIENT}status") == "x"
    server.disconnect(alice.jid)
    left = await bob.next()
    assert (left.get("from"), left.get("type")) == (alice.jid, "unavailable")
    # She gets none of these.
    bob.send(f"<message to='{carol.jid}'/>")
    assert (await carol.next()).tag == f"{CLIENT}message"


async def test_directed_presence_is_taken_back_at_the_end(login: Login) -> None:
    alice, bob = await login("alice"), await login("bob")
    alice.send(f"<presence to='{bob.jid}'/>")
    assert (await bob.next()).get("type") is None
    alice.send("</stream:stream>")
    left = await bob.next()
    assert (left.get("from"), left.get("type")) == (alice.jid, "unavailable")
    assert await alice.end() is None


async def test_a_subscription_is_asked_for_and_granted(login: Login) -> None:
    alice = await (await login("alice")).available()
    alice.send(f"<iq type='get' id='get'><query xmlns='{ROSTER}'/></iq>")
    await alice.until("iq", id="get")
    alice.send("<presence type='subscribe' to='bob@localhost'/>")
    (item,) = (await alice.next())[0]
    assert item.attrib == {
        "jid": "bob@localhost",
        "subscription": "none",
        "ask": "subscribe",
    }
    # He was not online to get it; it waits for him.
    bob = await login("bob")
    bob.send("<presence/>")
    asked = await bob.until("presence", type="subscribe")
    assert asked.get("from") == "alice@localhost"
    bob.send("<presence type='subscribed' to='alice@localhost'/>")
    (item,) = (await alice.next())[0]
    assert item.attrib == {"jid": "bob@localhost", "subscription": "to"}
    assert (await alice.next()).get("type") == "subscribed"
    assert (await alice.next()).get("from") == bob.jid
    bob.send("<presence type='unsubscribed' to='alice@localhost'/>")
    (item,) = (await alice.next())[0]
    assert item.get("subscription") == "none"
    assert (await alice.next()).get("type") == "unsubscribed"
    assert (await alice.next()).get("type") == "unavailable"


async def subscriptions(raw: Raw) -> dict[str | None, str | None]:
    raw.send(f"<iq type='get' id='roster'><query xmlns='{ROSTER}'/></iq>")
    items = (await raw.until("iq", id="roster"))[0]
    return {item.get("jid"): item.get("subscription") for item in items}


async def test_a_subscription_ends_at_both_ends(
    start: Start, stack: AsyncExitStack
) -> None:
    server = await start(rosters={"alice": {"bob@localhost": "both"}})
    alice, bob = [
        await (await stack.enter_async_context(Raw(server.port))).login(user)
        for user in ("alice", "bob")
    ]
    await alice.available()
    await bob.available()
    alice.send("<presence type='unsubscribe' to='bob@localhost'/>")
    assert (await bob.until("presence", type="unsubscribe")).get(
        "to"
    ) == "bob@localhost"
    assert await subscriptions(alice) == {"bob@localhost": "from"}
    assert await subscriptions(bob) == {"alice@localhost": "to"}
    alice.send(
        f"<iq type='set' id='gone'><query xmlns='{ROSTER}'>"
        "<item jid='bob@localhost' subscription='remove'/></query></iq>"
    )
    await bob.until("presence", type="unsubscribed")
    await bob.until("presence", type="unavailable")
    assert await subscriptions(alice) == {}
    assert await subscriptions(bob) == {"alice@localhost": "none"}
    alice.send(
        f"<iq type='set' id='again'><query xmlns='{ROSTER}'>"
        "<item jid='bob@localhost' subscription='remove'/></query></iq>"
    )
    again = await alice.until("iq", id="again")
    assert condition(again) == ("cancel", "item-not-found")


async def test_who_sees_already_is_told_so_when_asking_again(
    start: Start, stack: AsyncExitStack
) -> None:
    """For instance after one end has lost its roster."""
    server = await start(
        rosters={
            "alice": {"bob@localhost": "none"},
            "bob": {"alice@localhost": "from"},
        }
    )
    alice = await stack.enter_async_context(Raw(server.port))
    await (await alice.login("alice")).available()
    alice.send("<presence type='subscribe' to='bob@localhost'/>")
    assert (await alice.until("presence", type="subscribed")).get(
        "from"
    ) == "bob@localhost"
    assert await subscriptions(alice) == {"bob@localhost": "to"}


async def test_a_request_can_be_denied_and_is_then_forgotten(login: Login) -> None:
    alice = await (await login("alice")).available()
    alice.send("<presence type='subscribe' to='bob@localhost'/>")
    bob = await login("bob")
    bob.send("<presence/>")
    await bob.until("presence", type="subscribe")
    bob.send("<presence type='unsubscribed' to='alice@localhost'/>")
    await alice.until("presence", type="unsubscribed")
    assert await subscriptions(alice) == {"bob@localhost": "none"}
    bob.send("<presence type='subscribed' to='alice@localhost'/>")
    assert await subscriptions(bob) == {}
    assert await subscriptions(alice) == {"bob@localhost": "none"}


async def test_a_device_sees_the_others_of_its_account_come_and_go(
    login: Login,
) -> None:
    one = await (await login("alice", "1")).available("<priority>high</priority>")
    two = await login("alice", "2")
    two.send("<presence/>")
    assert {(await two.next()).get("from") for _ in "12"} == {one.jid, two.jid}
    assert (await one.next()).get("from") == two.jid
    two.send("<presence type='unavailable'/>")
    left = await one.next()
    assert (left.get("from"), left.get("type")) == (two.jid, "unavailable")


async def test_nobody_subscribes_himself_unasked(login: Login) -> None:
    """Otherwise any stranger could make himself trusted."""
    alice = await (await login("alice")).available()
    bob = await (await login("bob")).available()
    bob.send("<presence type='subscribed' to='alice@localhost'/>")
    bob.send("<presence/>")
    await bob.until("presence", **{"from": bob.jid})
    alice.send(f"<iq type='get' id='get'><query xmlns='{ROSTER}'/></iq>")
    assert len((await alice.next())[0]) == 0


# ---- components


async def test_stanzas_cross_between_a_client_and_a_component(
    server: LoopbackServer, stack: AsyncExitStack, login: Login
) -> None:
    comp, alice = await component(server, stack), await login("alice")
    assert (await comp.next()).tag == f"{COMPONENT}handshake"
    assert server.online == {"comp.localhost", alice.jid}
    alice.send("<iq type='set' id='1' to='q@Comp.localhost/x'><received/></iq>")
    asked = await comp.next()
    assert asked.tag == f"{COMPONENT}iq"
    assert asked[0].tag == f"{COMPONENT}received"
    assert asked.get("from") == alice.jid
    comp.send(
        f"<iq type='result' id='1' to='{alice.jid}' from='q@comp.localhost/x'>"
        "<received/></iq>"
    )
    answer = await alice.next()
    assert answer.tag == f"{CLIENT}iq"
    assert answer[0].tag == f"{CLIENT}received"
    assert answer.get("from") == "q@comp.localhost/x"
    # An explicitly named namespace is translated as well, and an error comes back.
    comp.send(
        f"<message xmlns='jabber:client' to='{alice.jid}' from='comp.localhost'/>"
    )
    assert (await alice.next()).tag == f"{CLIENT}message"
    comp.send("<iq type='get' id='2' to='bob@localhost/1' from='a@comp.localhost/b'/>")
    refused = await comp.next()
    assert refused.tag == f"{COMPONENT}iq"
    assert refused.get("to") == "a@comp.localhost/b"
    assert condition(refused) == ("cancel", "service-unavailable")
    comp.send("<message id='3' from='comp.localhost'/>")
    assert condition(await comp.next()) == ("modify", "bad-request")
    comp.send("<message from='alice@localhost' to='bob@localhost'/>")
    assert await comp.end() == "invalid-from"


async def test_presence_and_probes_reach_a_component(
    start: Start, stack: AsyncExitStack
) -> None:
    server = await start(rosters={"alice": {"comp.localhost": "both"}})
    comp = await component(server, stack)
    alice = await stack.enter_async_context(Raw(server.port))
    await alice.login("alice", "1")
    alice.send("<presence/>")
    assert {(await comp.until("presence")).get("type") for _ in range(2)} == {
        None,
        "probe",
    }
    comp.send("<presence type='probe' from='comp.localhost' to='alice@localhost'/>")
    assert (await comp.next()).get("from") == alice.jid
    server.disconnect("alice@localhost")
    assert (await comp.next()).get("type") == "unavailable"


async def test_a_component_speaks_of_nothing_but_stanzas(
    server: LoopbackServer, stack: AsyncExitStack
) -> None:
    comp = await component(server, stack)
    comp.send("<handshake/>")
    assert await comp.end() == "unsupported-stanza-type"
    wrong = await stack.enter_async_context(Raw(server.component_port))
    wrong.send(wrong.header)
    assert await wrong.end() == "invalid-namespace"


async def test_a_component_needs_its_secret_and_its_name(
    server: LoopbackServer, stack: AsyncExitStack
) -> None:
    assert await (await component(server, stack, "wrong")).end() == "not-authorized"
    first = await component(server, stack)
    await first.next()
    assert await (await component(server, stack)).end() == "conflict"
    other = await stack.enter_async_context(
        Raw(server.component_port, namespace="jabber:component:accept")
    )
    other.send(other.header)
    assert await other.end() == "host-unknown"
    assert server.disconnect("comp.localhost") == 1
    await first.end()
    assert not server.online


# ---- the link


async def talk(
    start: Start, stack: AsyncExitStack, link: Link
) -> tuple[LoopbackServer, Raw, Raw]:
    server = await start(link=link)
    alice, bob = [
        await (await stack.enter_async_context(Raw(server.port))).login(user, "1")
        for user in ("alice", "bob")
    ]
    return server, alice, bob


async def test_the_link_loses_and_doubles_by_its_seed(
    start: Start, stack: AsyncExitStack
) -> None:
    link, twin = (Link(11, loss=0.3, duplicate=0.3) for _ in range(2))
    server, alice, bob = await talk(start, stack, link)
    expected = [str(n) for n in range(200) for _ in range(twin.fate().copies)]
    for n in range(200):
        alice.send(f"<message to='{bob.jid}' id='{n}'/>")
    assert [(await bob.next()).get("id") for _ in expected] == expected
    assert link.counts == twin.counts
    assert server.counts == {"message": 200}
    # Its own answers are neither lost nor doubled.
    server.link = link = Link(1, loss=1.0)
    alice.send("<iq type='get' id='p'><ping xmlns='urn:xmpp:ping'/></iq>")
    alice.send("<iq type='get' id='q' to='no@localhost/1'/>")
    alice.send(f"<presence to='{bob.jid}'/>")
    assert (await alice.next()).get("id") == "p"
    assert (await alice.next()).get("id") == "q"
    assert (await bob.next()).tag == f"{CLIENT}presence"
    assert link.counts.stanzas == 0


async def test_the_link_treats_components_like_clients(
    start: Start, stack: AsyncExitStack
) -> None:
    server = await start(link=Link(1, duplicate=1.0))
    comp = await component(server, stack)
    await comp.next()
    alice = await stack.enter_async_context(Raw(server.port))
    await alice.login("alice", "1")
    alice.send("<message to='comp.localhost' id='1'/>")
    assert [(await comp.next()).get("id") for _ in "12"] == ["1", "1"]
    server.link = Link(1, cut=1.0)
    alice.send("<message to='comp.localhost' id='2'/>")
    await comp.end()
    alice.send("<message to='comp.localhost' id='3'/>")
    assert condition(await alice.next()) == ("wait", "service-unavailable")


@pytest.mark.looptime
async def test_a_delay_changes_the_order_but_loses_nothing(
    start: Start, stack: AsyncExitStack
) -> None:
    _, alice, bob = await talk(start, stack, Link(5, delay_s=(0.0, 30.0)))
    for n in range(50):
        alice.send(f"<message to='{bob.jid}' id='{n}'/>")
    order = [int((await bob.next()).attrib["id"]) for _ in range(50)]
    assert sorted(order) == list(range(50))
    assert order != list(range(50))


@pytest.mark.looptime
async def test_what_is_delayed_until_the_receiver_has_gone_is_refused(
    start: Start, stack: AsyncExitStack
) -> None:
    server, alice, bob = await talk(start, stack, Link(5, delay_s=(30.0, 30.0)))
    alice.send(f"<iq type='get' id='1' to='{bob.jid}'/>")
    alice.send("<iq type='get' id='0'><ping xmlns='urn:xmpp:ping'/></iq>")
    assert (await alice.next()).get("id") == "0"  # so it has got the first as well
    server.disconnect(bob.jid)
    assert condition(await alice.next()) == ("cancel", "service-unavailable")


async def test_a_cut_ends_the_receivers_connection_and_nothing_else(
    start: Start, stack: AsyncExitStack
) -> None:
    server, alice, bob = await talk(start, stack, Link(1, cut=1.0))
    alice.send(f"<iq type='get' id='1' to='{bob.jid}'/>")
    alice.send(f"<iq type='get' id='2' to='{bob.jid}'/>")
    assert await bob.end() is None
    refused = await alice.next()
    assert refused.get("id") == "2"
    assert condition(refused) == ("cancel", "service-unavailable")
    assert server.online == {alice.jid}
    again = await stack.enter_async_context(Raw(server.port))
    assert (await again.login("bob", "1")).jid == bob.jid


async def test_what_survives_a_cut_is_handed_over_before_it(
    start: Start, stack: AsyncExitStack
) -> None:
    seed = next(n for n in range(100) if not Link(n, cut=1.0).fate().lost)
    _, alice, bob = await talk(start, stack, Link(seed, cut=1.0))
    alice.send(f"<message to='{bob.jid}' id='1'/>")
    assert (await bob.next()).get("id") == "1"
    assert await bob.end() is None


# ---- hygiene


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><presence/>", "not-well-formed"),
        ("<message><?php x ?></message>", "restricted-xml"),
        ("<message><!-- x --></message>", "restricted-xml"),
        ("<message>&a;</message>", "restricted-xml"),
        ("<message></iq>", "not-well-formed"),
        ("<x:message/>", "not-well-formed"),
        ("hello", "bad-format"),
        ("<a>" * 100, "policy-violation"),
        ("<message>" + "x" * 300_000, "policy-violation"),
        ("<message>" + "x" * 300_000 + "</message>", "policy-violation"),
        ("<foo xmlns='urn:foo'/>", "unsupported-stanza-type"),
        ("<foo/>", "unsupported-stanza-type"),
    ],
)
async def test_what_is_not_allowed_ends_the_stream_of_who_sent_it_only(
    login: Login, text: str, expected: str
) -> None:
    alice, bob = await login("alice"), await login("bob")
    alice.send(text)
    assert await alice.end() == expected
    bob.send("<iq type='get' id='1'><ping xmlns='urn:xmpp:ping'/></iq>")
    assert (await bob.next()).get("type") == "result"


async def test_a_dtd_is_refused_at_the_first_word(raw: Raw) -> None:
    raw.send("<!DOCTYPE x [<!ENTITY a 'b'>]>" + raw.header)
    assert await raw.end() == "restricted-xml"


async def test_a_stanza_of_nearly_the_limit_passes(login: Login) -> None:
    alice, bob = await login("alice"), await login("bob")
    body = "x" * (256 * 1024 - 100)
    alice.send(f"<message to='{bob.jid}'><body>{body}</body></message>")
    assert (await bob.next()).findtext(f"{CLIENT}body") == body


async def test_the_limit_can_be_set(start: Start, stack: AsyncExitStack) -> None:
    server = await start(stanza_bytes_max=1000)
    raw = await stack.enter_async_context(Raw(server.port))
    await raw.login("alice")
    raw.send("<message>" + "x" * 1000 + "</message>")
    assert await raw.end() == "policy-violation"


async def test_directed_presence_is_remembered_for_so_many_and_no_more(
    login: Login,
) -> None:
    alice = await login("alice")
    for n in range(1001):
        alice.send(f"<presence to='bob@localhost/{n}'/>")
    assert condition(await alice.next()) == ("wait", "resource-constraint")


async def test_a_client_that_does_not_read_is_cut_off(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qos.testing.session.OUTGOING_BYTES_MAX", 100_000)
    alice, bob = await login("alice"), await login("bob")
    message = f"<message to='{bob.jid}'>{'x' * 100_000}</message>"

    async def flood() -> None:
        while True:
            alice.send(message)
            await alice._writer.drain()

    flooding = asyncio.create_task(flood())
    assert condition(await alice.next()) == ("cancel", "service-unavailable")
    flooding.cancel()


async def test_what_a_link_holds_back_has_an_end(
    start: Start, stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qos.testing.routing.DELAYED_BYTES_MAX", 10_000)
    _, alice, bob = await talk(start, stack, Link(1, delay_s=(60.0, 60.0)))
    for _ in range(11):
        alice.send(f"<message to='{bob.jid}'>{'x' * 1000}</message>")
    assert await alice.end() == "resource-constraint"


# ---- the life of the server


async def test_it_says_goodbye_and_comes_back_on_the_same_ports(
    server: LoopbackServer, stack: AsyncExitStack, login: Login
) -> None:
    alice, idle = (
        await login("alice"),
        await stack.enter_async_context(Raw(server.port)),
    )
    ports = server.port, server.component_port
    await server.stop()
    assert await alice.end() == "system-shutdown"
    assert await idle.end() == "system-shutdown"
    assert not server.online
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(server.host, server.port)
    await server.start()
    assert (server.port, server.component_port) == ports
    with pytest.raises(RuntimeError, match="started"):
        await server.start()
    again = await login("alice")
    await server.restart()
    assert await again.end() == "system-shutdown"
    assert (await login("alice")).jid == alice.jid


async def test_stopping_does_not_wait_for_who_does_not_read(
    server: LoopbackServer, login: Login
) -> None:
    alice, bob = await login("alice"), await login("bob")
    bob._writer.transport.pause_reading()  # type: ignore[attr-defined]  # it has it
    for _ in range(100):
        alice.send(f"<message to='{bob.jid}'>{'x' * 200_000}</message>")
        await alice._writer.drain()
    alice.send("<iq type='get' id='1'><ping xmlns='urn:xmpp:ping'/></iq>")
    await alice.next()
    async with limit():
        await server.stop()


async def test_a_port_that_is_taken_is_an_error_that_leaves_nothing_behind(
    server: LoopbackServer,
) -> None:
    for port, component_port in ((server.port, 0), (0, server.component_port)):
        other = LoopbackServer(
            accounts=ACCOUNTS, port=port, component_port=component_port
        )
        with pytest.raises(OSError, match="address already in use"):
            await other.start()
        assert not other._listeners


async def test_disconnect_cuts_without_a_word(
    server: LoopbackServer, login: Login
) -> None:
    one, two = await login("alice", "1"), await login("alice", "2")
    other = await login("bob")
    assert server.disconnect("alice@localhost/none") == 0
    assert server.disconnect("alice@localhost") == 2
    assert await one.end() is None
    assert await two.end() is None
    assert server.online == {other.jid}


# ---- slixmpp, unmodified


def new_slix(
    stack: AsyncExitStack, jid: str, password: str, mechanism: str | None = None
) -> ClientXMPP:
    client = ClientXMPP(
        jid,
        password,
        plugin_config={
            "feature_mechanisms": {
                "unencrypted_plain": True,
                "unencrypted_scram": True,
                "use_mech": mechanism,
            }
        },
    )
    client.enable_plaintext = True
    client.enable_starttls = False
    client.enable_direct_tls = False

    async def close() -> None:
        await client.disconnect(ignore_send_queue=True)

    stack.push_async_callback(close)
    return client


async def online(client: ClientXMPP | ComponentXMPP, host: str, port: int) -> None:
    started = asyncio.get_running_loop().create_future()
    client.add_event_handler("session_start", started.set_result, disposable=True)
    client.connect(host, port)
    await asyncio.wait_for(started, LIMIT_S)


async def slix(
    server: LoopbackServer,
    stack: AsyncExitStack,
    jid: str,
    mechanism: str | None = None,
) -> ClientXMPP:
    client = new_slix(stack, jid, ACCOUNTS[JID(jid).user], mechanism)
    await online(client, server.host, server.port)
    return client


async def test_slixmpp_clients_exchange_messages_presence_and_iqs(
    start: Start, stack: AsyncExitStack
) -> None:
    server = await start(rosters={"alice": {"bob@localhost": "both"}})
    alice = await slix(server, stack, "alice@localhost/1")
    bob = await slix(server, stack, "bob@localhost/1")
    loop = asyncio.get_running_loop()
    came, seen = loop.create_future(), loop.create_future()
    bob.add_event_handler("message", came.set_result)

    def notice(presence: Any) -> None:
        if presence["from"] == alice.boundjid and not seen.done():
            seen.set_result(presence)

    bob.add_event_handler("presence_available", notice)
    for client in (alice, bob):
        client.register_plugin("xep_0030")
        client.register_plugin("xep_0199")
        await client.get_roster()
        client.send_presence()
    assert alice.client_roster["bob@localhost"]["subscription"] == "both"
    await asyncio.wait_for(seen, LIMIT_S)
    alice.send_message(mto=JID("bob@localhost"), mbody="Grüße & <x/>")
    message = await asyncio.wait_for(came, LIMIT_S)
    assert (message["from"], message["body"]) == (alice.boundjid, "Grüße & <x/>")
    for jid in ("localhost", "bob@localhost", "bob@localhost/1"):
        info = await alice.plugin["xep_0030"].get_info(jid=JID(jid))
        assert info["disco_info"]["identities"]
        await alice.plugin["xep_0199"].send_ping(JID(jid))
    with pytest.raises(IqError) as caught:
        await alice.plugin["xep_0199"].send_ping(JID("bob@localhost/gone"))
    assert caught.value.condition == "service-unavailable"
    assert caught.value.iq["from"] == JID("bob@localhost/gone")


async def test_a_slixmpp_component_answers_a_slixmpp_client(
    server: LoopbackServer, stack: AsyncExitStack
) -> None:
    alice = await slix(server, stack, "alice@localhost/1")
    comp = ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp has no types here
        "comp.localhost", "hush", server.host, server.component_port
    )
    stack.push_async_callback(lambda: comp.disconnect(ignore_send_queue=True))

    comp.register_plugin("xep_0199")
    alice.register_plugin("xep_0199")
    await online(comp, server.host, server.component_port)
    await alice.plugin["xep_0199"].send_ping(JID("x@comp.localhost/y"))
    await comp.plugin["xep_0199"].send_ping(
        JID("alice@localhost/1"), ifrom=JID("comp.localhost")
    )
    came = asyncio.get_running_loop().create_future()
    comp.add_event_handler("message", came.set_result)
    alice.send_message(mto=JID("q@comp.localhost"), mbody="on")
    message = await asyncio.wait_for(came, LIMIT_S)
    assert message["body"] == "on"


async def test_a_slixmpp_client_that_was_cut_off_logs_in_again(
    server: LoopbackServer, stack: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    alice = await slix(server, stack, "alice@localhost/1")
    for _ in range(3):
        gone = asyncio.get_running_loop().create_future()
        alice.add_event_handler("disconnected", gone.set_result, disposable=True)
        assert server.disconnect("alice@localhost/1") == 1
        await asyncio.wait_for(gone, LIMIT_S)
        await online(alice, server.host, server.port)
        assert server.online == {"alice@localhost/1"}
