"""The worker: it subscribes, hands out jobs, and stops in order.

It follows the client's sessions, but does not keep the connection up: that is the
application's task.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from slixmpp import JID, ClientXMPP, ComponentXMPP
from slixmpp.basexmpp import BaseXMPP

import xep_0254  # noqa: F401 - makes the plugin known
from qos import arguments
from qos.errors import (
    InvalidArgument,
)
from qos.jids import jid_of
from qos.journal.writer import JournalWriter
from qos.worker import recovery, signals
from qos.worker.job import Job, cancelled, unrecoverable
from qos.worker.leases import Leases
from qos.worker.stop_times import StopTimes
from qos.worker.subscription import Subscription
from qos.worker.threads import InThreads
from xep_0254.client_stanza import check_selector
from xep_0254.events import Event
from xep_0254.queueing import XEP_0254

__all__ = ["Handler", "Worker"]

log = logging.getLogger(__name__)

#: A coroutine function, or a plain function, which runs in a thread.
Handler: TypeAlias = Callable[[Job], object]


class Worker:
    """Takes items of a queue, several at a time. A client has one worker for a queue.

    `run` calls a handler for each item, `parallel` at a time. To take the items one by
    one, write `async with worker` and `async for job in worker`; see Job for exceptions
    there.

    The worker loads the plugin xep_0254 if the application has not. When the connection
    is lost, its jobs go on, and as soon as the application has a session again the worker
    takes their locks up again, by their tokens. A job is lost if that takes longer than
    its lock lasts, or if the service has no such locks.

    Args:
        client: a client or a component, in session or before.
        service: the queue service.
        node: the queue.
        parallel: the most jobs at a time.
        batch: the most items in one event, and accepted by one request; larger batches
            are faster for small items.
        resumable_locks: items stay locked for this worker when the connection is lost;
            those of a worker that was killed, until their time is over or until a new
            worker has its full JID. Otherwise items end as failed deliveries when the
            connection is lost, and go to other workers at once.
        durable_locks: items stay locked for the account instead: the next worker of it
            gets those of one whose connection was lost.
        events: `acknowledged`: through xep_qos, which the application loads, with a
            `trust` that names the service.
        selector: take only the items for which this condition is TRUE, such as
            `color = 'red' AND n > 5`; '': all. The language of JMS message selectors.
        lock_timeout_s: the node's, if it is known; see qos.worker.leases.
        resubscribe_s: subscribe again at this interval, which brings lost events.
        grace_s: all that a stop takes, in seconds. Running jobs have nearly all of it
            to end; the rest is for giving them back.
        extend: extend the locks of long jobs.
        effects_db: call `recover` with it at each subscribe. It must be usable at the
            first; later it may be in a transaction, or locked, for a while.
        journal: records what becomes of each item; the caller closes it. Made with
            `of_items=True`.

    Raises:
        InvalidArgument: an argument has a wrong value.
        LocalProtocolError: at its start: this client has a worker of the queue already.
    """

    def __init__(
        self,
        client: ClientXMPP | ComponentXMPP,
        service: str | JID,
        node: str,
        *,
        parallel: int = 1,
        batch: int = 1,
        resumable_locks: bool = True,
        durable_locks: bool = False,
        events: Literal["message", "acknowledged"] = "message",
        selector: str = "",
        lock_timeout_s: float | None = None,
        resubscribe_s: float = 60.0,
        grace_s: float = 30.0,
        extend: bool = True,
        effects_db: sqlite3.Connection | None = None,
        journal: JournalWriter | None = None,
    ) -> None:
        arguments.instance(
            BaseXMPP, "client", client, "a client or component of slixmpp"
        )
        arguments.text("node", node, empty=False)
        arguments.whole("parallel", parallel, least=1)
        arguments.whole("batch", batch, least=1, most=parallel)
        arguments.flag("resumable_locks", resumable_locks)
        arguments.flag("durable_locks", durable_locks)
        if events not in ("message", "acknowledged"):
            raise InvalidArgument("events", events, "'message' or 'acknowledged'")
        check_selector(selector)
        if lock_timeout_s is not None:
            arguments.seconds("lock_timeout_s", lock_timeout_s)
        arguments.seconds("resubscribe_s", resubscribe_s)
        arguments.seconds("grace_s", grace_s, zero=True)
        arguments.flag("extend", extend)
        if effects_db is not None:
            _check_db("effects_db", effects_db)
        if journal is not None:
            arguments.instance(JournalWriter, "journal", journal, "a JournalWriter")
        self.service = jid_of("service", service)
        self.node = node
        self._client = client
        self._parallel = parallel
        self._locks_last = resumable_locks or durable_locks
        self._stop_times = StopTimes(grace_s)
        self._effects_db = effects_db
        self._plugin = XEP_0254.of(client)
        self._leases = Leases(
            self._plugin,
            self.service,
            node,
            lock_s=lock_timeout_s,
            extend=extend,
            batch=batch,
            given_up=self._give_up,
            journal=journal,
        )
        self._subscription = Subscription(
            client,
            self.service,
            node,
            options={
                "queue_requests": parallel,
                "batch": batch,
                "durable_locks": durable_locks,
                "events": events,
                "selector": selector,
            },
            resumes=resumable_locks and not durable_locks,
            again_s=resubscribe_s,
            before=self._before_subscribe,
        )
        self._failure: BaseException | None = None
        self._stop_early = False
        self._following: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._runners: list[asyncio.Task[None]] = []

    # -- beginning and end -------------------------------------------------

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is not None and unrecoverable(exc):
            self._give_up(exc)
        elif exc is not None:
            self._stop_times.hasten()
        await self.aclose()

    def _start(self) -> None:
        if self._following is not None:
            raise RuntimeError("a worker works once")
        self._subscription.join()
        self._plugin.add_listener(self.service, self.node, self._on_event)
        for event, handler in self._session_events():
            self._client.add_event_handler(event, handler)
        loop = asyncio.get_running_loop()
        self._following = loop.create_task(self._subscription.keep())
        self._following.add_done_callback(self._follow_ended)
        if self._stop_early:
            self.stop()

    def install_signal_handlers(self) -> None:
        """Let SIGTERM and SIGINT stop the worker in order, and a second one at once.

        A signal stops all workers of the event loop that have called this. Call it in
        the event loop, before `run`.
        """
        signals.stop_on_signals(asyncio.get_running_loop(), self)

    def stop(self) -> None:
        """Take nothing more, finish running jobs, and release the rest.

        A second call stops at once.

        Iterations and `run` come to their end.
        """
        if self._stopping is not None:
            self._stop_times.hasten()
        elif self._following is not None:
            unbegun = self._leases.close()
            loop = asyncio.get_running_loop()
            self._stopping = loop.create_task(self._stop(unbegun))
        else:
            self._stop_early = True  # a signal can come at any time

    async def aclose(self) -> None:
        """Stop, and return when everything has ended."""
        if self._stopping is None:
            self.stop()
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    def _give_up(self, error: BaseException) -> None:
        """Unsubscribe, and then unlock (XEP-0254 §4)."""
        if self._failure is None:
            self._failure = error
        self.stop()
        self._stop_times.hasten()

    async def subscribed(self) -> None:
        """Wait until the service has accepted the worker.

        Raises:
            RequestRefused: the service has refused for good. LocalProtocolError,
                sqlite3.Error: of `effects_db`; see recover.
        """
        assert self._following is not None, "the worker has not been started"
        waiting = asyncio.ensure_future(self._subscription.made.wait())
        await asyncio.wait(
            (waiting, self._following), return_when=asyncio.FIRST_COMPLETED
        )
        waiting.cancel()
        if self._failure is not None:
            raise self._failure

    def take_at_most(self, count: int) -> None:
        """Hold at most so many items at a time from now on, up to `parallel`.

        Items that are held stay. With 0 the worker is not subscribed, so that items go
        to other workers, until this is called again.
        """
        arguments.whole("count", count, least=0, most=self._parallel)
        self._subscription.take_at_most(count)

    async def ask(self) -> None:
        """Wait until the service has answered that this worker is subscribed, anew.

        Events that it sent before have come by then. While the connection is away, this
        waits.
        """
        await self._subscription.ask()

    # -- working -----------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Job:
        job = await self._leases.next()
        if job is not None:
            return job
        if self._failure is not None:
            raise self._failure
        raise StopAsyncIteration

    async def run(self, handler: Handler) -> None:
        """Call the handler for each job, `parallel` at once, until stopped.

        A handler that is a plain function runs in a thread, so that it may take its
        time and block; stopping waits for it as long as for others. What belongs to
        the event loop, such as the client, it must not touch.

        When the handler returns, its job is accepted. When it raises an exception, its
        job has failed, the exception is logged, and the worker goes on: the queue
        delivers the item again, until it has failed too often. If something that the
        handler awaits is cancelled, that is an exception like any other.

        `stop`, a signal (`install_signal_handlers`) or the cancellation of `run` ends
        it.

        Raises:
            RequestRefused: the service refuses the first subscribe for good.
            UnrecoverableError: raised by the handler: no other item would fare better.
                StoreFull, OSError, sqlite3.Error: the handler has found the disk full.
                Other errors of these classes only fail its job.
            LocalProtocolError: this client has a worker of the queue already, or
                `effects_db` is in a transaction at the start.
            sqlite3.Error: `effects_db` cannot be used.

        Before any of these is raised, all jobs have been given back.
        """
        arguments.callable_of("handler", handler)
        if self._following is None:
            async with self:
                await self.run(handler)
            return
        if arguments.is_coroutine_function(handler):
            await self._run(handler)
            return
        threads = InThreads(handler, self._parallel)
        try:
            await self._run(threads)
        finally:
            threads.close()

    async def _run(self, handler: Callable[[Job], Awaitable[object]]) -> None:
        loop = asyncio.get_running_loop()
        self._runners = [
            loop.create_task(self._runner(handler)) for _ in range(self._parallel)
        ]
        try:
            await asyncio.wait(self._runners)
        except asyncio.CancelledError:
            self.stop()
            self._stop_times.hasten()
            await self.aclose()
            raise
        await self.aclose()
        if self._failure is not None:
            raise self._failure

    async def _runner(self, handler: Callable[[Job], Awaitable[object]]) -> None:
        while (job := await self._leases.next()) is not None:
            try:
                async with job:
                    await handler(job)
            except (Exception, asyncio.CancelledError) as error:
                if cancelled(error):
                    raise
                if unrecoverable(error):
                    return
                log.exception("item %r failed", job.id)

    # -- the session -------------------------------------------------------

    def _session_events(self) -> list[tuple[str, Callable[[Any], None]]]:
        return [
            ("session_start", self._session_started),
            ("session_resumed", self._session_resumed),
        ]

    def _session_started(self, _event: object) -> None:
        self._leases.session_began(locks_last=self._locks_last)
        self._subscription.renew()

    def _session_resumed(self, _event: object) -> None:
        self._subscription.renew()

    def _on_event(self, event: Event) -> None:
        self._leases.handle(event)
        if event.unsubscribed or event.deleted:
            self._subscription.renew()

    def _follow_ended(self, following: asyncio.Task[None]) -> None:
        error = None if following.cancelled() else following.exception()
        if error is not None:
            self._give_up(error)

    async def _before_subscribe(self) -> None:
        # First: what is held counts when the service gives out more.
        await self._leases.take_up()
        if self._effects_db is not None:
            await self.recover(self._effects_db)

    async def recover(self, db: sqlite3.Connection) -> int:
        """Finish the prepared effects in the database; see qos.worker.effects.

        Returns:
            The number of jobs whose result is not known yet. Call it again for them.

        Raises:
            NoAnswer: the service is away.
            LocalProtocolError: the connection is in a transaction.
            sqlite3.Error: the database cannot be used.
        """
        _check_db("db", db)
        own = self._leases
        return await recovery.recover(
            db,
            self._plugin,
            service=own.service,
            account=own.account,
            node=own.node,
        )

    # -- stopping ----------------------------------------------------------

    async def _stop(self, unbegun: list[Job]) -> None:
        try:
            await self._stop_work(unbegun)
        finally:
            self._leave()

    async def _stop_work(self, unbegun: list[Job]) -> None:
        """Stop in order: each step relies on those before it."""
        leases, times = self._leases, self._stop_times
        assert self._following is not None
        times.begin()
        self._following.cancel()
        await asyncio.wait((self._following,))
        await self._subscription.end(timeout_s=times.answer_s())
        await self._give_back(unbegun, times.answer_s())
        if not times.hurry.is_set():
            await self._grace()
        unended = [job for job in leases.jobs.values() if not job.settling]
        await self._give_back(unended, times.answer_s())
        running = [runner for runner in self._runners if not runner.done()]
        for runner in running:
            runner.cancel()
        if running:
            await asyncio.wait(running, timeout=times.answer_s())
        await leases.end(times.last_answer_s())

    def _leave(self) -> None:
        self._subscription.leave()
        self._plugin.remove_listener(self.service, self.node, self._on_event)
        for event, handler in self._session_events():
            self._client.del_event_handler(event, handler)
        signals.forget(asyncio.get_running_loop(), self)

    async def _give_back(self, jobs: list[Job], answer_s: float) -> None:
        await asyncio.gather(*(self._leases.give_back(job, answer_s) for job in jobs))

    async def _grace(self) -> None:
        """Wait for running jobs, but not beyond the grace time or a second stop."""
        ends = [
            asyncio.ensure_future(self._leases.wait_empty()),
            asyncio.ensure_future(self._stop_times.hurry.wait()),
        ]
        await asyncio.wait(
            ends,
            timeout=self._stop_times.grace_s(),
            return_when=asyncio.FIRST_COMPLETED,
        )
        for end in ends:
            end.cancel()


def _check_db(name: str, db: sqlite3.Connection) -> None:
    arguments.instance(sqlite3.Connection, name, db, "a connection of sqlite3")
