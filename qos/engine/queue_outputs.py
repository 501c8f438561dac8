"""The outputs of a commit: the answers and events to send when its changes are on disk.

Answers and events are sent in order; the items for one subscriber go together. This
module reads payloads, and decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from qos.core.queue.effects import Notification, NotifyItem, Probe
from qos.core.queue.item import Item
from qos.core.queue.replies import for_consumer
from qos.core.queue.requests import Refusal
from qos.core.queue.results import ItemsResult
from qos.core.queue.service import Queues
from qos.core.record import replace
from qos.core.strings import bare
from qos.engine.payers import Payers
from qos.engine.queue_commit import (
    NOTIFICATIONS,
    PendingAnswer,
    QueueCommit,
    View,
    unwritten,
)
from qos.errors import StoreError
from qos.stores.queue_base import QueueStore

__all__ = ["Payloads", "QueueOutputs", "QueuePort", "SentEvent"]

log = logging.getLogger(__name__)

#: The most events that may still bounce. A bounce comes back within a round trip.
_SENT_MAX = 10_000

#: Bytes of payloads that are read and sent in one step, and at once after a commit.
_STEP_BYTES = 64 * 1024
_AT_ONCE_BYTES = 256 * 1024

#: Bytes of payloads of new items that are kept while these wait to be sent; all others
#: are read again.
_KEPT_BYTES = 4 * 1024 * 1024

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

    def silent_s(self) -> float:
        """The seconds since the XMPP connection has brought something."""
        return 0.0

    def ask_link(self) -> None:
        """Ask our server for a sign of life; the engine is told of whatever comes."""
        return

    def has_room(self, to: str) -> bool:
        """Whether `to` can be sent more items; if not, `QueueEngine.room` says when."""
        return True

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
    """Performs the outputs of each commit, and remembers the events that were sent.

    Items of many bytes wait until it is the turn of their account, and until their
    receiver has room for them. Their payloads are not in memory meanwhile.
    """

    def __init__(self, store: QueueStore, port: QueuePort, payers: Payers) -> None:
        """Begin without sent events.

        Args:
            store: has the payloads.
            port: the connection.
            payers: give each account its turns.
        """
        self._store = store
        self._port = port
        self._payers = payers
        # By the id of an event, the oldest first.
        self._sent: OrderedDict[str, SentEvent] = OrderedDict()
        self._core: Queues | None = None
        # By receiver, the items that wait to be sent, by their tokens.
        self._waiting: dict[str, dict[str, NotifyItem]] = {}
        # The payloads of some of them, by seq, and their size.
        self._kept: dict[int, str] = {}
        self._kept_bytes = 0
        # The receivers among them that have no room.
        self._full: set[str] = set()
        self._when_sent: dict[str, list[Callable[[], object]]] = {}

    def sent(self, event_id: str) -> SentEvent | None:
        """A sent event, if it is still remembered."""
        return self._sent.get(event_id)

    def forget(self, event_id: str) -> SentEvent | None:
        """Forget a sent event, and return it if it was remembered."""
        return self._sent.pop(event_id, None)

    def perform(self, commit: QueueCommit, core: Queues | None) -> None:
        """Send all answers and events of a commit, in order.

        An answer that cannot be sent keeps no other one back.

        Args:
            commit: its changes are on disk.
            core: knows the deliveries that have not ended meanwhile; None: it has been
                given up, and the items are sent when another one has their locks.
        """
        self._core = core
        items: dict[tuple[str, str], NotifyItem] = {}
        for output in commit.outputs:
            try:
                if not isinstance(output, NotifyItem):
                    self._tell(output)
                elif core is not None and core.is_live(output):
                    # Once, even if it was heard and subscribes at the same time.
                    items[output.to, output.item.token] = _shown(output, core)
                else:
                    self._port.dropped(output.to, output.item)
            except Exception as error:  # noqa: BLE001 - whatever it is
                _not_sent(error)
        if items:
            now = self._at_once(items.values(), commit.payloads)
            self._notify_items(now, commit.payloads)

    def refuse(
        self, outputs: Iterable[Notification | PendingAnswer | View[Any]], why: Refusal
    ) -> None:
        """Answer requests and views whose commit has failed; nothing else is sent."""
        for output in outputs:
            try:
                if isinstance(output, PendingAnswer):
                    output.answer(why, {})
                elif isinstance(output, View):
                    output.tell(why)
            except Exception as error:  # noqa: BLE001 - whatever it is
                _not_sent(error)

    def _tell(self, output: Notification | PendingAnswer | View[Any]) -> None:
        if isinstance(output, PendingAnswer):
            self._answer(output)
        elif isinstance(output, Probe):
            self._port.probe(output.to)
        elif isinstance(output, NOTIFICATIONS):
            self._port.notify(output)
        else:
            output.tell(output.seen)

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

    # -- items ---------------------------------------------------------------

    def when_sent(self, to: str, call: Callable[[], object]) -> None:
        """Call this when no items wait to be sent to a full JID, perhaps at once."""
        if to in self._waiting:
            self._when_sent.setdefault(to, []).append(call)
        else:
            call()

    def room(self, to: str) -> None:
        """Note that there is room for more items to a full JID; harmless if not."""
        if to in self._full:
            self._full.discard(to)
            self._send_later(to)

    def restart(self) -> None:
        """Forget the items that wait: the deliveries are decided anew."""
        self._waiting.clear()
        self._kept.clear()
        self._kept_bytes = 0
        self._full.clear()
        calls, self._when_sent = self._when_sent, {}
        for jid_calls in calls.values():
            for call in jid_calls:
                call()

    def _at_once(
        self, notifications: Iterable[NotifyItem], payloads: Mapping[int, str]
    ) -> list[NotifyItem]:
        """The notifications that are sent at once; all others wait."""
        now: list[NotifyItem] = []
        size = 0
        has_room: dict[str, bool] = {}
        for notification in notifications:
            to, waiting = notification.to, self._waiting.get(notification.to)
            if waiting is None:
                size += notification.item.size
                if to not in has_room:
                    has_room[to] = self._port.has_room(to)
                if has_room[to] and size <= _AT_ONCE_BYTES:
                    now.append(notification)
                    continue
                waiting = self._waiting[to] = {}
                self._send_later(to)
            waiting.setdefault(notification.item.token, notification)
            self._keep(notification.item, payloads)
        return now

    def _keep(self, item: Item, payloads: Mapping[int, str]) -> None:
        payload = payloads.get(item.seq)
        fits = self._kept_bytes + item.size <= _KEPT_BYTES
        if payload is not None and fits and item.seq not in self._kept:
            self._kept[item.seq] = payload
            self._kept_bytes += item.size

    def _taken(self, item: Item, into: dict[int, str]) -> None:
        payload = self._kept.pop(item.seq, None)
        if payload is not None:
            into[item.seq] = payload
            self._kept_bytes -= item.size

    def _send_later(self, to: str) -> None:
        self._payers.do(bare(to), partial(self._step, to))

    def _step(self, to: str) -> bool:
        """Send some of the items that wait; returns whether there are more.

        What could not be sent stays locked until its lock times out, and keeps no other
        items back.
        """
        try:
            return self._send_some(to)
        except Exception:
            log.exception("items for %s could not be sent", to)
            return to in self._waiting

    def _send_some(self, to: str) -> bool:
        waiting = self._waiting.get(to)
        if waiting is None or self._core is None:
            return False
        if not self._port.has_room(to):
            self._full.add(to)
            return False
        now: list[NotifyItem] = []
        payloads: dict[int, str] = {}
        size = 0
        while waiting and size < _STEP_BYTES:
            notification = waiting.pop(next(iter(waiting)))
            self._taken(notification.item, payloads)
            if self._core.is_live(notification):
                now.append(notification)
                size += notification.item.size
            else:
                self._port.dropped(to, notification.item)
        if not waiting:
            del self._waiting[to]
        if now:
            self._notify_items(now, payloads)
        if to in self._waiting:
            return True
        for call in self._when_sent.pop(to, ()):
            call()
        return False

    def _notify_items(
        self, notifications: Sequence[NotifyItem], payloads: dict[int, str]
    ) -> None:
        unknown = [
            notification.item.seq
            for notification in notifications
            if notification.item.seq not in payloads
        ]
        try:
            payloads = {**payloads, **self._store.payloads(unknown)}
        except StoreError as error:
            # They stay locked until the lock times out.
            log.error("payloads could not be read: %s", error)
        events: dict[tuple[str, str, bool], list[tuple[Item, str]]] = {}
        for notification in notifications:
            payload = payloads.get(notification.item.seq)
            if payload is None:
                self._port.dropped(notification.to, notification.item)
                continue
            key = (notification.to, notification.item.node, notification.acknowledged)
            event = events.setdefault(key, [])
            event.append((notification.item, payload))
            if len(event) >= notification.batch:
                self._send(key, events.pop(key))
        for key, event in events.items():
            self._send(key, event)

    def _send(self, key: tuple[str, str, bool], items: Payloads) -> None:
        to, node, acknowledged = key
        events = self._port.notify_items(to, items, acknowledged=acknowledged)
        for event_id, batch in events:
            self._sent[event_id] = (node, {item.token: item for item, _ in batch})
        while len(self._sent) > _SENT_MAX:
            self._sent.popitem(last=False)


def _not_sent(error: Exception) -> None:
    about = {"message": "an answer could not be sent", "exception": error}
    asyncio.get_running_loop().call_exception_handler(about)


def _shown(output: NotifyItem, core: Queues) -> NotifyItem:
    """The output with the item as its consumer sees it."""
    item = for_consumer(core.nodes, output.item)
    return output if item is output.item else replace(output, item=item)
