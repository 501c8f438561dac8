"""An attacker on the network path, who writes anything but cannot break TLS.

He writes before the features of the first stream, and right behind `<proceed/>`, in one
piece with it. Data over TLS comes from the real server.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP, ComponentXMPP
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

import qos
from clients import connected_client
from proxy import Injection, LinkFault, Proxy
from qos.core.message.model import NAMESPACES
from qos.stream.closing import close
from qos.testing.prosody import Prosody, mutual
from waiting import LIMIT_S, limit
from xep_qos import XEP_QOS

QOS = NAMESPACES[0]
SM = "urn:xmpp:sm:3"
BOSS = "from='boss@localhost/1' to='lamp@localhost/1'"
INNER = "<message xmlns='jabber:client'><body>forged</body></message>"

#: Stanzas that have an effect if they are believed.
FORGED = (
    f"<message {BOSS}><body>forged</body></message>"
    f"<iq type='set' id='1' {BOSS}>"
    f"<acknowledged xmlns='{QOS}' msgId='1'>{INNER}</acknowledged></iq>"
    f"<iq type='set' id='2' {BOSS}>"
    f"<assured xmlns='{QOS}' msgId='2'>{INNER}</assured></iq>"
    f"<iq type='set' id='3' {BOSS}><deliver xmlns='{QOS}' msgId='2'/></iq>"
    f"<iq type='get' id='4' {BOSS}><query xmlns='jabber:iq:version'/></iq>"
    f"<presence {BOSS} type='subscribe'/>"
    f"<resumed xmlns='{SM}' previd='1' h='0'/><r xmlns='{SM}'/>"
    "<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>"
).encode()

HEADER = (
    b"<?xml version='1.0'?><stream:stream from='localhost' version='1.0' id='1'"
    b" xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
)
FEATURES = (
    b"<stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"
    b"</stream:features>"
)
PROCEED = b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>"

BEFORE = Injection(re.compile(b"<stream:features"), FORGED)
BEHIND = Injection(re.compile(b"<proceed[^>]*/>"), FORGED, behind=True)


@dataclass
class Attacker:
    """A server run by the attacker, without TLS.

    Attributes:
        said: his answers to a stream header and to `<starttls/>`.
        heard: everything that was sent to him in the clear.
    """

    said: tuple[bytes, bytes]
    heard: bytes = b""
    proceeded: asyncio.Event = field(default_factory=asyncio.Event)

    async def talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b">")
            writer.write(self.said[0])
            with contextlib.suppress(asyncio.IncompleteReadError):
                self.heard += await reader.readuntil(b"<starttls")
                await reader.readuntil(b">")
                writer.write(self.said[1])
            # The beginning of the TLS handshake, which he cannot read.
            assert (await reader.read(10_000)).startswith(b"\x16")
            self.proceeded.set()
        writer.close()


@contextlib.asynccontextmanager
async def attacked(attacker: Attacker) -> AsyncIterator[int]:
    server = await asyncio.start_server(attacker.talk, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


@pytest.fixture
async def device() -> AsyncIterator[ClientXMPP]:
    """A client with the plugin and nothing else of ours."""
    client = ClientXMPP("lamp@localhost/1", "secret")
    client.enable_direct_tls = False
    client.register_plugin("xep_0198")
    client.register_plugin("xep_0092")
    client.register_plugin("xep_qos", {"trust": "anyone"})
    yield client
    await close(client)


@pytest.fixture
def handed_over(device: ClientXMPP) -> list[str]:
    """The stanzas that its handlers get."""
    return record(device)


def record(client: ClientXMPP) -> list[str]:
    given: list[str] = []
    for name in ("message", "presence", "iq"):
        matcher = MatchXPath(f"{{jabber:client}}{name}")
        client.register_handler(
            Callback(f"test {name}", matcher, lambda stanza: given.append(str(stanza)))
        )
    for event in ("session_start", "session_resumed", "session_bind"):
        client.add_event_handler(event, lambda _, event=event: given.append(event))
    return given


@pytest.mark.parametrize(
    "said",
    [
        (HEADER + FORGED + FEATURES, PROCEED),
        (HEADER + FEATURES, PROCEED + FORGED),
        (HEADER + FEATURES, FORGED + PROCEED),
        (HEADER + FEATURES, PROCEED + PROCEED + FORGED),
    ],
    ids=["before features", "behind proceed", "before proceed", "proceed twice"],
)
async def test_what_comes_before_tls_reaches_no_handler(
    said: tuple[bytes, bytes], device: ClientXMPP, handed_over: list[str]
) -> None:
    """Only the offer of TLS is answered."""
    attacker = Attacker(said)
    async with attacked(attacker) as port, limit():
        device.add_event_handler("ssl_invalid_chain", lambda _: device.abort())
        gone = asyncio.ensure_future(device.wait_until("disconnected", LIMIT_S))
        device.connect("127.0.0.1", port)
        await attacker.proceeded.wait()
        await gone
    assert handed_over == []
    for stanza in (b"<iq", b"<message", b"<presence", b"<a ", b"<auth"):
        assert stanza not in attacker.heard


async def test_no_session_comes_of_a_bind_that_is_offered_without_tls(
    device: ClientXMPP, handed_over: list[str]
) -> None:
    """slixmpp binds wherever that is offered; outstanding messages would be sent."""
    bind = b"<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>"
    features = FEATURES.replace(
        b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>", bind
    )
    heard = bytearray()
    bound = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b">")
        writer.write(HEADER + features)
        request = await reader.readuntil(b"</iq>")
        (iq_id,) = re.findall(rb'id="([^"]+)"', request)
        writer.write(
            b"<iq type='result' id='%s'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>"
            b"<jid>lamp@localhost/1</jid></bind></iq></stream:stream>" % iq_id
        )
        bound.set()
        heard.extend(await reader.read())
        writer.close()

    await XEP_QOS.of(device).submit(device.make_message("boss@localhost/1", "secret"))
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with limit():
        gone = asyncio.ensure_future(device.wait_until("disconnected", LIMIT_S))
        device.connect("127.0.0.1", server.sockets[0].getsockname()[1])
        await bound.wait()
        await gone
    server.close()
    assert handed_over == []
    assert b"<message" not in heard
    assert b"secret" not in heard


@pytest.fixture
async def prosody(tmp_path: Path) -> AsyncIterator[Prosody]:
    accounts = {"lamp": "secret", "boss": "secret"}
    folder = tmp_path / "prosody"
    folder.mkdir()
    async with Prosody(
        folder, accounts=accounts, rosters=mutual(("lamp", "boss")), tls=True
    ) as prosody:
        yield prosody


@pytest.mark.xmpp
@pytest.mark.parametrize("injection", [BEFORE, BEHIND], ids=["before", "behind"])
async def test_a_client_gets_its_session_and_only_what_is_over_tls(
    injection: Injection, prosody: Prosody
) -> None:
    """On the first connection, and on the next, where a session is resumed."""
    async with Proxy(prosody.c2s_port, seed=1) as proxy:
        proxy.injections = (injection,)
        client = ClientXMPP("lamp@localhost/1", "secret")
        client.ca_certs = prosody.ca_file
        client.enable_direct_tls = False
        client.auto_authorize = None
        client.register_plugin("xep_0198")
        client.register_plugin("xep_qos", {"trust": "anyone"})
        given = record(client)
        try:
            for event in ("session_start", "session_resumed"):
                before = proxy.injected
                client.connect("127.0.0.1", proxy.port)
                await client.wait_until(event, LIMIT_S)
                assert proxy.injected == before + 1
                await one_message(prosody, client)
                gone = asyncio.ensure_future(client.wait_until("disconnected", LIMIT_S))
                client.abort()
                await gone
        finally:
            await close(client)
    assert not [each for each in given if "forged" in each or "subscribe" in each]


async def one_message(prosody: Prosody, client: ClientXMPP) -> None:
    """A message over TLS is handed over."""
    got = asyncio.ensure_future(client.wait_until("message", LIMIT_S))
    async with connected_client(
        prosody, "boss/1", {"xep_qos": {}}, tls="starttls"
    ) as boss:
        boss.send_message(client.boundjid, "over TLS")
        assert (await got)["body"] == "over TLS"


@pytest.mark.xmpp
@pytest.mark.parametrize("stream_management", [True, False])
async def test_a_device_gets_only_what_is_over_tls(
    stream_management: bool, prosody: Prosody
) -> None:
    """With both injections, on the first connection and on the next."""
    async with Proxy(prosody.c2s_port, seed=1) as proxy:
        proxy.injections = (BEFORE, BEHIND)
        async with qos.connect(
            "lamp@localhost/1",
            "secret",
            host="127.0.0.1",
            port=proxy.port,
            ca_file=prosody.ca_file,
            stream_management=stream_management,
            store="memory:",
            trust="anyone",
            retry_first_s=0.1,
            retry_max_s=0.3,
        ) as lamp:
            given = record(lamp.client)
            messages = lamp.messages()
            for connections in (1, 2):
                assert proxy.injected == 2 * connections
                await one_message(prosody, lamp.client)
                async with limit():
                    assert (await anext(messages))["body"] == "over TLS"
                again = "session_resumed" if stream_management else "session_start"
                back = asyncio.ensure_future(lamp.client.wait_until(again, LIMIT_S))
                await proxy.inflict(LinkFault.CUT, 0)
                await back
    assert not [each for each in given if "forged" in each or "subscribe" in each]


async def test_a_component_hands_over_nothing_before_its_handshake() -> None:
    """XEP-0114 has no TLS.

    But only the answer to the handshake is accepted before it.
    """
    component = ComponentXMPP("queue.localhost", "secret", "127.0.0.1", 1)  # type: ignore[no-untyped-call]  # slixmpp's lack
    component.enable_direct_tls = False
    component.register_plugin("xep_qos", {"trust": "anyone"})
    given: list[str] = []
    component.add_event_handler(
        "message", lambda message: given.append(message["body"])
    )

    def message(body: str) -> bytes:
        return (
            f"<message from='boss@localhost/1' to='queue.localhost'><body>{body}</body>"
            "</message>"
        ).encode()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b">")
        header = HEADER.replace(b"jabber:client", b"jabber:component:accept")
        writer.write(header + message("before"))
        await reader.readuntil(b"</handshake>")
        writer.write(b"<handshake/>" + message("behind"))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        got = asyncio.ensure_future(component.wait_until("message", LIMIT_S))
        component.connect("127.0.0.1", server.sockets[0].getsockname()[1])
        await got
        assert given == ["behind"]
    finally:
        await close(component)
        server.close()


def test_the_forged_stanzas_are_well_formed() -> None:
    """Otherwise the tests above would pass for another reason."""
    stream = ET.fromstring(HEADER + FORGED + b"</stream:stream>")  # noqa: S314 - ours
    assert [child.tag.partition("}")[2] for child in stream] == [
        *("message", "iq", "iq", "iq", "iq", "presence", "resumed", "r", "success")
    ]
