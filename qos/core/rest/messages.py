"""An HTTP message as a queue item, and a queue item as an HTTP message.

A body is kept byte for byte. A body that is an XML element, and can be in a stanza as it
is, is the payload itself. JSON is what XMPP calls JSON (XEP-0335). Any other body is stored as `qos.core.contents` says. If such
a body is XML too (with a declaration, or without a namespace), XMPP workers get it as an
element beside the bytes. The headers that are kept are properties of the item, so that
selectors can read them: `Content-Type` is `http_content$type`, as in HornetQ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import formatdate
from xml.etree import ElementTree as ET

from qos.core.amqp.bodies import body_of
from qos.core.amqp.item_rendering import NAMESPACE as AMQP_NAMESPACE
from qos.core.amqp.message_ids import CORRELATION_ID
from qos.core.content_headers import KEPT, why_no_header
from qos.core.contents import (
    BODY,
    BODY_NAMESPACE,
    NAMESPACES,
    content_of,
    is_json,
    json_payload_of,
    wrap,
)
from qos.core.queue.item import PRIORITIES, Item
from qos.core.queue.properties import (
    HOPS,
    XML_PREFIX,
    Properties,
    content_digest,
    hops_of,
    properties_size,
    why_not,
)
from qos.core.queue.requests import PublishedItem, Refusal
from qos.core.rest.link_header import OWN_RELS, Link, read_links, render_links
from qos.core.rest.msg_properties import read_properties, render_properties
from qos.core.rest.replying import QUERY, read_correlation
from qos.core.strings import utf8_size
from qos.steps import Steps
from qos.xml_reading import Document, parsing
from qos.xml_text import XML_NAMESPACE, rendering

__all__ = [
    "TIME_MS_MAX",
    "is_utf8",
    "reading_message",
    "reading_payload",
    "render_headers",
    "render_message",
    "ttl_of",
]

#: Milliseconds of a ttl or a delay: ten years, as in XEP-0254 requests.
TIME_MS_MAX = 10 * 365 * 24 * 3600 * 1000

#: The largest count of hops in a header; far fewer are possible.
_HOPS_MAX = 9999

#: Properties that are no part of `Msg-Properties`.
_OWN_HEADERS = frozenset({*KEPT.values(), HOPS})

_XML_TYPE = "application/xml"

#: Namespaces that the element of a payload cannot have.
_RESERVED = tuple(
    f"{{{each}}}"
    for each in (BODY_NAMESPACE, AMQP_NAMESPACE, XML_NAMESPACE, *NAMESPACES)
)

_NOT_UTF8 = re.compile(r"charset\s*=\s*\"?(?!utf-?8\b|us-ascii\b)", re.IGNORECASE)
#: A URL with a scheme (RFC 3986 §3.1).
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

# The parts of a publisher's link. Many clients split a header at each `;` and `,`: to them
# `<http://x/;rel=acknowledgement>; rel="up"` has the relation of a link of ours.
_HREF = re.compile(r"[A-Za-z0-9!#$%&()*+./:=?@\[\]_~-]*")
_RELS = re.compile(r"[a-z0-9!#$%&*+./:?@_~ -]+")
_LINK_TYPE = re.compile(r"(?:[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+)?")

#: Bytes that `wrap` adds to a body, beside a third of it.
_WRAPPED_BYTES = 60

_DECLARATION = re.compile(rb"<\?xml [^<>]*\?>\s*")


# -- from a publisher ------------------------------------------------------


def reading_message(
    body: bytes,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    *,
    item_id: str,
    now: float,
    bytes_max: int,
    more: Properties | None = None,
) -> Steps[PublishedItem]:
    """Read an HTTP message as an item to publish, in steps.

    Args:
        body: as it came.
        headers: by their names in lower case; `msg-hops` is how often another service
            says that the message was forwarded (`qos.core.queue.properties.HOPS`).
        query: `priority` (0 to 9), `ttl` and `delay` (ms), `expiration` (ms since 1970,
            which wins over ttl), `correlation-id`; others have other meanings.
        item_id: of the item.
        now: the time.
        bytes_max: the most bytes of a payload and its properties.
        more: properties that the dialect reads from other headers.

    Raises:
        Refusal: a header or a parameter is wrong, or all is too large.
    """
    content_headers = {
        name: headers[name].strip() for name in KEPT if headers.get(name)
    }
    properties = _properties(headers, content_headers, query, more or {})
    payload = yield from reading_payload(
        body, content_headers.get("content-type", ""), plain=len(content_headers) < 2
    )
    size = utf8_size(payload) + properties_size(properties)
    _check_size(size, bytes_max)
    return PublishedItem(
        item_id=item_id,
        payload=payload,
        digest=content_digest(payload.encode(), properties),
        size=size,
        priority=_number(query, "priority", PRIORITIES[0], PRIORITIES[-1]),
        ttl=ttl_of(query, now),
        delay=(_number(query, "delay", 0, TIME_MS_MAX) or 0) / 1000,
        properties=properties,
    )


def _properties(
    headers: Mapping[str, str],
    content_headers: Mapping[str, str],
    query: Mapping[str, str],
    more: Properties,
) -> Properties:
    for name, value in content_headers.items():
        if wrong := why_no_header(KEPT[name], value):
            raise _bad(wrong)
    properties = {
        **more,
        **read_properties(headers.get("msg-properties", "")),
        **{KEPT[name]: value for name, value in content_headers.items()},
    }
    if "msg-hops" in headers:
        properties[HOPS] = _number(headers, "msg-hops", 0, _HOPS_MAX) or 0
    if QUERY in query:
        properties[CORRELATION_ID] = read_correlation(query[QUERY])
    why = why_not(properties)
    if why is not None:
        raise _bad(f"Msg-Properties, with Content-Type: {why}")
    return properties


def _check_size(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise Refusal(
            f"the message takes {size} bytes as an item, over the limit of {bytes_max}",
            condition="not-acceptable",
            type="modify",
            pubsub="payload-too-big",
        )


def _bad(why: str) -> Refusal:
    return Refusal(why, condition="bad-request", type="modify")


def _number(query: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    digits = text.isascii() and text.isdecimal() and len(text) <= len(str(most))
    if not (digits and least <= int(text) <= most):
        raise _bad(f"{name}: {least} to {most} is expected, not {text[:20]!r}")
    return int(text)


def ttl_of(query: Mapping[str, str], now: float) -> float | None:
    """The seconds until a message expires, by its query; None: not given.

    Raises:
        Refusal: `ttl` or `expiration` is wrong.
    """
    ttl_ms = _number(query, "ttl", 1, TIME_MS_MAX)
    now_ms = int(1000 * now)
    at_ms = _number(query, "expiration", now_ms + 1, now_ms + TIME_MS_MAX)
    if at_ms is not None:
        return at_ms / 1000 - now
    return None if ttl_ms is None else ttl_ms / 1000


def reading_payload(body: bytes, content_type: str, *, plain: bool) -> Steps[str]:
    """The payload, in steps.

    Args:
        body: of the message.
        content_type: its type, or ''.
        plain: there is no Content-Encoding or anything else that would change it.
    """
    readable = ""
    if plain and is_json(content_type):
        payload = _json_payload(body)
        # With many characters that XML has to escape it could be five times as long.
        if payload and len(payload) <= len(body) * 4 // 3 + _WRAPPED_BYTES:
            return payload
    if plain and _is_xml(content_type):
        document = yield from _document(body)
        if document is not None and _may_be_payload(body, document):
            return body.decode()
        if document is not None:
            readable = yield from _readable(document.root)
    return wrap(body, content_type, readable)


def _json_payload(body: bytes) -> str:
    """The payload for JSON; '': the bytes would not stay the same."""
    # A stream would turn a carriage return into a line feed, and drop mere white space.
    if b"\r" in body or not body.strip():
        return ""
    try:
        return json_payload_of(body.decode())
    except ValueError:
        return ""


def _is_xml(content_type: str) -> bool:
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip().lower()
    is_xml = kind in {_XML_TYPE, "text/xml"} or kind.endswith("+xml")
    return is_xml and is_utf8(parameters)


def is_utf8(parameters: str) -> bool:
    """Whether the parameters of a media type name no other charset than UTF-8."""
    return not _NOT_UTF8.search(parameters)


def _document(body: bytes) -> Steps[Document | None]:
    """The document in a body; None: it is not XML, or has declarations of its own."""
    declaration = _DECLARATION.match(body)
    content = body[declaration.end() if declaration else 0 :]
    # No DTD is ever parsed: its entities could be of any size.
    if not content.startswith(b"<") or b"<!" in content or b"<?" in content:
        return None
    try:
        content.decode()
        return (yield from parsing(content))
    except (ET.ParseError, ValueError):
        return None


def _readable(root: ET.Element) -> Steps[str]:
    """An element as it is written as a child of ours."""
    outer = ET.Element(BODY)
    outer.append(root)
    rendered = yield from rendering(outer)
    return rendered[rendered.index(">") + 1 : rendered.rindex("<")]


def _may_be_payload(body: bytes, document: Document) -> bool:
    """Whether the bytes of the body stay the same if its element is a child of another one."""
    return (
        body[:2] != b"<?"
        and body.endswith(b">")
        # A stream would turn it into a line feed.
        and b"\r" not in body
        # A child without a namespace would get that of its parent.
        and document.is_qualified
        # Readers would take it for a body that `wrap` or the AMQP gateway has written.
        and not document.root.tag.startswith(_RESERVED)
    )


# -- to a consumer ---------------------------------------------------------


def render_message(item: Item, payload: str) -> tuple[bytes, dict[str, str]]:
    """The body of an item, and the headers that it was posted with.

    Args:
        item: in any state.
        payload: of the item.
    """
    headers = {
        name: value
        for name, key in KEPT.items()
        if isinstance(value := item.properties.get(key), str)
        and not why_no_header(key, value)
    }
    links = _of_publisher(headers.pop("link", ""))
    if links:
        headers["link"] = links
    if not payload:
        return b"", headers
    content = content_of(payload) or body_of(payload)
    if content is not None:
        body, media_type = content
        headers.setdefault("content-type", media_type)
        return body, headers
    if not _is_xml(headers.get("content-type", "")):
        headers["content-type"] = _XML_TYPE
    return payload.encode(), headers


def _of_publisher(links: str) -> str:
    """The links of a publisher, without the relations that only the service may give.

    A consumer would follow them with its password.
    """
    return render_links(filter(_is_publisher_s, read_links(links)))


def _is_publisher_s(link: Link) -> bool:
    if not (
        _HREF.fullmatch(link.href)
        and _RELS.fullmatch(link.rel)
        and _LINK_TYPE.fullmatch(link.type)
    ):
        return False
    rels = link.rel.split()
    if "reply-to" in rels and not _ABSOLUTE.match(link.href):
        # It would lead to this service.
        return False
    return OWN_RELS.isdisjoint(rels)


def render_headers(item: Item) -> dict[str, str]:
    """The headers that tell about an item and its delivery."""
    headers = {
        "Cache-Control": "no-store",
        "Last-Modified": formatdate(item.published_at, usegmt=True),
        "Msg-Delivery-Count": str(item.delivery_count),
        "Msg-First-Acquirer": "false" if item.order else "true",
        "Msg-Priority": str(item.priority),
    }
    if item.expires_at is not None:
        headers["Expires"] = formatdate(item.expires_at, usegmt=True)
    if item.token:
        headers["Msg-Lock-Expires"] = formatdate(item.deadline, usegmt=True)
    hops = hops_of(item.properties)
    if hops:
        headers["Msg-Hops"] = str(hops)
    properties = render_properties(_own(item.properties))
    if properties:
        headers["Msg-Properties"] = properties
    return headers


def _own(properties: Properties) -> Properties:
    """The properties for `Msg-Properties`: without those that have a header or are of the payload."""
    return {
        name: value
        for name, value in properties.items()
        if name not in _OWN_HEADERS and not name.startswith(XML_PREFIX)
    }
