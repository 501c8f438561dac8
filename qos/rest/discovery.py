"""Discovery: the links of a queue, as headers, JSON, XML or a page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from qos.core.queue.requests import Refusal
from qos.core.rest.link_header import Link
from qos.engine.queue_engine import Stats
from qos.engine.queue_state import Rights
from qos.rest.calls import Answer, Call, no_node
from qos.rest.page import HTML, queue_page, service_page, service_row
from qos.rest.paths import next_url, url
from qos.rest.topics import latest_seq
from qos.xml_text import attribute, text

__all__ = ["queue", "service"]

T = TypeVar("T")

#: Nodes that are listed in one turn of the event loop: they take 2 ms.
_NODES_A_TURN = 500

_JSON, _XML = "application/json", "application/xml"
_ATOM = "http://www.w3.org/2005/Atom"


async def service(call: Call) -> Answer:
    """The queues that the user may use, each with its link."""
    future: asyncio.Future[list[str] | Refusal]
    future = asyncio.get_running_loop().create_future()
    call.services.engine.nodes(call.jid, lambda result: _tell(future, result))
    names = await future
    if isinstance(names, Refusal):
        raise names
    kind = _preferred(call)
    write = _WRITERS[kind]
    # What is written of each node, by its type in JSON only.
    texts: dict[str, list[str]] = {"queue": [], "topic": []}
    for first in range(0, len(names), _NODES_A_TURN):
        if first:
            await call.services.engine.payers.turn(call.account)
        for name in names[first : first + _NODES_A_TURN]:
            rel = call.services.engine.node_type(name) or "queue"
            text_of_node = write(Link(call.below(url(rel, node=name)), rel), name)
            texts[rel if kind == _JSON else "queue"].append(text_of_node)
    if kind == HTML:
        return service_page("".join(texts["queue"]))
    if kind == _XML:
        return _xml("service", "".join(texts["queue"]))
    lists = (f'"{rel}s": [{", ".join(nodes)}]' for rel, nodes in texts.items())
    return _as_answer(f"{{{', '.join(lists)}}}", _JSON)


async def queue(call: Call) -> Answer:
    """A queue or a topic: its links by what the user may do, and its counts."""
    engine, node = call.services.engine, call.node
    rights = call.rights()
    future: asyncio.Future[Stats | Refusal] = asyncio.get_running_loop().create_future()
    if not engine.stats(node, call.jid, lambda result: _tell(future, result)):
        raise no_node(node)
    counts = await future
    if isinstance(counts, Refusal):
        raise counts
    links = _links(call, rights)
    if rights.subscribe:
        links += await _links_of_topic(call) if call.topic else _links_of_queue(node)
    kind = _preferred(call)
    below = [replace(link, href=call.below(link.href)) for link in links]
    if kind == HTML:
        answer = queue_page(node, below, counts, home=call.below(url("service")))
    elif kind == _XML:
        inner = f"<name>{text(node)}</name>{''.join(map(_as_xml, below))}"
        answer = _xml("topic" if call.topic else "queue", inner)
    else:
        entries = [{"rel": link.rel, "href": link.href} for link in below]
        answer = _json({"name": node, "links": entries, "counts": dict(counts)})
    answer.links = links
    return answer


def _links(call: Call, rights: Rights) -> list[Link]:
    names = []
    if rights.publish:
        names += [("post-message", "messages"), ("post-batch", "batches")]
        if rights.once_s:
            names += [
                ("post-message-once", "once"),
                ("message-factory", "once"),
                ("post-batch-once", "batchonce"),
            ]
    return [Link(call.url(name), rel) for rel, name in names]


def _links_of_queue(node: str) -> list[Link]:
    consumer = url("consumer", node=node)
    return [
        Link(consumer, "consumer"),
        Link(consumer, "poller"),
        Link(url("subscribers", node=node), "subscribers"),
    ]


async def _links_of_topic(call: Call) -> list[Link]:
    node = call.node
    return [
        Link(url("topic-first", node=node), "first"),
        Link(url("topic-last", node=node), "last"),
        # The next that is published after this answer.
        Link(next_url(node, await latest_seq(call)), "next"),
        Link(url("topic-subscriptions", node=node), "subscriptions"),
    ]


def _tell(future: asyncio.Future[T], result: T) -> None:
    if not future.done():  # its client has gone
        future.set_result(result)


def _preferred(call: Call) -> str:
    """The media type that is preferred (RFC 9110 §12.5.1); JSON is the default."""
    accept = call.headers.get("accept", "")
    # Of equals, the first one.
    return max((_JSON, _XML, HTML), key=lambda kind: _quality(accept, kind))


def _quality(accept: str, kind: str) -> float:
    """The quality of a media type: that of the most specific range."""
    best = (-1, 0.0 if accept.strip() else 1.0)
    for part in accept.split(","):
        name, *parameters = (word.strip().lower() for word in part.split(";"))
        ranges: Sequence[str] = ("*/*", f"{kind.partition('/')[0]}/*", kind)
        if name in ranges:
            best = max(best, (ranges.index(name), _q(parameters)))
    return best[1]


def _q(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _json(content: object) -> Answer:
    return _as_answer(json.dumps(content, ensure_ascii=False), _JSON)


def _xml(name: str, inner: str) -> Answer:
    return _as_answer(f"<{name} xmlns:atom='{_ATOM}'>{inner}</{name}>", _XML)


def _as_answer(body: str, kind: str) -> Answer:
    return Answer(200, {"Content-Type": kind, "Vary": "Accept"}, body=body.encode())


def _as_json(link: Link, name: str) -> str:
    return json.dumps({"name": name, "href": link.href}, ensure_ascii=False)


def _as_xml(link: Link, title: str = "") -> str:
    start = f"<atom:link rel={attribute(link.rel)} href={attribute(link.href)}"
    return f"{start} title={attribute(title)}/>" if title else f"{start}/>"


#: By media type: writes a node of the service.
_WRITERS: Mapping[str, Callable[[Link, str], str]] = {
    HTML: service_row,
    _XML: _as_xml,
    _JSON: _as_json,
}
