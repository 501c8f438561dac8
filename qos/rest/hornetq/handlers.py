"""The handler of each URL of the dialect, and the kind of request for its refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qos.core.rest.statuses import Act
from qos.rest.calls import Handler
from qos.rest.hornetq import consuming, creating, pushing, subscribing
from qos.rest.hornetq.links import in_words

__all__ = ["HANDLERS"]

_HANDLERS: Final[Mapping[str, Handler]] = {
    "queues": Handler(creating.queues, Act.POST),
    "queue": Handler(creating.queue, Act.READ),
    "topics": Handler(creating.topics, Act.POST),
    "topic": Handler(creating.topic, Act.READ),
    "pull-subscriptions": Handler(subscribing.pull_subscriptions, Act.PULL),
    "create": Handler(creating.create, Act.POST, creating.sent_on),
    "create-id": Handler(creating.create_with_id, Act.POST),
    "pull-consumers": Handler(consuming.pull_consumers, Act.PULL),
    "push-consumers": Handler(pushing.push_consumers, Act.PULL),
    "push-subscriptions": Handler(pushing.push_subscriptions, Act.PULL),
    "push-subscription": Handler(
        pushing.push_subscription, Act.READ, pushing.check_push_subscription
    ),
    "push-consumer": Handler(
        pushing.push_consumer, Act.READ, pushing.check_push_consumer
    ),
    "consumer": Handler(consuming.consumer, Act.READ, consuming.check_consumer),
    "next": Handler(consuming.next_message, Act.PULL, consuming.check_consumer),
    "acknowledgement": Handler(
        consuming.acknowledge, Act.SETTLE, consuming.check_consumer
    ),
}

HANDLERS: Final[Mapping[str, Handler]] = {
    f"hornetq-{name}": in_words(handler) for name, handler in _HANDLERS.items()
}
