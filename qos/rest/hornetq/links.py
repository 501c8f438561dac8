"""Links in the dialect: each in a header of its own, or all in the header Link."""

from __future__ import annotations

from dataclasses import replace

from qos.core.rest.link_header import Link
from qos.rest.calls import Answer, Call, Handler

__all__ = ["absolute", "in_words"]


def in_words(handler: Handler) -> Handler:
    """The handler, with the links of this dialect.

    Args:
        handler: gives links as paths.
    """

    async def run(call: Call) -> Answer:
        return _shown(call, await handler.run(call))

    async def first(call: Call) -> Answer | None:
        assert handler.first is not None
        answer = await handler.first(call)
        return None if answer is None else _shown(call, answer)

    return Handler(run, handler.act, None if handler.first is None else first)


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
