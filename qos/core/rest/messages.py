"""An HTTP message as a queue item, and a queue item as an HTTP message.

A body is kept byte for byte. A body that is an XML element, and can be in a stanza as it
is, is the payload itself. Any other body is stored as `qos.core.opaque_body` says. If such
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
from qos.core.amqp.message_ids import CORRELATION_ID
from qos.core.amqp.messages import NAMESPACE as AMQP_NAMESPACE
from qos.core.opaque_body import BODY, NAMESPACE, is_header_value, unwrap, wrap
from qos.core.queue.item import PRIORITIES, Item
from qos.core.queue.properties import (
    XML_PREFIX,
    Properties,
    content_digest,
    properties_size,
    why_not,
)
from qos.core.queue.requests import PublishedItem, Refusal
from qos.core.rest.link_header import OWN_RELS, Link, read_links, render_links
from qos.core.rest.msg_properties import read_properties, render_properties
from qos.core.rest.replying import QUERY, read_correlation
from qos.core.strings import utf8_size
from qos.xml_text import XML_NAMESPACE, render

__all__ = [
    "CONTENT_TYPE_MAX",
    "TIME_MS_MAX",
    "is_utf8",
    "payload_of",
    "read_message",
    "render_headers",
    "render_message",
    "ttl_of",
]

#: The characters of a header that is kept: it stays in memory with the item.
CONTENT_TYPE_MAX = 1024

#: Milliseconds of a ttl or a delay: ten years, as in XEP-0254 requests.
TIME_MS_MAX = 10 * 365 * 24 * 3600 * 1000

#: The headers that are kept, and the properties that they become.
_KEPT = {
    "content-type": "http_content$type",
    "content-encoding": "http_content$encoding",
    "content-language": "http_content$language",
    "link": "http_link",
}

_TYPE = _KEPT["content-type"]
_XML_TYPE = "application/xml"

#: Namespaces that the element of a payload cannot have.
_RESERVED = tuple(f"{{{each}}}" for each in (NAMESPACE, AMQP_NAMESPACE, XML_NAMESPACE))

_NOT_UTF8 = re.compile(r"charset\s*=\s*\"?(?!utf-?8\b|us-ascii\b)", re.IGNORECASE)
#: A URL with a scheme (RFC 3986 §3.1).
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

_DECLARATION = re.compile(rb"<\?xml [^<>]*\?>\s*")


# -- from a publisher ------------------------------------------------------


def read_message(
    body: bytes,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    *,
    item_id: str,
    now: float,
    bytes_max: int,
    more: Properties | None = None,
) -> PublishedItem:
    """Read an HTTP message as an item to publish.

    Args:
        body: as it came.
        headers: by their names in lower case.
        query: `priority` (0 to 9), `ttl` and `delay` (ms), `expiration` (ms since 1970,
            which wins over ttl), `correlation-id`; others have other meanings.
        item_id: of the item.
        now: the time.
        bytes_max: the most bytes of a payload and its properties.
        more: properties that the dialect reads from other headers.

    Raises:
        Refusal: a header or a parameter is wrong, or all is too large.
    """
    kept = {name: headers[name].strip() for name in _KEPT if headers.get(name)}
    for name, value in kept.items():
        if len(value) > CONTENT_TYPE_MAX or not is_header_value(value):
            raise _bad(f"{name}: at most {CONTENT_TYPE_MAX} characters of ASCII")
    properties = {
        **(more or {}),
        **read_properties(headers.get("msg-properties", "")),
        **{_KEPT[name]: value for name, value in kept.items()},
    }
    if QUERY in query:
        properties[CORRELATION_ID] = read_correlation(query[QUERY])
    why = why_not(properties)
    if why is not None:
        raise _bad(f"Msg-Properties, with Content-Type: {why}")
    payload = payload_of(body, kept.get("content-type", ""), plain=len(kept) < 2)
    size = utf8_size(payload) + properties_size(properties)
    if size > bytes_max:
        raise Refusal(
            f"the message takes {size} bytes as an item, over the limit of {bytes_max}",
            condition="not-acceptable",
            type="modify",
            pubsub="payload-too-big",
        )
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


def payload_of(body: bytes, content_type: str, *, plain: bool) -> str:
    """The payload.

    Args:
        body: of the message.
        content_type: its type, or ''.
        plain: there is no Content-Encoding or anything else that would change it.
    """
    readable = ""
    if plain and _is_xml(content_type):
        element, readable = _element(body)
        if element is not None and _may_be_payload(body, element):
            return body.decode()
    return wrap(body, content_type, readable)


def _is_xml(content_type: str) -> bool:
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip().lower()
    is_xml = kind in {_XML_TYPE, "text/xml"} or kind.endswith("+xml")
    return is_xml and is_utf8(parameters)


def is_utf8(parameters: str) -> bool:
    """Whether the parameters of a media type name no other charset than UTF-8."""
    return not _NOT_UTF8.search(parameters)


def _element(body: bytes) -> tuple[ET.Element | None, str]:
    """The element in a body, and how it is written as a child of ours.

    None: it is not XML, or has declarations of its own.
    """
    declaration = _DECLARATION.match(body)
    content = body[declaration.end() if declaration else 0 :]
    # No DTD is ever parsed: its entities could be of any size.
    if not content.startswith(b"<") or b"<!" in content or b"<?" in content:
        return None, ""
    outer = ET.Element(BODY)
    try:
        outer.append(ET.fromstring(content.decode()))  # noqa: S314 - no DTD
        rendered = render(outer)
    except (ET.ParseError, ValueError):
        return None, ""
    return outer[0], rendered[rendered.index(">") + 1 : rendered.rindex("<")]


def _may_be_payload(body: bytes, element: ET.Element) -> bool:
    """Whether the bytes of the body stay the same if the element is a child of another one."""
    return (
        body[:2] != b"<?"
        and body.endswith(b">")
        # A stream would turn it into a line feed.
        and b"\r" not in body
        # A child without a namespace would get that of its parent.
        and all(each.tag.startswith("{") for each in element.iter())
        # Readers would take it for a body that `wrap` or the AMQP gateway has written.
        and not element.tag.startswith(_RESERVED)
    )


# -- to a consumer ---------------------------------------------------------


def render_message(item: Item, payload: str) -> tuple[bytes, dict[str, str]]:
    """The body of an item, and the headers that it was posted with.

    Args:
        item: in any state.
        payload: of the item.
    """
    kept = {
        name: value
        for name, key in _KEPT.items()
        if isinstance(value := item.properties.get(key), str) and is_header_value(value)
    }
    links = _of_publisher(kept.pop("link", ""))
    if links:
        kept["link"] = links
    if not payload:
        return b"", kept
    found = unwrap(payload) or body_of(payload)
    if found is not None:
        body, media_type = found
        kept.setdefault("content-type", media_type)
        return body, kept
    if not _is_xml(kept.get("content-type", "")):
        kept["content-type"] = _XML_TYPE
    return payload.encode(), kept


def _of_publisher(links: str) -> str:
    """The links of a publisher, without the relations that only the service may give.

    A consumer would follow them with its password.
    """
    return render_links(
        each for each in read_links(links) if each.rel and _is_publisher_s(each)
    )


def _is_publisher_s(link: Link) -> bool:
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
    shown = render_properties(_own(item.properties))
    if shown:
        headers["Msg-Properties"] = shown
    return headers


def _own(properties: Properties) -> Properties:
    """The properties for `Msg-Properties`: without those that have a header or are of the payload."""
    return {
        name: value
        for name, value in properties.items()
        if name not in _KEPT.values() and not name.startswith(XML_PREFIX)
    }
