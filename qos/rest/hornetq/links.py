"""Links in the dialect: each in a header of its own, or all in the header Link."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from qos.core.rest.hornetq.names import plain_name
from qos.core.rest.link_header import Link
from qos.rest.calls import Answer, Call

__all__ = ["absolute", "in_words"]

_Handler = Callable[[Call], Awaitable[Answer]]


def in_words(handler: _Handler, kind: str = "queue") -> _Handler:
    """The handler, with the names and links of this dialect.

    Args:
        handler: gives links as paths.
        kind: of its node: `queue` or `topic`.
    """

    async def handled(call: Call) -> Answer:
        if "node" in call.path:
            node = plain_name(call.path["node"], kind)
            call = replace(call, path={**call.path, "node": node})
        return _shown(call, await handler(call))

    return handled


def absolute(call: Call, path: str) -> str:
    """The URL of a path: clients of HornetQ take it as it is."""
    return call.base + path


def _shown(call: Call, answer: Answer) -> Answer:
    links = [replace(each, href=absolute(call, each.href)) for each in answer.links]
    if "Location" in answer.headers:
        answer.headers["Location"] = absolute(call, answer.headers["Location"])
    if call.gateway.link_headers:
        answer.links = [_titled(each) for each in links]
        return answer
    answer.links = []
    for each in links:
        answer.headers[f"msg-{each.rel}"] = each.href
        if each.type:
            answer.headers[f"msg-{each.rel}-type"] = each.type
    return answer


def _titled(link: Link) -> Link:
    return replace(link, title=link.rel)
