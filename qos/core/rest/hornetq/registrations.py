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

from base64 import b64encode
from xml.etree import ElementTree as ET

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

__all__ = ["REGISTRATION_BYTES_MAX", "Registration", "read_registration", "render"]

#: The most bytes of the document.
REGISTRATION_BYTES_MAX = 16 * 1024

_XML = ("application/xml", "text/xml")

_IGNORED = frozenset({"durable", "maxRetries", "retryWaitMillis", "disableOnFailure"})


@record(frozen=True, slots=True)
class Registration:
    """What is asked for.

    Attributes:
        link: where to, and how.
        selector: which messages it wants; '': all.
        authorization: a value of the header Authorization for the target; ''.
    """

    link: AtomLink
    selector: str
    authorization: str


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
    for each in root:
        name = _local(each)
        if name == "link" and link is None:
            link = _link(each)
        elif name == "authentication":
            authorization = _authorization(each)
        elif name == "sessionCount":
            if (each.text or "").strip() not in {"", "1"}:
                raise _bad("sessionCount: messages are pushed one after the other")
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
    return Registration(link, selector, authorization)


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
    if rel == "template":
        raise _bad("link: say rel='destination', and its create-with-id is used")
    plain = ET.Element("link", rel=rel, href=element.get("href", ""))
    return read_atom_link(ET.tostring(plain), _XML[0])


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
