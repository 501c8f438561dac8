"""The Link header (RFC 8288): written strictly, read leniently."""

from __future__ import annotations

import re
from collections.abc import Iterable

from qos.core.record import record

__all__ = [
    "LINKS_MAX",
    "OWN_RELS",
    "Link",
    "fitting",
    "read_links",
    "render_links",
]

#: The relations that a service gives: where clients go on with their passwords.
OWN_RELS = frozenset(
    {
        *("post-message", "post-batch", "post-message-once", "post-batch-once"),
        *("message-factory", "create-next", "consumer", "poller", "subscribers"),
        *("acknowledgement", "self", "generator", "queue"),
        *("first", "last", "next", "subscriptions", "topic"),
        *("reply-to-once", "reply-to-batch", "reply-to-batch-once"),
        # Of HornetQ's dialect.
        *("create", "create-with-id", "consume-next", "acknowledge-next"),
        *("pull-consumers", "push-consumers"),
        *("pull-subscriptions", "push-subscriptions"),
    }
)

#: The links that are read from the headers of one response.
LINKS_MAX = 64

_TARGET = re.compile(r"[\s,]*<([^<>]*)>")
_PARAMETER = re.compile(
    r"\s*;\s*([!#$&+.^_`|~0-9A-Za-z-]+\*?)"
    r"(?:\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;,\"]*)))?"
)
_TO_NEXT = re.compile(r"[^,]*")


@record(frozen=True, slots=True)
class Link:
    """A link.

    Attributes:
        href: a URI reference.
        rel: its relation types, with spaces between.
        type: the media type of what is there, or ''.
        title: for people, or ''.
    """

    href: str
    rel: str
    type: str = ""
    title: str = ""


def render_links(links: Iterable[Link]) -> str:
    """The value of a Link header."""
    return ", ".join(map(_rendered, links))


def fitting(links: Iterable[Link], room: int) -> list[Link]:
    """The first link, and of the others those that fit into a header with it.

    Ids and names that are long in a URL make long links, and a client that cannot read
    the header cannot go on.

    Args:
        links: those that a client needs most come first.
        room: bytes of the value of the header.
    """
    fitting_links: list[Link] = []
    size = 0
    for link in links:
        more = len(_rendered(link)) + 2
        if not fitting_links or size + more <= room + 2:
            fitting_links.append(link)
            size += more
    return fitting_links


def _rendered(link: Link) -> str:
    text = f"<{link.href}>; rel={_quoted(link.rel)}"
    for name, value in (("type", link.type), ("title", link.title)):
        if value:
            text += f"; {name}={_quoted(value)}"
    return text


def _quoted(value: str) -> str:
    escaped = re.sub(r'(["\\])', r"\\\1", value)
    return f'"{escaped}"'


def read_links(value: str) -> list[Link]:
    """The links in a Link header, or in several that are joined by commas.

    Values need no quotes, as in the examples of REST-*. What is no link is skipped, and
    so is a link of another resource, which has an anchor (RFC 8288 §3.2).
    """
    links: list[Link] = []
    at = 0
    while len(links) < LINKS_MAX and (target := _TARGET.match(value, at)):
        at = target.end()
        parameters: dict[str, str] = {}
        while parameter := _PARAMETER.match(value, at):
            at = parameter.end()
            name, quoted, plain = parameter.groups()
            text = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
            # RFC 8288 §3.3: the first `rel` counts.
            parameters.setdefault(name.lower(), text or "")
        rest = _TO_NEXT.match(value, at)
        assert rest is not None
        at = rest.end()
        rel = " ".join(parameters.get("rel", "").lower().split())
        if not parameters.get("anchor"):
            links.append(Link(target[1].strip(), rel, parameters.get("type", "")))
    return links
