"""A worker whose handler is a command: the exit status is the outcome of an item."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Sequence

from qos.cli.child import Exit, run_child
from qos.cli.output import note, print_json
from qos.cli.ready import NOTIFY_VARIABLE, report_ready
from qos.cli.status import CommandError, Status
from qos.core.queue.item import ItemOutcome
from qos.errors import JobLost
from qos.journal.writer import JournalWriter
from qos.options.login import login_from
from qos.stream.login import AccountSession
from qos.worker import Job, Worker

__all__ = ["run"]

#: Exit statuses of the command (sysexits.h: EX_DATAERR, EX_TEMPFAIL).
_REJECT = 65
_RELEASE = 75

#: Linux accepts no variable of 128 KiB or more: the command would not start
#: (`MAX_ARG_STRLEN`, execve(2)). An id of our own queue service is far shorter.
_ID_BYTES_MAX = 64 * 1024

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
    async with (
        JournalWriter.opened(arguments.journal, login.jid, of_items=True) as journal,
        AccountSession(login) as session,
    ):
        worker = Worker(
            session.client,
            arguments.service,
            arguments.node,
            parallel=arguments.parallel,
            selector=arguments.selector,
            batch=min(arguments.parallel, _BATCH_MAX),
            lock_timeout_s=arguments.lock_timeout,
            grace_s=arguments.grace,
            journal=journal,
        )
        working = _Working(session, worker, arguments)
        session.start()
        task = asyncio.create_task(session.work(working.until_done(arguments.drain)))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            note(f"stopping; what runs may go on for {arguments.grace:g} s")
            await working.stopped(task)
            note("stopped; what was not done is given back")
            raise
    return Status.DONE


class _Working:
    """A worker whose handler is a command."""

    def __init__(
        self, session: AccountSession, worker: Worker, arguments: argparse.Namespace
    ) -> None:
        self._session = session
        self._worker = worker
        self._command: Sequence[str] = arguments.command
        self._grace_s: float = arguments.grace
        self._content: bool = arguments.content
        #: Outcomes that are being printed. The worker leaves no time for that to the
        #: handler of an item that has ended.
        self._telling: set[asyncio.Task[None]] = set()
        self._failure: CommandError | None = None
        self._begun = False
        self._stopping = False
        self._running = 0
        self._idle_since = 0.0

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
                watching.cancel()
                # Its errors were raised by `run` already.
                await asyncio.wait((watching,))
                watching.cancelled() or watching.exception()
                await self._told()
        if self._failure is not None:
            raise self._failure

    async def stopped(self, task: asyncio.Task[None]) -> None:
        """Stop, and return when all commands have ended. If cancelled, stop at once."""
        self._stopping = True
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

    async def _watch(self, drain_s: float | None) -> None:
        """Report when the worker is ready, and stop it when it has drained."""
        await self._worker.subscribed()
        report_ready(self._session.client.boundjid.full)
        if drain_s is None:
            return
        loop = asyncio.get_running_loop()
        self._idle_since = loop.time()
        while True:
            left_s = self._idle_since + drain_s - loop.time()
            if self._running:
                left_s = drain_s
            if left_s <= 0:
                self._worker.stop()
                return
            await asyncio.sleep(left_s)

    async def _handle(self, job: Job) -> None:
        loop = asyncio.get_running_loop()
        self._running += 1
        begun = loop.time()
        exit_: Exit | None = None
        outcome = "released"  # by the worker, if it is stopped
        try:
            problem = _problem(job)
            if not problem:
                exit_ = await self._until_lost(job)
            outcome = await self._settle(job, exit_, problem)
        finally:
            self._idle_since = loop.time()
            self._running -= 1
            telling = asyncio.create_task(
                self._tell(job, outcome, exit_, self._idle_since - begun)
            )
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)
            # If stdout is not read, no further items are handled.
            await asyncio.shield(telling)

    async def _until_lost(self, job: Job) -> Exit | None:
        """Run the command; None: it was killed, or cannot be run."""
        environment = {
            **{
                key: text
                for key, text in os.environb.items()
                if not key.startswith(_OURS)
            },
            b"QOS_ITEM_ID": job.id.encode(),
            b"QOS_NODE": job.node.encode(),
            b"QOS_DELIVERY_COUNT": str(job.delivery_count).encode(),
            b"QOS_PROPERTIES": json.dumps(dict(job.properties)).encode(),
        }
        stdin = job.content() if self._content else job.payload_text.encode()
        running = asyncio.create_task(
            run_child(self._command, stdin=stdin, environment=environment)
        )
        losing = asyncio.create_task(job.lost.wait())
        try:
            await asyncio.wait((running, losing), return_when=asyncio.FIRST_COMPLETED)
            return running.result() if running.done() else None
        except OSError as error:
            text = f"{self._command[0]} cannot be run: {error.strerror}"
            self._fail(CommandError(text, Status.REFUSED))
            return None
        finally:
            losing.cancel()
            running.cancel()
            await asyncio.wait((running,))

    async def _settle(self, job: Job, exit_: Exit | None, problem: str) -> str:
        """Settle the item by the exit status, or by a problem; returns the outcome."""
        if not job.held:
            return "released" if self._stopping else "lost"
        try:
            if problem:
                await job.reject(problem)
            elif exit_ is None:
                await job.release()
            elif exit_.status == 0:
                await job.accept()
            elif exit_.status == _RELEASE:
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

    async def _told(self) -> None:
        """Wait until all outcomes are printed, but at most for the grace time."""
        if self._telling:
            await asyncio.wait(self._telling, timeout=self._grace_s)
        self._tell_no_more()

    def _tell_no_more(self) -> None:
        for telling in self._telling:
            telling.cancel()

    def _fail(self, error: CommandError) -> None:
        """Stop working: unfinished items are given back."""
        if self._failure is None:
            self._failure = error
            self._stopping = True
            self._worker.stop()
            self._worker.stop()


def _failure(exit_: Exit) -> str:
    """The reason of a command that has failed: its end, and its last words."""
    end = exit_.signal or f"exit status {exit_.status}"
    return f"{end}: {exit_.last_line}" if exit_.last_line else end


def _problem(job: Job) -> str:
    """The reason why no command can be run for this item; '': one can be run."""
    size = len(job.id.encode())
    if size <= _ID_BYTES_MAX:
        return ""
    return f"its id has {size} bytes, and a command is given up to {_ID_BYTES_MAX}"
