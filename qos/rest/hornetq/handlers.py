"""The handler of each URL of the dialect, and the kind of request for its refusals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from qos.core.rest.statuses import Act
from qos.rest.calls import Answer, Call
from qos.rest.hornetq import consuming, creating, pushing, subscribing
from qos.rest.hornetq.links import in_words

__all__ = ["HANDLERS"]

HANDLERS: Final[Mapping[str, tuple[Callable[[Call], Awaitable[Answer]], Act]]] = {
    "hornetq-queues": (in_words(creating.queues), Act.POST),
    "hornetq-queue": (in_words(creating.queue), Act.READ),
    "hornetq-topics": (in_words(creating.topics, "topic"), Act.POST),
    "hornetq-topic": (in_words(creating.topic, "topic"), Act.READ),
    "hornetq-pull-subscriptions": (
        in_words(subscribing.pull_subscriptions, "topic"),
        Act.PULL,
    ),
    "hornetq-create": (in_words(creating.create), Act.POST),
    "hornetq-create-id": (in_words(creating.create_with_id), Act.POST),
    "hornetq-pull-consumers": (in_words(consuming.pull_consumers), Act.PULL),
    "hornetq-push-consumers": (in_words(pushing.push_consumers), Act.PULL),
    "hornetq-push-subscriptions": (in_words(pushing.push_subscriptions), Act.PULL),
    "hornetq-push-subscription": (in_words(pushing.push_subscription), Act.READ),
    "hornetq-push-consumer": (in_words(pushing.push_consumer), Act.READ),
    "hornetq-consumer": (in_words(consuming.consumer), Act.READ),
    "hornetq-next": (in_words(consuming.next_message), Act.PULL),
    "hornetq-acknowledgement": (in_words(consuming.acknowledge), Act.SETTLE),
}
