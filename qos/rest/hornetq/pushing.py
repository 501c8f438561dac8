"""Push consumers: those of the other dialect, by a document of HornetQ's; row H14."""

from __future__ import annotations

from qos.core.queue.push import PushSubscriber
from qos.core.queue.requests import Refusal
from qos.core.rest.hornetq.registrations import read_registration, render
from qos.core.rest.push_links import AtomLink
from qos.core.rest.push_targets import BadTarget
from qos.ids import new_id
from qos.rest.calls import Answer, Call
from qos.rest.hornetq.consuming import check_may_subscribe
from qos.rest.hornetq.routes import url
from qos.rest.push.pusher import Pusher

__all__ = ["push_consumer", "push_consumers"]


async def push_consumers(call: Call) -> Answer:
    """Make a push consumer."""
    check_may_subscribe(call, "queue")
    asked = read_registration(call.body, call.headers.get("content-type", ""))
    pushers = call.gateway.pushers
    try:
        target = pushers.client.rules.target(asked.link.href)
    except BadTarget as error:
        raise Refusal(
            f"nothing is pushed to this href: {error}",
            condition="bad-request",
            type="modify",
        ) from None
    made = PushSubscriber(
        subscriber_id=new_id(),
        node=call.node,
        account=call.account,
        rel=asked.link.rel,
        href=target.url,
        base=call.base,
        authorization=asked.authorization,
        selector=asked.selector,
        created_at=call.gateway.engine.now(),
    )
    await pushers.add(made)
    path = {"node": call.node, "subscriber": made.subscriber_id}
    return Answer(201, {"Location": url("hornetq-push-consumer", **path)})


async def push_consumer(call: Call) -> Answer:
    """Show a push consumer, or end it."""
    pusher = _found(call)
    if call.method == "DELETE":
        await call.gateway.pushers.remove(pusher)
        return Answer(204)
    its = pusher.subscriber
    headers = {"Content-Type": "application/xml", "Cache-Control": "no-store"}
    return Answer(200, headers, body=render(AtomLink(its.rel, its.href), its.selector))


def _found(call: Call) -> Pusher:
    for pusher in call.gateway.pushers.of(call.node, call.account):
        if pusher.subscriber.subscriber_id == call.path["subscriber"]:
            return pusher
    raise Refusal(
        f"you have no such push consumer of {call.node!r}",
        condition="item-not-found",
        type="cancel",
    )
