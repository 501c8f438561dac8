"""Links in the dialect: each in a header of its own, or all in the header Link."""

from __future__ import annotations

from dataclasses import replace

from qos.core.rest.link_header import Link
from qos.rest.calls import Answer, Call
from qos.rest.route import First, Run

__all__ = ["absolute", "with_links_first", "with_links_run"]


def with_links_run(handler: Run) -> Run:
    """A handler, with the links of this dialect.

    Args:
        handler: gives links as paths.
    """

    async def run(call: Call) -> Answer:
        return _with_absolute_links(call, await handler(call))

    return run


def with_links_first(handler: First | None) -> First | None:
    """Likewise, a handler of what comes before the body; None: there is none."""
    if handler is None:
        return None

    async def first(call: Call) -> Answer | None:
        answer = await handler(call)
        return None if answer is None else _with_absolute_links(call, answer)

    return first


def absolute(call: Call, path: str) -> str:
    """The URL of a path: clients of HornetQ take it as it is."""
    return call.base + path


def _with_absolute_links(call: Call, answer: Answer) -> Answer:
    links = [replace(link, href=absolute(call, link.href)) for link in answer.links]
    if "Location" in answer.headers:
        answer.headers["Location"] = absolute(call, answer.headers["Location"])
    if call.services.link_headers:
        answer.links = [_titled(link) for link in links]
        return answer
    answer.links = []
    for link in links:
        answer.headers[f"msg-{link.rel}"] = link.href
        if link.type:
            answer.headers[f"msg-{link.rel}-type"] = link.type
    return answer


def _titled(link: Link) -> Link:
    return replace(link, title=link.rel)
