"""The queue service without XMPP: steps into commits, and then out with the answers.

The core decides at once, in memory. What it decides while a commit is under way goes
into the next one, with whatever can be given out by then; answers and events leave
when the commit with all that was decided before them is on disk. So whatever anybody
is told is there after a crash, and a worker gets an item in the commit that brought
it, if it can.

A commit that fails takes everything back that was decided since the last one: those
who asked are refused, and the core starts again with what is on disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

from qos.core.queue.access import may_publish, may_subscribe, may_use
from qos.core.queue.effects import (
    ForgetOld,
    Notification,
    NotifyItem,
    Probe,
    QueueEffect,
)
from qos.core.queue.handle import handle
from qos.core.queue.item import Item
from qos.core.queue.node import QueueNode
from qos.core.queue.requests import ItemsResult, Purge, Refusal, Request, Result
from qos.core.queue.service import QueueBounds, QueueContents, Queues
from qos.core.strings import bare
from qos.engine.clock import Clock, Timers
from qos.engine.pending_ended import RecentMemory
from qos.engine.queue_commit import (
    NOTIFICATIONS,
    Answer,
    PendingAnswer,
    QueueCommit,
    Unwritten,
    View,
    unwritten,
)
from qos.errors import StoreError
from qos.journal.items import ItemJournal, ItemRecorder
from qos.journal.writer import JournalWriter
from qos.stores.queue_store import QueueStore

__all__ = ["Answer", "Payloads", "QueueEngine", "QueuePort", "Stats", "Unwritten"]

log = logging.getLogger(__name__)

#: How often what is over is removed from the store.
_FORGET_EVERY_S = 60.0

#: Before the store is tried again that could not be written, or read.
_READ_AGAIN_S = 1.0

#: Events that may still bounce. One that does comes back within a round trip.
_SENT_MAX = 10_000

#: The counts of a node.
Stats: TypeAlias = Mapping[str, int | float | None]

T = TypeVar("T")

#: Items, each with its payload.
Payloads: TypeAlias = Sequence[tuple[Item, str]]


class QueuePort(Protocol):
    """The methods that the engine asks of the connection. It drops a stanza that cannot be sent."""

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """Send these items of one node in an event, or more if it gets too large.

        Returns:
            What was sent: the id of each event, and what is in it.
        """

    def notify(self, notification: Notification) -> None:
        """Send any other event."""

    def probe(self, jid: str) -> None:
        """Ask whether it is there; `QueueEngine.heard` if so."""

    def new_id(self) -> str:
        """128 random bits as text, never given before."""


class QueueEngine:
    """A queue service with its store.

    Attributes:
        store: open.
    """

    def __init__(
        self,
        store: QueueStore,
        port: QueuePort,
        *,
        clock: Clock,
        creators: Collection[str] | None = None,
        bounds: QueueBounds | None = None,
        journal: Callable[[str], JournalWriter] | None = None,
    ) -> None:
        """Open the store.

        Args:
            store: not open.
            port: the connection.
            clock: the time.
            creators: who may create nodes: bare JIDs, and `@` with a domain for all
                accounts of it; None: everybody.
            bounds: how many nodes and subscriptions there may be; None: as by default.
            journal: makes one for the store that has this id; None: there is none.

        Raises:
            StoreError: it cannot be opened.
        """
        self.store = store
        self._port = port
        self._clock = clock
        self._creators = creators
        self._bounds = bounds or QueueBounds()
        self._memory = RecentMemory(store)
        contents = store.open()
        self._journal = ItemRecorder()
        if journal is not None:
            self._journal = ItemJournal(journal(store.store_id), store, contents.items)
        self._core: Queues | None = self._new_core(contents)
        # While there is no core: the nodes that there may be, and names of others.
        self._former: Mapping[str, QueueNode] = {}
        self._deleted: Collection[str] = ()
        self._commit = QueueCommit()
        # Until the first session nobody could be told of anything.
        self._began = False
        self._busy = False
        self._flushing: asyncio.Handle | None = None
        self._stopped = False
        self._idle = asyncio.Event()
        self._idle.set()
        # By the id of an event: the node, and the items in it by their tokens.
        self._sent: OrderedDict[str, tuple[str, dict[str, Item]]] = OrderedDict()
        self._timers: Timers[str] = Timers(clock, self._time)
        self._timers.set("forget", clock.now())

    def _new_core(self, start: QueueContents) -> Queues:
        return Queues(
            start,
            self._memory,
            creators=self._creators,
            bounds=self._bounds,
            new_id=self._port.new_id,
            now=self._clock.now(),
        )

    # -- what happens ------------------------------------------------------

    def online(self) -> None:
        """There is a session: nobody is known to be there until heard of."""
        self._began = True
        if self._core is not None:
            self._core.forget_presence()
            self._did(self._core.probes())

    def offline(self) -> None:
        """There is no session: what is given out now would reach nobody."""
        if self._core is not None:
            self._core.forget_presence()

    def request(self, request: Request, requester: str, answer: Answer) -> None:
        """Do what a full JID asks for; the answer comes when it is on disk."""
        core = self._core
        if self._stopped:
            return
        if core is None:
            answer(unwritten(None), {})
            return
        effects = core.heard(requester)
        result: Result | Refusal
        try:
            result, more = handle(core, request, requester, self._clock.now())
            effects += more
            if isinstance(request, Purge):
                self._commit.purged.add(request.node)
        except Refusal as refusal:
            result = refusal
        except StoreError as error:
            log.error("the store could not be read: %s", error)
            result = unwritten(error)
        # Before the events that come of it: the answer is the truth (XEP-0254 §2.3).
        self._commit.outputs.append(PendingAnswer(answer, result))
        self._commit.add(effects)
        self._memory.note(effects)
        self._flush_soon()

    def heard(self, jid: str, *, available: bool = False) -> None:
        """A stanza came from this full JID; available presence, perhaps."""
        if self._core is not None and not self._stopped:
            self._did(self._core.heard(jid, available=available))

    def went(self, jid: str) -> None:
        """Unavailable presence came from this full JID."""
        if self._core is not None and not self._stopped:
            self._did(self._core.went(jid, self._clock.now()))

    def absent(self, jid: str) -> None:
        """A probe of this full JID has failed, which proves nothing."""
        if self._core is not None and not self._stopped:
            self._did(self._core.absent(jid, self._clock.now()))

    def bounced(self, jid: str, event_id: str) -> None:
        """An event to this full JID came back, or was not delivered."""
        sent = self._sent.pop(event_id, None)
        if sent is not None and self._core is not None and not self._stopped:
            node, items = sent
            now = self._clock.now()
            self._did(self._core.bounced(jid, node, items.keys(), now))

    def is_live(self, event_id: str) -> bool:
        """Whether a delivery that was in this event has not ended."""
        sent = self._sent.get(event_id)
        if sent is None or self._core is None:
            return False
        node, items = sent
        queue = self._core.nodes.get(node)
        return queue is not None and any(map(queue.is_live, items.values()))

    def stats(
        self, node: str, requester: str, tell: Callable[[Stats | Refusal], object]
    ) -> bool:
        """Tell the counts of a node, when they are on disk.

        Or a Refusal: the node was being deleted, or the disk failed, and nobody knows.

        Returns:
            False: there is no such node, or none that the requester may use.
        """
        core, account = self._core, bare(requester)
        nodes = self._former if core is None else core.nodes
        deleted = self._deleted if core is None else self._memory.deleted
        queue = nodes.get(node)
        if self._stopped or (
            node not in deleted
            if queue is None
            else not may_use(queue.node, queue.options, account)
        ):
            return False
        seen: Stats | Refusal = unwritten(None)
        if core is not None:
            try:
                seen = core.stats(node, requester, self._clock.now())
            except Refusal as refusal:
                seen = refusal
        self._show(View(tell, seen))
        return True

    def nodes(
        self, requester: str, tell: Callable[[list[str] | Refusal], object]
    ) -> None:
        """Tell the names of the nodes that the requester may use, sorted; or a Refusal.

        When they are on disk.
        """
        core, account = self._core, bare(requester)
        if core is None:
            tell(unwritten(None))
            return
        names = [
            name
            for name, queue in sorted(core.nodes.items())
            if may_use(queue.node, queue.options, account)
        ]
        self._show(View(tell, names))

    def open_nodes(self) -> tuple[list[str], list[str]]:
        """The nodes that everybody may subscribe to, and those to publish to; sorted."""
        nodes = [] if self._core is None else sorted(self._core.nodes.items())
        # The empty account has no affiliation anywhere: it is anybody.
        return (
            [
                name
                for name, each in nodes
                if may_subscribe(each.node, each.options, "")
            ],
            [name for name, each in nodes if may_publish(each.node, each.options, "")],
        )

    def publishes(self, account: str) -> bool:
        """Whether this bare JID may publish to a node; so while nobody knows."""
        return self._core is None or self._core.publishes(account)

    def _show(self, view: View[T]) -> None:
        if self._core is None:
            view.tell(view.seen)
        elif not self._stopped:
            self._commit.outputs.append(view)
            self._flush_soon()

    def now(self) -> float:
        """The time of its clock."""
        return self._clock.now()

    async def aclose(self) -> None:
        """Finish the commit under way, and close the store."""
        self._stopped = True
        self._timers.stop()
        if self._flushing is not None:
            self._flushing.cancel()
        await self._idle.wait()
        try:
            await self.store.close()
        finally:
            await self._journal.close()

    def _did(self, effects: Sequence[QueueEffect]) -> None:
        if effects:
            self._commit.add(effects)
            self._memory.note(effects)
        # Even without effects of its own: who was heard of may get something now.
        self._flush_soon()

    # -- commits -----------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._busy and self._flushing is None:
            # Not at once: what else happens in this turn of the loop joins.
            self._flushing = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = None
        core = self._core
        if core is None or self._stopped or not self._began:
            return
        effects = core.dispatch(self._clock.now())
        self._commit.add(effects)
        self._memory.note(effects)
        self._arm(core)
        commit, self._commit = self._commit, QueueCommit()
        self._journal.note(commit.changes, commit.purged)
        try:
            written = self.store.write(commit.final())
        except StoreError as error:
            self._failed(commit, error)
            return
        if written is None:
            self._perform(commit)
            return
        self._busy = True
        self._idle.clear()
        written.add_done_callback(lambda done: self._written(commit, done.exception()))

    def _written(self, commit: QueueCommit, error: BaseException | None) -> None:
        self._busy = False
        self._idle.set()
        if self._stopped:
            return
        if error is not None:
            self._failed(commit, error)
            return
        self._memory.written(commit.changes)
        self._perform(commit)
        # Also for what happened meanwhile and has no effects of its own yet: who was
        # heard of, and what is due.
        self._flush_soon()

    def _failed(self, commit: QueueCommit, error: BaseException) -> None:
        """Take back all that was decided since: it was built upon this.

        After a while, not at once: a disk that is full stays so.
        """
        log.error("the queues could not be written: %s", error)
        self._journal.failed(commit.changes)
        outputs = [*commit.outputs, *self._commit.outputs]
        self._commit = QueueCommit()
        assert self._core is not None
        self._former, self._deleted = self._core.nodes, {*self._memory.deleted}
        self._memory.clear()
        self._core = None
        self._timers.set("read", self._clock.now() + _READ_AGAIN_S)
        for output in outputs:
            if isinstance(output, PendingAnswer):
                # What it was refused with may have come of this.
                output.answer(unwritten(error), {})
            elif isinstance(output, View):
                output.tell(unwritten(error))

    def _read_again(self) -> None:
        try:
            contents = self.store.contents()
            self._core = self._new_core(contents)
            self._journal.start_again(contents.items)
        except StoreError as error:
            log.error("the queues could not be read: %s", error)
            self._timers.set("read", self._clock.now() + _READ_AGAIN_S)
        else:
            self.online()

    # -- time --------------------------------------------------------------

    def _arm(self, core: Queues) -> None:
        at = core.next_at()
        if at is not None:
            self._timers.set("due", at)

    def _time(self, what: str) -> None:
        if what == "read":
            self._read_again()
            return
        if what == "forget":
            now = self._clock.now()
            self._commit.changes.append(ForgetOld(now))
            self._timers.set("forget", now + _FORGET_EVERY_S)
        self._flush_soon()

    # -- what goes out -----------------------------------------------------

    def _perform(self, commit: QueueCommit) -> None:
        core = self._core
        assert core is not None
        items: dict[tuple[str, str], NotifyItem] = {}
        for output in commit.outputs:
            if isinstance(output, NotifyItem):
                if core.is_live(output):
                    # Once, though it was heard of and subscribes.
                    items[output.to, output.item.token] = output
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
                payloads = self.store.payloads([item.seq for item in result.items])
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
            payloads = {**payloads, **self.store.payloads(unknown)}
        except StoreError as error:
            # They stay locked, and time out.
            log.error("payloads could not be read: %s", error)
        events: dict[tuple[str, str, bool], list[tuple[Item, str]]] = {}
        for each in notifications:
            payload = payloads.get(each.item.seq)
            if payload is None:
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
