"""The queue service without XMPP: puts steps into commits, then sends the answers.

The core decides at once, in memory. Decisions that it makes during a commit go into the
next commit, together with all items that can be delivered by then. Answers and events
are sent when the commit with all earlier decisions is on disk. So everything that is
sent is still true after a crash. A worker gets an item in the commit that stored it, if
possible.

A commit that fails takes back everything that was decided since the last one. The
requests are refused, and the core starts again with the contents of the disk. So it does
after any error in the core, such as memory that ran out: what is in memory may be half a
step.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar

from qos.core.payers import Rates
from qos.core.queue.access import may_use
from qos.core.queue.bounds import RECOVER_FOR_S, QueueBounds
from qos.core.queue.command_table import Predicate
from qos.core.queue.contents import QueueContents
from qos.core.queue.effects import (
    Change,
    NoteSeen,
    Notification,
    QueueEffect,
    RemoveNode,
)
from qos.core.queue.handle import handle
from qos.core.queue.link_time import LinkTime
from qos.core.queue.node import QueueNode
from qos.core.queue.requests import Refusal, Request
from qos.core.queue.results import Ok, PublishResult, Result
from qos.core.queue.selector_time import Meter, SelectorTime
from qos.core.queue.service import Queues
from qos.core.rate import RateLimit
from qos.core.strings import bare
from qos.engine.clock import Clock, ServiceClock, Timers
from qos.engine.doors import Doors
from qos.engine.payers import Payers
from qos.engine.pending_ended import PendingEndedItems
from qos.engine.queue_commit import (
    Answer,
    PendingAnswer,
    QueueCommit,
    Removals,
    Unwritten,
    View,
    unwritten,
)
from qos.engine.queue_outputs import Payloads, QueueOutputs, QueuePort
from qos.engine.queue_state import NodeSearch, QueueState, Watchers
from qos.errors import StoreDamaged, StoreError, StoreFull
from qos.journal.items import ItemJournal, ItemRecorder
from qos.journal.writer import JournalWriter
from qos.stores.queue_base import QueueStore

__all__ = ["Answer", "Parts", "QueueEngine", "Stats", "Unwritten"]

log = logging.getLogger(__name__)

#: How often outdated data is removed from the store.
_FORGET_EVERY_S = 60.0

#: At least so many seconds between two notes that the service is there, each with a commit
#: that is made anyway. After a start the locks of XMPP workers last longer by the time since
#: the last note: by _FORGET_EVERY_S and this at most, if nothing was written meanwhile.
_SEEN_EVERY_S = 1.0

#: Seconds between two lines of the log about repeated items of one account.
_LOG_S = 60.0

#: The delay before a store that could not be written or read is tried again.
_READ_AGAIN_S = 1.0

#: So many commits in a row have failed, for whatever reason but a full disk, when a store is
#: given up.
_FAILED_COMMITS = 10

#: The counts of a node.
Stats: TypeAlias = Mapping[str, int | float | None]

#: Returns the parts of a request: requests of their own, each with its answer.
Parts: TypeAlias = Callable[[], Sequence[tuple[Request, Answer]]]

T = TypeVar("T")


class QueueEngine(QueueState):
    """A queue service with its store.

    Attributes:
        store: open.
        payers: the budgets of all who use the service by any door, and their turns.
        doors: where clients of other protocols come in.
        selector_time: measures selectors.
        recover_for_s: the time after which it is given up, if the store can be opened
            and not be read any more, or not be written though it is not full.
        given_up: it has served nothing for so long, or the store is damaged. It still
            tries again.
        why_given_up: a sentence; '' before.
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
        rates: Rates | None = None,
        meter: Meter = time.thread_time,
    ) -> None:
        """Open the store.

        Args:
            store: not open.
            port: the connection.
            clock: the time.
            creators: the accounts that may create nodes: bare JIDs, and `@` with a
                domain for all its accounts; None: every account.
            bounds: the limits on nodes and subscriptions; None: the defaults.
            journal: makes the journal for the store with this id; None: no journal.
            rates: what an account may send a second; None: the defaults.
            meter: the processor time, for the bounds on that of selectors.

        Raises:
            StoreError: the store cannot be opened.
        """
        self.store = store
        self._port = port
        self._clock = ServiceClock(clock)
        self.payers = Payers(clock.now, rates)
        self.doors = Doors(payers=self.payers)
        self._creators = creators
        self._bounds = bounds or QueueBounds()
        self.selector_time = SelectorTime(meter)
        self._ended_items = PendingEndedItems(store)
        self._watchers = Watchers()
        self._logged = RateLimit(_LOG_S)
        contents = store.open(clock.now(), paged_at=self._clock.now())
        #: Away until the first session, and since an earlier process had one.
        self._link = LinkTime()
        self._in_session = False
        self._journal = ItemRecorder()
        if journal is not None:
            self._journal = ItemJournal(journal(store.store_id), store)
        core = self._new_core(contents)
        super().__init__(core)
        now, heard_at = self._clock.now(), store.heard_at
        self._link.lost(now if heard_at is None else min(heard_at, now))
        # While there is no core: the nodes that may exist, and the names of deleted
        # ones.
        self._former: Mapping[str, QueueNode] = {}
        self._deleted: Collection[str] = ()
        self._commit = QueueCommit()
        # When a commit has noted last that the service is there.
        self._seen_at = -math.inf
        self._removals = Removals(store)
        effects = core.start(self._clock.now())
        self._commit.add(effects)
        self._ended_items.note(effects)
        # Before the first session, nothing could be sent to anybody without a gateway.
        self._began = False
        self._busy = False
        self._flushing: asyncio.Handle | None = None
        self._stopped = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._outputs = QueueOutputs(store, port, self.payers)
        self._timers: Timers[str] = Timers(self._clock, self._time)
        self._timers.set("forget", self._clock.now())
        # The clock of the service stands still until the store has been read again.
        self._wall = clock
        self._recovery: Timers[None] = Timers(clock, lambda _: self._read_again())
        self.recover_for_s = RECOVER_FOR_S
        self.given_up, self.why_given_up = asyncio.Event(), ""
        #: When the queues could not be read, or nothing be decided, for the first time since
        #: they could.
        self._failing_at = math.inf
        #: How many commits have failed in a row, and the time of the first one.
        self._failures, self._first_failed_at = 0, 0.0
        if (checking := store.check()) is not None:
            checking.add_done_callback(self._checked)

    def _new_core(self, start: QueueContents) -> Queues:
        return Queues(
            start,
            self._ended_items,
            creators=self._creators,
            bounds=self._bounds,
            new_id=self._port.new_id,
            selector_time=self.selector_time,
            link=self._link,
            now=self._clock.now(),
        )

    # -- inputs ------------------------------------------------------------

    def begin(self) -> None:
        """Serve without a session: a gateway listens.

        XMPP clients count as absent until a session has begun.
        """
        self._began = True
        self._flush_soon()

    def online(self) -> None:
        """Take the start of a session: no peer counts as present until it is heard."""
        self._began = self._in_session = True
        self._decide(self._link_back)
        self._decide(self._probes)

    def _probes(self, core: Queues) -> list[QueueEffect]:
        core.forget_presence(self._port.attached())
        return core.probes()

    def offline(self, silent_s: float = 0.0) -> None:
        """Take the end of the session: items sent now would reach nobody.

        Until the next one no lock of an XMPP worker runs; see `LinkTime`.

        Args:
            silent_s: the seconds since something has come.
        """
        self._in_session = False
        self._link.lost(self._clock.now() - silent_s)
        if self._core is not None:
            self._core.forget_presence(self._port.attached())

    def _link_back(self, core: Queues) -> list[QueueEffect]:
        """Give XMPP workers back what their locks have lost, and write that."""
        since = self._link.lost_at
        if since is None:
            return []

        def saved(result: Result | Refusal, _payloads: Mapping[int, str]) -> None:
            if isinstance(result, Refusal):
                # It is done again when the store has been read.
                self._link.lost(since)

        # With what is given back, so that no later process gives it back again.
        self._seen_at = -math.inf
        self._commit.outputs.append(PendingAnswer(saved, Ok()))
        return core.link_back(self._clock.now())

    def _look_at_link(self, core: Queues) -> None:
        now = self._clock.now()
        if self._link.heard(now - self._port.silent_s(), now):
            self._add(self._link_back(core))

    def request(
        self,
        request: Request,
        requester: str,
        answer: Answer,
        *,
        parts: Parts | None = None,
    ) -> None:
        """Do what a full JID requests.

        The answer is sent when the result is on disk.

        Args:
            request: is done completely or not at all.
            requester: a full JID.
            answer: gets the result.
            parts: returns those of the request; if it is refused, each of them is done
                by itself and has its own answer, in place of that of the request.
        """
        core = self._core
        if self._stopped:
            return
        if core is None:
            answer(unwritten(None), {})
            return
        try:
            self._request(core, request, requester, answer, parts)
        except Exception as error:  # noqa: BLE001 - whatever it is
            waiting = [e for e in self._commit.outputs if isinstance(e, PendingAnswer)]
            waits = any(pending.answer is answer for pending in waiting)
            self._broken(error)
            if not waits:
                answer(unwritten(error), {})

    def _request(
        self,
        core: Queues,
        request: Request,
        requester: str,
        answer: Answer,
        parts: Parts | None,
    ) -> None:
        if self._link.in_doubt:
            self._look_at_link(core)
        effects = core.heard(requester)
        result: Result | Refusal
        try:
            result, more = handle(core, request, requester, self._clock.now())
            effects += more
            if isinstance(result, PublishResult) and result.repeated:
                self._log_repeated(result, bare(requester))
        except Refusal as refusal:
            if parts is not None:
                self._did(effects)
                # At once: nothing that comes later goes before them.
                for part, its_answer in parts():
                    self.request(part, requester, its_answer)
                return
            result = refusal
        except StoreError as error:
            log.error("the store could not be read: %s", error)
            result = unwritten(error)
        # Before the events that result from it: the answer is the truth (XEP-0254
        # §2.3).
        self._commit.outputs.append(PendingAnswer(answer, result))
        self._add(effects)
        self._flush_soon()

    def _log_repeated(self, result: PublishResult, account: str) -> None:
        """A publisher that uses one id twice would look for its item in vain."""
        if self._logged.admit(account, self._clock.now()) is not None:
            log.info(
                *(
                    "%s: not stored again, since they were there before: %d of %s, first %r",
                ),
                *(result.node, len(result.repeated), account, result.repeated[0]),
            )

    def save(self, changes: Sequence[Change], answer: Answer) -> None:
        """Write what a gateway keeps beside the queues, with the next commit.

        What is requested in the same turn of the loop is written together with it.

        Args:
            changes: none of them is one of the core.
            answer: gets Ok when they are on disk, or a Refusal.
        """
        if self._stopped:
            return
        if self._core is None:
            answer(unwritten(None), {})
            return
        self._commit.outputs.append(PendingAnswer(answer, Ok()))
        self._commit.changes.extend(changes)
        self._flush_soon()

    def heard(self, jid: str, *, available: bool = False) -> None:
        """Note a stanza from this full JID, perhaps available presence."""
        self._decide(lambda core: core.heard(jid, available=available))

    def departed(self, jid: str) -> None:
        """Note unavailable presence from this full JID."""
        self._decide(lambda core: core.departed(jid, self._clock.now()))

    def absent(self, jid: str) -> None:
        """Note that a probe of this full JID has failed, which proves nothing."""
        self._decide(lambda core: core.absent(jid, self._clock.now()))

    def bounced(self, jid: str, event_id: str) -> None:
        """Note that an event to this full JID came back, or was not delivered."""
        event = self._outputs.forget(event_id)
        if event is not None:
            node, items = event
            now = self._clock.now()
            self._decide(lambda core: core.bounced(jid, node, items.keys(), now))

    def unsendable(self, jid: str, items: Payloads, why: str) -> None:
        """Note that an event with these items of one node can be sent to no XMPP worker.

        They wait for consumers of gateways: see `fit_again`.
        """
        node, tokens = items[0][0].node, {item.token for item, _ in items}
        now = self._clock.now()
        self._decide(lambda core: core.unsendable(jid, node, tokens, why, now))

    def fit_again(self) -> None:
        """Note that events may be sent which were too large before."""
        self._decide(lambda core: core.fit_again())

    def is_live(self, event_id: str) -> bool:
        """Whether a delivery in this event has not ended."""
        event = self._outputs.sent(event_id)
        if event is None or self._core is None:
            return False
        node, items = event
        queue = self._core.nodes.get(node)
        return queue is not None and any(map(queue.is_live, items.values()))

    def stats(
        self, node: str, requester: str, tell: Callable[[Stats | Refusal], object]
    ) -> bool:
        """Report the counts of a node, when they are on disk; and those of the port.

        Or a Refusal: the node was being deleted, or the disk failed and the counts are
        unknown.

        Returns:
            False: there is no such node, or the requester may not use it.
        """
        core, account = self._core, bare(requester)
        nodes = self._former if core is None else core.nodes
        deleted = self._deleted if core is None else self._ended_items.deleted
        queue = nodes.get(node)
        if self._stopped or (
            node not in deleted
            if queue is None
            else not may_use(queue.node, queue.options, account)
        ):
            return False
        result: Stats | Refusal = unwritten(None)
        if core is not None:
            try:
                result = {
                    **core.stats(node, requester, self._clock.now()),
                    **self._port.counts(node),
                }
            except Refusal as refusal:
                result = refusal
            except StoreError as error:
                log.error("the store could not be read: %s", error)
                result = unwritten(error)
        self._show(View(tell, result))
        return True

    def nodes(
        self,
        requester: str,
        tell: Callable[[list[str] | Refusal], object],
        *,
        may: Predicate = may_use,
    ) -> None:
        """Report the sorted names of the nodes the requester may use, or a Refusal.

        They are reported when they are on disk. Many nodes are looked at in several
        turns of the requester.

        Args:
            requester: a full JID.
            tell: gets the names, or a Refusal.
            may: whether an account has the right that is asked about.
        """
        core, account = self._core, bare(requester)
        if core is None:
            tell(unwritten(None))
            return
        search = NodeSearch(core, account, may)

        def step() -> bool:
            if self._core is not core:
                tell(unwritten(None))
                return False
            if search.step():
                return True
            self._show(View(tell, search.names))
            return False

        if search.is_short:
            step()
        else:
            self.payers.do(account, step)

    def watching(self, node: str) -> AbstractContextManager[asyncio.Event]:
        """See Watchers."""
        return self._watchers.watching(node)

    def watch(self, node: str, call: Callable[[], object]) -> None:
        """See Watchers."""
        self._watchers.watch(node, call)

    def unwatch(self, node: str, call: Callable[[], object]) -> None:
        """See Watchers."""
        self._watchers.unwatch(node, call)

    def when_offered(self, node: str, jid: str, call: Callable[[], object]) -> None:
        """Call this when the items of a node have been offered to a full JID.

        That is at once, or when its selector, which is new, has been evaluated for all
        items that are there. Whoever says before that there is nothing may be wrong.
        """
        queue = None if self._core is None else self._core.nodes.get(node)
        if queue is None or not queue.subscriptions.is_classifying(jid):
            call()
            return
        # Each step evaluates it for some more.
        self._show(View(lambda _seen: self.when_offered(node, jid, call), None))

    def when_sent(self, jid: str, call: Callable[[], object]) -> None:
        """Call this when no items wait to be sent to a full JID, perhaps at once."""
        self._outputs.when_sent(jid, call)

    def room(self, jid: str) -> None:
        """Note that a full JID has room for more items; see `QueuePort.has_room`."""
        self._outputs.room(jid)

    def _show(self, view: View[T]) -> None:
        if self._core is None:
            view.tell(view.seen)
        elif not self._stopped:
            self._commit.outputs.append(view)
            self._flush_soon()

    def now(self) -> float:
        """The time of the engine's clock."""
        return self._clock.now()

    async def aclose(self) -> None:
        """Finish the running commit, and close the store."""
        self._stopped = True
        self._outputs.restart()
        self._timers.stop()
        self._recovery.stop()
        if self._flushing is not None:
            self._flushing.cancel()
        await self._idle.wait()
        try:
            await self.store.close()
        finally:
            await self._journal.close()

    def _decide(self, decide: Callable[[Queues], Sequence[QueueEffect]]) -> None:
        """Let the core take what is no request, and needs no answer."""
        if self._core is None or self._stopped:
            return
        try:
            self._did(decide(self._core))
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._broken(error)

    def _did(self, effects: Sequence[QueueEffect]) -> None:
        self._add(effects)
        # Even without effects of its own: a JID that was heard may get items now.
        self._flush_soon()

    def _add(self, effects: Sequence[QueueEffect]) -> None:
        if effects:
            self._commit.add(effects)
            self._ended_items.note(effects)

    # -- commits -----------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._busy and self._flushing is None:
            # Not at once: other inputs of this turn of the loop join.
            self._flushing = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = None
        core = self._core
        if core is None or self._stopped or not self._began:
            return
        try:
            now, due_at = self._clock.now(), core.next_at()
            # Only what is due depends on it.
            if self._link.in_doubt or (due_at is not None and due_at <= now):
                self._look_at_link(core)
            self._add(core.dispatch(now))
            self._arm(core)
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._broken(error)
            return
        self._failing_at = math.inf
        commit, self._commit = self._commit, QueueCommit()
        self._removals.add_to(commit)
        self._note_seen(commit, now)
        try:
            if removals := self._journal.note(commit.changes):
                commit.add(removals)
                self._ended_items.note(removals)
            write = self.store.write(commit.final())
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._failed(commit, error)
            return
        if write is None:
            self._perform(commit)
            return
        self._clock.pause()
        self._busy = True
        self._idle.clear()
        write.add_done_callback(
            lambda future: self._written(commit, future.exception())
        )

    def _note_seen(self, commit: QueueCommit, now: float) -> None:
        """Let the commit note until when this process was there, and heard workers."""
        if commit.changes and now >= self._seen_at + _SEEN_EVERY_S:
            heard_at = self._link.heard_at(now - self._port.silent_s())
            commit.changes.append(NoteSeen(now, heard_at))
            self._seen_at = now

    def _written(self, commit: QueueCommit, error: BaseException | None) -> None:
        self._busy = False
        self._idle.set()
        if self._stopped:
            return
        if error is not None:
            self._failed(commit, error)
            return
        self._failures = 0
        if self._core is not None:
            self._clock.go_on()
        self._perform(commit)
        # Also for inputs that came meanwhile and have no effects of their own yet: JIDs
        # that were heard, and items that are due.
        self._flush_soon()

    def _perform(self, commit: QueueCommit) -> None:
        """Tell what is on disk, even if the core has been given up meanwhile."""
        try:
            if self._core is not None:
                self._ended_items.written(commit.changes)
                self._removals.written()
            self._watchers.written(commit.changes)
            for change in commit.changes:
                if isinstance(change, RemoveNode):
                    self._port.deleted(change.name)
            self._outputs.perform(commit, self._core)
        except Exception as error:  # noqa: BLE001 - whatever it is
            # What has not been sent is sent when its receiver has been heard of again.
            self._broken(error)

    def _failed(self, commit: QueueCommit, error: BaseException) -> None:
        log.error("the queues could not be written: %s", str(error) or repr(error))
        self._journal.failed(commit.changes)
        self._begin_anew(error, commit.outputs)
        if isinstance(error, StoreFull):
            return
        now = self._wall.now()
        self._failures += 1
        if self._failures == 1:
            self._first_failed_at = now
        lasts = now - self._first_failed_at >= self.recover_for_s
        if lasts and self._failures >= _FAILED_COMMITS:
            self._give_up()

    def _broken(self, error: Exception) -> None:
        """Begin anew: what the core has in memory may be half a step."""
        about = {"message": "the queues begin anew", "exception": error}
        asyncio.get_running_loop().call_exception_handler(about)
        self._begin_anew(error)
        self._is_failing()

    def _begin_anew(
        self,
        error: BaseException,
        outputs: Sequence[Notification | PendingAnswer | View[Any]] = (),
    ) -> None:
        """Take back all decisions that are not on disk, and read the disk after a while.

        Not at once: a full disk stays full. A commit that runs goes on, and what it has
        written is told.
        """
        outputs = [*outputs, *self._commit.outputs]
        self._commit = QueueCommit()
        if self._core is not None:
            self._former = self._core.nodes
            self._deleted = {*self._ended_items.deleted}
            self._ended_items.clear()
            self._outputs.restart()
        self._core = None
        self._removals.pause()
        self._clock.pause()
        self._recovery.set(None, self._wall.now() + _READ_AGAIN_S)
        # Of a request that was refused, too: that may have been based on this commit.
        self._outputs.refuse(outputs, unwritten(error))

    def _read_again(self) -> None:
        """Begin anew from the store; try again after whatever goes wrong.

        A service that is there and serves nothing would be the worst of all.
        """
        if self._busy:
            self._recovery.set(None, self._wall.now() + _READ_AGAIN_S)
            return
        try:
            contents = self.store.contents(paged_at=self._clock.now())
            core = self._core = self._new_core(contents)
            self._did(core.start(self._clock.now()))
            self._port.restarted()
            self._began = True
            if self._in_session:
                self._did(self._link_back(core))
            if self._core is core:
                self._did(self._probes(core))
        except Exception as error:
            # Memory may have run out, for example.
            if not isinstance(error, StoreError):
                log.exception("the queues could not be started again")
            log.error("the queues could not be read: %s", str(error) or "see above")
            self._begin_anew(error)
            self._is_failing()
        if self._core is not None:
            self._clock.go_on()

    def _checked(self, checking: asyncio.Future[None]) -> None:
        """Give up if the store is damaged: what is read of it would be wrong."""
        error = None if checking.cancelled() else checking.exception()
        if isinstance(error, StoreDamaged):
            self._give_up(str(error))
        elif error is not None:
            log.error("the store could not be checked: %s", str(error) or repr(error))

    def _give_up(self, why: str = "") -> None:
        if not self.given_up.is_set():
            seconds = f"{self.recover_for_s:g}"
            why = why or f"no queue could be served for {seconds} s; see above"
            self.why_given_up = why
            self.given_up.set()

    def _is_failing(self) -> None:
        """Give up when nothing could be decided for so long."""
        now = self._wall.now()
        self._failing_at = min(self._failing_at, now)
        if now - self._failing_at >= self.recover_for_s:
            self._give_up()

    # -- time --------------------------------------------------------------

    def _arm(self, core: Queues) -> None:
        at = core.next_at()
        if at is not None:
            self._timers.set("due", at)
        if self._link.in_doubt and self._in_session:
            self._port.ask_link()

    def _time(self, key: str) -> None:
        if key == "forget":
            now = self._clock.now()
            if self._core is not None:
                try:
                    self._removals.look(now)
                except StoreError as error:
                    log.error("the store could not be read: %s", error)
            self._timers.set("forget", now + _FORGET_EVERY_S)
        self._flush_soon()
