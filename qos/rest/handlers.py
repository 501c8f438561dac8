"""The answer to a request, by the route of its URL: first its rights, then its handler."""

from __future__ import annotations

from dataclasses import replace

from qos.core.queue.requests import Refusal
from qos.core.rest.statuses import RETRY_AFTER_S, status_of
from qos.rest.calls import Answer, Call, as_text
from qos.rest.login import CHALLENGES
from qos.rest.message_forms import in_form
from qos.rest.rights import check_right, why_not_here
from qos.rest.route import Route

__all__ = ["answer_before_body", "handled", "refused"]


async def answer_before_body(route: Route, call: Call) -> Answer | None:
    """The answer to a request whose body is not needed; None: it is to be read.

    Args:
        route: of the request.
        call: without its body.
    """
    why = "" if route.name.startswith("hornetq-") else why_not_here(call)
    if why:
        return as_text(404, why)
    try:
        check_right(route.need, call)
        answer = None if route.first is None else await route.first(call)
    except Refusal as refusal:
        return refused(status_of(route.act, refusal), str(refusal))
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
        return refused(status_of(route.act, refusal), str(refusal))
    return in_form(call, _below_prefix(call, answer))


def _below_prefix(call: Call, answer: Answer) -> Answer:
    """An answer whose links begin with the path by which clients reach the service."""
    if not call.services.prefix:
        return answer
    answer.links = [replace(each, href=call.below(each.href)) for each in answer.links]
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
