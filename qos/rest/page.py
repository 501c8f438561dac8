"""The pages for people, without scripts: one of all queues and topics, and one of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from qos.core.rest.link_header import Link
from qos.rest.calls import Answer

__all__ = ["HTML", "queue_page", "service_page", "service_row"]

HTML = "text/html"

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;
color:#1a1a1a;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #ddd;
vertical-align:top;overflow-wrap:anywhere}
th{font-weight:600}td.number{font-variant-numeric:tabular-nums}
@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}a{color:#8cf}
th,td{border-color:#444}}
"""

#: The title of the page of the service.
_ALL = "Queues and topics"

#: What to do with a link, by its relation.
_MEANINGS = {
    "post-message": "POST a message; with Idempotency-Key it is made once",
    "post-message-once": "POST nothing, and get a link for one message (create-next)",
    "post-batch": "POST several messages, all or none",
    "post-batch-once": "POST nothing, and get a link for one batch (create-next)",
    "consumer": "POST to take a message; Prefer: wait=SECONDS waits for one",
    "first": "GET the oldest message",
    "last": "GET the newest message",
    "next": "GET the next message that is published; Prefer: wait=SECONDS waits for it",
    "subscribers": "POST an Atom link, and have the messages sent to its URL",
    "subscriptions": "POST name=NAME to get all messages from now on in a queue of yours",
}


def service_page(rows: str) -> Answer:
    """The queues and topics that the user may use; each is a `service_row`."""
    body = "<p>There is none that you may use.</p>"
    if rows:
        body = _table(("Name", "Type"), rows)
    return _page(_ALL, f"<h1>{_ALL}</h1>{body}")


def service_row(link: Link, name: str) -> str:
    """A queue or topic of `service_page`."""
    return _row((f"<a href='{escape(link.href)}'>{escape(name)}</a>", link.rel))


def queue_page(
    name: str,
    links: Sequence[Link],
    counts: Mapping[str, int | float | None],
    *,
    home: str,
) -> Answer:
    """A queue, with its counts, its links, and a link to the page of all."""
    counted = [
        (escape(key.replace("_", " ")), "none" if value is None else f"{value:,}")
        for key, value in counts.items()
    ]
    linked = [
        (
            escape(link.rel),
            f"<code>{escape(link.href)}</code>",
            escape(_MEANINGS[link.rel]),
        )
        for link in links
        if link.rel in _MEANINGS
    ]
    return _page(
        name,
        f"<p><a href='{escape(home)}'>{_ALL}</a></p><h1>{escape(name)}</h1>"
        f"<h2>Messages</h2>{_table(('Count', ''), _rows(counted))}"
        f"<h2>Links</h2>{_table(('Relation', 'URL', 'Use'), _rows(linked))}",
    )


def _table(head: Sequence[str], rows: str) -> str:
    titles = "".join(f"<th scope='col'>{escape(title)}</th>" for title in head)
    return f"<table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"


def _rows(rows: Iterable[Sequence[str]]) -> str:
    return "".join(map(_row, rows))


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _page(title: str, body: str) -> Answer:
    content = (
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{body}</body></html>"
    )
    headers = {
        "Content-Type": f"{HTML}; charset=utf-8",
        "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
        "frame-ancestors 'none'",
        "Vary": "Accept",
    }
    return Answer(200, headers, body=content.encode(errors="replace"))
