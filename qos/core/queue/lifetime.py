"""The lifetime of a node that was made by attaching a link (AMQP 1.0 messaging §3.5.9-13).

No policy ends a node before the link that has made it. A node without a policy stays
until an owner deletes it.
"""

from __future__ import annotations

from qos.core.quick_enum import QuickEnum

__all__ = ["Lifetime", "NodeLinks", "is_over"]


class Lifetime(QuickEnum):
    """The lifetime policies; the values are stored."""

    DELETE_ON_CLOSE = "delete-on-close"
    DELETE_ON_NO_LINKS = "delete-on-no-links"
    DELETE_ON_NO_MESSAGES = "delete-on-no-messages"
    DELETE_ON_NO_LINKS_OR_MESSAGES = "delete-on-no-links-or-messages"


#: By policy: whether links, and whether messages, keep the node.
_KEPT_BY = {
    Lifetime.DELETE_ON_CLOSE: (False, False),
    Lifetime.DELETE_ON_NO_LINKS: (True, False),
    Lifetime.DELETE_ON_NO_MESSAGES: (False, True),
    Lifetime.DELETE_ON_NO_LINKS_OR_MESSAGES: (True, True),
}


def is_over(lifetime: Lifetime, *, made_by: bool, links: int, messages: int) -> bool:
    """Whether the node is to be deleted.

    Args:
        lifetime: its policy.
        made_by: the link that has made it is still there.
        links: how many links there are to it or from it, subscriptions included.
        messages: how many of its items are available or acquired.
    """
    by_links, by_messages = _KEPT_BY[lifetime]
    return not (made_by or (by_links and links) or (by_messages and messages))


class NodeLinks:
    """The links of gateways to a node or from it; their number may keep the node."""

    def __init__(self) -> None:
        self._jids: set[str] = set()
        # The link that has made the node, while that is there.
        self._made_by = ""

    def opened(self, jid: str, *, creator: bool) -> None:
        """Count the link of this full JID.

        If it is the `creator`, it has made the node, unless another link is known to
        have made it.
        """
        self._jids.add(jid)
        if creator and not self._made_by:
            self._made_by = jid

    def closed(self, jid: str) -> None:
        """Stop counting the link of this full JID."""
        self._jids.discard(jid)
        if self._made_by == jid:
            self._made_by = ""

    def is_over(self, lifetime: Lifetime, *, subscriptions: int, messages: int) -> bool:
        """Whether the node is to be deleted, with these counts; see `is_over`."""
        return is_over(
            lifetime,
            made_by=bool(self._made_by),
            links=len(self._jids) + subscriptions,
            messages=messages,
        )
