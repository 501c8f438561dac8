"""The document by which a client of HornetQ asks for push.

    <push-registration>
      <durable>true</durable>
      <link rel="template" href="https://example.org/orders/{id}" method="PUT"/>
      <maxRetries>5</maxRetries>
      <retryWaitMillis>2000</retryWaitMillis>
      <disableOnFailure>true</disableOnFailure>
      <authentication><digest-auth>
        <username>shop</username><password>secret</password>
      </digest-auth></authentication>
      <sessionCount>4</sessionCount>
    </push-registration>

What it leaves out is as in HornetQ, but for `disableOnFailure`: a subscriber whose
deliveries fail many times in a row is disabled, unless the document says false.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from qos.core.content_headers import is_header_value
from qos.core.queue.node_options import (
    QUEUE_REQUESTS,
    SELECTOR,
    BadOption,
    subscribe_options,
)
from qos.core.queue.push import PushSubscriber
from qos.core.queue.requests import Refusal
from qos.core.record import record
from qos.core.rest.push_links import ATOM, AtomLink, read_atom_link

__all__ = [
    "HEADERS_MAX",
    "HEADER_CHARS_MAX",
    "REGISTRATION_BYTES_MAX",
    "RETRIES_MAX",
    "RETRY_WAIT_MS_MAX",
    "SESSIONS_MAX",
    "Registration",
    "read_registration",
    "render",
]

#: The most bytes of the document.
REGISTRATION_BYTES_MAX = 16 * 1024

_XML = ("application/xml", "text/xml")

#: Of a queue, and of a topic.
_ROOTS = ("push-registration", "push-topic-registration")

#: The most headers of a registration, and the characters of one.
HEADERS_MAX = 16
HEADER_CHARS_MAX = 1024

#: The most retries of a delivery, and milliseconds before one: its message is locked for
#: all that time.
RETRIES_MAX = 100
RETRY_WAIT_MS_MAX = 300_000

#: The most messages of one push consumer that are on their way at a time.
SESSIONS_MAX = 16

#: The defaults of HornetQ.
_RETRIES = 10
_RETRY_WAIT_MS = 1000

#: The relation of a link that has none; it is a word of HornetQ's manual.
_REL = "push"

_METHODS = ("POST", "PUT")
_LINK = frozenset({"rel", "href", "type", "method"})

_BOOLEANS: Mapping[str, bool] = {"true": True, "false": False}
_NUMBER = re.compile("[0-9]{1,9}")

_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,64}")

#: Headers that say what a request is, how it is carried, or by whom.
_OURS = frozenset(
    {
        *("authorization", "connection", "content-length", "content-type", "cookie"),
        *("expect", "host", "idempotency-key", "keep-alive", "link", "msg-properties"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    }
)

_ELEMENTS = frozenset(
    {
        *("authentication", "disableOnFailure", "durable", "enabled", "header", "link"),
        *("maxRetries", "retryWaitMillis", "selector", "sessionCount"),
    }
)

_LOGINS = {"basic-auth": "Basic", "digest-auth": "Digest", "digest": "Digest"}


@record(frozen=True, slots=True, kw_only=True)
class Registration:
    """A push subscriber as its document asks for it; see PushSubscriber."""

    link: AtomLink
    method: str
    content_type: str
    selector: str
    authorization: str
    digest: str
    headers: Mapping[str, str]
    enabled: bool
    durable: bool
    sessions: int
    max_retries: int
    retry_wait_s: float
    disable_on_failure: bool | None


def read_registration(body: bytes, content_type: str) -> Registration:
    """The registration in a document.

    Raises:
        Refusal: it is no such document, or asks for what is not possible.
    """
    if content_type.partition(";")[0].strip().lower() not in _XML:
        raise Refusal(
            f"{_XML[0]} is expected", condition="unsupported-media-type", type="modify"
        )
    elements, headers = _elements(_root(body))
    if "link" not in elements:
        raise _bad("<link rel='…' href='…'/> is expected")
    link = elements["link"]
    method = link.get("method", "POST").upper()
    atom_link = _atom_link(link, method)
    login, pair = _login(elements.get("authentication"))
    disable = None
    if "disableOnFailure" in elements:
        disable = _boolean(elements, "disableOnFailure", default=False)
    wait_ms = _number(elements, "retryWaitMillis", 0, RETRY_WAIT_MS_MAX, _RETRY_WAIT_MS)
    return Registration(
        link=atom_link,
        method=method,
        content_type=_content_type(link),
        selector=_selector(elements),
        authorization=f"Basic {pair}" if login == "Basic" else "",
        digest=pair if login == "Digest" else "",
        headers=headers,
        enabled=_boolean(elements, "enabled", default=True),
        durable=_boolean(elements, "durable", default=False),
        sessions=_number(elements, "sessionCount", 1, SESSIONS_MAX, 1),
        max_retries=_number(elements, "maxRetries", 0, RETRIES_MAX, _RETRIES),
        retry_wait_s=wait_ms / 1000,
        disable_on_failure=disable,
    )


# -- reading ---------------------------------------------------------------


def _root(body: bytes) -> ET.Element:
    if len(body) > REGISTRATION_BYTES_MAX:
        raise _bad(f"it has more than {REGISTRATION_BYTES_MAX} bytes")
    # No DTD is ever parsed: its entities could be of any size.
    if b"<!D" in body or b"<!E" in body or b"\0" in body:
        raise _bad("it has a DTD, or is not UTF-8")
    try:
        root = ET.fromstring(body)  # noqa: S314 - no DTD
    except (ET.ParseError, ValueError, LookupError) as error:
        raise _bad(f"it is not well-formed: {error}") from None
    if _local(root) not in _ROOTS:
        raise _bad(f"<{_ROOTS[0]}> or <{_ROOTS[1]}> is expected")
    return root


def _elements(root: ET.Element) -> tuple[dict[str, ET.Element], dict[str, str]]:
    """The elements by name, and the headers, of which there may be several."""
    elements: dict[str, ET.Element] = {}
    headers: dict[str, str] = {}
    for element in root:
        name = _local(element)
        if name not in _ELEMENTS:
            raise _bad(f"<{name[:40]}> is not possible here")
        if name == "header":
            headers |= _header(element)
        elif name in elements:
            raise _bad(f"<{name}> is there twice")
        else:
            elements[name] = element
    if len(headers) > HEADERS_MAX:
        raise _bad(f"at most {HEADERS_MAX} headers are possible")
    return elements, headers


def _local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _text(element: ET.Element) -> str:
    return (element.text or "").strip()


def _boolean(elements: Mapping[str, ET.Element], name: str, *, default: bool) -> bool:
    if name not in elements:
        return default
    value = _text(elements[name])
    if value not in _BOOLEANS:
        raise _bad(f"{name}: true or false is expected, not {value[:40]!r}")
    return _BOOLEANS[value]


def _number(
    elements: Mapping[str, ET.Element], name: str, least: int, most: int, default: int
) -> int:
    if name not in elements:
        return default
    value = _text(elements[name])
    if not _NUMBER.fullmatch(value) or not least <= int(value) <= most:
        expected = f"a whole number from {least} to {most} is expected"
        raise _bad(f"{name}: {expected}, not {value[:40]!r}")
    return int(value)


def _selector(elements: Mapping[str, ET.Element]) -> str:
    selector = _text(elements["selector"]) if "selector" in elements else ""
    try:
        subscribe_options({QUEUE_REQUESTS: "1", SELECTOR: selector})
    except BadOption as error:
        raise _bad(str(error)) from None
    return selector


def _atom_link(element: ET.Element, method: str) -> AtomLink:
    unknown = sorted(set(element.keys()) - _LINK)
    if unknown:
        raise _bad(f"link: {unknown[0][:40]!r} is not possible here")
    plain = ET.Element("link", rel=element.get("rel") or _REL)
    plain.set("href", element.get("href", ""))
    link = read_atom_link(ET.tostring(plain), _XML[0])
    if method not in _METHODS:
        raise _bad(f"link: messages are sent by POST or PUT, not {method[:40]!r}")
    if method != "POST" and link.rel == "post-message-once":
        raise _bad("link: a one-off link takes a POST only")
    if link.rel == "template" and link.href.count("{id}") != 1:
        raise _bad("link: the href of a template has {id} once")
    return link


def _content_type(link: ET.Element) -> str:
    value = link.get("type", "").strip()
    if value and not (is_header_value(value) and len(value) <= HEADER_CHARS_MAX):
        raise _bad(f"link: a type has at most {HEADER_CHARS_MAX} characters of ASCII")
    return value


def _header(element: ET.Element) -> dict[str, str]:
    name = element.get("name", "").strip().lower()
    value = _text(element)
    if not _NAME.fullmatch(name) or name in _OURS or name.startswith("proxy-"):
        raise _bad(f"header: {name[:40]!r} cannot be set")
    if not is_header_value(value) or len(value) > HEADER_CHARS_MAX:
        raise _bad(f"header {name}: at most {HEADER_CHARS_MAX} characters of ASCII")
    return {name: value}


def _login(element: ET.Element | None) -> tuple[str, str]:
    """The kind of the login, and `user:password` in base64; '' and '': there is none."""
    if element is None:
        return "", ""
    expected = (
        "<basic-auth> or <digest-auth> with <username> and <password> is expected"
    )
    kinds = list(element)
    if len(kinds) != 1 or _local(kinds[0]) not in _LOGINS:
        raise _bad(f"authentication: {expected}")
    fields = {_local(field): field.text or "" for field in kinds[0]}
    if fields.keys() != {"username", "password"}:
        raise _bad(f"authentication: {expected}")
    user = fields["username"].strip()
    kind = _LOGINS[_local(kinds[0])]
    # RFC 7617 §2; RFC 7616 has another field for a name that is not ASCII.
    if ":" in user or (kind == "Digest" and not is_header_value(user)):
        raise _bad("authentication: this username is not possible")
    pair = f"{user}:{fields['password']}".encode()
    return kind, b64encode(pair).decode()


def _bad(why: str) -> Refusal:
    return Refusal(
        f"the push registration: {why}", condition="bad-request", type="modify"
    )


# -- writing ---------------------------------------------------------------


def render(subscriber: PushSubscriber, *, topic: bool = False) -> bytes:
    """The document that shows a push subscriber, without its password.

    Its `reason`, an element of ours, says why it is not enabled, or what failed last.
    """
    root = ET.Element(_ROOTS[topic], id=subscriber.subscriber_id)
    _add(root, "enabled", _BOOLEAN_TEXT[subscriber.enabled])
    _add(root, "durable", _BOOLEAN_TEXT[subscriber.durable])
    if subscriber.selector:
        _add(root, "selector", subscriber.selector)
    link = ET.SubElement(
        root, "link", xmlns=ATOM, rel=subscriber.rel, href=subscriber.href
    )
    if subscriber.content_type:
        link.set("type", subscriber.content_type)
    link.set("method", subscriber.method)
    _add(root, "maxRetries", str(subscriber.max_retries))
    _add(root, "retryWaitMillis", str(round(subscriber.retry_wait_s * 1000)))
    if subscriber.disable_on_failure is not None:
        _add(root, "disableOnFailure", _BOOLEAN_TEXT[subscriber.disable_on_failure])
    kind, user = _shown_login(subscriber)
    if kind:
        login = _add(_add(root, "authentication"), kind)
        _add(login, "username", _printable(user))
    for name, value in subscriber.headers.items():
        _add(root, "header", value).set("name", name)
    _add(root, "sessionCount", str(subscriber.sessions))
    if subscriber.reason:
        _add(root, "reason", _printable(subscriber.reason))
    return ET.tostring(root)


_BOOLEAN_TEXT = {value: text for text, value in _BOOLEANS.items()}


def _add(parent: ET.Element, name: str, value: str = "") -> ET.Element:
    element = ET.SubElement(parent, name)
    element.text = value
    return element


def _printable(text: str) -> str:
    """A text of others with `?` in place of what cannot be printed."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _shown_login(subscriber: PushSubscriber) -> tuple[str, str]:
    """The element of its login, and the user; '' and '': it has none, or another one."""
    scheme, _, basic = subscriber.authorization.partition(" ")
    kind, pair = "basic-auth", basic if scheme == "Basic" else ""
    if subscriber.digest:
        kind, pair = "digest-auth", subscriber.digest
    try:
        user, colon, _ = b64decode(pair, validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    return (kind, user) if colon else ("", "")
