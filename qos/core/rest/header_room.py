"""The room that the headers of an answer have, and a message whose headers do not fit.

Proxies read the headers of an answer into one buffer: nginx, as it is installed, has 4 KiB
for them. If they do not fit, its client gets a 502, and the message that the service has
handed over is lost for it. So the service answers with less than that. A message that needs
more is shown in one part of a `multipart/mixed`, if its client asks for that: its headers
are in the body then, as in a batch that is posted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from qos.core.rest.link_header import Link, render_links

__all__ = [
    "HEADERS_BYTES_MAX",
    "MULTIPART",
    "headers_size",
    "is_of_message",
    "render_part",
    "room_for_links",
    "wants_part",
]

#: The bytes of all headers of an answer, with its status line.
HEADERS_BYTES_MAX = 3500

#: Of what each answer has beside its own headers: `HTTP/1.1 200 OK`, `Server`, `Date`,
#: `Content-Length`, `Connection`, and the empty line.
_OTHERS_BYTES = 200

#: Of a header: `: ` and the end of its line.
_MARKS_BYTES = 4

#: The form that has the headers of a message in the body.
MULTIPART: Final = "multipart/mixed"

_OF_MESSAGE = frozenset({"link", "msg-properties", "msg-hops"})
_OF_CONTENT = "content-"
#: It is about the answer, for browsers.
_POLICY = "content-security-policy"

#: The weight of what a client does not want (RFC 9110 §12.4.2).
_NOT_AT_ALL = re.compile(r"q\s*=\s*0(\.0*)?")


def headers_size(headers: Mapping[str, str], links: Iterable[Link] = ()) -> int:
    """The most bytes that an answer has before its body.

    Args:
        headers: of the answer.
        links: that its header `Link` has too.
    """
    size = _OTHERS_BYTES
    for name, value in headers.items():
        size += len(name) + len(value.encode(errors="replace")) + _MARKS_BYTES
    link_value = render_links(links)
    return size + len("Link") + len(link_value) + _MARKS_BYTES if link_value else size


def room_for_links(headers: Mapping[str, str]) -> int:
    """The bytes that the links of an answer may have, beside its other headers."""
    return HEADERS_BYTES_MAX - headers_size(headers) - len("Link") - _MARKS_BYTES


def wants_part(accept: str) -> bool:
    """Whether a client asks for a message in a part, by its header `Accept`.

    `*/*` does not: clients send it that know nothing of this form.
    """
    for media_range in accept.lower().split(","):
        name, *parameters = (part.strip() for part in media_range.split(";"))
        if name == MULTIPART:
            return not any(map(_NOT_AT_ALL.fullmatch, parameters))
    return False


def is_of_message(name: str) -> bool:
    """Whether a header belongs to a message, and not to its delivery or to the answer."""
    name = name.lower()
    return name in _OF_MESSAGE or (name.startswith(_OF_CONTENT) and name != _POLICY)


def render_part(headers: Mapping[str, str], body: bytes, boundary: str) -> bytes:
    """A body of `multipart/mixed` with one message.

    Args:
        headers: of the message.
        body: of the message.
        boundary: random, so that no body has it.
    """
    lines = [f"--{boundary}", *(f"{name}: {value}" for name, value in headers.items())]
    head = "".join(f"{line}\r\n" for line in lines).encode("latin-1", "replace")
    return b"%b\r\n%b\r\n--%b--\r\n" % (head, body, boundary.encode())
