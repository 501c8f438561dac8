"""The pull consumers of a gateway, with a limit on their number."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable

from qos.core.counting import uncount
from qos.core.queue.requests import Refusal
from qos.core.queue.shares import has_room
from qos.core.registry import register
from qos.rest import bounds
from qos.rest.pull.consumers import Identity, PullConsumer
from qos.rest.waiting import ConsumerHost

__all__ = ["PullConsumers"]


class PullConsumers:
    """All pull consumers of a gateway.

    Attributes:
        idle_s: seconds after which one without a request has timed out.
    """

    def __init__(self, host: ConsumerHost) -> None:
        """Begin without consumers."""
        self.idle_s = bounds.CONSUMER_IDLE_S
        self._host = host
        self._all: dict[str, PullConsumer] = {}
        self._subscriptions: dict[str, PullConsumer] = {}
        self._accounts: Counter[str] = Counter()
        self._nodes: Counter[str] = Counter()
        # Of each account at each node.
        self._shares: Counter[tuple[str, str]] = Counter()
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
        own, total = self._shares[node, account], self._nodes[node]
        if not has_room(own, total, bounds.CONSUMERS_PER_NODE_MAX):
            raise _too_many(f"{account} at {node!r}")
        consumer = self._new(identity, selector, self._end)
        register(self._all, identity.resource, consumer)
        if identity.subscription:
            register(self._subscriptions, node, consumer)
        self._accounts[account] += 1
        self._nodes[node] += 1
        self._shares[node, account] += 1
        return consumer

    def _new(
        self,
        identity: Identity,
        selector: str,
        on_end: Callable[[PullConsumer], object],
    ) -> PullConsumer:
        return PullConsumer(self._host, identity, selector, on_end, idle_s=self.idle_s)

    async def delete(self, identity: Identity) -> None:
        """Delete a consumer.

        Raises:
            Refusal: the store cannot be written.
        """
        consumer = self.get(identity) or self._new(identity, "", lambda _: None)
        self._deleted[identity.resource] = None
        while len(self._deleted) > bounds.DELETED_CONSUMERS_MAX:
            self._deleted.popitem(last=False)
        await consumer.delete()

    def revoke(self, is_user: Callable[[str], bool]) -> None:
        """End the consumers of accounts that have no user any more."""
        for consumer in list(self._all.values()):
            if not is_user(consumer.identity.account):
                consumer.time_out()

    def stop(self) -> None:
        """Stop all timers."""
        for consumer in self._all.values():
            consumer.stop()

    def _end(self, consumer: PullConsumer) -> None:
        identity = consumer.identity
        del self._all[identity.resource]
        if self._subscriptions.get(identity.node) is consumer:
            del self._subscriptions[identity.node]
        uncount(self._accounts, identity.account)
        uncount(self._nodes, identity.node)
        uncount(self._shares, (identity.node, identity.account))


def _too_many(owner: str) -> Refusal:
    return Refusal(
        f"{owner} has as many pull consumers as are possible; delete one",
        condition="policy-violation",
        type="wait",
    )
