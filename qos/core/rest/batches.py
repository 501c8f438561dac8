"""Several messages in one request: `multipart/mixed` (RFC 2046), or an Atom feed.

A part is kept byte for byte. Of an Atom feed (RFC 4287) the content of each entry is a
message: text, an element, or base64.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from xml.etree import ElementTree as ET

from qos.core.queue.requests import Refusal
from qos.core.record import record
from qos.steps import Steps
from qos.xml_reading import children
from qos.xml_text import rendering

__all__ = ["ENTRY_ELEMENTS_MAX", "PARTS_MAX", "Part", "reading_batch"]

#: As many items as one request of XEP-0254 may publish.
PARTS_MAX = 1000

#: The elements in an entry of a feed. An item with more would be too large.
ENTRY_ELEMENTS_MAX = 50_000

#: The bytes that are searched for a delimiter in one step.
_SEARCHED_BYTES = 256 * 1024

_ATOM = "{http://www.w3.org/2005/Atom}"

_BOUNDARY = re.compile(
    r";\s*boundary\s*=\s*(?:\"([^\"\\]{1,70})\"|([^\s;,\"]{1,70}))", re.IGNORECASE
)

#: The bytes of the headers of a part: more than those of a message that was taken in a part,
#: with as many properties and as long links as can be.
_HEADER_BYTES_MAX = 32 * 1024

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@record(frozen=True, slots=True)
class Part:
    """A message of a batch.

    Attributes:
        body: its body.
        headers: by their names in lower case.
    """

    body: bytes
    headers: Mapping[str, str]


def reading_batch(body: bytes, content_type: str) -> Steps[list[Part]]:
    """Read the messages of a batch, in order and in steps.

    Raises:
        Refusal: it is none, or too large.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/mixed":
        parts = yield from _multipart(body, content_type)
    elif kind in {"application/atom+xml", "application/xml"}:
        parts = yield from _feed(body)
    else:
        raise Refusal(
            f"a batch is multipart/mixed or application/atom+xml, not {kind[:40]!r}",
            condition="unsupported-media-type",
            type="modify",
        )
    if not parts:
        raise _bad("it has no message")
    return parts


def _bad(why: str) -> Refusal:
    return Refusal(f"the batch: {why}", condition="bad-request", type="modify")


def _too_many() -> Refusal:
    return Refusal(
        f"the batch has more than {PARTS_MAX} messages",
        condition="not-acceptable",
        type="modify",
        pubsub="max-items-exceeded",
    )


def _multipart(body: bytes, content_type: str) -> Steps[list[Part]]:
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        raise _bad("multipart/mixed without a boundary")
    delimiter = b"\r\n--" + (boundary[1] or boundary[2]).encode()
    # RFC 2046 §5.1.1: what is before the first delimiter and after the last is ignored.
    if body.startswith(delimiter[2:]):
        begin = len(delimiter) - 2
    else:
        begin = (yield from _found(body, delimiter, 0)) + len(delimiter)
    parts: list[Part] = []
    while not body.startswith(b"--", begin):
        end = yield from _found(body, delimiter, begin)
        padding, newline, content = body[begin:end].partition(b"\r\n")
        if padding.strip(b" \t") or not newline:
            raise _bad("a delimiter does not end its line")
        if len(parts) == PARTS_MAX:
            raise _too_many()
        parts.append(_part(content))
        begin = end + len(delimiter)
    return parts


def _found(body: bytes, delimiter: bytes, begin: int) -> Steps[int]:
    """The place of the next delimiter from there on."""
    while True:
        yield
        end = begin + _SEARCHED_BYTES
        position = body.find(delimiter, begin, end + len(delimiter))
        if position >= 0:
            return position
        if end >= len(body):
            raise _bad("it has no closing delimiter")
        begin = end


def _part(content: bytes) -> Part:
    head, empty, body = (b"\r\n" + content).partition(b"\r\n\r\n")
    if not empty or len(head) > _HEADER_BYTES_MAX:
        raise _bad(f"a part begins with headers, at most {_HEADER_BYTES_MAX} bytes")
    headers: dict[str, str] = {}
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name):
            raise _bad("a header of a part is NAME: VALUE")
        headers[name.lower()] = value.strip(" \t")
    return Part(body, headers)


def _feed(body: bytes) -> Steps[list[Part]]:
    # No DTD is ever parsed: its entities could be of any size. In UTF-16 it would not be
    # found, but each `<` there has a zero byte.
    if b"\0" in body:
        raise _bad("a feed is in UTF-8")
    if b"<!DOCTYPE" in body:
        raise _bad("a feed has no DTD")
    parts: list[Part] = []
    try:
        for child in children(
            body, root=f"{_ATOM}feed", elements_max=ENTRY_ELEMENTS_MAX
        ):
            if child is None:
                yield
            elif child.tag == f"{_ATOM}entry":
                if len(parts) == PARTS_MAX:
                    raise _too_many()
                parts.append((yield from _entry(child.find(f"{_ATOM}content"))))
    except (ET.ParseError, LookupError) as error:
        raise _bad(f"the feed is not well-formed: {error}") from None
    except ValueError as error:
        raise _bad(f"the feed: {error}") from None
    return parts


def _entry(content: ET.Element | None) -> Steps[Part]:
    """The message in the content of an entry (RFC 4287 §4.1.3)."""
    if content is None or "src" in content.attrib:
        raise _bad("an entry has content of its own")
    kind = content.get("type", "text")
    text = content.text or ""
    if kind in {"text", "html"}:
        if len(content):
            raise _bad(f"content of type {kind} has no elements")
        media_type = f"text/{'plain' if kind == 'text' else 'html'}; charset=utf-8"
        return Part(text.encode(), {"content-type": media_type})
    if len(content) == 1:
        media_type = "application/xhtml+xml" if kind == "xhtml" else kind
        rendered = yield from rendering(content[0])
        return Part(rendered.encode(), {"content-type": media_type})
    if kind.lower().startswith("text/"):
        return Part(text.encode(), {"content-type": kind})
    try:
        return Part(
            b64decode("".join(text.split()), validate=True), {"content-type": kind}
        )
    except (binascii.Error, ValueError):
        raise _bad(f"content of type {kind[:40]!r} is base64") from None
