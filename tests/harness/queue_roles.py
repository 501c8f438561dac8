"""The processes of queue tests: a service, workers and publishers, and their records.

They connect again whenever the connection is lost, and never give up. They know nothing
of how they were started, and what kills them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Self

from slixmpp import ClientXMPP, ComponentXMPP

from qos.core.queue import item_lifecycle
from qos.core.queue.effects import Change
from qos.errors import RequestFailed
from qos.journal.writer import JournalWriter
from qos.stores.queue_store import SqliteQueueStore
from qos.testing.ports import ADDRESS
from qos.testing.xmpp_server import XmppServer
from qos.users import Users
from qos.worker import Job, Worker
from role import Connect, Role, Say, ended_by_signal, open_log
from xep_0254 import QueueService
from xep_0254.queueing import XEP_0254, NewItem

__all__ = [
    "AFTER_COMMIT",
    "BEFORE_COMMIT",
    "Listening",
    "LockChange",
    "Poison",
    "PublisherRole",
    "Service",
    "WorkRecord",
    "WorkerRole",
    "query",
    "read_journal",
    "read_work_records",
]

# Enough for a machine under load.
_END_S_MAX = 15.0

#: Seconds before the next attempt to publish, when the service is away.
_AGAIN_S = 0.1

#: Signals at which the service dies before its next commit, or after that is on disk.
BEFORE_COMMIT, AFTER_COMMIT = signal.SIGUSR1, signal.SIGUSR2

#: Every change of a lock, written by SQLite in the transaction that makes it.
_JOURNAL = """
CREATE TABLE journal (
    n INTEGER PRIMARY KEY, at REAL, seq INTEGER, node TEXT, item_id TEXT,
    before TEXT, after TEXT, holder TEXT, deadline REAL, outcome TEXT,
    given_back INTEGER
);
CREATE TRIGGER journal_update AFTER UPDATE ON item
    WHEN OLD.token <> NEW.token OR OLD.outcome IS NOT NEW.outcome
    BEGIN INSERT INTO journal VALUES (
        NULL, (julianday('now') - 2440587.5) * 86400, NEW.seq, NEW.node, NEW.item_id,
        OLD.token, NEW.token, iif(NEW.token = '', OLD.holder, NEW.holder),
        iif(NEW.token = '', OLD.deadline, NEW.deadline), NEW.outcome,
        (NEW.delivery_count, NEW.releases) <> (OLD.delivery_count, OLD.releases)
    ); END;
CREATE TRIGGER journal_insert AFTER INSERT ON item WHEN NEW.token <> ''
    BEGIN INSERT INTO journal VALUES (
        NULL, (julianday('now') - 2440587.5) * 86400, NEW.seq, NEW.node, NEW.item_id,
        '', NEW.token, NEW.holder, NEW.deadline, NEW.outcome, 0
    ); END;
"""

# -- what can be started ---------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where a service listens for clients of other protocols, on loopback.

    Attributes:
        users: the file with their users.
        http: the port.
        amqp: the port.
    """

    users: str
    http: int
    amqp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Service(Role):
    """A queue service as a component.

    Attributes:
        store: the file.
        journal: let SQLite record each change of a lock; see `read_journal`.
        qos_journal: the folder for the journal of `qos.journal`, or ''.
        remembers_s: how long the token of an ended item is remembered at least; 0: the
            default, which is too long to see its end in a soak.
        mutant: the name of a mistake to make; see `campaign.mutants`.
        listening: as by `queue serve --http … --amqp …`; None: XMPP only.
    """

    store: str
    journal: bool = False
    qos_journal: str = ""
    remembers_s: float = 0.0
    mutant: str = ""
    listening: Listening | None = None

    @classmethod
    def of(
        cls, server: XmppServer, jid: str, store: Path, *, journal: bool = False
    ) -> Self:
        """The component of this server."""
        connect = Connect.of_component(server, jid)
        return cls(
            connect=connect,
            store=str(store),
            journal=journal,
        )

    async def live(self, say: Say) -> None:
        """See Role."""
        if self.mutant:
            # They are those of the commands, too, which a service does without.
            from campaign.mutants import apply_mutant

            apply_mutant(self.mutant)
        if self.journal:
            await self._begin_journal()
        if self.remembers_s:
            item_lifecycle.SETTLEMENT_S_MIN = self.remembers_s
        session = self.connect.as_component()
        assert isinstance(session.xmpp, ComponentXMPP)
        store = _DyingStore(self.store, say)
        for number in (BEFORE_COMMIT, AFTER_COMMIT):
            signal.signal(number, store.die_at)
        service = QueueService(session.xmpp, store, journal=self.qos_journal or None)
        session.start()
        async with contextlib.AsyncExitStack() as stack:
            if self.listening is not None:
                await self._listen(self.listening, service, stack)
            await session.work(self._serve(session.online, say))
        await service.aclose()

    async def _listen(
        self,
        listening: Listening,
        service: QueueService,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        """Serve without XMPP, too, as `queue serve` does."""
        # They need extras, which most tests do without.
        from qos.amqp.gateway import Gateway as AmqpGateway
        from qos.rest.gateway import Gateway as HttpGateway

        domain = self.connect.jid
        users = Users(listening.users, domain)
        amqp = AmqpGateway(service.engine, users=users, own_domain=domain)
        http = HttpGateway(service.engine, users=users, own_domain=domain)
        for gateway in (amqp, http):
            service.add_gateway(gateway)
            stack.push_async_callback(gateway.aclose)
        service.engine.begin()
        await amqp.listen(ADDRESS, listening.amqp)
        await http.listen(ADDRESS, listening.http)

    async def _serve(self, online: asyncio.Event, say: Say) -> None:
        await online.wait()
        ends = ended_by_signal()
        say("ready")
        await ends.wait()

    async def _begin_journal(self) -> None:
        store = SqliteQueueStore(self.store)
        store.open()
        await store.close()
        with contextlib.closing(sqlite3.connect(self.store)) as db:
            if not db.execute("PRAGMA table_info(journal)").fetchall():
                db.executescript(f"BEGIN; {_JOURNAL} COMMIT;")


class _DyingStore(SqliteQueueStore):
    """Kills its process at a commit, if asked to."""

    def __init__(self, path: str, say: Say) -> None:
        super().__init__(path)
        self._say = say
        self._dies_at: int | None = None

    def die_at(self, number: int, _frame: FrameType | None) -> None:
        """A signal handler."""
        # In this order: a commit may be running.
        self._say("armed")
        self._dies_at = number

    def _commit(self, changes: list[Change], before: Callable[[], None] | None) -> None:
        if self._dies_at == BEFORE_COMMIT:
            _die()
        super()._commit(changes, before)
        if self._dies_at == AFTER_COMMIT:
            _die()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRole(Role):
    """A worker. An item whose payload has the word poison fails; any other is accepted.

    SIGTERM ends it normally, like a service.

    Attributes:
        service: the JID of the service.
        node: the queue.
        log: the file with its records; see `WorkRecord`.
        lock_s: the node's lock time-out.
        parallel: jobs at a time.
        batch: items in one event.
        work_s: how long it works on an item, at most.
        parity: it wants items with this parity only; None: all.
        qos_journal: as for a service.
        effects: a database of its own, whose table `effects` gets a row for each
            accepted item; ''.
        resubscribe_s: as for Worker.
        timeout_s: for an answer of the service.
    """

    service: str
    node: str
    log: str
    lock_s: float
    parallel: int = 8
    batch: int = 4
    work_s: float = 0.0
    parity: int | None = None
    qos_journal: str = ""
    effects: str = ""
    resubscribe_s: float = 60.0
    timeout_s: float = 30.0

    async def live(self, say: Say) -> None:
        """See Role."""
        with contextlib.ExitStack() as stack:
            db = None
            if self.effects:
                db = stack.enter_context(contextlib.closing(_effects_db(self.effects)))
            async with (
                JournalWriter.opened(
                    self.qos_journal or None, self.connect.jid, of_items=True
                ) as journal,
                self.connect.as_account() as session,
            ):
                session.start()
                await session.work(self._work(session.client, journal, db, say))

    async def _work(
        self,
        client: ClientXMPP,
        journal: JournalWriter | None,
        db: sqlite3.Connection | None,
        say: Say,
    ) -> None:
        log = open_log(self.log)

        def note(what: str, job: Job) -> None:
            record = f"{what} {job.id} {job.token} {job.delivery_count} {time.time()}\n"
            # One call, so that the lines of all workers have the order of events.
            os.write(log, record.encode())

        async def handle(job: Job) -> None:
            note("begun", job)
            if self.parity not in {None, job.properties.get("parity")}:
                note("unwanted", job)
            if "poison" in job.payload_text:
                raise Poison
            await asyncio.sleep(random.uniform(0, self.work_s))
            if db is None:
                await job.accept()
            else:
                async with job.effects(db) as effects:
                    effects.execute("INSERT INTO effects VALUES (?)", (job.id,))
            note("accepted", job)

        client.register_plugin("xep_0254", {"timeout_s": self.timeout_s})
        worker = Worker(
            client,
            self.service,
            self.node,
            parallel=self.parallel,
            selector="" if self.parity is None else f"parity = {self.parity}",
            batch=self.batch,
            lock_timeout_s=self.lock_s,
            resubscribe_s=self.resubscribe_s,
            effects_db=db,
            journal=journal,
        )
        worker.install_signal_handlers()
        async with worker:
            await worker.subscribed()
            say("ready")
            await worker.run(handle)


def _effects_db(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE IF NOT EXISTS effects (item_id TEXT)")
        db.commit()
    except BaseException:
        db.close()
        raise
    return db


class Poison(Exception):
    """An item that no worker can do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherRole(Role):
    """A publisher.

    It ends when all is published, or by SIGTERM after the present request.

    When it is started again, it continues after the end of its log; an unconfirmed
    request is published again with the same ids.

    Attributes:
        service: the JID of the service.
        node: the queue.
        log: the file for the ids that were published, a line each.
        count: the number of items; None: no limit.
        batch: the number in one request.
        poison_every: one of this many is poisoned; 0: none.
        pause_s: after each request.
    """

    service: str
    node: str
    log: str
    count: int | None
    batch: int = 50
    poison_every: int = 0
    pause_s: float = 0.0

    async def live(self, say: Say) -> None:
        """See Role."""
        async with self.connect.as_account() as session:
            session.client.register_plugin("xep_0254", {"timeout_s": 1.0})
            session.start()
            await session.work(self._publish(session.client, session.online, say))

    async def _publish(
        self, client: ClientXMPP, online: asyncio.Event, say: Say
    ) -> None:
        plugin = XEP_0254.of(client)
        await online.wait()
        ends = ended_by_signal()
        say("ready")
        log = open_log(self.log)
        for numbers in self._batches():
            if ends.is_set():
                return
            items = [self._item(number) for number in numbers]
            ids = await _insist(plugin, self.service, self.node, items)
            assert ids == [item.item_id for item in items]
            os.write(log, "".join(f"{item_id}\n" for item_id in ids).encode())
            await asyncio.sleep(self.pause_s)

    def _batches(self) -> Iterator[range]:
        first = Path(self.log).read_bytes().count(b"\n")
        for start in itertools.count(first, self.batch):
            end = start + self.batch
            if self.count is not None:
                end = min(end, self.count)
            if start >= end:
                return
            yield range(start, end)

    def _item(self, number: int) -> NewItem:
        poisoned = self.poison_every and number % self.poison_every == 0
        word = "poison" if poisoned else "work"
        payload = f"<{word} xmlns='urn:x'>{number}</{word}>"
        return NewItem(payload, f"i{number}", properties={"parity": number % 2})


async def _insist(
    plugin: XEP_0254, service: str, node: str, items: list[NewItem]
) -> list[str]:
    """Publish the same items until there is an answer: nothing else is needed."""
    while True:
        try:
            published = await plugin.publish(service, node, items, attempts=1)
            return [each.item_id for each in published]
        except RequestFailed as error:
            if not error.is_temporary:
                raise
        await plugin.pause(_AGAIN_S)


def _die() -> NoReturn:
    """By the signal that nothing can catch."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(_END_S_MAX)
    raise AssertionError("still alive")


# -- what they leave behind ------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkRecord:
    """A line in the log of the workers.

    `begun`, and `unwanted` if it does not pass the worker's selector; or `accepted`
    when that is answered.
    """

    what: str
    item_id: str
    token: str
    delivery_count: int
    at: float


def read_work_records(path: Path) -> list[WorkRecord]:
    """The records of all workers, in the order of events."""
    records: list[WorkRecord] = []
    if not path.exists():
        return records
    for line in path.read_text().splitlines():
        what, item_id, token, count, at = line.split(" ")
        records.append(WorkRecord(what, item_id, token, int(count), float(at)))
    return records


@dataclass(frozen=True, slots=True)
class LockChange:
    """A lock began (its token is `after`) or ended (it was `before`), or an item ended.

    Attributes:
        at: the time, by SQLite.
        seq: of the item.
        node: of the item.
        item_id: its id there.
        before: the token until then, or ''.
        after: the token from then on, or ''.
        holder: the old or new holder.
        deadline: of the lock that began or ended.
        outcome: how the item has ended, or None.
        given_back: 1: a delivery has been counted, failed or released: a lock has
            ended. Else 0.
    """

    at: float
    seq: int
    node: str
    item_id: str
    before: str
    after: str
    holder: str
    deadline: float
    outcome: str | None
    given_back: int


def read_journal(store: Path) -> list[LockChange]:
    """All changes of locks in all lives of a service, in order."""
    sql = (
        "SELECT at, seq, node, item_id, before, after, holder, deadline, outcome,"
        " given_back FROM journal ORDER BY n"
    )
    return [LockChange(*row) for row in query(store, sql)]


def query(store: Path, sql: str) -> list[Any]:
    """Query a store, in use or not."""
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        return db.execute(sql).fetchall()
