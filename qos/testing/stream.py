"""An XML stream of XMPP (RFC 6120 §4), read from bytes: sans-I/O, hardened, and quick.

A stanza that is passed on is never made into a tree. expat checks every byte, and finds
the beginning and end of the stanza. Then only its start tag is written anew, and its
content goes out as it came in. Two things make that correct. Prefixes that were
declared on the stream's root are declared again on the stanza. The default namespace of
the content (``jabber:client`` on one stream and ``jabber:component:accept`` on another)
is left to the stream it goes out on.
"""

import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from functools import cached_property
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

STREAMS = "http://etherx.jabber.org/streams"
CLIENT = "jabber:client"
COMPONENT = "jabber:component:accept"
STREAM_ERRORS = "urn:ietf:params:xml:ns:xmpp-streams"

# Prosody's default for clients.
STANZA_BYTES_MAX = 256 * 1024
# Far above any real stanza, far below the depth that a recursive reader cannot take.
DEPTH_MAX = 64

# Only ever used on tags that expat has found well-formed.
_START_TAG = re.compile(rb"""<([^\s/>]++)((?:[^"'>]++|"[^"]*+"|'[^']*+')*+)>""")
_ATTRIBUTE = re.compile(rb"""([^\s=]++)\s*+=\s*+("[^"]*+"|'[^']*+')""")
_NOT_UTF_8 = re.compile(rb"[\x00\xfe\xff]")
_WHITESPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer has opened its stream."""

    attributes: dict[str, str]
    content_namespace: str | None


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer has closed its stream."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The peer broke a rule; ``condition`` is the stream error to send.

    The last event.
    """

    condition: str


class Stanza:
    """A child of a stream's root: a stanza, or an element of the login.

    Attributes:
        namespace: Of the element itself.
        name: Its local name.
        attributes: Attributes without a prefix; unescaped.
        payload: ``(namespace, local name)`` of its first child element, if any.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        attributes: dict[str, str],
        *,
        payload: tuple[str, str] | None = None,
        tag: "_StartTag | None" = None,
        content: bytes = b"",
        inherited: "_Declarations | None" = None,
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.attributes = attributes
        self.payload = payload
        self._tag = tag
        self._content = content
        self._inherited = inherited or {}

    @property
    def to(self) -> str | None:
        """The address, as the sender wrote it."""
        return self.attributes.get("to")

    @property
    def type(self) -> str | None:
        """The attribute ``type``."""
        return self.attributes.get("type")

    @property
    def size(self) -> int:
        """Its size in bytes, approximately."""
        return len(self._content) + (len(self._tag.text) if self._tag else 0)

    def render(
        self, *, sender: str, to: str | None = None, namespace: str = CLIENT
    ) -> bytes:
        """Write the stanza for a stream whose content namespace is ``namespace``.

        Args:
            sender: The value of ``from``, whatever the peer wrote there.
            to: The value of ``to``; None keeps what the peer wrote.
            namespace: Content in the content namespace of the stream on which the
                stanza came is moved to this namespace.
        """
        to = self.to if to is None else to
        addresses = f" from={quoteattr(sender)}".encode()
        if to is not None:
            addresses += f" to={quoteattr(to)}".encode()
        if self._tag is None:  # made by the server itself
            rest = "".join(
                f" {name}={quoteattr(value)}"
                for name, value in self.attributes.items()
                if name not in ("from", "to")
            ).encode()
            return _element(self.name.encode(), addresses + rest, self._content)

        prefix = self._tag.name.rpartition(b":")[0]
        declarations: _Declarations = {}
        for name, value in self._inherited.items():
            if name and (name + b":" in self._content or name + b":" in self._tag.text):
                declarations[name] = value
        for name, value in self._tag.declarations.items():
            if name:
                declarations[name] = value
        if prefix:
            # The default namespace may then be any, and the content may depend on it.
            default = self._tag.declarations.get(b"", self._inherited.get(b"", b'""'))
            declarations[b""] = default
            declarations[prefix] = quoteattr(namespace).encode()
        attributes = b"".join(
            b" xmlns%s=%s" % (b":" + name if name else b"", value)
            for name, value in declarations.items()
        ) + b"".join(
            b" %s=%s" % pair
            for pair in self._tag.attributes
            if pair[0] not in (b"from", b"to")
        )
        return _element(self._tag.name, addresses + attributes, self._content)

    @cached_property
    def tree(self) -> ET.Element:
        """The stanza as a tree whose content namespace is ``jabber:client``."""
        return _parsed(self.render(sender=""), CLIENT)


class StreamReader:
    """Reads one stream; after a stream restart, take a new one.

    Refused are the things that RFC 6120 §11.1 forbids (comments, processing
    instructions, DTDs, entity references), text between stanzas, stanzas over
    ``stanza_bytes_max``, and elements nested more than ``DEPTH_MAX`` deep. So it never
    holds more than one stanza and one ``feed``.
    """

    def __init__(self, *, stanza_bytes_max: int = STANZA_BYTES_MAX) -> None:
        parser = expat.ParserCreate("UTF-8", " ")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = self._restricted
        parser.ProcessingInstructionHandler = self._restricted
        parser.CommentHandler = self._restricted
        # Expat 2.6 would wait for more bytes before it looks again at a tag that came
        # in pieces; here the peer may send no more until it has an answer.
        if hasattr(parser, "SetReparseDeferralEnabled"):
            parser.SetReparseDeferralEnabled(False)
        self._parser = parser
        self._stanza_bytes_max = stanza_bytes_max
        self._events: list[Opened | Stanza | Closed | Broken] = []
        self._buffer = bytearray()
        self._base = 0  # where in the stream the buffer begins
        self._kept = 0  # where in the stream the first byte still needed is
        self._depth = 0
        self._declarations: _Declarations = {}
        self._begin = 0
        self._name = ""
        self._attributes: dict[str, str] = {}
        self._payload: str | None = None

    def feed(self, data: bytes) -> list[Opened | Stanza | Closed | Broken]:
        """Take bytes as they come; return the events that they completed, in order."""
        self._buffer += data
        try:
            # Even when told UTF-8, expat would accept UTF-16, and count in its bytes.
            if self._depth == 0 and _NOT_UTF_8.search(self._buffer, 0, 2):
                raise _Refused("unsupported-encoding")
            self._parser.Parse(data, False)
            self._forget()
        except expat.ExpatError as error:
            undefined = expat.errors.codes[expat.errors.XML_ERROR_UNDEFINED_ENTITY]
            self._events.append(
                Broken(
                    "restricted-xml" if error.code == undefined else "not-well-formed"
                )
            )
        except _Refused as refused:
            self._events.append(Broken(refused.condition))
        events, self._events = self._events, []
        return events

    def _forget(self) -> None:
        """Drop bytes that are done with, and refuse a stanza that is too large."""
        del self._buffer[: self._kept - self._base]
        self._base = self._kept
        if self._depth <= 1:
            rest = self._buffer.lstrip(_WHITESPACE)
            self._kept += len(self._buffer) - len(rest)
            self._base, self._buffer = self._kept, rest
            if self._depth == 1 and rest and not rest.startswith(b"<"):
                raise _Refused("bad-format")
        if len(self._buffer) > self._stanza_bytes_max:
            raise _Refused("policy-violation")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 3 and self._payload is None:
            self._payload = name
        elif self._depth == 2:
            self._begin = self._parser.CurrentByteIndex
            between = self._buffer[self._kept - self._base : self._begin - self._base]
            if between.strip(_WHITESPACE):
                raise _Refused("bad-format")
            self._name, self._attributes, self._payload = name, attributes, None
        elif self._depth == 1:
            self._open(name, attributes)
        elif self._depth > DEPTH_MAX:
            raise _Refused("policy-violation")

    def _open(self, name: str, attributes: dict[str, str]) -> None:
        if _split(name) != (STREAMS, "stream"):
            raise _Refused("invalid-namespace")
        tag = _StartTag(self._buffer, self._parser.CurrentByteIndex - self._base)
        self._kept = self._base + tag.end
        self._declarations = tag.declarations
        # This server declares it with exactly this meaning on all its streams.
        if self._declarations.get(b"stream", b"")[1:-1] == STREAMS.encode():
            del self._declarations[b"stream"]
        default = tag.declarations.get(b"")
        self._events.append(
            Opened(attributes, default[1:-1].decode() if default else None)
        )

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._depth == 1:
            begin = self._begin - self._base
            end = self._parser.CurrentByteIndex - self._base
            tag = _StartTag(self._buffer, begin)
            if tag.empty:
                content = b""
                end = tag.end
            else:
                content = bytes(self._buffer[tag.end : end])
                end = self._buffer.index(b">", end) + 1
            if end - begin > self._stanza_bytes_max:
                raise _Refused("policy-violation")
            self._kept = self._base + end
            stanza = Stanza(
                *_split(self._name),
                self._attributes,
                payload=_split(self._payload) if self._payload else None,
                tag=tag,
                content=content,
                inherited=self._declarations,
            )
            if b":" in tag.name:
                _check_prefixed(stanza)
            self._events.append(stanza)
        elif self._depth == 0:
            self._events.append(Closed())

    def _restricted(self, *_: object) -> None:
        raise _Refused("restricted-xml")


# Raw and quoted, by prefix; the prefix of the default namespace is empty.
_Declarations = dict[bytes, bytes]


class _StartTag:
    """A start tag of ``buffer``, split into its raw parts."""

    __slots__ = ("attributes", "declarations", "empty", "end", "name", "text")

    def __init__(self, buffer: bytearray, begin: int) -> None:
        match = _START_TAG.match(buffer, begin)
        assert match is not None, "expat saw a start tag here"
        self.end = match.end()
        self.name: bytes = match[1]
        self.text: bytes = match[2]
        self.empty = self.text.endswith(b"/")
        self.attributes: list[tuple[bytes, bytes]] = []
        self.declarations: _Declarations = {}
        for name, value in _ATTRIBUTE.findall(self.text):
            if name == b"xmlns":
                self.declarations[b""] = value
            elif name.startswith(b"xmlns:"):
                self.declarations[name[6:]] = value
            else:
                self.attributes.append((name, value))


class _Refused(Exception):
    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


def _parsed(stanza: bytes, namespace: str) -> ET.Element:
    """Parse a stanza as it stands on a stream with this content namespace."""
    # Safe: StreamReader has refused DTDs, so there are no entities, and the size is
    # limited.
    return ET.fromstring(  # noqa: S314
        b"<root xmlns='%s' xmlns:stream='%s'>%s</root>"
        % (namespace.encode(), STREAMS.encode(), stanza)
    )[0]


def _check_prefixed(stanza: Stanza) -> None:
    """Refuse a stanza of which two attributes become equal with a new prefix.

    That needs prefixes for both content namespaces, so it is rare and may be slow. The
    default namespace does not apply to attributes: a stanza without a prefix is safe.
    """
    try:
        for namespace in (CLIENT, COMPONENT):
            _parsed(stanza.render(sender="", namespace=namespace), namespace)
    except ET.ParseError:
        raise _Refused("bad-format") from None


def _split(name: str) -> tuple[str, str]:
    """Split expat's "namespace local-name"."""
    namespace, _, local = name.rpartition(" ")
    return namespace, local


def _element(name: bytes, attributes: bytes, content: bytes) -> bytes:
    if not content:
        return b"<%s%s/>" % (name, attributes)
    return b"<%s%s>%s</%s>" % (name, attributes, content, name)
