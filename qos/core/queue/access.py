"""Access to a node: what each affiliation allows (XEP-0060 §4.1, §4.5)."""

from __future__ import annotations

from qos.core.queue.item import Affiliation, Node
from qos.core.queue.node_options import NodeOptions
from qos.core.strings import domain_of

__all__ = ["affiliation", "is_owner", "may_publish", "may_subscribe", "may_use"]


_PUBLISHERS = frozenset(
    {Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.PUBLISH_ONLY}
)


def affiliation(node: Node, account: str) -> Affiliation:
    """The affiliation of this bare JID with the node.

    The JID of a domain stands for all its accounts that have no affiliation of their own,
    as it does in the lists of XEP-0045 §9.1.
    """
    own = node.affiliations.get(account)
    if own is None:
        return node.affiliations.get(domain_of(account), Affiliation.NONE)
    return own


def is_owner(node: Node, account: str) -> bool:
    """Whether the account owns the node, and so may do everything."""
    return affiliation(node, account) is Affiliation.OWNER


def may_subscribe(node: Node, options: NodeOptions, account: str) -> bool:
    """Whether the account may subscribe.

    With access model open, every account may except an outcast and one that may only
    publish. With a whitelist, owners, publishers and members.
    """
    affiliation_ = affiliation(node, account)
    if affiliation_ is Affiliation.NONE:
        return options.access_model == "open"
    return affiliation_ not in {Affiliation.OUTCAST, Affiliation.PUBLISH_ONLY}


def may_publish(node: Node, options: NodeOptions, account: str) -> bool:
    """Whether the account may publish.

    Owners and publishers may, and those who may only publish. With publish model open,
    so may every account that may subscribe.
    """
    if affiliation(node, account) in _PUBLISHERS:
        return True
    return options.publish_model == "open" and may_subscribe(node, options, account)


def may_use(node: Node, options: NodeOptions, account: str) -> bool:
    """Whether the account may subscribe or publish.

    The node is hidden from all others.
    """
    return may_subscribe(node, options, account) or may_publish(node, options, account)
