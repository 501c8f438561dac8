"""A queue service, workers and a publisher as processes, to be killed and replaced.

    async with Processes(folder) as processes:
        service = await processes.start(Service(…))
        await service.kill()

They are forks of one process that has everything imported: a new one takes
milliseconds, where a new interpreter takes a second of a busy machine, and a test
kills dozens of them. All of them die with the test run, even when that is killed.

As a program this file is that one process. It reads what to start from its stdin, a
JSON array a line, and it and its children say what happens on its stdout, a line each.
"""

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import random
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, ClassVar, NoReturn, Self

from slixmpp import ComponentXMPP

from prosody import Prosody
from qos.cli.account import Component, Login
from qos.cli.logins import AccountSession, ComponentSession
from qos.core.backoff import Backoff
from qos.core.queue_effects import Change
from qos.errors import RequestFailed
from qos.stores.queue import QueueStore
from qos.worker import Job, Worker
from xep_0254 import QueueService
from xep_0254.asking import unreachable
from xep_0254.queueing import XEP_0254, NewItem

_PR_SET_PDEATHSIG = 1

# For a machine under load.
_START_S_MAX = 30.0
_CONNECT_S_MAX = 30.0
_END_S_MAX = 15.0

_RECONNECT = Backoff(first_s=0.05, max_s=0.5)

#: Publish again after this, when the service is away.
_AGAIN_S = 0.1

#: At these the service dies as it gets to its next commit, or when that is on disk.
BEFORE_COMMIT, AFTER_COMMIT = signal.SIGUSR1, signal.SIGUSR2

#: Every change of a lock, written by SQLite in the transaction that makes it.
_JOURNAL = """
CREATE TABLE journal (
    n INTEGER PRIMARY KEY, at REAL, seq INTEGER, node TEXT, item_id TEXT,
    before TEXT, after TEXT, holder TEXT, deadline REAL, outcome TEXT
);
CREATE TRIGGER journal_update AFTER UPDATE ON item
    WHEN OLD.token <> NEW.token OR OLD.outcome IS NOT NEW.outcome
    BEGIN INSERT INTO journal VALUES (
        NULL, (julianday('now') - 2440587.5) * 86400, NEW.seq, NEW.node, NEW.item_id,
        OLD.token, NEW.token, iif(NEW.token = '', OLD.holder, NEW.holder),
        iif(NEW.token = '', OLD.deadline, NEW.deadline), NEW.outcome
    ); END;
CREATE TRIGGER journal_insert AFTER INSERT ON item WHEN NEW.token <> ''
    BEGIN INSERT INTO journal VALUES (
        NULL, (julianday('now') - 2440587.5) * 86400, NEW.seq, NEW.node, NEW.item_id,
        '', NEW.token, NEW.holder, NEW.deadline, NEW.outcome
    ); END;
"""


# -- what can be started ---------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """Where to connect, and as whom; again whenever the connection is lost."""

    jid: str
    password: str
    host: str
    port: int

    def as_account(self) -> AccountSession:
        """Not begun yet."""
        login = Login(
            host=self.host,
            port=self.port,
            connect_timeout_s=_CONNECT_S_MAX,
            backoff=_RECONNECT,
            jid=self.jid,
            password=self.password,
            tls="off",
            ca_file=None,
        )
        return AccountSession(login)

    def as_component(self) -> ComponentSession:
        """Not begun yet."""
        component = Component(
            host=self.host,
            port=self.port,
            connect_timeout_s=_CONNECT_S_MAX,
            backoff=_RECONNECT,
            jid=self.jid,
            secret=self.password,
        )
        return ComponentSession(component)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What a process does."""

    connect: Connect

    async def live(self, ready: Callable[[], None]) -> None:
        """Do it; call `ready` when it is in session and at work."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Service(Role):
    """A queue service as a component.

    Attributes:
        store: the file.
        journal: have SQLite write down each change of a lock; see `read_journal`.
    """

    store: str
    journal: bool = False

    @classmethod
    def of(
        cls, server: Prosody, jid: str, store: Path, *, journal: bool = False
    ) -> Self:
        """The component of this server."""
        connect = Connect(
            jid=jid,
            password=server.components[jid],
            host=server.address,
            port=server.component_port,
        )
        return cls(
            connect=connect,
            store=str(store),
            journal=journal,
        )

    async def live(self, ready: Callable[[], None]) -> None:
        if self.journal:
            await self._begin_journal()
        session = self.connect.as_component()
        assert isinstance(session.xmpp, ComponentXMPP)
        store = _DyingStore(self.store)
        for number in (BEFORE_COMMIT, AFTER_COMMIT):
            signal.signal(number, store.die_at)
        QueueService(session.xmpp, store)
        session.start()
        await session.online.wait()
        ready()
        await asyncio.Event().wait()

    async def _begin_journal(self) -> None:
        store = QueueStore(self.store)
        store.open()
        await store.close()
        with contextlib.closing(sqlite3.connect(self.store)) as db:
            if not db.execute("PRAGMA table_info(journal)").fetchall():
                db.executescript(f"BEGIN; {_JOURNAL} COMMIT;")


class _DyingStore(QueueStore):
    """Kills its process at a commit, if it is told to."""

    _dies_at: int | None = None

    def die_at(self, number: int, _frame: FrameType | None) -> None:
        """A signal handler."""
        # In this order: a commit may be under way.
        _say("armed", os.getpid())
        self._dies_at = number

    def _commit(self, changes: list[Change]) -> None:
        if self._dies_at == BEFORE_COMMIT:
            die()
        super()._commit(changes)
        if self._dies_at == AFTER_COMMIT:
            die()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand(Role):
    """A worker. An item whose payload has the word poison fails, any other does not.

    Attributes:
        service: the JID of the service.
        node: the queue.
        log: the file in which it says what it does; see `Deed`.
        lock_s: the node's lock time-out.
        parallel: jobs at a time.
        batch: items in one event.
        work_s: how long it works on an item, at most.
    """

    service: str
    node: str
    log: str
    lock_s: float
    parallel: int = 8
    batch: int = 4
    work_s: float = 0.0

    async def live(self, ready: Callable[[], None]) -> None:
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

        def note(what: str, job: Job) -> None:
            deed = f"{what} {job.id} {job.token} {job.delivery_count} {time.time()}\n"
            # One call, so that the lines of all workers stand in the order of events.
            os.write(log, deed.encode())

        async def handle(job: Job) -> None:
            note("begun", job)
            if "poison" in job.payload_text:
                raise Poison
            await asyncio.sleep(random.uniform(0, self.work_s))
            await job.accept()
            note("accepted", job)

        async with self.connect.as_account() as session:
            worker = Worker(
                session.client,
                self.service,
                self.node,
                parallel=self.parallel,
                batch=self.batch,
                lock_timeout_s=self.lock_s,
            )
            session.start()
            async with worker:
                await worker.subscribed()
                ready()
                await worker.run(handle)


class Poison(Exception):
    """No worker can do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Press(Role):
    """A publisher. It ends when all is published.

    Attributes:
        service: the JID of the service.
        node: the queue.
        log: the file for the ids that were published, a line each.
        count: how many.
        batch: so many in one request.
        poison_every: each so manieth is poisoned; 0: none.
        pause_s: after each request.
    """

    service: str
    node: str
    log: str
    count: int
    batch: int = 50
    poison_every: int = 0
    pause_s: float = 0.0

    async def live(self, ready: Callable[[], None]) -> None:
        log = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        async with self.connect.as_account() as session:
            session.client.register_plugin("xep_0254", {"timeout_s": 1.0})
            plugin = XEP_0254.of(session.client)
            session.start()
            await session.online.wait()
            ready()
            for first in range(0, self.count, self.batch):
                numbers = range(first, min(first + self.batch, self.count))
                items = [self._item(number) for number in numbers]
                ids = await _insist(plugin, self.service, self.node, items)
                assert ids == [item.item_id for item in items]
                os.write(log, "".join(f"{item_id}\n" for item_id in ids).encode())
                await asyncio.sleep(self.pause_s)

    def _item(self, number: int) -> NewItem:
        poisoned = self.poison_every and number % self.poison_every == 0
        word = "poison" if poisoned else "work"
        return NewItem(f"<{word} xmlns='urn:x'>{number}</{word}>", f"i{number}")


async def _insist(
    plugin: XEP_0254, service: str, node: str, items: list[NewItem]
) -> list[str]:
    """Publish the same items until there is an answer: that is all it takes."""
    while True:
        try:
            return await plugin.publish(service, node, items, attempts=1)
        except RequestFailed as error:
            if not unreachable(error):
                raise
        await plugin.pause(_AGAIN_S)


# -- what they leave behind ------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deed:
    """A line in the log of the workers: `begun`, or `accepted` when that is answered."""

    what: str
    item_id: str
    token: str
    delivery_count: int
    at: float


def read_deeds(path: Path) -> list[Deed]:
    """What all workers did, in the order in which they did it."""
    deeds: list[Deed] = []
    if not path.exists():
        return deeds
    for line in path.read_text().splitlines():
        what, item_id, token, count, at = line.split(" ")
        deeds.append(Deed(what, item_id, token, int(count), float(at)))
    return deeds


@dataclass(frozen=True, slots=True)
class Turn:
    """A lock began (`after` is its token), ended (`before` was), or the item did.

    Attributes:
        at: when, as SQLite has it.
        seq: of the item.
        node: where it is.
        item_id: its id there.
        before: the token until then, or ''.
        after: the token from then on, or ''.
        holder: who got it, or had it.
        deadline: of the lock that began or ended.
        outcome: how the item has ended, or None.
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


def read_journal(store: Path) -> list[Turn]:
    """All that was decided about locks in all lives of a service, in order."""
    sql = (
        "SELECT at, seq, node, item_id, before, after, holder, deadline, outcome"
        " FROM journal ORDER BY n"
    )
    return [Turn(*row) for row in query(store, sql)]


def query(store: Path, sql: str) -> list[Any]:
    """Look into a store, in use or not."""
    with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as db:
        return db.execute(sql).fetchall()


# -- the side of the test --------------------------------------------------


class Process:
    """One that was started.

    Attributes:
        pid: its process id.
        ended: its exit status, or minus the signal that ended it.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.ended: asyncio.Future[int] = loop.create_future()
        self._events: dict[str, asyncio.Event] = {}

    async def until(self, event: str) -> None:
        """Wait until it says `ready` or `armed`.

        Raises:
            ChildProcessError: it has ended before.
        """
        waiting = asyncio.ensure_future(self.event(event).wait())
        try:
            async with asyncio.timeout(_START_S_MAX):
                await asyncio.wait(
                    (waiting, self.ended), return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            waiting.cancel()
        if not self.event(event).is_set():
            raise ChildProcessError(f"not {event}, but ended: {self.ended.result()}")

    def event(self, name: str) -> asyncio.Event:
        """Set when it has said so."""
        return self._events.setdefault(name, asyncio.Event())

    async def arm(self, at: signal.Signals) -> None:
        """Let a service die at BEFORE_COMMIT or AFTER_COMMIT, of the next one."""
        os.kill(self.pid, at)
        await self.until("armed")

    async def kill(self) -> None:
        """Kill it by SIGKILL, unless it has ended, and wait for its end."""
        if not self.ended.done():
            os.kill(self.pid, signal.SIGKILL)
        await self.wait()

    async def wait(self) -> int:
        """Wait for its end; returns the status."""
        async with asyncio.timeout(_END_S_MAX):
            return await asyncio.shield(self.ended)


class Processes:
    """Starts roles as processes, which end with this context."""

    def __init__(self, folder: Path) -> None:
        self._stderr = folder / "stderr"
        self._all: list[Process] = []
        self._parent: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def stderr(self) -> str:
        """What all of them have complained about."""
        return self._stderr.read_text()

    async def start(self, role: Role) -> Process:
        """Start it; returns at once, see `Process.until`."""
        assert self._parent is not None
        assert self._parent.stdin is not None
        process = Process()
        self._all.append(process)
        order = [len(self._all) - 1, type(role).__name__, asdict(role)]
        self._parent.stdin.write(json.dumps(order).encode() + b"\n")
        await process.until("started")
        return process

    async def __aenter__(self) -> Self:
        # Those that are killed could not save what coverage measures, and it would
        # make all of them slow.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("COVERAGE_")
        }
        with self._stderr.open("ab") as stderr:
            self._parent = await asyncio.create_subprocess_exec(
                *("setpriv", "--pdeathsig", "KILL", sys.executable, __file__),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                env=environment,
            )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._parent is not None
        assert self._reading is not None
        # Its children die with it.
        with contextlib.suppress(ProcessLookupError):
            self._parent.kill()
        await self._parent.wait()
        await self._reading
        if exc is not None:
            print(self.stderr[-20_000:], file=sys.stderr)

    async def _read(self) -> None:
        assert self._parent is not None
        assert self._parent.stdout is not None
        async for line in self._parent.stdout:
            key, event, value = json.loads(line)
            process = self._all[key]
            if event == "started":
                process.pid = value
            elif event == "ended":
                process.ended.set_result(value)
            process.event(event).set()


# -- the side of the processes ---------------------------------------------


class _Nursery:
    """Forks, and says what becomes of the children."""

    roles: ClassVar[dict[str, type[Role]]] = {
        role.__name__: role for role in (Service, Hand, Press)
    }

    def __init__(self) -> None:
        self._keys: dict[int, int] = {}

    def run(self) -> None:
        """Do as stdin says, to its end."""
        signal.signal(signal.SIGCHLD, self._reap)
        for line in sys.stdin:
            key, name, options = json.loads(line)
            connect = Connect(**options.pop("connect"))
            role = self.roles[name](connect=connect, **options)
            # Not to be told of a child's end before knowing that it is one.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
            pid = os.fork()
            if pid == 0:
                _run(key, role)
            self._keys[pid] = key
            _write(key, "started", pid)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})

    def _reap(self, _number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                _write(self._keys.pop(pid), "ended", os.waitstatus_to_exitcode(status))


_own_key = 0


def _run(key: int, role: Role) -> NoReturn:
    """Be a child."""
    global _own_key
    _own_key = key
    status = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        form = f"{role.connect.jid} %(asctime)s %(levelname)s %(name)s %(message)s"
        logging.basicConfig(level=logging.WARNING, format=form)
        logging.getLogger("qos.worker.worker").addFilter(_unexpected)
        asyncio.run(role.live(lambda: _say("ready", os.getpid())))
        status = 0
    except BaseException:  # noqa: BLE001 - whatever it is, it must not fork on
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _unexpected(record: logging.LogRecord) -> bool:
    """Leave out what is meant to be."""
    return not (record.exc_info and record.exc_info[0] is Poison)


def _say(event: str, value: int) -> None:
    _write(_own_key, event, value)


def _write(key: int, event: str, value: int) -> None:
    # One call for a line: they all have this pipe.
    os.write(1, json.dumps([key, event, value]).encode() + b"\n")


def die() -> NoReturn:
    """By the signal that nothing can catch."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(_END_S_MAX)
    raise AssertionError("still alive")


if __name__ == "__main__":
    _Nursery().run()
