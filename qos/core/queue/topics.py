"""Which queues copy from which topic.

A queue names its topic when it is created (`queue#topic`), and never changes it. It is
deleted with the topic, in the same commit; so a name says which topic is meant.
"""

from __future__ import annotations

from collections.abc import Mapping

from qos.core.queue.access import is_owner, may_subscribe
from qos.core.queue.node import QueueNode
from qos.core.queue.node_options import NODE_TYPE, TOPIC
from qos.core.queue.requests import Refusal
from qos.core.queue.selector import parse
from qos.core.queue.selector_time import TimedSelector
from qos.core.queue.shares import has_room
from qos.core.queue.topic_node import TopicNode

__all__ = [
    "QUEUES_MAX",
    "Topics",
    "check_create",
    "check_name",
    "check_unchanged",
    "subscription_name",
]

#: The number of queues that copy from one topic: each item is written so many times, in
#: one commit.
QUEUES_MAX = 100

#: The beginning of the names that belong to subscriptions.
_SUBSCRIPTIONS = "subscription/"


class Topics:
    """The queues that copy, by their topics."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, TimedSelector | None]] = {}

    def of(self, topic: str) -> Mapping[str, TimedSelector | None]:
        """The queues that copy from this topic, each with the condition on its items."""
        return self._queues.get(topic, {})

    def keep(self, queue: QueueNode) -> None:
        """Note a queue, which may copy, or its new configuration."""
        options = queue.options
        if options.topic:
            timed = None
            if options.selector:
                timed = TimedSelector(parse(options.selector), queue.node.creator)
            self._queues.setdefault(options.topic, {})[queue.node.name] = timed

    def drop(self, queue: QueueNode) -> None:
        """Note that a queue is deleted."""
        queues = self._queues.get(queue.options.topic, {})
        queues.pop(queue.node.name, None)
        if not queues:
            self._queues.pop(queue.options.topic, None)


def check_create(
    nodes: Mapping[str, QueueNode],
    topics: Topics,
    config: Mapping[str, str],
    account: str,
) -> None:
    """Check that the account may create a queue that copies from the topic it names.

    Raises:
        Refusal: it may not, or there is no such topic, or enough queues copy from it.
    """
    name = config.get(TOPIC, "")
    if not name:
        return
    topic = nodes.get(name)
    if topic is None or not may_subscribe(topic.node, topic.options, account):
        # One answer for both cases: a stranger does not learn which nodes exist.
        raise _not_acceptable(
            f"there is no topic {name!r} to which {account} may subscribe"
        )
    if not isinstance(topic, TopicNode):
        raise _not_acceptable(
            f"{name!r} is a queue, and only a topic copies its items ({NODE_TYPE})"
        )
    copying = topics.of(name)
    own = sum(nodes[queue_name].node.creator == account for queue_name in copying)
    owner = is_owner(topic.node, account)
    if not has_room(own, len(copying), QUEUES_MAX, owner=owner):
        raise Refusal(
            f"{account} has as many queues that copy from {name!r} as its share of "
            f"{QUEUES_MAX}; one must be deleted first",
            condition="policy-violation",
            type="wait",
            pubsub="too-many-subscriptions",
        )


def subscription_name(topic: str, account: str, name: str) -> str:
    """The name of the queue of a subscription, which nobody else can take.

    Args:
        topic: its name.
        account: the bare JID that subscribes.
        name: of the subscription, chosen by that account.
    """
    # No JID has a slash before its resource. So the account can be told from the rest.
    topic = topic.replace("%", "%25").replace("/", "%2F")
    return f"{_SUBSCRIPTIONS}{topic}/{account}/{name}"


def check_name(name: str, config: Mapping[str, str], account: str) -> None:
    """Check that an account may create a node of this name.

    Names of subscriptions can be told in advance. If another account could take one
    first, its owner would be refused, or would consume from a queue of a stranger.

    Raises:
        Refusal: the name belongs to the subscriptions of another account or topic.
    """
    own = subscription_name(config.get(TOPIC, ""), account, "")
    if name.startswith(_SUBSCRIPTIONS) and not name.startswith(own):
        raise _not_acceptable(
            f"names that begin with {_SUBSCRIPTIONS!r} are those of subscriptions to "
            "topics: choose another name"
        )


def check_unchanged(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Check that a new configuration leaves what is set for good.

    Raises:
        Refusal: it does not.
    """
    for var in (NODE_TYPE, TOPIC):
        if before.get(var) != after.get(var):
            raise _not_acceptable(f"{var} is set when a node is created, and stays")


def _not_acceptable(text: str) -> Refusal:
    return Refusal(text, condition="not-acceptable", type="modify")
