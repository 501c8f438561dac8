"""The limits of a queue service, and who may create nodes."""

from __future__ import annotations

from collections.abc import Collection

from qos.core.quota import Quotas, Share, Tally
from qos.core.record import record
from qos.core.strings import domain_of

__all__ = [
    "MESSAGE_QUOTAS",
    "RECOVER_FOR_S",
    "QueueBounds",
    "may_create",
]

#: Limits for messages that wait at a service until they are published. That takes
#: almost no time, so the limits are much lower than for a device that may be away. A
#: publisher that is refused tries again later.
MESSAGE_QUOTAS = Quotas(messages=100, bytes=1024 * 1024)


#: The time in which a store cannot be read any more, after which a service is given up, in
#: seconds.
RECOVER_FOR_S = 60.0


@record(frozen=True, slots=True, kw_only=True)
class QueueBounds:
    """The limits on nodes and subscriptions: per account, per foreign domain, in total.

    All nodes, subscriptions and durable termini are in memory. A node counts for the account that
    created it, whoever owns it later, since an account can be made owner without its
    consent. A dormant subscription does not count.

    Attributes:
        nodes_per_account: created by one account.
        nodes_per_domain: created by all accounts of one foreign domain.
        nodes: in total.
        bytes_per_account: of the items that wait in the nodes that one account created.
        subscriptions_per_account: of one account; each worker has one to each node.
        subscriptions_per_domain: of all accounts of one foreign domain.
        subscriptions: in total.
        termini_per_account: durable termini of links of one account.
        termini_per_domain: of all accounts of one foreign domain.
        termini: in total.
        own_domains: the domains that are not foreign; the limits per domain do not
            apply.
    """

    nodes_per_account: int = 100
    nodes_per_domain: int = 1_000
    nodes: int = 10_000
    bytes_per_account: int = 16 * 1024**3
    subscriptions_per_account: int = 1_000
    subscriptions_per_domain: int = 10_000
    subscriptions: int = 100_000
    termini_per_account: int = 100
    termini_per_domain: int = 1_000
    termini: int = 10_000
    own_domains: frozenset[str] = frozenset()

    def of_nodes(self) -> Tally:
        """A counter of nodes, with these limits."""
        share = Share(self.nodes_per_account, self.nodes_per_domain, self.nodes)
        return Tally(share, self.own_domains)

    def of_subscriptions(self) -> Tally:
        """A counter of subscriptions, with these limits."""
        share = Share(
            self.subscriptions_per_account,
            self.subscriptions_per_domain,
            self.subscriptions,
        )
        return Tally(share, self.own_domains)

    def of_termini(self) -> Tally:
        """A counter of durable termini, with these limits."""
        share = Share(self.termini_per_account, self.termini_per_domain, self.termini)
        return Tally(share, self.own_domains)


def may_create(creators: Collection[str] | None, account: str) -> bool:
    """Whether an account may create nodes; see `Queues.creators`."""
    if creators is None:
        return True
    return account in creators or f"@{domain_of(account)}" in creators
