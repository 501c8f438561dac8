"""The Atom link by which a consumer asks for push (RFC 4287 §4.2.7).

    <link xmlns="http://www.w3.org/2005/Atom" rel="post-message-once"
      href="https://example.org/queues/orders/messages/once"/>

Its `rel` says how messages are forwarded to its `href`.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from qos.core.queue.requests import Refusal
from qos.core.record import record
from qos.core.rest.push_targets import URL_CHARS_MAX

__all__ = ["ATOM", "ATOM_LINK_BYTES_MAX", "AtomLink", "read_atom_link"]

#: The most bytes of the document.
ATOM_LINK_BYTES_MAX = 16 * 1024

#: The most characters of a relation: a URI at most.
_REL_CHARS_MAX = 256

#: The namespace of Atom.
ATOM = "http://www.w3.org/2005/Atom"

#: The first is what REST-* names; it also has an example with the last one.
_TYPES = ("application/atom+xml", "application/xml", "text/xml", "applicatin/atom+xml")

_REL = re.compile(r"[\x21-\x7e]+")
_PREFIXED = re.compile(rb"<atom:link(?=[\s/>])")


@record(frozen=True, slots=True)
class AtomLink:
    """A link of a document, not checked further.

    Attributes:
        rel: one relation, in lower case.
        href: where to.
    """

    rel: str
    href: str


def read_atom_link(body: bytes, content_type: str) -> AtomLink:
    """The link in a document.

    The prefix `atom:` needs no declaration, since the example of REST-* has none.

    Raises:
        Refusal: it is no such document.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in _TYPES:
        raise Refusal(
            f"a subscriber is {_TYPES[0]}, not {kind[:40]!r}",
            condition="unsupported-media-type",
            type="modify",
        )
    if len(body) > ATOM_LINK_BYTES_MAX:
        raise _bad(f"it has more than {ATOM_LINK_BYTES_MAX} bytes")
    # No DTD is ever parsed: its entities could be of any size. In UTF-16 these
    # characters have zeros between, so that encoding is refused too.
    if b"<!" in body or b"\0" in body:
        raise _bad("it has a DTD, a comment, or is not UTF-8")
    if b"xmlns:atom" not in body:
        body = _PREFIXED.sub(f'<atom:link xmlns:atom="{ATOM}"'.encode(), body, 1)
    try:
        element = ET.fromstring(body)  # noqa: S314 - no DTD
    except (ET.ParseError, ValueError, LookupError) as error:
        raise _bad(f"it is not well-formed: {error}") from None
    if element.tag not in {f"{{{ATOM}}}link", "link"}:
        raise _bad("a link of Atom is expected")
    rel = element.get("rel", "").strip().lower()
    href = element.get("href", "").strip()
    if len(rel) > _REL_CHARS_MAX or not _REL.fullmatch(rel):
        raise _bad("its rel says how to forward: one relation is expected")
    if not href or len(href) > URL_CHARS_MAX:
        raise _bad(f"its href is a URL of at most {URL_CHARS_MAX} characters")
    return AtomLink(rel, href)


def _bad(why: str) -> Refusal:
    return Refusal(f"the Atom link: {why}", condition="bad-request", type="modify")
