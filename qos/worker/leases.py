"""The leases of a worker: jobs are taken from events, kept locked, settled, or lost.

This module knows the service's answers, but nothing of subscriptions or of handlers.

A lock is extended until its job ends, even while the job waits for its turn. Each
extension is for `lock_s` seconds, and is sent when a third of the granted time is over,
so that two requests may be lost. No event tells the duration of the first lock. Unless
the worker was given it, the lock is extended one second after it came, for a minute. So
a quick handler costs no request, and a slow one costs one more; and a node whose locks
last only a few seconds needs a worker that knows their duration.

A deadline counts from the time when the request was *sent*, so it is never later than
that of the service. After it the job is lost; an event or a refusal can also end it.
While its server says that the service is away, the deadline moves (`AwayTime`): the
service gives that time back.
This only avoids useless work: the service refuses a late worker's requests by its
token.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Callable

from qos.core.queue.item import Disposition, ItemOutcome
from qos.core.strings import bare
from qos.engine.retry import Retry
from qos.errors import JobLost, NoAnswer, RequestFailed, RequestRefused
from qos.journal.writer import JournalWriter
from qos.worker.away_time import AwayTime
from qos.worker.job import Job
from qos.worker.job_queue import JobQueue
from qos.worker.recorder import job_recorder_of
from qos.worker.settlements import ANSWER_S, RETRY, Settlements
from xep_0254.events import DeliveredItem, Event
from xep_0254.queueing import XEP_0254

__all__ = ["Leases"]

log = logging.getLogger(__name__)

#: Seconds to wait for an answer while the worker stops, and nobody wants to wait.
_RELEASE_S = 5.0

#: For a lock of unknown duration: when it is first extended, and for how long.
_EXTEND_AFTER_S = 1.0
_LOCK_S = 60.0

#: Near the end of the total hold the granted times become shorter and shorter.
_EXTEND_S_MIN = 0.05

#: The number of settled deliveries that are remembered: their event may still come, or
#: again.
_TOKENS_MAX = 10_000

#: These refusals mean that the lock is not ours. Any other refusal of an extension
#: means that the service has no extensions.
_GONE = frozenset({"conflict", "forbidden", "item-not-found", "unexpected-request"})


class Leases:
    """The leases of a worker at one node.

    Attributes:
        jobs: held, or being settled, by item id.
        service: the JID of the service.
        node: the name of the node.
    """

    def __init__(
        self,
        plugin: XEP_0254,
        service: str,
        node: str,
        *,
        lock_s: float | None,
        extend: bool,
        batch: int,
        given_up: Callable[[BaseException], None],
        journal: JournalWriter | None = None,
    ) -> None:
        self.service = service
        self.node = node
        self.jobs: dict[str, Job] = {}
        self._plugin = plugin
        self._settlements = Settlements(
            plugin, self, service, node, batch=batch, lock_s=lock_s
        )
        self._lock_s = lock_s
        self._extends = extend
        self._given_up = given_up
        self._recorder = job_recorder_of(journal, service, node)
        self._waiting = JobQueue()
        self._changed = asyncio.Event()
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._deadlines: dict[Job, float] = {}
        # At first a timer: most jobs end before their lock needs an extension.
        self._keepers: dict[Job, asyncio.Task[None] | asyncio.TimerHandle] = {}
        self._releasing: set[asyncio.Task[None]] = set()
        # Jobs whose locks have outlived the session before, and are to be taken up.
        self._before: list[Job] = []

    # -- taking ------------------------------------------------------------

    async def next(self) -> Job | None:
        """The next job; None: there will be no more."""
        job = await self._waiting.next()
        if job is not None:
            self._recorder.started(job)
        return job

    def close(self) -> list[Job]:
        """Hand out no more; returns the jobs that nobody has begun."""
        return self._waiting.close()

    def handle(self, event: Event) -> None:
        """Handle an event: new items, and items that are taken away."""
        for item in event.items:
            self._take(item)
        for item_id in (*event.unlocked, *event.retracted):
            # The service also sends an event for what we do ourselves; then the answer
            # decides (docs/design/queue.md §1.8).
            self._lose_if_idle(self.jobs.get(item_id), "its lock has ended")
        if event.purged or event.deleted:
            for job in tuple(self.jobs.values()):
                self._lose_if_idle(job, "the queue was emptied")

    def _take(self, item: DeliveredItem) -> None:
        before = self.jobs.get(item.item_id)
        if before is not None and before.token == item.token:
            # The item was sent again: the service was not sure that we have it. So it
            # had not received our present request, which may be lost.
            self._settlements.sent_again(before)
            return
        if (item.item_id, item.token) in self._known:
            return  # overtaken by its end
        # A job that is being settled has been settled: the event overtook the answer.
        if before is not None and not before.settling:
            self._lose(before, "its lock has ended, and it came anew")
        job = Job(item, self)
        if self._waiting.closed:
            task = asyncio.get_running_loop().create_task(self.give_back(job))
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)
            return
        self.jobs[job.id] = job
        now = _now()
        if self._lock_s is not None:
            self._deadlines[job] = now + self._lock_s
            self._keep(job, now + self._lock_s / 3)
        else:
            self._keep(job, now + _EXTEND_AFTER_S)
        self._waiting.put(job)

    def session_began(self, *, locks_last: bool) -> None:
        """Find out whether the locks ended with the old session.

        Unless they outlive it, jobs that were not begun are dropped: if they are still
        ours, they are sent again.
        """
        if locks_last:
            self._before = list(self.jobs.values())
            return
        for job in self._waiting.clear():
            self._lose(job, "the connection was lost before it was begun")
            self._known.pop((job.id, job.token), None)
        for job in self.jobs.values():
            if not job.settling:
                self._keep(job, _now())

    async def take_up(self) -> None:
        """Take up the locks of the session before, under our present full JID.

        Returns when the service has answered, or does not; then they are extended again.
        """
        jobs, self._before = self._before, []
        await asyncio.gather(*(self._take_up(job) for job in jobs))

    async def _take_up(self, job: Job) -> None:
        if not job.held or job.settling:
            return  # a settlement needs nothing but the token
        seconds = (self._lock_s or _LOCK_S) if self._extends else _EXTEND_S_MIN
        try:
            await self.extend(job, seconds)
        except JobLost as lost:
            log.info("%s", lost)
        except RequestFailed:
            self._keep(job, _now())

    # -- keeping -----------------------------------------------------------

    def _keep(self, job: Job, extend_at: float) -> None:
        """Keep the lock of a job until the job ends."""
        self._let_go(job)
        when = extend_at if self._extends else math.inf
        first = min(when, self._deadlines.get(job, math.inf))
        if first < math.inf:
            loop = asyncio.get_running_loop()
            self._keepers[job] = loop.call_at(first, self._begin_keeping, job, when)

    def _begin_keeping(self, job: Job, extend_at: float) -> None:
        loop = asyncio.get_running_loop()
        self._keepers[job] = loop.create_task(self._keeper(job, extend_at))

    def _let_go(self, job: Job) -> None:
        keeper = self._keepers.pop(job, None)
        if keeper is not None and keeper is not asyncio.current_task():
            keeper.cancel()

    async def _keeper(self, job: Job, extend_at: float) -> None:
        retry, away = Retry(RETRY), AwayTime(self.service, job, own=self.account)
        while job.held:
            deadline = self._deadlines.get(job, math.inf)
            when = min(extend_at, deadline)
            if when == math.inf:
                return
            await asyncio.sleep(when - _now())
            if deadline <= _now():
                self._lose(job, "its lock has timed out")
                return
            try:
                # An answer that comes after the deadline is too late.
                async with asyncio.timeout_at(
                    None if deadline == math.inf else deadline
                ):
                    granted = await self._extend(job, self._lock_s or _LOCK_S)
            except TimeoutError:
                continue
            except JobLost as lost:
                log.info("%s", lost)
                return
            except RequestFailed as error:
                if not error.is_temporary:
                    log.warning("locks cannot be extended: %s", error)
                    self._extends, extend_at = False, math.inf
                    continue
                extend_at = self._extend_again_at(job, away, error, retry)
            else:
                retry.succeeded()
                away = AwayTime(self.service, job, own=self.account)
                extend_at = _now() + max(granted / 3, _EXTEND_S_MIN)

    def _extend_again_at(
        self, job: Job, away: AwayTime, error: RequestFailed, retry: Retry
    ) -> float:
        """When to ask again for an extension; the deadline moves if it may."""
        again_at = _now() + retry.failed()
        more_s = away.note(error, _now())
        if away.is_away and job in self._deadlines:
            self._deadlines[job] += more_s
            # In time to learn that it moves further.
            left_s = self._deadlines[job] - _now()
            again_at = min(again_at, _now() + max(left_s / 2, _EXTEND_S_MIN))
        return again_at

    async def extend(self, job: Job, seconds: float) -> float:
        """See Holder."""
        granted = await self._extend(job, seconds)
        if job.held and not job.settling:
            self._keep(job, _now() + granted / 3)
        return granted

    async def _extend(self, job: Job, seconds: float) -> float:
        asked_at = _now()
        try:
            granted = await self._plugin.extend(
                self.service,
                self.node,
                job.id,
                job.token,
                seconds,
                timeout_s=min(ANSWER_S, max(RETRY.first_s, seconds / 3)),
            )
        except RequestRefused as error:
            if error.is_temporary or error.condition not in _GONE:
                raise
            reason = f"it cannot be extended: {error}"
            self._lose(job, reason, condition=error.condition)
            raise JobLost(job.id, reason, condition=error.condition) from error
        self._deadlines[job] = asked_at + granted
        return granted

    # -- ending ------------------------------------------------------------

    def settle(self, job: Job, how: Disposition) -> None:
        """See Holder."""
        # A retract that was done would look like a lost lock to the keeper.
        self._let_go(job)
        self._settlements.begin(job, how, self._deadlines.get(job))

    def settled(self, job: Job, how: Disposition) -> None:
        """See settlements.Owner."""
        self._recorder.settled(job, how)
        self._forget(job)

    def not_asked(self, job: Job) -> None:
        """See settlements.Owner."""
        self._keep(job, _now())

    def not_settled(self, job: Job, reason: str, condition: str | None) -> JobLost:
        """See settlements.Owner."""
        self._recorder.lost(job, reason, condition)
        self._lose(job, reason, condition=condition)
        return JobLost(job.id, reason, condition=condition)

    async def give_back(self, job: Job, answer_s: float = _RELEASE_S) -> None:
        """Release a job that is not wanted any more. The request is sent once only."""
        self._recorder.released(job)
        self._lose(job, "the worker has stopped")
        try:
            released = Disposition(ItemOutcome.RELEASED)
            await self._settlements.ask_once(job, released, answer_s)
        except RequestFailed as error:
            # The lock ends by itself; a refusal means that it has ended.
            log.log(
                logging.WARNING if isinstance(error, NoAnswer) else logging.INFO,
                "item %r was not released: %s",
                job.id,
                error,
            )

    def give_up(self, error: BaseException) -> None:
        """See Holder."""
        self._given_up(error)

    @property
    def account(self) -> str:
        """See Holder."""
        return bare(self._plugin.own or self._plugin.xmpp.boundjid.full)

    async def wait_empty(self) -> None:
        """Return when no job is held."""
        while self.jobs:
            self._changed.clear()
            await self._changed.wait()

    async def end(self, answer_s: float) -> None:
        """Return when nothing runs any more; wait at most this long for answers."""
        settling = [job for job in self.jobs.values() if job.settling]
        if settling:
            ends = [asyncio.ensure_future(job.settled()) for job in settling]
            await asyncio.wait(ends, timeout=answer_s)
            for job in settling:
                self._settlements.abandon(job)
            await asyncio.gather(*ends, return_exceptions=True)
            for job in settling:
                self._recorder.lost(job, "there was no answer")
        await self._settlements.end()
        for keeper in self._keepers.values():
            keeper.cancel()
        keepers = [
            keeper
            for keeper in self._keepers.values()
            if isinstance(keeper, asyncio.Task)
        ]
        ending = [*keepers, *self._releasing]
        if ending:
            _, waiting = await asyncio.wait(ending, timeout=answer_s)
            for task in waiting:
                task.cancel()
            if waiting:
                await asyncio.wait(waiting)

    def _lose_if_idle(self, job: Job | None, reason: str) -> None:
        if job is not None and not job.settling:
            self._lose(job, reason)

    def _lose(self, job: Job, reason: str, *, condition: str | None = None) -> None:
        if not job.settling:
            self._recorder.lost(job, reason, condition)
        # Otherwise the answer decides about the job.
        job.lose(reason, condition=condition)
        self._forget(job)

    def _forget(self, job: Job) -> None:
        self._let_go(job)
        self._deadlines.pop(job, None)
        if self.jobs.get(job.id) is job:
            del self.jobs[job.id]
        if job.token:
            self._known[job.id, job.token] = None
            if len(self._known) > _TOKENS_MAX:
                self._known.popitem(last=False)
        self._changed.set()


def _now() -> float:
    return asyncio.get_running_loop().time()
