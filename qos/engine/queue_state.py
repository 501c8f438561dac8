"""The state of a queue service at this moment, for gateways and service discovery.

A change may not be on disk yet. If it cannot be written, it is taken back, and nothing
is known until the disk has been read again.
"""

from __future__ import annotations

from dataclasses import dataclass

from qos.core.queue.access import may_publish, may_subscribe
from qos.core.queue.bounds import may_create
from qos.core.queue.item import Item
from qos.core.queue.publishing import ONCE_S_MAX, once_s
from qos.core.queue.service import Queues
from qos.core.queue.terminus import Terminus, TerminusName
from qos.core.strings import bare

__all__ = ["QueueState", "Rights"]


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of an account at a node: at least one of them.

    Attributes:
        subscribe: it may subscribe.
        publish: it may publish.
        once_s: the seconds in which an id that the service gives out can be used for
            one publish; 0: the node remembers no ids.
    """

    subscribe: bool
    publish: bool
    once_s: float


class QueueState:
    """Questions to the core; each is answered at once."""

    def __init__(self, core: Queues) -> None:
        # None: its last decisions could not be written.
        self._core: Queues | None = core

    def open_nodes(self) -> tuple[list[str], list[str]]:
        """The nodes that everybody may subscribe to, and those to publish to.

        Sorted.
        """
        nodes = [] if self._core is None else sorted(self._core.nodes.items())
        # The empty account has no affiliation anywhere, so it stands for any account.
        return (
            [
                name
                for name, each in nodes
                if may_subscribe(each.node, each.options, "")
            ],
            [name for name, each in nodes if may_publish(each.node, each.options, "")],
        )

    def rights(self, node: str, requester: str) -> Rights | None:
        """The rights of a full JID at a node, at this moment; all while that is unknown.

        None: there is no such node, or the requester may not use it.
        """
        if self._core is None:
            return Rights(subscribe=True, publish=True, once_s=ONCE_S_MAX)
        queue = self._core.nodes.get(node)
        if queue is None:
            return None
        account = bare(requester)
        subscribe = may_subscribe(queue.node, queue.options, account)
        publish = may_publish(queue.node, queue.options, account)
        if not (subscribe or publish):
            return None
        return Rights(subscribe, publish, once_s(queue.options))

    def creates(self, account: str) -> bool:
        """Whether this bare JID may create nodes; True while this is unknown."""
        return self._core is None or may_create(self._core.creators, account)

    def is_topic(self, node: str) -> bool:
        """Whether this is the name of a topic; False while that is unknown."""
        return self.node_type(node) == "topic"

    def node_type(self, node: str) -> str | None:
        """`queue` or `topic`; None: there is no such node, or that is unknown."""
        queue = None if self._core is None else self._core.nodes.get(node)
        return None if queue is None else queue.options.node_type

    def creator(self, node: str) -> str | None:
        """The bare JID that created a node; None: there is none, or it is unknown."""
        queue = None if self._core is None else self._core.nodes.get(node)
        return None if queue is None else queue.node.creator

    def terminus(self, name: TerminusName) -> tuple[Terminus, list[str]] | None:
        """The terminus of this name, and the tokens of the deliveries that it holds.

        As of this moment; None: there is none, or that is unknown.
        """
        found = None if self._core is None else self._core.termini.named(name)
        if self._core is None or found is None:
            return None
        return found, self._core.tokens(found.node, found.jid)

    def keeps(self, jid: str) -> bool:
        """Whether this full JID is that of a terminus."""
        return self._core is not None and jid in self._core.termini

    def held(self, node: str, jid: str) -> list[Item]:
        """The items that a full JID holds at a node by ordinary locks, at this moment."""
        queue = None if self._core is None else self._core.nodes.get(node)
        if queue is None:
            return []
        return [queue.items[each] for each in queue.live.holders.held(jid)]

    def publishes(self, account: str) -> bool:
        """Whether this bare JID may publish to a node; True while this is unknown."""
        return self._core is None or self._core.publishes(account)
