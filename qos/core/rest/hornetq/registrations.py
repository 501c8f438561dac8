"""The document by which a client of HornetQ asks for push.

    <push-registration>
      <link rel="destination" href="https://example.org/queues/orders"/>
      <authentication><basic-auth>
        <username>shop</username><password>secret</password>
      </basic-auth></authentication>
    </push-registration>

Messages are durable, tried again with the backoff of their queue, and the subscriber is
disabled after failures: what says otherwise in detail (`durable`, `maxRetries`,
`retryWaitMillis`, `disableOnFailure`) is accepted, and ignored. What would change which
messages go where is refused if it is not possible.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from qos.core.opaque_body import is_header_value
from qos.core.queue.node_options import (
    QUEUE_REQUESTS,
    SELECTOR,
    BadOption,
    subscribe_options,
)
from qos.core.queue.requests import Refusal
from qos.core.record import record
from qos.core.rest.push_links import AtomLink, read_atom_link, render_atom_link
from qos.xml_text import text

__all__ = [
    "HEADERS_MAX",
    "HEADER_CHARS_MAX",
    "REGISTRATION_BYTES_MAX",
    "Registration",
    "read_registration",
    "render",
]

#: The most bytes of the document.
REGISTRATION_BYTES_MAX = 16 * 1024

_XML = ("application/xml", "text/xml")

#: The most headers of a registration, and the characters of one.
HEADERS_MAX = 16
HEADER_CHARS_MAX = 1024

_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,64}")

#: Headers that say what a request is, how it is carried, or by whom.
_OURS = frozenset(
    {
        *("authorization", "connection", "content-length", "content-type", "cookie"),
        *("expect", "host", "idempotency-key", "keep-alive", "link", "msg-properties"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    }
)

_IGNORED = frozenset({"durable", "maxRetries", "retryWaitMillis", "disableOnFailure"})


@record(frozen=True, slots=True)
class Registration:
    """What is asked for.

    Attributes:
        link: where to, and how.
        selector: which messages it wants; '': all.
        authorization: a value of the header Authorization for the target; ''.
        headers: to be sent to the target with each request.
    """

    link: AtomLink
    selector: str
    authorization: str
    headers: Mapping[str, str]


def read_registration(body: bytes, content_type: str) -> Registration:
    """The registration in a document.

    Raises:
        Refusal: it is no such document, or asks for what is not possible.
    """
    if content_type.partition(";")[0].strip().lower() not in _XML:
        raise Refusal(
            f"{_XML[0]} is expected", condition="unsupported-media-type", type="modify"
        )
    if len(body) > REGISTRATION_BYTES_MAX:
        raise _bad(f"it has more than {REGISTRATION_BYTES_MAX} bytes")
    # No DTD is ever parsed: its entities could be of any size.
    if b"<!D" in body or b"<!E" in body or b"\0" in body:
        raise _bad("it has a DTD, or is not UTF-8")
    try:
        root = ET.fromstring(body)  # noqa: S314 - no DTD
    except (ET.ParseError, ValueError, LookupError) as error:
        raise _bad(f"it is not well-formed: {error}") from None
    if _local(root) != "push-registration":
        raise _bad("<push-registration> is expected")
    link, selector, authorization = None, "", ""
    headers: dict[str, str] = {}
    for each in root:
        name = _local(each)
        if name == "link" and link is None:
            link = _link(each)
        elif name == "authentication":
            authorization = _authorization(each)
        elif name == "sessionCount":
            if (each.text or "").strip() not in {"", "1"}:
                raise _bad("sessionCount: messages are pushed one after the other")
        elif name == "header":
            headers |= _header(each)
        elif name == "selector":
            selector = (each.text or "").strip()
        elif name not in _IGNORED:
            raise _bad(f"<{name[:40]}> is not possible here")
    if link is None:
        raise _bad("<link rel='…' href='…'/> is expected")
    try:
        subscribe_options({QUEUE_REQUESTS: "1", SELECTOR: selector})
    except BadOption as error:
        raise _bad(str(error)) from None
    if len(headers) > HEADERS_MAX:
        raise _bad(f"at most {HEADERS_MAX} headers are possible")
    return Registration(link, selector, authorization, headers)


def render(link: AtomLink, selector: str) -> bytes:
    """The document that shows a registration, without its password."""
    shown = render_atom_link(link)
    if selector:
        shown += f"<selector>{text(selector)}</selector>"
    return f"<push-registration>{shown}</push-registration>".encode()


def _local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _link(element: ET.Element) -> AtomLink:
    if element.get("method", "POST").upper() != "POST":
        raise _bad("link: messages are pushed by POST")
    rel = element.get("rel", "")
    if rel == "template" and element.get("href", "").count("{id}") != 1:
        raise _bad("link: the href of a template has {id} once")
    plain = ET.Element("link", rel=rel, href=element.get("href", ""))
    return read_atom_link(ET.tostring(plain), _XML[0])


def _header(element: ET.Element) -> dict[str, str]:
    name = element.get("name", "").strip().lower()
    value = (element.text or "").strip()
    if not _NAME.fullmatch(name) or name in _OURS or name.startswith("proxy-"):
        raise _bad(f"header: {name[:40]!r} cannot be set")
    if not is_header_value(value) or len(value) > HEADER_CHARS_MAX:
        raise _bad(f"header {name}: at most {HEADER_CHARS_MAX} characters of ASCII")
    return {name: value}


def _authorization(element: ET.Element) -> str:
    names = {_local(each): (each.text or "").strip() for each in element.iter()}
    if "basic-auth" not in names or ":" in names.get("username", ""):
        raise _bad("authentication: <basic-auth> with <username> and <password>")
    pair = f"{names.get('username', '')}:{names.get('password', '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def _bad(why: str) -> Refusal:
    return Refusal(
        f"the push registration: {why}", condition="bad-request", type="modify"
    )
