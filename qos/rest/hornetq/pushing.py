"""Push consumers: those of the other dialect, by a document of HornetQ's; row H14."""

from __future__ import annotations

from collections.abc import Mapping

from qos.core.queue.push import PushSubscriber
from qos.core.queue.requests import Delete, Refusal
from qos.core.queue.results import Result
from qos.core.rest.hornetq.registrations import (
    Registration,
    read_registration,
    render,
)
from qos.core.rest.push_links import AtomLink
from qos.ids import new_id
from qos.rest.calls import Answer, Call
from qos.rest.hornetq.consuming import check_may_subscribe
from qos.rest.hornetq.routes import url
from qos.rest.hornetq.subscribing import create_subscription, subscription_node
from qos.rest.push.pusher import Pusher

__all__ = [
    "push_consumer",
    "push_consumers",
    "push_subscription",
    "push_subscriptions",
]


async def push_consumers(call: Call) -> Answer:
    """Make a push consumer."""
    check_may_subscribe(call, "queue")
    asked, href = _asked(call)
    made = await _made(call, call.node, asked, href)
    path = {"node": call.node, "subscriber": made.subscriber_id}
    return Answer(201, {"Location": url("hornetq-push-consumer", **path)})


async def push_subscriptions(call: Call) -> Answer:
    """Make a push subscription: a queue that copies from the topic, and is pushed."""
    check_may_subscribe(call, "topic")
    asked, href = _asked(call)
    name = new_id()
    queue = await create_subscription(call, name, asked.selector)
    try:
        await _made(call, queue, asked, href)
    except Refusal:
        call.gateway.engine.request(Delete(queue), call.jid, _ignore)
        raise
    path = {"node": call.node, "subscriber": name}
    return Answer(201, {"Location": url("hornetq-push-subscription", **path)})


async def push_subscription(call: Call) -> Answer:
    """Show a push subscription, or end it with what it has not pushed."""
    queue = subscription_node(call, call.path["subscriber"])
    for pusher in call.gateway.pushers.of(queue, call.account):
        if call.method == "DELETE":
            await call.ask(Delete(queue))
            return Answer(204)
        return _shown(pusher)
    raise _unknown(f"push subscription to {call.node!r}")


def _asked(call: Call) -> tuple[Registration, str]:
    """The registration in the body, and its URL in normal form."""
    asked = read_registration(call.body, call.headers.get("content-type", ""))
    return asked, call.gateway.pushers.target(asked.link.href)


async def _made(
    call: Call, node: str, asked: Registration, href: str
) -> PushSubscriber:
    made = PushSubscriber(
        subscriber_id=new_id(),
        node=node,
        account=call.account,
        rel=asked.link.rel,
        href=href,
        base=call.base,
        authorization=asked.authorization,
        selector=asked.selector,
        headers=asked.headers,
        created_at=call.gateway.engine.now(),
    )
    await call.gateway.pushers.add(made)
    return made


async def push_consumer(call: Call) -> Answer:
    """Show a push consumer, or end it."""
    pusher = _found(call)
    if call.method == "DELETE":
        await call.gateway.pushers.remove(pusher)
        return Answer(204)
    return _shown(pusher)


def _shown(pusher: Pusher) -> Answer:
    its = pusher.subscriber
    headers = {"Content-Type": "application/xml", "Cache-Control": "no-store"}
    return Answer(200, headers, body=render(AtomLink(its.rel, its.href), its.selector))


def _found(call: Call) -> Pusher:
    path = call.path
    pusher = call.gateway.pushers.find(call.node, call.account, path["subscriber"])
    if pusher is None:
        raise _unknown(f"push consumer of {call.node!r}")
    return pusher


def _unknown(what: str) -> Refusal:
    return Refusal(
        f"you have no such {what}", condition="item-not-found", type="cancel"
    )


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """It is as it was."""
