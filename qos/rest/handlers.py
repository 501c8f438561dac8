"""The answer to a request, by the route of its URL: first its rights, then its handler.

The rights are looked at before the body is read. A handler looks again, at the moment when
it does something: rights may change while a body comes.

An answer with a message has two forms: its headers are those of the answer, or in its
body. See `qos.core.rest.header_room` for the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from qos.core.queue.consumer_jids import consumer_jid
from qos.core.queue.requests import (
    Refusal,
    may_not_publish,
    no_node,
)
from qos.core.rest.header_room import (
    HEADERS_BYTES_MAX,
    MULTIPART,
    headers_size,
    is_of_message,
    render_part,
    wants_part,
)
from qos.core.rest.link_header import Link, render_links
from qos.core.rest.statuses import RETRY_AFTER_S, status_of
from qos.ids import new_id
from qos.rest.calls import Answer, Call, as_text, may_not_subscribe
from qos.rest.login import CHALLENGES
from qos.rest.paths import url
from qos.rest.route import Need, Route

__all__ = ["answer_before_body", "handled", "refused"]


async def answer_before_body(route: Route, call: Call) -> Answer | None:
    """The answer to a request whose body is not needed; None: it is to be read.

    Args:
        route: of the request.
        call: without its body.
    """
    why = "" if route.name.startswith("hornetq-") else _why_not_here(call)
    if why:
        return as_text(404, why)
    try:
        check = _CHECKS.get(route.need)
        if check is not None:
            check(call)
        answer = None if route.first is None else await route.first(call)
    except Refusal as refusal:
        return refused(status_of(route.act_of(call.method), refusal), str(refusal))
    return None if answer is None else _below_prefix(call, answer)


async def handled(route: Route, call: Call) -> Answer:
    """The answer to a request; a refusal is an answer as well.

    Args:
        route: of the request.
        call: the request.
    """
    try:
        answer = await route.run(call)
    except Refusal as refusal:
        return refused(status_of(route.act_of(call.method), refusal), str(refusal))
    return _in_form(call, _below_prefix(call, answer))


def _below_prefix(call: Call, answer: Answer) -> Answer:
    """An answer whose links begin with the path by which clients reach the service."""
    if not call.services.prefix:
        return answer
    answer.links = [replace(link, href=call.below(link.href)) for link in answer.links]
    for name in ("Location", "Content-Location"):
        if name in answer.headers:
            answer.headers[name] = call.below(answer.headers[name])
    return answer


def refused(status: int, why: str) -> Answer:
    """An answer that says why something is not done, and when to ask again."""
    answer = as_text(status, why)
    if status == 401:
        answer.headers["WWW-Authenticate"] = ", ".join(CHALLENGES)
    if status in RETRY_AFTER_S:
        answer.headers["Retry-After"] = str(RETRY_AFTER_S[status])
    return answer


# -- rights ----------------------------------------------------------------


def _see(call: Call) -> None:
    call.rights()


def _publish(call: Call) -> None:
    if not call.rights().publish:
        raise may_not_publish(call.node, call.account)


def _subscribe(call: Call) -> None:
    if not call.rights().subscribe:
        raise may_not_subscribe(call.node, call.account)


def _settle(call: Call) -> None:
    """A user keeps its locks when it has lost its rights."""
    engine = call.services.engine
    jid = consumer_jid(call.account, "http", call.path["etag"].partition(".")[0])
    if engine.rights(call.node, jid) is None and not engine.held(call.node, jid):
        raise no_node(call.node)


def _create(call: Call) -> None:
    if not call.services.engine.creates(call.account):
        text = f"{call.account} may not create nodes here"
        raise Refusal(text, condition="forbidden", type="auth")


#: Raise a Refusal if the user of a call, without its body, has not the right that its
#: route needs. The other needs are looked at by the handler of the route: `Route.first`.
_CHECKS: Mapping[Need, Callable[[Call], None]] = {
    Need.SEE: _see,
    Need.PUBLISH: _publish,
    Need.SUBSCRIBE: _subscribe,
    Need.SETTLE: _settle,
    Need.CREATE: _create,
}


def _why_not_here(call: Call) -> str:
    """The error if the URL is one of a queue, but the node a topic, or vice versa; '': none."""
    node = call.path.get("node", "")
    node_type = call.services.engine.node_type(node)
    if node_type in {None, "topic" if call.topic else "queue"}:
        return ""
    if call.services.engine.rights(node, call.jid) is None:
        # The handler answers as for a node that is not there.
        return ""
    node_url = call.below(url(str(node_type), node=node))
    return f"{node!r} is a {node_type}: its URL is {node_url}"


# -- the form of a message ---------------------------------------------------


def _in_form(call: Call, answer: Answer) -> Answer:
    """An answer with a message, in the form that its client asks for.

    A message that does not fit into the plain form is given back: that is no delivery.

    Args:
        call: of the client.
        answer: in the plain form; any other answer stays as it is.
    """
    if answer.needs is None:
        return answer
    if wants_part(call.headers.get("accept", "")):
        return _in_part(answer)
    links = answer.links[: answer.needs]
    size = headers_size(answer.headers, links)
    if size <= HEADERS_BYTES_MAX:
        return answer
    if answer.sent is not None:
        answer.sent(False)
    refusal = as_text(
        406,
        f"the headers of this message have {size} bytes, over the limit of "
        f"{HEADERS_BYTES_MAX}: ask for it with Accept: {MULTIPART}, and they are in the "
        "body. It has not been taken",
    )
    # A reader of a topic can go on with the next message.
    refusal.links = [link for link in links if link.rel == "next"]
    return refusal


def _in_part(answer: Answer) -> Answer:
    boundary = new_id()
    about = {k: v for k, v in answer.headers.items() if not is_of_message(k)}
    about["Content-Type"] = f"{MULTIPART}; boundary={boundary}"
    part_headers = {k: v for k, v in answer.headers.items() if is_of_message(k)}
    links = _joined(answer.links, part_headers.pop("Link", ""))
    if links:
        part_headers["Link"] = links
    return replace(
        answer,
        headers=about,
        # One that is too long for a header is in the part alone.
        links=answer.links if _has_room(about, answer.links[:1]) else [],
        body=render_part(part_headers, answer.body, boundary),
    )


def _joined(links: list[Link], header: str) -> str:
    return ", ".join(filter(None, (render_links(links), header)))


def _has_room(headers: dict[str, str], links: list[Link]) -> bool:
    return headers_size(headers, links) <= HEADERS_BYTES_MAX
