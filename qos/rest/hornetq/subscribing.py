"""Pull subscriptions to topics: docs/rest-checklist.md H13.

A subscription is a queue that copies from its topic, with one pull consumer. One that is
not durable has a lifetime: it ends when the link of its consumer does, and at a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from qos.core.queue.lifetime import Lifetime
from qos.core.queue.node_options import SELECTOR, TOPIC
from qos.core.queue.requests import (
    CloseLink,
    Create,
    GetConfigure,
    OpenLink,
    Refusal,
)
from qos.core.queue.results import ConfigureResult, Result
from qos.core.queue.topics import subscription_name
from qos.core.rest.hornetq.forms import SubscriptionForm, subscription_form
from qos.ids import new_id
from qos.rest.calls import Answer, Call, as_text
from qos.rest.consuming import form_of
from qos.rest.hornetq.consuming import check_may_subscribe, made
from qos.rest.pull.consumers import DURABLE, VOLATILE, Identity
from xep_0254.requests import NODE_CHARS_MAX

__all__ = ["create_subscription", "pull_subscriptions", "subscription_node"]


async def pull_subscriptions(call: Call) -> Answer:
    """Subscribe to a topic, or find the subscription of this name again."""
    form = subscription_form(form_of(call))
    check_may_subscribe(call, "topic")
    node = subscription_node(call, form.name or new_id())
    consumers = call.services.pull_consumers
    kind = DURABLE if form.durable else VOLATILE
    identity = Identity(
        *(node, call.account, new_id()), form.auto_ack, False, subscription=kind
    )
    existing = consumers.of_subscription(node)
    exists = call.services.engine.rights(node, call.jid) is not None
    if existing is None and exists:
        if not await _is_same(call, node, form):
            return _other("it has another selector or durability")
        # Another request for it may have made one meanwhile.
        existing = consumers.of_subscription(node)
    if existing is not None:
        if (existing.identity.auto, existing.identity.subscription) != (
            form.auto_ack,
            kind,
        ):
            return _other("it has another mode of acknowledgement, or durability")
        return made(call, existing, 204)
    consumer = consumers.make(identity)
    consumer.delete_when_idle = form.delete_when_idle
    if form.idle_s is not None:
        consumer.idle_s = form.idle_s
    try:
        if not exists:
            await create_subscription(
                *(call, node, identity.jid),
                selector=form.selector,
                durable=form.durable,
            )
    except BaseException:
        consumers.discard(consumer)
        # Its client may have gone before it knew of the queue.
        close = CloseLink(node)
        call.services.engine.request(close, identity.jid, _ignore)
        raise
    with consumer.used():
        return made(call, consumer, 204 if exists else 201)


def subscription_node(call: Call, name: str) -> str:
    """The queue of a subscription of the user to a topic.

    Raises:
        Refusal: its name is too long.
    """
    node = subscription_name(call.node, call.account, name)
    if len(node) > NODE_CHARS_MAX:
        raise Refusal(
            f"with its topic and user, the name of a subscription has at most "
            f"{NODE_CHARS_MAX} characters",
            condition="bad-request",
            type="modify",
        )
    return node


async def create_subscription(
    call: Call, queue: str, jid: str, *, selector: str, durable: bool
) -> None:
    """Make the queue of a subscription.

    Args:
        call: of the user, at the topic.
        queue: its name; see `subscription_node`.
        jid: the full JID of the consumer. Without it, and at a restart, a queue that is
            not durable ends.
        selector: which messages are copied; '': all.
        durable: it stays until it is deleted.

    Raises:
        Refusal: it cannot be made.
    """
    config = {TOPIC: call.node}
    if selector:
        config[SELECTOR] = selector
    engine = call.services.engine
    lifetime = None if durable else Lifetime.DELETE_ON_CLOSE
    answered: asyncio.Future[Refusal | None]
    answered = asyncio.get_running_loop().create_future()

    def answer(result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
        if not answered.done():  # its client has gone
            answered.set_result(result if isinstance(result, Refusal) else None)

    engine.request(Create(queue, config, lifetime), jid, answer)
    if not durable:
        # In the same turn: its lifetime begins with a link.
        engine.request(OpenLink(queue, made=True), jid, _ignore)
    refusal = await answered
    if refusal is not None:
        raise refusal


def _other(why: str) -> Answer:
    return as_text(412, f"there is a subscription of this name: {why}")


async def _is_same(call: Call, node: str, form: SubscriptionForm) -> bool:
    """Whether the queue of a durable subscription is the one that is asked for.

    Only its creator counts: anybody can make the user an owner of a queue.
    """
    try:
        result, _ = await call.ask(GetConfigure(node))
    except Refusal as refusal:
        if refusal.condition == "forbidden":
            return False
        raise
    assert isinstance(result, ConfigureResult)
    assert result.node is not None
    config = result.node.config
    return (
        result.node.creator == call.account
        and form.durable
        and not result.node.lifetime
        and config.get(TOPIC, "") == call.node
        and config.get(SELECTOR, "") == form.selector
    )


def _ignore(_result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
    """The queue may not be there."""
