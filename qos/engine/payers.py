"""Turns of the event loop, for the payers of a service by whatever door they come.

A turn does steps of work, for the payer that has used least time first, until it has
lasted 3 ms. Then the event loop reads and writes, and calls everybody else, before the
next turn begins. The time of each step is measured, and its payer is charged.

What a payer wants done is a job, and it has one or more of them; the jobs of one payer
take turns. A task may wait for its payer's turn instead. Tasks run after the turn that has
chosen them, so a turn chooses as many as fit into 3 ms if each takes what the longest of
late has taken, or what it is known to cause later. One task a turn would not do: a round of
the loop that reads from many sockets takes 50 ms, and there would be twenty requests a
second for all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from qos.core.counting import uncount
from qos.core.payers import BURST_S, FairOrder, Rates, TokenBuckets
from qos.core.rate import RateLimit
from qos.steps import Steps

__all__ = [
    "STEP_S",
    "TASKS_MAX",
    "TURN_S",
    "UNWRITTEN_MAX",
    "Job",
    "Over",
    "Payers",
    "Step",
]

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds of a turn: what the event loop does for everybody else waits for so long.
TURN_S = 0.003

#: Seconds after which a step should end, if it can be cut there.
STEP_S = 0.001

#: Tasks that one turn chooses.
TASKS_MAX = 8

#: Seconds that a payer is charged when a task of it is chosen.
_CHOSEN_S = 1e-6

#: What remains of the time of the longest task with each further one.
_TASK_DECAY = 0.9

#: Items of one payer that are being written at a time. All that is written together is
#: safe together, so everybody else waits for them too.
UNWRITTEN_MAX = 500

#: Seconds between two lines of the log about one payer that is too fast.
_LOG_S = 60.0

#: A piece of work of about `STEP_S`, or one that cannot be cut; returns whether there is
#: more to do.
Step: TypeAlias = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Over:
    """A payer sends more than its rate.

    Attributes:
        wait_s: the seconds until it may send again.
        rate: what it may send a second, in words.
    """

    wait_s: float
    rate: str


class Job:
    """Work of one payer, done step by step."""

    __slots__ = ("_cancelled", "payer", "step", "task_s")

    def __init__(self, payer: str, step: Step, *, task_s: float | None = None) -> None:
        self.payer = payer
        self.step = step
        # The least seconds of the task that it chooses; None: it chooses none.
        self.task_s = task_s
        self._cancelled = False

    def cancel(self) -> None:
        """Do no more steps of it. Harmless at the end, and in a step of its own."""
        self._cancelled = True

    @property
    def cancelled(self) -> bool:
        """Whether no more steps of it are done."""
        return self._cancelled


class Payers:
    """The budgets of all payers, and the turns of the event loop.

    Attributes:
        now: seconds, of a clock that is never set back.
        turn_until: when the present turn has to end.
        rates: of each payer.
    """

    def __init__(self, now: Callable[[], float], rates: Rates | None = None) -> None:
        """Begin without work.

        Args:
            now: see the class.
            rates: of each payer; None: the defaults.
        """
        self.now = now
        self.turn_until = 0.0
        self.limit(rates or Rates())
        self._order = FairOrder()
        # By payer, those that have any: one of them is the running one, or it waits.
        self._jobs: dict[str, deque[Job]] = {}
        self._turn_handle: asyncio.Handle | None = None
        # The payers of the chosen tasks that have not begun, and of the running one; when
        # the first of them and when this one began; the longest time of late.
        self._tasks: deque[str] = deque()
        self._running: str | None = None
        self._tasks_at = self._task_at = 0.0
        self._task_s = TURN_S
        # What the chosen tasks are expected to take.
        self._chosen_s = 0.0
        # What was done at once since the event loop has gone round.
        self._spent_s = 0.0
        self._logged = RateLimit(_LOG_S)
        # The items of each payer that are being written, and who waits for that.
        self._unwritten: Counter[str] = Counter()
        self._when_written: dict[str, list[Callable[[], object]]] = {}

    # -- rates -------------------------------------------------------------

    def limit(self, rates: Rates) -> None:
        """Set the rates of each payer; what was used before is forgotten."""
        self.rates = rates
        self._requests = TokenBuckets(rates.requests, BURST_S)
        self._bytes = TokenBuckets(rates.bytes, BURST_S)

    def over(self, payer: str, *, requests: bool = True) -> Over | None:
        """Whether a payer has to wait before it sends more; says so in the log.

        Args:
            payer: an account, or an address before a login.
            requests: it would send a request; otherwise only bytes.

        Returns:
            None: it need not wait.
        """
        now, rates = self.now(), self.rates
        bytes_s = self._bytes.wait_s(payer, now)
        requests_s = self._requests.wait_s(payer, now) if requests else 0.0
        if not requests_s and not bytes_s:
            return None
        rate = f"{rates.requests} requests" if requests_s else f"{rates.bytes} bytes"
        if self._logged.admit(payer, now) is not None:
            log.warning("%s sends more than %s a second", payer, rate)
        return Over(max(requests_s, bytes_s), rate)

    def take(self, payer: str, *, requests: int = 0, size: int = 0) -> None:
        """Count requests, and bytes; less than 0: they were not used."""
        now = self.now()
        if requests:
            self._requests.take(payer, requests, now)
        if size:
            self._bytes.take(payer, size, now)

    # -- what is written --------------------------------------------------

    def writing(self, payer: str, count: int) -> None:
        """Count items that are being written."""
        self._unwritten[payer] += count

    def written(self, payer: str, count: int) -> None:
        """Count items no more, since they are written, or will not be."""
        uncount(self._unwritten, payer, count)
        if self.may_write(payer):
            for call in self._when_written.pop(payer, ()):
                call()

    def may_write(self, payer: str) -> bool:
        """Whether a payer may give more items to be written."""
        return self._unwritten[payer] < UNWRITTEN_MAX

    def when_written(self, payer: str, call: Callable[[], object]) -> None:
        """Call this once, when a payer that may not write may do so again."""
        self._when_written.setdefault(payer, []).append(call)

    # -- work --------------------------------------------------------------

    def do(self, payer: str, step: Step) -> Job:
        """Do work for a payer, from the next turn on.

        An error of a step ends its job and is logged.

        Args:
            payer: an account, or an address before a login.
            step: is called again as long as it returns True.
        """
        job = Job(payer, step)
        self._add(job)
        return job

    def _add(self, job: Job) -> None:
        payer = job.payer
        jobs = self._jobs.get(payer)
        if jobs is None:
            self._jobs[payer] = deque((job,))
            self._order.add(payer)
        else:
            jobs.append(job)
        self._turn_soon()

    def do_now(self, payer: str, call: Callable[[], object]) -> bool:
        """Do a short piece of work at once, if nobody waits and there is time left.

        Returns:
            False: it was not done, since others wait, or 3 ms were used since the event
                loop has gone round.
        """
        if self._jobs or self._spent_s >= TURN_S:
            return False
        if not self._spent_s:
            asyncio.get_running_loop().call_soon(self._gone_round)
        began_at = self.now()
        try:
            call()
        finally:
            seconds = self.now() - began_at
            # More than nothing, so that the loop's round is noted once.
            self._spent_s += max(seconds, 1e-9)
            self._order.charge(payer, seconds)
        return True

    async def turn(self, payer: str, later_s: float = 0.0) -> None:
        """Wait for a turn of a payer.

        What the caller does until it waits for something else is measured, and the payer
        is charged. It may call this between the pieces of long work.

        Args:
            payer: an account, or an address before a login.
            later_s: seconds of work that the caller causes and that cannot be measured:
                the payer is charged, and no more of it is begun in a turn than fits.
        """
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()

        def step() -> bool:
            if not turn.done():
                # The task runs before the next turn, and is charged then. Until then its
                # payer has used a little, so that others come first for the next task.
                self._tasks.append(payer)
                self._chosen_s += max(self._task_s, later_s)
                self._order.charge(payer, later_s + _CHOSEN_S)
                loop.call_soon(self._task_begins)
                turn.set_result(None)
            return False

        job = Job(payer, step, task_s=later_s)
        self._add(job)
        try:
            await turn
        finally:
            job.cancel()

    async def stepped(self, payer: str, steps: Steps[T]) -> T:
        """Do work that comes in steps, and return its result.

        Short work waits for nobody; after each `STEP_S` the payer waits for its turn.
        """
        until = self.now() + STEP_S
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: T = done.value
                return result
            if self.now() >= until:
                await self.turn(payer)
                until = self.now() + STEP_S

    @contextmanager
    def paid_by(self, payer: str) -> Iterator[None]:
        """Charge a payer for the time of a block that waits for nothing."""
        began_at = self.now()
        try:
            yield
        finally:
            self._order.charge(payer, self.now() - began_at)

    @property
    def waiting(self) -> int:
        """The number of payers that have work to be done."""
        return len(self._jobs)

    def _gone_round(self) -> None:
        self._spent_s = 0.0

    def _task_begins(self) -> None:
        """The next of the chosen tasks runs now; that before it has ended."""
        now = self.now()
        if self._running is not None:
            self._charge_task(self._running, now - self._task_at)
        else:
            self._tasks_at = now
        self._running, self._task_at = self._tasks.popleft(), now

    def _tasks_end(self, now: float) -> float:
        """The last of the chosen tasks has ended; returns when the first of them began."""
        if self._running is None:
            return now
        self._charge_task(self._running, now - self._task_at)
        self._running, self._chosen_s = None, 0.0
        return self._tasks_at

    def _charge_task(self, payer: str, seconds: float) -> None:
        self._order.charge(payer, seconds)
        self._task_s = max(seconds, self._task_s * _TASK_DECAY)

    def _turn_soon(self) -> None:
        if self._turn_handle is None:
            # The loop looks for input and output once before it calls this.
            loop = asyncio.get_running_loop()
            self._turn_handle = loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Do steps for 3 ms, those of the tasks before it included.

        And one step at least: a task is chosen, though others have used the time.
        """
        now = self.now()
        began_at = self._tasks_end(now)
        self.turn_until = began_at + TURN_S
        while self._jobs:
            if self._tasks and not self._may_choose(self._jobs[self._order.first][0]):
                # The tasks wait for nothing else.
                break
            payer = self._order.take()
            jobs = self._jobs[payer]
            job = jobs.popleft()
            more = False
            if not job.cancelled:
                try:
                    more = job.step()
                except Exception:
                    log.exception("work for %s has failed", payer)
            if more:
                jobs.append(job)
            before, now = now, self.now()
            self._order.charge(payer, now - before)
            if jobs:
                self._order.add(payer)
            else:
                del self._jobs[payer]
            if not self._tasks and now - began_at >= TURN_S:
                break
        self._turn_handle = None
        if self._jobs or self._tasks:
            self._turn_soon()
        else:
            self._order.rest()

    def _may_choose(self, job: Job) -> bool:
        """Whether a job chooses one more of the tasks that fit into 3 ms."""
        if job.task_s is None or len(self._tasks) >= TASKS_MAX:
            return False
        return self._chosen_s + max(self._task_s, job.task_s) <= TURN_S
