"""Request and reply by HTTP: where replies go, and by what they are matched.

docs/rest-checklist.md R2.

A request names the queue for its replies as `Link: </queues/NAME>; rel="reply-to"`, and
its item has the name as a property, as one that came by AMQP has. Whoever takes the
request gets links to that queue. They carry the correlation id in their query: that of the
request, or else its message id. So a reply has the right id wherever it is read.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode, urljoin

from qos.core.amqp.bodies import message_id_of
from qos.core.amqp.message_ids import CORRELATION_ID, id_text, text_property
from qos.core.queue.item import Item
from qos.core.queue.requests import Refusal
from qos.core.rest.link_header import Link, read_links, render_links
from qos.core.strings import utf8_size

__all__ = [
    "CORRELATION_BYTES_MAX",
    "QUERY",
    "correlation_of",
    "read_correlation",
    "split_reply_to",
    "with_correlation",
]

#: The query parameter of a post that has the correlation id.
QUERY: Final = "correlation-id"

#: The bytes of a correlation id in a URL: four links with it are in one header.
CORRELATION_BYTES_MAX = 256

_REL = "reply-to"


def split_reply_to(header: str, base: str, url: str) -> tuple[str, str | None]:
    """Take the link to a queue for replies out of a Link header.

    Args:
        header: of a request.
        base: what clients call this service, or ''.
        url: that the request was posted to, as a path.

    Returns:
        The header without it, and its URL as a path; None: there is none, or it leads to
        another service.

    Raises:
        Refusal: the link is no URL.
    """
    other_links: list[Link] = []
    reply_path = None
    for link in read_links(header):
        path = _here(link.href, base, url) if _REL in link.rel.split() else None
        if path is None:
            other_links.append(link)
        elif reply_path is None:
            reply_path = path
    # As it came, if that is all: it is part of what a repeated post is compared by.
    return header if reply_path is None else render_links(other_links), reply_path


def _here(href: str, base: str, url: str) -> str | None:
    """The path of a URL of this service; None: it is another's."""
    try:
        target = urljoin(f"{base}{url}", href)
    except ValueError as error:
        why = f"Link: rel {_REL}: {href!r} is no URL"
        raise Refusal(why, condition="bad-request", type="modify") from error
    if target.lower().startswith(f"{base.lower()}/"):
        return target[len(base) :]
    # The service is below a path, and a path is none of another service.
    is_path = href.startswith("/") and not href.startswith("//")
    return href if is_path else None


def read_correlation(text: str) -> str | int:
    """The correlation id of a query, as the property of an item.

    Raises:
        Refusal: it is too long, or has characters that cannot be printed.
    """
    if not _is_correlation(text):
        why = f"{QUERY}: 1 to {CORRELATION_BYTES_MAX} bytes of printable UTF-8"
        raise Refusal(why, condition="bad-request", type="modify")
    return text_property(text)


def _is_correlation(text: str) -> bool:
    return (
        bool(text) and text.isprintable() and utf8_size(text) <= CORRELATION_BYTES_MAX
    )


def correlation_of(item: Item, payload: str) -> str:
    """The correlation id of the replies to a request; '': one that no URL can have.

    Args:
        item: the request.
        payload: of the item.
    """
    text = (
        id_text(item.properties.get(CORRELATION_ID))
        or message_id_of(payload)
        or item.item_id
    )
    return text if _is_correlation(text) else ""


def with_correlation(url: str, text: str) -> str:
    """A URL with this correlation id; '': without one."""
    return f"{url}?{urlencode({QUERY: text})}" if text else url
