"""Push consumers: those of the other dialect, by a document of HornetQ's.

docs/rest-checklist.md H14.
"""

from __future__ import annotations

from collections.abc import Mapping

from qos.core.queue.push import PushSubscriber
from qos.core.queue.requests import Delete, Refusal
from qos.core.queue.results import Result
from qos.core.rest.hornetq.registrations import read_registration, render
from qos.ids import new_id
from qos.rest.calls import Answer, Call
from qos.rest.hornetq.consuming import check_may_subscribe
from qos.rest.hornetq.paths import url
from qos.rest.hornetq.subscribing import create_subscription, subscription_node
from qos.rest.push.pusher import Pusher
from qos.rest.pushing import switch

__all__ = [
    "check_push_consumer",
    "check_push_subscription",
    "push_consumer",
    "push_consumers",
    "push_subscription",
    "push_subscriptions",
]


async def push_consumers(call: Call) -> Answer:
    """Make a push consumer."""
    check_may_subscribe(call, "queue")
    subscriber = _subscriber(call, call.node)
    await call.services.pushers.add(subscriber)
    path = {"node": call.node, "subscriber": subscriber.subscriber_id}
    return Answer(201, {"Location": url("hornetq-push-consumer", **path)})


async def push_subscriptions(call: Call) -> Answer:
    """Make a push subscription: a queue that copies from the topic, and is pushed."""
    check_may_subscribe(call, "topic")
    name = new_id()
    queue = subscription_node(call, name)
    subscriber = _subscriber(call, queue)
    await create_subscription(
        call,
        queue,
        subscriber.jid,
        selector=subscriber.selector,
        durable=subscriber.durable,
    )
    try:
        await call.services.pushers.add(subscriber)
    except Refusal:
        call.services.engine.request(Delete(queue), call.jid, _ignore)
        raise
    path = {"node": call.node, "subscriber": name}
    return Answer(201, {"Location": url("hornetq-push-subscription", **path)})


async def push_subscription(call: Call) -> Answer:
    """Show a push subscription, switch it, or end it with what it has not pushed."""
    pusher = _of_subscription(call)
    if call.method == "DELETE":
        await call.ask(Delete(pusher.subscriber.node))
        return Answer(204)
    if call.method == "POST":
        return await switch(call, pusher)
    return _description(pusher, topic=True)


async def check_push_subscription(call: Call) -> None:
    """Check that the push subscription of the path is the user's."""
    _of_subscription(call)


def _of_subscription(call: Call) -> Pusher:
    """Raises Refusal: the user has no such push subscription."""
    queue = subscription_node(call, call.path["subscriber"])
    for pusher in call.services.pushers.of(queue, call.account):
        return pusher
    raise _unknown(f"push subscription to {call.node!r}")


def _subscriber(call: Call, node: str) -> PushSubscriber:
    """The subscriber that the body asks for, with its URL in normal form."""
    registration = read_registration(call.body, call.headers.get("content-type", ""))
    return PushSubscriber(
        subscriber_id=new_id(),
        node=node,
        account=call.account,
        rel=registration.link.rel,
        href=call.services.pushers.target(registration.link.href),
        base=call.base,
        authorization=registration.authorization,
        digest=registration.digest,
        selector=registration.selector,
        headers=registration.headers,
        method=registration.method,
        content_type=registration.content_type,
        sessions=registration.sessions,
        max_retries=registration.max_retries,
        retry_wait_s=registration.retry_wait_s,
        disable_on_failure=registration.disable_on_failure,
        durable=registration.durable,
        created_at=call.services.engine.now(),
        enabled=registration.enabled,
        reason="" if registration.enabled else "it was made so",
    )


async def push_consumer(call: Call) -> Answer:
    """Show a push consumer, switch it on or off, or end it."""
    pusher = _pusher(call)
    if call.method == "DELETE":
        await call.services.pushers.remove(pusher)
        return Answer(204)
    if call.method == "POST":
        return await switch(call, pusher)
    return _description(pusher)


async def check_push_consumer(call: Call) -> None:
    """Check that the push consumer of the path is the user's."""
    _pusher(call)


def _description(pusher: Pusher, *, topic: bool = False) -> Answer:
    headers = {"Content-Type": "application/xml", "Cache-Control": "no-store"}
    return Answer(200, headers, body=render(pusher.subscriber, topic=topic))


def _pusher(call: Call) -> Pusher:
    path = call.path
    pusher = call.services.pushers.find(call.node, call.account, path["subscriber"])
    if pusher is None:
        raise _unknown(f"push consumer of {call.node!r}")
    return pusher


def _unknown(kind: str) -> Refusal:
    return Refusal(
        f"you have no such {kind}", condition="item-not-found", type="cancel"
    )


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """It is as it was."""
