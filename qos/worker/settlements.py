"""The settlements of a worker: each is asked for until there is an answer.

Most jobs are accepted, and most requests are answered. So an item that shares a request
with others has no task of its own (`_FirstAsk`). It gets one when the request fails, or
when the service sends the item again.

This module knows the service's answers, but nothing of events and locks.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from qos.core.backoff import Backoff
from qos.core.queue.item import Disposition, ItemOutcome
from qos.engine.retry import Retry
from qos.errors import JobLost, LocalProtocolError, RequestFailed, RequestRefused
from qos.worker.away_time import AwayTime
from qos.worker.job import Job
from qos.worker.retract_batcher import RetractBatcher
from qos.worker.unlock_requests import UnlockRequests
from xep_0254.queueing import XEP_0254

__all__ = ["ANSWER_S", "RETRY", "Owner", "Settlements"]

#: Seconds to wait for an answer about a lock or a settlement, which can be repeated: at
#: first, and at most. A service under load needs seconds, and one that was killed never
#: answers.
_ANSWER_S_MIN = 2.0
ANSWER_S = 10.0

#: A settlement is repeated for at least this many seconds: then its result is mostly
#: known.
_SETTLE_S_MIN = 10.0

#: And for at most this many if the end of the lock is not known.
_SETTLE_S_MAX = 60.0

RETRY = Backoff(first_s=0.2, max_s=5.0)


class Owner(Protocol):
    """The object that has the jobs. It is told the end of each settlement."""

    @property
    def account(self) -> str:
        """The bare JID of the worker."""

    def settled(self, job: Job, how: Disposition) -> None:
        """The service has settled it."""

    def not_settled(self, job: Job, reason: str, condition: str | None) -> JobLost:
        """It is lost; returns the error for those who wait.

        Args:
            job: the job.
            reason: in words.
            condition: the stanza error that said so, or None.
        """

    def not_asked(self, job: Job) -> None:
        """The request was never sent; the job is held as before."""


class Settlements:
    """The settlements that are in flight.

    Args:
        plugin: sends the requests.
        owner: learns of their ends.
        service: the JID of the service.
        node: the name of the node.
        batch: the most items in a request.
        lock_s: how long a lock lasts, in seconds; None: not known.
    """

    def __init__(
        self,
        plugin: XEP_0254,
        owner: Owner,
        service: str,
        node: str,
        *,
        batch: int,
        lock_s: float | None,
    ) -> None:
        self._plugin = plugin
        self._owner = owner
        self._service = service
        self._node = node
        self._lock_s = lock_s
        self._retracts = RetractBatcher(plugin, service, node, batch=batch)
        self._asking: dict[Job, _FirstAsk | asyncio.Timeout] = {}
        self._tasks: dict[Job, asyncio.Task[None]] = {}

    def begin(self, job: Job, how: Disposition, lock_ends_at: float | None) -> None:
        """Ask until there is an answer, but not for ever.

        Args:
            job: the job.
            how: the wanted end.
            lock_ends_at: the end of its lock; None: not known.
        """
        now = asyncio.get_running_loop().time()
        if lock_ends_at is None:
            lock_ends_at = now + _SETTLE_S_MAX
        give_up_at = max(lock_ends_at, now + _SETTLE_S_MIN)
        if how.outcome is ItemOutcome.ACCEPTED and self._retracts.takes(job.token):
            first = _FirstAsk(self, job, how, self._answer_s(0), give_up_at)
            self._asking[job] = first
            self._retracts.add(first)
        else:
            self._ask(job, how, give_up_at)

    def sent_again(self, job: Job) -> None:
        """Ask again at once: the present request may get no answer."""
        asking = self._asking.get(job)
        if isinstance(asking, _FirstAsk):
            self._withdraw(asking)
            self._ask(job, asking.how, asking.give_up_at)
        # A second event may come before the task knows that it must ask again.
        elif asking is not None and not asking.expired():
            asking.reschedule(asyncio.get_running_loop().time())

    def abandon(self, job: Job) -> None:
        """Stop waiting for the answer; those who wait are cancelled."""
        asking = self._asking.get(job)
        if isinstance(asking, _FirstAsk):
            self._withdraw(asking)
            job.end_settling(asyncio.CancelledError())
        elif job in self._tasks:
            self._tasks[job].cancel()

    async def end(self) -> None:
        """Stop all requests that are in flight."""
        await self._retracts.end()

    # -- the first request, shared with others -----------------------------

    def first_answered(
        self, first: _FirstAsk, failed: Exception | None, *, alone: bool
    ) -> None:
        """Take the answer; see retract_batcher.Retract."""
        job = first.job
        del self._asking[job]
        if failed is None:
            self._settled(job, first.how)
        elif alone:
            self._ask(job, first.how, first.give_up_at, alone=True)
        else:
            self._ask(job, first.how, first.give_up_at, failed=failed)

    def _withdraw(self, first: _FirstAsk) -> None:
        del self._asking[first.job]
        first.withdrawn = True
        self._retracts.wait_for_none()

    # -- further requests, in a task ---------------------------------------

    def _ask(
        self,
        job: Job,
        how: Disposition,
        give_up_at: float,
        *,
        failed: Exception | None = None,
        alone: bool = False,
    ) -> None:
        """Ask until there is an answer.

        Args:
            job: the job.
            how: the wanted end.
            give_up_at: no attempt begins at or after this time, unless the service is
                away then.
            failed: the error of a first attempt.
            alone: begin with a request for this item alone.
        """
        asking = self._ask_until_answered(job, how, give_up_at, failed, alone=alone)
        task = asyncio.get_running_loop().create_task(asking)
        self._tasks[job] = task

        def ended(task: asyncio.Task[None]) -> None:
            if self._tasks.get(job) is task:
                del self._tasks[job]
            # Perhaps before its first step.
            if task.cancelled():
                job.end_settling(asyncio.CancelledError())

        task.add_done_callback(ended)

    async def _ask_until_answered(
        self,
        job: Job,
        how: Disposition,
        give_up_at: float,
        failed: Exception | None,
        *,
        alone: bool,
    ) -> None:
        retry, away = (
            Retry(RETRY),
            AwayTime(self._service, job, own=self._owner.account),
        )
        now = asyncio.get_running_loop().time

        async def pause(delay_s: float) -> None:
            # The lock lasts longer by as much; see AwayTime.
            if now() + delay_s >= give_up_at + away.lost_s and not away.is_away:
                raise TimeoutError
            await self._plugin.pause(delay_s)

        unlocks = self._unlocks(job, how)

        async def ask() -> None:
            nonlocal failed, alone
            if failed is not None:
                first_error, failed = failed, None
                raise first_error
            by_itself, alone = alone, False
            try:
                while not await self._ask_unless_sent_again(
                    job, how, unlocks, retry.failures, alone=by_itself
                ):
                    by_itself = False
            except RequestFailed as error:
                away.note(error, now())
                raise

        try:
            await retry.repeat(ask, pause=pause)
        except RequestFailed as error:
            lost = self._lost(job, how, error, may_be_done=unlocks.may_be_done)
            lost.__cause__ = error
            job.end_settling(lost)
        except LocalProtocolError as error:
            job.end_settling(error)
            self._owner.not_asked(job)
        except Exception as error:  # noqa: BLE001 - raised by those who wait
            job.end_settling(error)
        else:
            self._settled(job, how)
        finally:
            await unlocks.end()

    def _lost(
        self, job: Job, how: Disposition, error: RequestFailed, *, may_be_done: bool
    ) -> JobLost:
        outcome = how.outcome.value
        if error.is_temporary or may_be_done:
            reason = f"it may have been {outcome}: {error}"
            return self._owner.not_settled(job, reason, None)
        condition = error.condition if isinstance(error, RequestRefused) else None
        reason = f"it was not {outcome}: {error}"
        return self._owner.not_settled(job, reason, condition)

    def _settled(self, job: Job, how: Disposition) -> None:
        self._owner.settled(job, how)
        job.end_settling()

    async def _ask_unless_sent_again(
        self,
        job: Job,
        how: Disposition,
        unlocks: UnlockRequests,
        failures: int,
        *,
        alone: bool,
    ) -> bool:
        """Ask once; False: the item was sent again, so there may be no answer."""
        answer_s = self._answer_s(failures)
        try:
            async with asyncio.timeout(None) as asking:
                self._asking[job] = asking
                if how.outcome is not ItemOutcome.ACCEPTED:
                    await unlocks.ask(answer_s)
                elif alone:
                    await self._retracts.retract_alone(job.id, job.token, answer_s)
                else:
                    await self._retracts.retract(job.id, job.token, answer_s)
        except TimeoutError:
            return False
        finally:
            del self._asking[job]
        return True

    def _unlocks(self, job: Job, how: Disposition) -> UnlockRequests:
        timeout_s = self._plugin.timeout_s
        return UnlockRequests(
            self._plugin, self._service, lambda: self.ask_once(job, how, timeout_s)
        )

    def _answer_s(self, failures: int) -> float:
        """How long to wait for an answer after so many failures, in seconds."""
        answer_s = min(ANSWER_S, _ANSWER_S_MIN * 2.0**failures, self._plugin.timeout_s)
        if self._lock_s is not None:
            answer_s = min(answer_s, max(RETRY.first_s, self._lock_s / 3))
        return answer_s

    async def ask_once(self, job: Job, how: Disposition, timeout_s: float) -> None:
        """Ask for a settlement, without any repeat.

        Raises:
            RequestFailed, LocalProtocolError: as XEP_0254.unlock.
        """
        timeout_s = min(timeout_s, self._plugin.timeout_s)
        if how.outcome is ItemOutcome.ACCEPTED:
            await self._retracts.retract(job.id, job.token, timeout_s)
            return
        await self._plugin.unlock(
            self._service,
            self._node,
            job.id,
            job.token,
            outcome=how.outcome,
            delivery_failed=how.delivery_failed,
            undeliverable_here=how.undeliverable_here,
            reason=how.reason,
            timeout_s=timeout_s,
        )


class _FirstAsk:
    """The first request for a retract: a share of one; see Retract."""

    __slots__ = (
        "_settlements",
        "give_up_at",
        "how",
        "item",
        "job",
        "timeout_s",
        "withdrawn",
    )

    def __init__(
        self,
        settlements: Settlements,
        job: Job,
        how: Disposition,
        timeout_s: float,
        give_up_at: float,
    ) -> None:
        self.item = job.id, job.token
        self.timeout_s = timeout_s
        self.withdrawn = False
        self.job = job
        self.how = how
        self.give_up_at = give_up_at
        self._settlements = settlements

    def answered(self, failed: Exception | None, *, alone: bool) -> None:
        self._settlements.first_answered(self, failed, alone=alone)
