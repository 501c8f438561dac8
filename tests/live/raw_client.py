"""XMPP by hand: the stanzas that a client without our code and without slixmpp sees.

It sends the strings that it is given, well-formed or not, and keeps every received
stanza until a test asks for it. It never answers by itself.
"""

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ClassVar, Final, Self, cast
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

from waiting import LIMIT_S, limit

STREAMS = "http://etherx.jabber.org/streams"
SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
BIND = "urn:ietf:params:xml:ns:xmpp-bind"

#: For the other end to close its stream, too. Without that the connection is cut, which
#: is the same to every test.
_CLOSE_S_MAX: Final = 1.0

_EVENTS: Final = ("start", "end")

Predicate = Callable[[ET.Element], bool]


class StreamClosed(ConnectionError):
    """The stream ended before the expected stanza came."""


def local(element: ET.Element) -> str:
    """The element's name without its namespace."""
    return element.tag.rpartition("}")[2]


def stanza(name: str, **attributes: str) -> Predicate:
    """Match a stanza by its local name and the given attributes.

    `from` is a keyword of Python: write `from_`.
    """
    wanted = {key.rstrip("_"): value for key, value in attributes.items()}

    def matches(element: ET.Element) -> bool:
        return local(element) == name and wanted.items() <= element.attrib.items()

    return matches


class _RawStream:
    """One XML stream: sends strings, receives elements."""

    namespace: ClassVar[str]

    def __init__(self, jid: str, *, host: str, port: int) -> None:
        self.jid = jid
        self._host = host
        self._port = port
        self._stanzas: list[ET.Element] = []
        self._changed = asyncio.Event()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._parser: ET.XMLPullParser[ET.Element] = ET.XMLPullParser(_EVENTS)
        self._root: ET.Element | None = None
        self._depth = 0

    @property
    def closed(self) -> bool:
        """Whether the server has ended the stream or the connection."""
        return self._reading is None or self._reading.done()

    async def send(self, xml: str) -> None:
        """Write this text to the connection, unchanged."""
        assert self._writer is not None
        self._writer.write(xml.encode())
        await self._writer.drain()

    async def expect(
        self, predicate: Predicate, *, timeout_s: float | None = LIMIT_S
    ) -> ET.Element:
        """Take the first stanza that matches; the others stay for later calls.

        Args:
            predicate: what matches.
            timeout_s: None: wait for ever, as a task does that only answers.

        Raises:
            TimeoutError: Naming the stanzas that did come.
            StreamClosed: Likewise, with the stream's error if there was one.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    for index, element in enumerate(self._stanzas):
                        if predicate(element):
                            return self._stanzas.pop(index)
                    if self.closed:
                        raise StreamClosed(self._describe("the stream has ended"))
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(self._describe(f"nothing in {timeout_s} s")) from None

    def received(self, predicate: Predicate = lambda _: True) -> list[ET.Element]:
        """All received stanzas that `expect` has not taken; they stay.

        To prove that a stanza did *not* come, first exchange a ping with the server, or
        another stanza that must come after it.
        """
        return [element for element in self._stanzas if predicate(element)]

    async def wait_closed(self, *, timeout_s: float = LIMIT_S) -> None:
        """Return when the server has ended the stream or the connection."""
        assert self._reading is not None
        async with asyncio.timeout(timeout_s):
            await asyncio.shield(self._reading)

    async def close(self) -> None:
        """End the stream, if it is still open, and the connection."""
        if not self.closed:
            with contextlib.suppress(OSError, TimeoutError):
                await self.send("</stream:stream>")
                await self.wait_closed(timeout_s=_CLOSE_S_MAX)
        await self.cut()

    async def cut(self) -> None:
        """Close the connection without closing the stream, as a crash would."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        if self._writer is not None:
            self._writer.transport.abort()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.cut()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        raise NotImplementedError

    async def _open_connection(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(
            self._host, self._port
        )
        self._reading = asyncio.create_task(self._read())

    async def _open_stream(self, to: str, version: str = "") -> None:
        """Begin a stream, or begin it again after a login."""
        self._parser = ET.XMLPullParser(_EVENTS)
        self._root = None
        self._depth = 0
        await self.send(
            f"<?xml version='1.0'?><stream:stream to={quoteattr(to)} {version}"
            f" xmlns='{self.namespace}' xmlns:stream='{STREAMS}'>"
        )

    async def _read(self) -> None:
        """Read until the end of the stream or of the connection."""
        assert self._reader is not None
        try:
            with contextlib.suppress(OSError):
                while data := await self._reader.read(65_536):
                    self._parser.feed(data)
                    if hasattr(self._parser, "flush"):  # Expat 2.6 would defer a tag
                        self._parser.flush()
                    if self._take_events():
                        return
        finally:
            self._changed.set()

    def _take_events(self) -> bool:
        """Store the stanzas that are complete; returns whether the stream ended."""
        # All data belongs to this parser: `_open_stream` cannot replace it in between,
        # since nothing here waits.
        events = cast("Iterator[tuple[str, ET.Element]]", self._parser.read_events())
        for event, element in events:
            if event == "start":
                if self._depth == 0:
                    self._root = element
                self._depth += 1
                continue
            self._depth -= 1
            if self._depth == 0:
                return True
            if self._depth == 1:
                assert self._root is not None
                self._root.remove(element)
                self._stanzas.append(element)
        self._changed.set()
        return False

    def _describe(self, text: str) -> str:
        seen = [ET.tostring(element, encoding="unicode") for element in self._stanzas]
        return "\n".join([f"{self.jid}: {text}; not yet taken: {len(seen)}", *seen])


class RawClient(_RawStream):
    """A client: log in with SASL PLAIN on a plain connection, bind, then all by hand.

    Args:
        jid: With a resource to ask for it, without to let the server choose. `jid` is
            the full JID once connected.
        password: Sent in the clear.
        host: The server's address.
        port: Its port for clients.
    """

    namespace = "jabber:client"

    def __init__(
        self, jid: str, password: str, *, port: int, host: str = "127.0.0.1"
    ) -> None:
        super().__init__(jid, host=host, port=port)
        self._password = password

    async def connect(self) -> None:
        """Log in and bind; no presence is sent and no roster fetched.

        Raises:
            PermissionError: The server refused the password.
        """
        bare, _, resource = self.jid.partition("/")
        user, _, domain = bare.partition("@")
        await self._open_connection()
        await self._open_stream(domain, "version='1.0'")
        await self.expect(stanza("features"))
        token = base64.b64encode(f"\0{user}\0{self._password}".encode()).decode()
        await self.send(f"<auth xmlns='{SASL}' mechanism='PLAIN'>{token}</auth>")
        answer = await self.expect(
            lambda element: element.tag.startswith(f"{{{SASL}}}")
        )
        if local(answer) != "success":
            raise PermissionError(ET.tostring(answer, encoding="unicode"))
        await self._open_stream(domain, "version='1.0'")
        await self.expect(stanza("features"))
        wish = f"<resource>{escape(resource)}</resource>" if resource else ""
        await self.send(
            f"<iq type='set' id='bind'><bind xmlns='{BIND}'>{wish}</bind></iq>"
        )
        answer = await self.expect(stanza("iq", id="bind"))
        bound = answer.findtext(f"{{{BIND}}}bind/{{{BIND}}}jid")
        if bound is None:
            raise ConnectionError(ET.tostring(answer, encoding="unicode"))
        self.jid = bound

    async def send_presence(self, xml: str = "") -> None:
        """Become available, with this XML in the presence.

        Returns when the server has it.
        """
        await self.send(f"<presence>{xml}</presence>")
        await self.expect(stanza("presence", from_=self.jid))

    async def ping(self) -> None:
        """Return when the server has handled everything that was sent before
        (XEP-0199).
        """
        await self.send("<iq type='get' id='p'><ping xmlns='urn:xmpp:ping'/></iq>")
        await self.expect(stanza("iq", id="p"))


class RawComponent(_RawStream):
    """A component (XEP-0114): it does the handshake; the rest is done by hand."""

    namespace = "jabber:component:accept"

    def __init__(
        self, jid: str, secret: str, *, port: int, host: str = "127.0.0.1"
    ) -> None:
        super().__init__(jid, host=host, port=port)
        self._secret = secret

    async def connect(self) -> None:
        """Log in.

        Raises `StreamClosed` when the server refuses the secret.
        """
        await self._open_connection()
        await self._open_stream(self.jid)
        stream_id = await self._stream_id()
        # XEP-0114 §3: the SHA-1 hash of the stream id and the secret.
        token = hashlib.sha1((stream_id + self._secret).encode()).hexdigest()  # noqa: S324
        await self.send(f"<handshake>{token}</handshake>")
        await self.expect(stanza("handshake"))

    async def _stream_id(self) -> str:
        async with limit():
            while self._root is None:
                if self.closed:
                    raise StreamClosed(self._describe("no stream header came"))
                self._changed.clear()
                await self._changed.wait()
        return self._root.attrib["id"]
