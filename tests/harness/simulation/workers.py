"""A machine with a worker: the real one, with effects in a real database.

Only the stream is not real. `SimulatedQueueing` is `XEP_0254` without XML: it makes the
requests that the service reads, and gives the worker the events that the service sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from slixmpp import JID, ClientXMPP

from qos.core.queue.item import ItemOutcome
from qos.core.queue.node_options import QUEUE_REQUESTS, SELECTOR
from qos.core.queue.requests import (
    Extend,
    Retract,
    Settlement,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from qos.core.queue.results import ExtendResult, SubscribeResult
from qos.errors import StoreError, StoreFull
from qos.worker import Job, Worker
from simulation import invariants
from simulation.disks import Disk
from simulation.items import PARALLEL, ItemLedger
from simulation.loop import SimulatedLoop
from simulation.network import Network
from simulation.plan import WORKERS, Settings
from simulation.queue_client import QueueClient, QueueUser
from simulation.queue_machine import NODE, SERVICE, Presence, Sent
from xep_0254.channel import Listener
from xep_0254.queueing import XEP_0254

__all__ = ["SimulatedQueueing", "WorkerMachine"]

#: How often a worker subscribes again, which brings lost events.
_RESUBSCRIBE_S = 60.0

_GRACE_S = 1.0


class SimulatedQueueing(XEP_0254):
    """Sends requests to the simulated service."""

    def __init__(
        self,
        client: _Client,
        queue_client: QueueClient,
        said_new: Callable[[], object],
    ) -> None:
        super().__init__(None, {"timeout_s": 5.0})
        self._said_new = said_new
        self.xmpp = cast(ClientXMPP, client)
        self._queue_client = queue_client
        self._listeners: list[Listener] = []

    @property
    def own(self) -> str | None:
        """See XEP_0254."""
        return self._queue_client.own

    async def session(self) -> None:
        """See XEP_0254."""
        await self._queue_client.in_session.wait()

    async def pause(self, delay_s: float) -> None:
        """See XEP_0254."""
        await self._queue_client.pause(delay_s)

    def add_listener(self, service: str | JID, node: str, callback: Listener) -> None:
        """See XEP_0254."""
        self._listeners.append(callback)

    def remove_listener(
        self, service: str | JID, node: str, callback: Listener
    ) -> None:
        """See XEP_0254."""
        self._listeners.remove(callback)

    def take(self, sent: Sent) -> None:
        """An event has come."""
        for callback in tuple(self._listeners):
            callback(sent.event)

    async def subscribe(
        self,
        service: str | JID,
        node: str,
        *,
        queue_requests: int,
        batch: int = 1,
        durable_locks: bool = False,
        resumable_locks: bool = False,
        new_worker: bool = False,
        events: Literal["message", "acknowledged"] = "message",
        selector: str = "",
        jid: str | JID | None = None,
        timeout_s: float | None = None,
    ) -> str:
        """See XEP_0254."""
        options = {
            QUEUE_REQUESTS: str(queue_requests),
            "queue#batch": str(batch),
            "queue#durable_locks": "1" if durable_locks else "0",
            "queue#resumable_locks": "1" if resumable_locks else "0",
            "queue#new_worker": "1" if new_worker else "0",
            "queue#events": events,
            SELECTOR: selector,
        }
        if new_worker:
            self._said_new()
        request = Subscribe(node, self.own or "", options)
        result = await self._ask(request, "subscribe", timeout_s)
        assert isinstance(result, SubscribeResult)
        return result.subscription.subid

    async def unsubscribe(
        self,
        service: str | JID,
        node: str,
        *,
        jid: str | JID | None = None,
        subid: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """See XEP_0254."""
        request = Unsubscribe(node, self.own or "", subid)
        await self._ask(request, "unsubscribe", timeout_s)

    async def retract(
        self,
        service: str | JID,
        node: str,
        item_id: str,
        token: str = "",
        *,
        timeout_s: float | None = None,
    ) -> None:
        """See XEP_0254."""
        await self.retract_all(service, node, [(item_id, token)], timeout_s=timeout_s)

    async def retract_all(
        self,
        service: str | JID,
        node: str,
        items: Sequence[tuple[str, str]],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """See XEP_0254."""
        wanted = [Settlement(item_id=each, token=token) for each, token in items]
        # Ours says no; here some try the event of XEP-0254 §2.3 as well.
        notify = len(wanted) == 1 and wanted[0].token[-1:] in {*"02468"}
        request = Retract(node, tuple(wanted), notify=notify)
        await self._ask(request, "retract", timeout_s)

    async def unlock(
        self,
        service: str | JID,
        node: str,
        item_id: str,
        token: str = "",
        *,
        outcome: ItemOutcome = ItemOutcome.RELEASED,
        delivery_failed: bool = False,
        undeliverable_here: bool = False,
        reason: str = "",
        timeout_s: float | None = None,
    ) -> None:
        """See XEP_0254."""
        wanted = Settlement(
            item_id=item_id,
            token=token,
            outcome=outcome,
            delivery_failed=delivery_failed,
            undeliverable_here=undeliverable_here,
            reason=reason,
        )
        await self._ask(Unlock(node, (wanted,)), "unlock", timeout_s)

    async def extend(
        self,
        service: str | JID,
        node: str,
        item_id: str,
        token: str,
        seconds: float,
        *,
        timeout_s: float | None = None,
    ) -> float:
        """See XEP_0254."""
        request = Extend(node, seconds, ((item_id, token),))
        result = await self._ask(request, "extend", timeout_s)
        assert isinstance(result, ExtendResult)
        return result.seconds

    async def _ask(self, request: Any, what: str, timeout_s: float | None) -> object:
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        return await self._queue_client.ask(request, what, limit_s)


@dataclass(frozen=True, slots=True)
class _Bound:
    full: str


class _Client:
    """The part of a slixmpp client that a worker uses."""

    is_component = False

    def __init__(self, machine: WorkerMachine) -> None:
        self._machine = machine
        self.plugin: dict[str, SimulatedQueueing] = {}
        self.handlers: dict[str, list[Callable[[object], object]]] = {}

    @property  # type: ignore[misc]  # as Mock(spec) does it
    def __class__(self) -> type[ClientXMPP]:  # type: ignore[override]  # likewise
        """It passes isinstance() as a client: the worker checks its arguments."""
        return ClientXMPP

    @property
    def boundjid(self) -> _Bound:
        return _Bound(self._machine.jid)

    def add_event_handler(self, name: str, handler: Callable[[object], object]) -> None:
        self.handlers.setdefault(name, []).append(handler)

    def del_event_handler(self, name: str, handler: Callable[[object], object]) -> None:
        self.handlers[name].remove(handler)

    def send_presence(self, pto: str, ptype: str | None, pfrom: str | None) -> None:
        self._machine.send(pto, Presence(available=ptype is None))


class _Database(sqlite3.Connection):
    """A database in which each beginning and end of a transaction is an effect.

    Each is also a commit of the disk, which may fail.
    """

    machine: WorkerMachine | None = None

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """See sqlite3."""
        machine = self.machine
        if machine is None or not sql.startswith(("BEGIN", "COMMIT")):
            return super().execute(sql, *parameters)
        machine.effect()
        error = machine.disk.begin()
        if error is not None:
            raise _sqlite_error(error)
        cursor = super().execute(sql)
        if sql == "COMMIT":
            machine.committed()
        return cursor


def _sqlite_error(error: StoreError) -> sqlite3.OperationalError:
    full = isinstance(error, StoreFull)
    found = sqlite3.OperationalError(
        "database or disk is full" if full else "disk I/O error"
    )
    found.sqlite_errorcode = sqlite3.SQLITE_FULL if full else sqlite3.SQLITE_IOERR
    return found


class WorkerMachine(QueueUser):
    """Works on the items of the queue; its database outlives its processes."""

    def __init__(
        self,
        loop: SimulatedLoop,
        network: Network,
        name: str,
        jid: str,
        seed: int,
        *,
        settings: Settings,
        ledger: ItemLedger,
    ) -> None:
        super().__init__(loop, network, name, jid, seed)
        self._settings = settings
        self._selector = settings.selectors[WORKERS.index(name)]
        self._ledger = ledger
        self.disk: Disk[object] = Disk(name)
        self._db = sqlite3.connect(":memory:", isolation_level=None, factory=_Database)
        self._db.execute("CREATE TABLE done (item TEXT NOT NULL)")
        self._db.machine = self
        #: How often the present process has said that it is a new worker.
        self.new_workers = 0
        self._client: _Client | None = None
        self._worker: Worker | None = None

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def boot(self) -> None:
        """See Machine."""
        super().boot()
        assert self.process is not None
        self.new_workers = 0
        client = self._client = _Client(self)
        client.plugin[XEP_0254.name] = SimulatedQueueing(
            client, self.queue_client, self._said_new
        )
        self._worker = Worker(
            cast(ClientXMPP, client),
            SERVICE,
            NODE,
            parallel=PARALLEL,
            selector=self._selector,
            durable_locks=self._settings.durable_locks,
            resumable_locks=self._settings.resumable_locks,
            lock_timeout_s=self._settings.lock_s,
            resubscribe_s=_RESUBSCRIBE_S,
            grace_s=_GRACE_S,
            effects_db=self._db,
        )
        self.process.task(self._work(self._worker))

    async def _work(self, worker: Worker) -> None:
        with contextlib.suppress(sqlite3.Error):
            await worker.run(self._handle)
        # The worker was asked to stop, or has given up, as it may without its database:
        # it is started again.
        self.loop.outside(0.0, lambda: self.kill(_GRACE_S))

    async def _handle(self, job: Job) -> None:
        facts = self._ledger.items[job.id]
        self._ledger.took(facts, self._selector, job.properties, job.delivery_count)
        await asyncio.sleep(facts.planned.works_s)
        if facts.failed < facts.planned.fails:
            facts.failed += 1
            raise RuntimeError(f"{job.id} fails")
        async with job.effects(self._db) as effects:
            effects.execute("INSERT INTO done VALUES (?)", (job.id,))

    def _said_new(self) -> None:
        self.new_workers += 1
        self._ledger.check(invariants.new_once, self.name, self.new_workers)

    def leave(self) -> bool:
        """Ask the worker to stop normally; returns whether it runs."""
        if self.process is None or self._worker is None:
            return False
        self.process.start(self._worker.stop)
        return True

    def connected(self) -> None:
        """See Machine."""
        super().connected()
        assert self._client is not None
        for handler in self._client.handlers.get("session_start", ()):
            handler(None)

    def receive(self, source: str, body: object) -> None:
        """See Machine."""
        if isinstance(body, Sent):
            assert self._client is not None
            if source == SERVICE:
                self._client.plugin[XEP_0254.name].take(body)
            return
        super().receive(source, body)

    def committed(self) -> None:
        """A commit of the database is final."""
        rows = sqlite3.Connection.execute(self._db, "SELECT item FROM done").fetchall()
        done = Counter(str(item) for (item,) in rows)
        self._ledger.done(self.name, done)

    def left(self) -> list[str]:
        """The items that have not ended, in words."""
        tables = "SELECT 1 FROM sqlite_master WHERE name = 'xmpp_qos_prepared'"
        if not sqlite3.Connection.execute(self._db, tables).fetchall():
            return []
        rows = sqlite3.Connection.execute(
            self._db, "SELECT item_id FROM xmpp_qos_prepared WHERE statements <> ''"
        ).fetchall()
        return [f"the effect of {item_id} stays prepared" for (item_id,) in rows]
