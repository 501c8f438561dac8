"""A negotiation of features ends with its connection (RFC 6120 §4.3).

The server of these tests dies between `<resume/>` (XEP-0198 §5) and its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import pytest
import slixmpp.xmlstream
from slixmpp import ClientXMPP

from qos.stream.gate import Gate
from qos.testing.clients import close, new_client
from waiting import LIMIT_S

SM = "urn:xmpp:sm:3"
STREAM = (
    "<?xml version='1.0'?><stream:stream from='localhost' id='1' version='1.0' "
    "xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
    "<stream:features>{}</stream:features>"
)
SASL = (
    "<mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>"
    "<mechanism>PLAIN</mechanism></mechanisms>"
)
BIND = f"<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/><sm xmlns='{SM}'/>"
BOUND = (
    "<iq type='result' id='{}'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>"
    "<jid>bob@localhost/b</jid></bind></iq>"
)
#: What begins a stream or is a whole request, in the order of its beginning.
REQUEST = re.compile(rb"<stream:stream|<auth[^>]*>|<resume[^>]*>|<enable |<iq.*?</iq>")


class ForgetfulServer:
    """A server that knows no stream to resume, and dies when one is asked for.

    Attributes:
        connections: what each connection has asked for, by the names of the elements.
        dies_at_resume: as often is a connection cut instead of an answer.
    """

    def __init__(self, dies_at_resume: int) -> None:
        self.connections: list[list[str]] = []
        self.dies_at_resume = dies_at_resume
        self._writers: list[asyncio.StreamWriter] = []

    async def talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        asked: list[str] = []
        self.connections.append(asked)
        self._writers.append(writer)
        unread = b""
        while data := await reader.read(10_000):
            unread += data
            for found in REQUEST.finditer(unread):
                asked.append(re.findall(r"[\w:]+", found[0].decode())[0])
                answer = self._answer(asked, found[0].decode())
                if answer is None:
                    self.dies_at_resume -= 1
                    self.cut()
                    return
                writer.write(answer.encode())
                unread = unread[unread.index(found[0]) + len(found[0]) :]

        writer.close()

    def cut(self) -> None:
        """Close the last connection."""
        self._writers[-1].close()

    def _answer(self, asked: list[str], request: str) -> str | None:
        match asked[-1]:
            case "stream:stream":
                return STREAM.format(BIND if "auth" in asked else SASL)
            case "auth":
                return "<success xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>"
            case "enable":
                return f"<enabled xmlns='{SM}' id='1' resume='true'/>"
            case "resume":
                return None if self.dies_at_resume else f"<failed xmlns='{SM}'/>"
        identity = re.search(r"""\bid=["']([^"']+)""", request)
        assert identity
        if "xmpp-bind" in request:
            asked[-1] = "bind"
            return BOUND.format(identity[1])
        return f"<iq type='result' id='{identity[1]}'/>"


@contextlib.asynccontextmanager
async def serving(server: ForgetfulServer) -> AsyncIterator[int]:
    listener = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    try:
        yield listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        server.cut()


@pytest.fixture
async def client() -> AsyncIterator[ClientXMPP]:
    client = new_client("bob@localhost/b", "secret", {"xep_0198": {}})
    client.plugin["feature_mechanisms"].unencrypted_plain = True
    Gate.of(client)
    yield client
    await close(client)


async def connect(client: ClientXMPP, port: int, until: str) -> None:
    happened = asyncio.ensure_future(client.wait_until(until, LIMIT_S))
    client.connect("127.0.0.1", port)
    await happened


@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_login_that_lost_its_connection_does_not_go_on_in_the_next(
    client: ClientXMPP, monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    """slixmpp's would take the next answer for its own, and bind a second time."""
    monkeypatch.setattr(slixmpp.xmlstream, "RESPONSE_TIMEOUT", 0.2)
    server = ForgetfulServer(deaths)
    events: list[str] = []
    async with serving(server) as port:
        await connect(client, port, "sm_enabled")
        gone = asyncio.ensure_future(client.wait_until("disconnected", LIMIT_S))
        server.cut()
        await gone
        for _ in range(deaths):
            await connect(client, port, "disconnected")
        for event in ("session_start", "session_end"):
            client.add_event_handler(event, lambda _, event=event: events.append(event))
        await connect(client, port, "sm_enabled")
        # Until a login that still waits for an answer would have given up, by the clock
        # of the loop.
        await asyncio.sleep(1.0)
        assert server.connections[-1].count("bind") == 1
        assert server.connections[-1].count("enable") == 1
        # The old session ends, and the new one begins.
        assert events == ["session_end", "session_start"]
        assert client.plugin["xep_0198"].enabled_in
