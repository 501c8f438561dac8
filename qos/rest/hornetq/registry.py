"""The pull consumers of a gateway, with a limit on their number."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from qos.core.queue.requests import Refusal
from qos.rest import bounds
from qos.rest.hornetq.consumers import Identity, PullConsumer

if TYPE_CHECKING:
    from qos.rest.gateway import Gateway

__all__ = ["PullConsumers"]


class PullConsumers:
    """All pull consumers of a gateway.

    Attributes:
        idle_s: seconds after which one without a request has timed out.
    """

    def __init__(self, gateway: Gateway) -> None:
        """Begin without consumers."""
        self.idle_s = bounds.CONSUMER_IDLE_S
        self._gateway = gateway
        self._all: dict[str, PullConsumer] = {}
        self._subscriptions: dict[str, PullConsumer] = {}
        self._accounts: Counter[str] = Counter()
        self._nodes: Counter[str] = Counter()
        self._deleted: OrderedDict[str, None] = OrderedDict()

    def get(self, identity: Identity) -> PullConsumer | None:
        """The consumer; None: it is not in memory, and has to be made again."""
        return self._all.get(identity.resource)

    def of_subscription(self, node: str) -> PullConsumer | None:
        """The consumer of a subscription; None: it is not in memory."""
        return self._subscriptions.get(node)

    def discard(self, consumer: PullConsumer) -> None:
        """Forget a consumer whose subscription could not be made."""
        consumer.stop()
        self._end(consumer)

    def is_deleted(self, identity: Identity) -> bool:
        """Whether its client has deleted it."""
        return identity.resource in self._deleted

    def make(self, identity: Identity, selector: str = "") -> PullConsumer:
        """A new consumer, or one that is made again.

        Raises:
            Refusal: there are too many.
        """
        account, node = identity.account, identity.node
        if self._accounts[account] >= bounds.CONSUMERS_PER_ACCOUNT_MAX:
            raise _too_many(account)
        if self._nodes[node] >= bounds.CONSUMERS_PER_NODE_MAX:
            raise _too_many(repr(node))
        made = PullConsumer(self._gateway, identity, selector, self._end)
        self._all[identity.resource] = made
        if identity.subscription:
            self._subscriptions[node] = made
        self._accounts[account] += 1
        self._nodes[node] += 1
        return made

    async def delete(self, identity: Identity) -> None:
        """Delete a consumer.

        Raises:
            Refusal: the store cannot be written.
        """
        consumer = self.get(identity) or PullConsumer(
            self._gateway, identity, "", lambda _: None
        )
        self._deleted[identity.resource] = None
        while len(self._deleted) > bounds.DELETED_CONSUMERS_MAX:
            self._deleted.popitem(last=False)
        await consumer.delete()

    def stop(self) -> None:
        """Stop all timers."""
        for each in self._all.values():
            each.stop()

    def _end(self, consumer: PullConsumer) -> None:
        identity = consumer.identity
        del self._all[identity.resource]
        if self._subscriptions.get(identity.node) is consumer:
            del self._subscriptions[identity.node]
        for counter, key in (
            (self._accounts, identity.account),
            (self._nodes, identity.node),
        ):
            counter[key] -= 1
            if not counter[key]:
                del counter[key]


def _too_many(whose: str) -> Refusal:
    return Refusal(
        f"{whose} has as many pull consumers as are possible; delete one",
        condition="policy-violation",
        type="wait",
    )
