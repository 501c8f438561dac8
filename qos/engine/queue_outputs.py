"""The outputs of a commit: the answers and events to send when its changes are on disk.

Answers and events are sent in order; the items for one subscriber go together. This
module reads payloads, and decides nothing.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from qos.core.queue.effects import Notification, NotifyItem, Probe
from qos.core.queue.item import Item
from qos.core.queue.results import ItemsResult
from qos.core.queue.service import Queues
from qos.engine.queue_commit import (
    NOTIFICATIONS,
    PendingAnswer,
    QueueCommit,
    unwritten,
)
from qos.errors import StoreError
from qos.stores.queue_store import QueueStore

__all__ = ["Payloads", "QueueOutputs", "QueuePort", "SentEvent"]

log = logging.getLogger(__name__)

#: The most events that may still bounce. A bounce comes back within a round trip.
_SENT_MAX = 10_000

#: Items, each with its payload.
Payloads: TypeAlias = Sequence[tuple[Item, str]]

#: The node of an event, and the items in it by their tokens.
SentEvent: TypeAlias = tuple[str, dict[str, Item]]


class QueuePort(Protocol):
    """The methods that the engine needs of the connection.

    It drops unsendable stanzas.
    """

    def attached(self) -> Collection[str]:
        """The full JIDs that are there whether or not there is a session."""
        return ()

    def restarted(self) -> None:
        """Note that the engine has begun again with the contents of the disk.

        It had to take back decisions. Nobody is present any more, and all credit
        (`qos.core.queue.requests.Credit`) is gone.
        """
        return

    def dropped(self, to: str, item: Item) -> None:
        """Note that this item, as it was locked for `to`, is not sent after all.

        Its delivery has ended before, or its payload could not be read.
        """
        return

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """Send these items of one node in one event, or in several if too large.

        Returns:
            The events sent: the id of each, and the items in it.
        """

    def notify(self, notification: Notification) -> None:
        """Send any other event."""

    def deleted(self, node: str) -> None:
        """Note that a node is gone, on disk too."""
        return

    def counts(self, node: str) -> Mapping[str, int]:
        """The counts of a node that only the connection knows, by name."""
        return {}

    def probe(self, jid: str) -> None:
        """Ask whether this JID is there; if so, `QueueEngine.heard` is called."""

    def new_id(self) -> str:
        """128 random bits as text; never the same twice."""


class QueueOutputs:
    """Performs the outputs of each commit, and remembers the events that were sent."""

    def __init__(self, store: QueueStore, port: QueuePort) -> None:
        """Begin without sent events.

        Args:
            store: has the payloads.
            port: the connection.
        """
        self._store = store
        self._port = port
        # By the id of an event, the oldest first.
        self._sent: OrderedDict[str, SentEvent] = OrderedDict()

    def sent(self, event_id: str) -> SentEvent | None:
        """A sent event, if it is still remembered."""
        return self._sent.get(event_id)

    def forget(self, event_id: str) -> SentEvent | None:
        """Forget a sent event, and return it if it was remembered."""
        return self._sent.pop(event_id, None)

    def perform(self, commit: QueueCommit, core: Queues | None) -> None:
        """Send all answers and events of a commit, in order.

        Args:
            commit: its changes are on disk.
            core: knows the deliveries that have not ended meanwhile.
        """
        assert core is not None
        items: dict[tuple[str, str], NotifyItem] = {}
        for output in commit.outputs:
            if isinstance(output, NotifyItem):
                if core.is_live(output):
                    # Once, even if it was heard and subscribes at the same time.
                    items[output.to, output.item.token] = output
                else:
                    self._port.dropped(output.to, output.item)
            elif isinstance(output, PendingAnswer):
                self._answer(output)
            elif isinstance(output, Probe):
                self._port.probe(output.to)
            elif isinstance(output, NOTIFICATIONS):
                self._port.notify(output)
            else:
                output.tell(output.seen)
        if items:
            self._notify_items(list(items.values()), commit.payloads)

    def _answer(self, reply: PendingAnswer) -> None:
        result, payloads = reply.result, {}
        if isinstance(result, ItemsResult):
            try:
                payloads = self._store.payloads([item.seq for item in result.items])
            except StoreError as error:
                log.error("payloads could not be read: %s", error)
                reply.answer(unwritten(error), {})
                return
        reply.answer(result, payloads)

    def _notify_items(
        self, notifications: Sequence[NotifyItem], payloads: dict[int, str]
    ) -> None:
        unknown = [
            each.item.seq for each in notifications if each.item.seq not in payloads
        ]
        try:
            payloads = {**payloads, **self._store.payloads(unknown)}
        except StoreError as error:
            # They stay locked until the lock times out.
            log.error("payloads could not be read: %s", error)
        events: dict[tuple[str, str, bool], list[tuple[Item, str]]] = {}
        for each in notifications:
            payload = payloads.get(each.item.seq)
            if payload is None:
                self._port.dropped(each.to, each.item)
                continue
            key = (each.to, each.item.node, each.acknowledged)
            event = events.setdefault(key, [])
            event.append((each.item, payload))
            if len(event) >= each.batch:
                self._send(key, events.pop(key))
        for key, event in events.items():
            self._send(key, event)

    def _send(self, key: tuple[str, str, bool], items: Payloads) -> None:
        to, node, acknowledged = key
        sent = self._port.notify_items(to, items, acknowledged=acknowledged)
        for event_id, some in sent:
            self._sent[event_id] = (node, {item.token: item for item, _ in some})
        while len(self._sent) > _SENT_MAX:
            self._sent.popitem(last=False)
