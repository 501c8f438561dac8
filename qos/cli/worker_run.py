"""A worker whose handler is a command: the exit status is the outcome of an item."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import signal
from collections.abc import Sequence

from qos.cli.child import Exit, run_child
from qos.cli.command_starts import Starts, commands_max
from qos.cli.output import note, print_json
from qos.cli.ready import NOTIFY_VARIABLE, report_ready
from qos.cli.status import CommandError, Status
from qos.core.queue.item import ItemOutcome
from qos.errors import JobLost
from qos.journal.writer import JournalWriter
from qos.options.login import login_from
from qos.stream.login import AccountSession
from qos.worker import Job, Worker
from qos.worker.draining import Draining

__all__ = ["run"]

#: Exit statuses of the command (sysexits.h: EX_DATAERR, EX_TEMPFAIL).
_REJECT = 65
_RELEASE = 75

#: Linux accepts no variable of 128 KiB or more: the command would not start
#: (`MAX_ARG_STRLEN`, execve(2)). An id of our own queue service is far shorter.
_ID_BYTES_MAX = 64 * 1024
_PROPERTIES_BYTES_MAX = 120 * 1024

#: The signals of a stop, and how a program reports that one has ended it.
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STOP_NAMES = frozenset(number.name for number in _STOP_SIGNALS)
_STOP_STATUSES = frozenset(128 + number for number in _STOP_SIGNALS)

#: Seconds within which our own signal follows that of a command, if both are stopped.
_STOP_TOGETHER_S = 1.0

#: Items in one event: small items are faster together.
_BATCH_MAX = 20

#: Not for the command: our passwords, as it may have one of its own, and systemd's
#: socket, as it is not the service.
_OURS = (b"XMPP_QOS_", NOTIFY_VARIABLE.encode())

_WORDS = {
    ItemOutcome.ACCEPTED: "accepted",
    ItemOutcome.RELEASED: "released",
    ItemOutcome.REJECTED: "rejected",
    ItemOutcome.MODIFIED: "failed",
}


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    login = login_from(arguments)
    parallel = commands_max(arguments.parallel)
    async with (
        JournalWriter.opened(arguments.journal, login.jid, of_items=True) as journal,
        AccountSession(login) as session,
    ):
        worker = Worker(
            session.client,
            arguments.service,
            arguments.node,
            parallel=parallel,
            selector=arguments.selector,
            batch=min(parallel, _BATCH_MAX),
            lock_timeout_s=arguments.lock_timeout,
            grace_s=arguments.grace,
            journal=journal,
        )
        starts = Starts(worker, arguments.command[0], parallel)
        working = _Working(session, worker, starts, arguments)
        session.start()
        task = asyncio.create_task(session.work(working.until_done(arguments.drain)))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            note(f"stopping, within {arguments.grace:g} s")
            await working.stopped(task)
            session.closing_s = min(session.closing_s, working.left_s)
            note("stopped; what was not done is given back")
            raise
    return Status.DONE


class _Working:
    """A worker whose handler is a command."""

    def __init__(
        self,
        session: AccountSession,
        worker: Worker,
        starts: Starts,
        arguments: argparse.Namespace,
    ) -> None:
        self._session = session
        self._worker = worker
        self._starts = starts
        self._draining: Draining | None = None
        self._command: Sequence[str] = arguments.command
        self._grace_s: float = arguments.grace
        self._content: bool = arguments.content
        #: Outcomes that are being printed. The worker leaves no time for that to the
        #: handler of an item that has ended.
        self._telling: set[asyncio.Task[None]] = set()
        self._failure: CommandError | None = None
        self._begun = False
        self._stopping = asyncio.Event()
        self._ends_at = math.inf
        self._running = 0

    async def until_done(self, drain_s: float | None) -> None:
        """Work until the worker is stopped, or has had nothing to do for this time.

        Raises:
            RequestRefused: the service does not accept this worker.
            CommandError: the command cannot be run, or its outcome cannot be printed.
        """
        # Otherwise the worker would report that there is no session.
        await self._session.online.wait()
        self._begun = True
        async with self._worker:
            watching = asyncio.create_task(self._watch(drain_s))
            try:
                await self._worker.run(self._handle)
            finally:
                self._starts.close()
                watching.cancel()
                # Its errors were raised by `run` already.
                await asyncio.wait((watching,))
                watching.cancelled() or watching.exception()
                await self._wait_for_reports()
        if self._failure is not None:
            raise self._failure

    async def stopped(self, task: asyncio.Task[None]) -> None:
        """Stop, and return when all commands have ended. If cancelled, stop at once."""
        self._stopping.set()
        self._ends_at = asyncio.get_running_loop().time() + self._grace_s
        if not self._begun:
            task.cancel()
        self._worker.stop()
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                self._worker.stop()
                self._tell_no_more()
        if not task.cancelled():
            task.result()

    @property
    def left_s(self) -> float:
        """The rest of the grace time, in seconds."""
        return max(0.0, self._ends_at - asyncio.get_running_loop().time())

    async def _watch(self, drain_s: float | None) -> None:
        """Report when the worker is ready, and stop it when it has drained."""
        await self._worker.subscribed()
        if self._stopping.is_set():
            return
        report_ready(self._session.client.boundjid.full)
        if drain_s is None:
            return
        self._draining = Draining(
            self._session.client,
            self._worker,
            drain_s,
            # A command that cannot be started leaves work behind.
            lambda: self._running > 0 or self._starts.paused,
        )
        await self._draining.until_drained()
        self._worker.stop()

    async def _handle(self, job: Job) -> None:
        loop = asyncio.get_running_loop()
        self._running += 1
        started_at = loop.time()
        exit_: Exit | None = None
        outcome = "released"  # by the worker, if it is stopped
        try:
            # The properties as a command gets them.
            properties = json.dumps(dict(job.properties)).encode()
            problem = _problem(job, properties)
            if not problem and self._starts.begin():
                try:
                    exit_ = await self._until_lost(job, properties)
                finally:
                    self._starts.end()
            outcome = await self._settle(job, exit_, problem)
        finally:
            self._running -= 1
            if self._draining is not None:
                self._draining.active()
            telling = asyncio.create_task(
                self._tell(job, outcome, exit_, loop.time() - started_at)
            )
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)
            # If stdout is not read, no further items are handled.
            await asyncio.shield(telling)

    async def _until_lost(self, job: Job, properties: bytes) -> Exit | None:
        """Run the command; None: it was killed, or cannot be started."""
        environment = {
            **{
                key: text
                for key, text in os.environb.items()
                if not key.startswith(_OURS)
            },
            b"QOS_ITEM_ID": job.id.encode(),
            b"QOS_NODE": job.node.encode(),
            b"QOS_DELIVERY_COUNT": str(job.delivery_count).encode(),
            b"QOS_PROPERTIES": properties,
        }
        stdin = job.content() if self._content else job.payload_text.encode()
        running = asyncio.create_task(
            run_child(
                self._command,
                stdin=stdin,
                environment=environment,
                started=self._starts.started,
            )
        )
        losing = asyncio.create_task(job.lost.wait())
        try:
            await asyncio.wait((running, losing), return_when=asyncio.FIRST_COMPLETED)
            return running.result() if running.done() else None
        except OSError as error:
            self._starts.failed(error)
            return None
        finally:
            losing.cancel()
            running.cancel()
            await asyncio.wait((running,))

    async def _settle(self, job: Job, exit_: Exit | None, problem: str) -> str:
        """Settle the item by the exit status, or by a problem; returns the outcome."""
        if not job.held:
            return "released" if self._stopping.is_set() else "lost"
        try:
            if problem:
                await job.reject(problem)
            elif exit_ is None:
                await job.release()
            elif exit_.status == 0:
                await job.accept()
            elif exit_.status == _RELEASE or await self._was_stopped(exit_):
                await job.release()
            elif exit_.status == _REJECT:
                await job.reject(exit_.last_line)
            else:
                await job.modify(reason=_failure(exit_))
        except JobLost as error:
            note(str(error))
            return "lost" if error.condition else "in doubt"
        assert job.outcome is not None
        return _WORDS[job.outcome]

    async def _was_stopped(self, exit_: Exit) -> bool:
        """Whether the signal that stops the worker has ended the command as well.

        A service manager sends it to all processes, and in any order.
        """
        if exit_.signal not in _STOP_NAMES and exit_.status not in _STOP_STATUSES:
            return False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), _STOP_TOGETHER_S)
        return self._stopping.is_set()

    async def _tell(
        self, job: Job, outcome: str, exit_: Exit | None, seconds: float
    ) -> None:
        try:
            await print_json(
                {
                    "id": job.id,
                    "outcome": outcome,
                    "seconds": round(seconds, 3),
                    "delivery_count": job.delivery_count,
                    "exit": exit_ and exit_.status,
                    "signal": exit_ and exit_.signal,
                }
            )
        except CommandError as error:
            self._fail(error)

    async def _wait_for_reports(self) -> None:
        """Wait until all outcomes are printed, but at most for the grace time."""
        if self._telling:
            left_s = min(self._grace_s, self.left_s)
            await asyncio.wait(self._telling, timeout=left_s)
        self._tell_no_more()

    def _tell_no_more(self) -> None:
        for telling in self._telling:
            telling.cancel()

    def _fail(self, error: CommandError) -> None:
        """Stop working: unfinished items are given back."""
        if self._failure is None:
            self._failure = error
            self._stopping.set()
            self._worker.stop()
            self._worker.stop()


def _failure(exit_: Exit) -> str:
    """The reason of a command that has failed: its end, and its last words."""
    end = exit_.signal or f"exit status {exit_.status}"
    return f"{end}: {exit_.last_line}" if exit_.last_line else end


def _problem(job: Job, properties: bytes) -> str:
    """The reason why no command can be run for this item; '': one can be run."""
    for name, data, most in (
        ("id has", job.id.encode(), _ID_BYTES_MAX),
        ("properties have", properties, _PROPERTIES_BYTES_MAX),
    ):
        if len(data) > most:
            return f"its {name} {len(data)} bytes, and a command is given up to {most}"
    return ""
