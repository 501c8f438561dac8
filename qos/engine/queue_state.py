"""The state of a queue service at this moment, for gateways and service discovery.

A change may not be on disk yet. If it cannot be written, it is taken back, and nothing
is known until the disk has been read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from qos.core.queue.access import may_publish, may_subscribe
from qos.core.queue.bounds import may_create
from qos.core.queue.command_table import Predicate
from qos.core.queue.effects import Change, RemoveNode, SaveItem
from qos.core.queue.item import Item
from qos.core.queue.publishing import ONCE_S_MAX, once_s
from qos.core.queue.service import Queues
from qos.core.queue.terminus import Terminus, TerminusName
from qos.core.strings import bare

__all__ = ["NodeSearch", "QueueState", "Rights", "Watchers"]

#: Nodes that are looked at in one step: 1,000 take a millisecond.
_STEP_NODES = 1000


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
                for name, queue in nodes
                if may_subscribe(queue.node, queue.options, "")
            ],
            [
                name
                for name, queue in nodes
                if may_publish(queue.node, queue.options, "")
            ],
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
        terminus = None if self._core is None else self._core.termini.named(name)
        if self._core is None or terminus is None:
            return None
        return terminus, self._core.tokens(terminus.node, terminus.jid)

    def keeps(self, jid: str) -> bool:
        """Whether this full JID is that of a terminus."""
        return self._core is not None and jid in self._core.termini

    def held(self, node: str, jid: str) -> list[Item]:
        """The items that a full JID holds at a node by ordinary locks, at this moment."""
        queue = None if self._core is None else self._core.nodes.get(node)
        if queue is None:
            return []
        return [queue.items[item_id] for item_id in queue.live.holders.held(jid)]

    def publishes(self, account: str) -> bool:
        """Whether this bare JID may publish to a node; True while this is unknown."""
        return self._core is None or self._core.publishes(account)


class NodeSearch:
    """A look for the nodes at which an account has a right.

    Attributes:
        names: of those that were found, sorted.
    """

    def __init__(self, core: Queues, account: str, may: Predicate) -> None:
        """Begin a look.

        Args:
            core: has the nodes.
            account: the bare JID.
            may: whether it has the right at a node.
        """
        self.names: list[str] = []
        self._core = core
        self._account = account
        self._may = may
        self._left = iter(sorted(core.nodes))

    @property
    def is_short(self) -> bool:
        """Whether one step is all."""
        return len(self._core.nodes) < _STEP_NODES

    def step(self) -> bool:
        """Look at some nodes; whether there are more. One that is gone meanwhile is left out."""
        count = 0
        for name in islice(self._left, _STEP_NODES):
            count += 1
            queue = self._core.nodes.get(name)
            if queue and self._may(queue.node, queue.options, self._account):
                self.names.append(name)
        return count == _STEP_NODES


class Watchers:
    """The readers that wait for new items, by node, without being given any.

    A reader of a topic takes nothing, so no worker's subscription can wake it up.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, set[Callable[[], object]]] = {}

    @contextmanager
    def watching(self, node: str) -> Iterator[asyncio.Event]:
        """An event that is set when a new item of this node is on disk, or it is deleted.

        Look for items after this has begun, and again each time that it is set.
        """
        changed = asyncio.Event()
        self.watch(node, changed.set)
        try:
            yield changed
        finally:
            self.unwatch(node, changed.set)

    def watch(self, node: str, call: Callable[[], object]) -> None:
        """Call this each time that such an event would be set; it must ask for nothing."""
        self._waiting.setdefault(node, set()).add(call)

    def unwatch(self, node: str, call: Callable[[], object]) -> None:
        """Call this no more; harmless if it was not to be called."""
        waiting = self._waiting.get(node, set())
        waiting.discard(call)
        if not waiting:
            self._waiting.pop(node, None)

    def written(self, changes: Sequence[Change]) -> None:
        """Note that these changes are on disk."""
        if not self._waiting:
            return
        for change in changes:
            if isinstance(change, SaveItem) and change.payload is not None:
                node = change.item.node
            elif isinstance(change, RemoveNode):
                node = change.name
            else:
                continue
            for call in self._waiting.get(node, ()):
                call()
