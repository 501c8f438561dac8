"""The handler of each route, and what comes before it: the rights of the request."""

from __future__ import annotations

from qos.core.queue.requests import Refusal
from qos.core.rest.statuses import RETRY_AFTER_S, Act, status_of
from qos.rest import consuming, discovery, openapi, posting, sending, topics
from qos.rest.calls import Answer, Call, Handler, as_text
from qos.rest.hornetq.handlers import HANDLERS as HORNETQ_HANDLERS
from qos.rest.login import CHALLENGES
from qos.rest.push import handlers as push
from qos.rest.rights import check_right, why_not_here
from qos.rest.routes import SHARED, Route

__all__ = ["HANDLERS", "answer_before_body", "handled", "refused"]

#: The handler of each route.
HANDLERS: dict[str, Handler] = {
    "service": Handler(discovery.service, Act.READ),
    "openapi": Handler(openapi.openapi, Act.READ),
    "queue": Handler(discovery.queue, Act.READ),
    "messages": Handler(posting.message, Act.POST),
    "batches": Handler(posting.batch, Act.POST),
    "once": Handler(posting.factory, Act.POST),
    "post": Handler(posting.post, Act.POST, posting.check_link),
    "batchonce": Handler(posting.batch_factory, Act.POST),
    "postbatch": Handler(posting.post_batch, Act.POST, posting.check_batch_link),
    "consumer": Handler(consuming.take, Act.PULL),
    "message": Handler(consuming.read, Act.READ),
    "subscribers": Handler(push.subscribers, Act.READ),
    "subscriber": Handler(push.subscriber, Act.READ, push.check_own),
    "acknowledgement": Handler(consuming.acknowledge, Act.SETTLE),
    "topic": Handler(discovery.queue, Act.READ),
    "topic-first": Handler(topics.first, Act.READ),
    "topic-last": Handler(topics.last, Act.READ),
    "topic-next": Handler(topics.following, Act.READ),
    "topic-subscriptions": Handler(topics.subscribe, Act.READ),
    "topic-subscription": Handler(topics.subscription, Act.READ),
    **HORNETQ_HANDLERS,
    "device": Handler(sending.device, Act.POST, sending.check_device),
    "send": Handler(sending.send, Act.POST, sending.check_link),
    "sent": Handler(sending.sent, Act.READ),
}

for _name in SHARED:
    HANDLERS[f"topic-{_name}"] = HANDLERS[_name]


async def answer_before_body(route: Route, call: Call) -> Answer | None:
    """The answer to a request whose body is not needed; None: it is to be read.

    Args:
        route: of the request.
        call: without its body.
    """
    handler = HANDLERS[route.name]
    why = "" if route.name.startswith("hornetq-") else why_not_here(call)
    if why:
        return as_text(404, why)
    try:
        check_right(route.need, call)
        return None if handler.first is None else await handler.first(call)
    except Refusal as refusal:
        return refused(status_of(handler.act, refusal), str(refusal))


async def handled(name: str, call: Call) -> Answer:
    """The answer to a request; a refusal is an answer as well.

    Args:
        name: of the route.
        call: the request.
    """
    handler = HANDLERS[name]
    try:
        return await handler.run(call)
    except Refusal as refusal:
        return refused(status_of(handler.act, refusal), str(refusal))


def refused(status: int, why: str) -> Answer:
    """An answer that says why something is not done, and when to ask again."""
    answer = as_text(status, why)
    if status == 401:
        answer.headers["WWW-Authenticate"] = ", ".join(CHALLENGES)
    if status in RETRY_AFTER_S:
        answer.headers["Retry-After"] = str(RETRY_AFTER_S[status])
    return answer
