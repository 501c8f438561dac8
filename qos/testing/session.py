"""The connections of the embedded server: of a client, or of a component (XEP-0114).

They handle streams, logins and bytes; the router handles the stanzas.
"""

import asyncio
import hashlib
import hmac
import secrets
from typing import ClassVar, cast
from xml.sax.saxutils import escape, quoteattr

from qos.core.strings import domain_of
from qos.testing import sasl
from qos.testing.accounts import Account
from qos.testing.routing import SESSION, Router
from qos.testing.stream import (
    CLIENT,
    COMPONENT,
    STREAM_ERRORS,
    STREAMS,
    Broken,
    Closed,
    Opened,
    Stanza,
    StreamReader,
)

SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
BIND = "urn:ietf:params:xml:ns:xmpp-bind"

# A client that does not read is cut off before it fills the memory.
OUTGOING_BYTES_MAX = 64 * 1024 * 1024
# RFC 6120 §6.4.5: at least 2 and no more than 5 retries.
LOGIN_ATTEMPTS_MAX = 5
# Seconds that the peer has to close after our last data. We read on meanwhile: closing
# over unread bytes would send a reset, and a reset can overtake the last data.
LINGER_S = 1.0
# RFC 7622 §3.4.
RESOURCE_BYTES_MAX = 1023


class Connection(asyncio.Protocol):
    """The common part of clients and components: a stream in each direction."""

    namespace: ClassVar[str]

    def __init__(self, router: Router, *, stanza_bytes_max: int) -> None:
        self._router = router
        self._stanza_bytes_max = stanza_bytes_max
        # None after the stream has ended: nothing is accepted or sent any more.
        self._reader: StreamReader | None = StreamReader(
            stanza_bytes_max=stanza_bytes_max
        )
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._outgoing: list[bytes] = []
        self._header_sent = False
        self._linger: asyncio.TimerHandle | None = None
        self.gone: asyncio.Future[None] = self._loop.create_future()

    def send(self, data: bytes) -> None:
        """Write soon, together with other data.

        Has no effect after the stream has ended.
        """
        if self._reader is not None:
            if not self._outgoing:
                self._loop.call_soon(self.flush)
            self._outgoing.append(data)

    def flush(self) -> None:
        """Write all waiting data now."""
        transport = self._transport
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        if data and transport is not None and not transport.is_closing():
            transport.write(data)
            if transport.get_write_buffer_size() > OUTGOING_BYTES_MAX:
                self.abort()

    def end(self, condition: str | None = None, *, linger: bool = True) -> None:
        """Close the stream, with a stream error if there is a ``condition``.

        Args:
            condition: An RFC 6120 §4.9.3 condition; None for a normal end.
            linger: Wait for the peer to close first, for at most ``LINGER_S``.
        """
        if self._reader is None:
            return
        if not self._header_sent:
            self._send_header({})
        if condition is not None:
            self.send(
                f"<stream:error><{condition} xmlns='{STREAM_ERRORS}'/></stream:error>".encode()
            )
        self.send(b"</stream:stream>")
        self._reader = None
        self._left()
        self.flush()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._linger = self._loop.call_later(LINGER_S, transport.abort)
        if linger:
            transport.write_eof()
        else:
            transport.close()

    def abort(self) -> None:
        """Drop the TCP connection without closing the stream, as a bad network does."""
        self._reader = None
        self._left()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; called by asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        if self._router.stopped:
            self.abort()
        self._router.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Handle data; called by asyncio."""
        reader = self._reader
        for event in reader.feed(data) if reader else ():
            # Data that a peer sends before its stream is restarted is lost.
            if reader is not self._reader:
                return
            match event:
                case Opened():
                    self._opened(event)
                case Stanza():
                    self._received(event)
                case Closed():
                    self.end()
                case Broken(condition):
                    self.end(condition)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up; called by asyncio."""
        self._reader = None
        self._left()
        if self._linger is not None:
            self._linger.cancel()
        self._router.connections.discard(self)
        self.gone.set_result(None)

    def _restart(self) -> None:
        self._reader = StreamReader(stanza_bytes_max=self._stanza_bytes_max)
        self._header_sent = False

    def _send_header(self, attributes: dict[str, str]) -> None:
        self._header_sent = True
        self.send(
            f"<?xml version='1.0'?><stream:stream xmlns='{self.namespace}' "
            f"xmlns:stream='{STREAMS}'{_written(attributes)}>".encode()
        )

    def _opened(self, stream: Opened) -> None:
        raise NotImplementedError

    def _received(self, stanza: Stanza) -> None:
        raise NotImplementedError

    def _left(self) -> None:
        """Tell the router that the session has ended; may be called more than once."""
        raise NotImplementedError


class ClientSession(Connection):
    """A client connection from its first byte to its last; see ClientPeer."""

    namespace = CLIENT

    def __init__(self, router: Router, *, stanza_bytes_max: int) -> None:
        super().__init__(router, stanza_bytes_max=stanza_bytes_max)
        self.jid = ""
        self.account: Account | None = None
        self.presence: Stanza | None = None
        self.priority = 0
        self.directed: set[str] = set()
        self.interested = False
        self._exchange: sasl.Exchange | None = None
        self._attempts = 0

    def _opened(self, stream: Opened) -> None:
        domain = self._router.domain
        self._send_header(
            {
                "from": domain,
                "id": secrets.token_hex(8),
                "version": "1.0",
                "xml:lang": "en",
            }
        )
        if stream.content_namespace not in (None, STREAMS, CLIENT):
            self.end("invalid-namespace")
        elif stream.attributes.get("to", domain).lower() != domain:
            self.end("host-unknown")
        elif self.account is None:
            offered = "".join(
                f"<mechanism>{name}</mechanism>" for name in sasl.MECHANISMS
            )
            self.send(
                f"<stream:features><mechanisms xmlns='{SASL}'>{offered}</mechanisms>"
                "</stream:features>".encode()
            )
        else:
            self.send(
                f"<stream:features><bind xmlns='{BIND}'/>"
                f"<session xmlns='{SESSION}'><optional/></session>"
                "</stream:features>".encode()
            )

    def _received(self, stanza: Stanza) -> None:
        if self.jid:
            if stanza.namespace == CLIENT and stanza.name in _KINDS:
                self._router.accept(self, self.jid, stanza)
            else:
                self.end("unsupported-stanza-type")
        elif self.account is not None:
            self._bind(stanza)
        elif stanza.namespace == SASL:
            self._authenticate(stanza)
        else:
            self.end("not-authorized")

    def _authenticate(self, stanza: Stanza) -> None:
        try:
            match stanza.name:
                case "auth":
                    mechanism = stanza.attributes.get("mechanism", "")
                    if mechanism not in sasl.MECHANISMS:
                        raise sasl.SaslFailure("invalid-mechanism")
                    passwords = self._router.passwords
                    self._exchange = sasl.MECHANISMS[mechanism](passwords)
                    challenge = next(self._exchange)
                    answered = bool(stanza.tree.text)
                case "response" if self._exchange is not None:
                    answered = True
                case "abort":
                    raise sasl.SaslFailure("aborted")
                case _:
                    raise sasl.SaslFailure("malformed-request")
            if answered:
                challenge = self._exchange.send(sasl.decode(stanza.tree.text or ""))
            self._send_sasl("challenge", challenge)
        except StopIteration as stop:
            success: sasl.Success = stop.value
            self.account = self._router.accounts[success.username]
            self._send_sasl("success", success.data)
            self._restart()
        except sasl.SaslFailure as failure:
            self._exchange = None
            self._attempts += 1
            self._send_sasl("failure", f"<{failure.condition}/>")
            if self._attempts >= LOGIN_ATTEMPTS_MAX:
                self.end("policy-violation")

    def _send_sasl(self, name: str, content: bytes | str) -> None:
        if isinstance(content, bytes):
            content = sasl.encode(content) if content else ""
        self.send(f"<{name} xmlns='{SASL}'>{content}</{name}>".encode())

    def _bind(self, stanza: Stanza) -> None:
        if (stanza.name, stanza.type, stanza.payload) != ("iq", "set", (BIND, "bind")):
            self.end("not-authorized")
            return
        assert self.account is not None
        proposal = stanza.tree.findtext(f"{{{BIND}}}bind/{{{BIND}}}resource")
        resource = proposal or secrets.token_hex(8)
        answer = {"id": stanza.attributes.get("id", "")}
        if len(resource.encode()) > RESOURCE_BYTES_MAX:
            self.send(
                f"<iq type='error'{_written(answer)}><error type='modify'><bad-request "
                "xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>".encode()
            )
            return
        self.jid = f"{self.account.jid}/{resource}"
        self._router.bind(self)
        self.send(
            f"<iq type='result'{_written(answer)}><bind xmlns='{BIND}'>"
            f"<jid>{escape(self.jid)}</jid></bind></iq>".encode()
        )

    def _left(self) -> None:
        self._router.client_left(self)


class ComponentSession(Connection):
    """A component connection: it logs in with a secret and acts for a whole domain."""

    namespace = COMPONENT

    def __init__(self, router: Router, *, stanza_bytes_max: int) -> None:
        super().__init__(router, stanza_bytes_max=stanza_bytes_max)
        self.domain = ""
        self._stream_id = secrets.token_hex(8)
        self._accepted = False

    def _opened(self, stream: Opened) -> None:
        self.domain = stream.attributes.get("to", "").lower()
        self._send_header({"from": self.domain, "id": self._stream_id})
        if stream.content_namespace not in (None, STREAMS, COMPONENT):
            self.end("invalid-namespace")
        elif self.domain not in self._router.secrets:
            self.end("host-unknown")

    def _received(self, stanza: Stanza) -> None:
        if not self._accepted:
            self._handshake(stanza)
            return
        if stanza.namespace not in (COMPONENT, CLIENT) or stanza.name not in _KINDS:
            self.end("unsupported-stanza-type")
            return
        sender = stanza.attributes.get("from", self.domain)
        if domain_of(sender).lower() != self.domain:
            self.end("invalid-from")
            return
        self._router.accept(self, sender, stanza)

    def _handshake(self, stanza: Stanza) -> None:
        secret = self._stream_id + self._router.secrets[self.domain]
        expected = hashlib.sha1(secret.encode(), usedforsecurity=False).hexdigest()
        digest = (stanza.tree.text or "").strip().lower()
        if stanza.name != "handshake" or not hmac.compare_digest(
            digest.encode(), expected.encode()
        ):
            self.end("not-authorized")
        elif self.domain in self._router.components:
            self.end("conflict")
        else:
            self._accepted = True
            self._router.components[self.domain] = self
            self.send(b"<handshake/>")

    def _left(self) -> None:
        if self._accepted:
            self._accepted = False
            del self._router.components[self.domain]


_KINDS = frozenset({"message", "presence", "iq"})


def _written(attributes: dict[str, str]) -> str:
    return "".join(f" {name}={quoteattr(text)}" for name, text in attributes.items())
