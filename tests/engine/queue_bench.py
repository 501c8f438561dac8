"""An engine of queues on a real store, for tests: the clock and the disk obey them."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from qos.core.queue.effects import Notification
from qos.core.queue.item import Item, ItemOutcome
from qos.core.queue.requests import (
    Create,
    PublishedItem,
    Refusal,
    Request,
    Retract,
    Settlement,
    Subscribe,
    Unlock,
)
from qos.core.queue.results import Result
from qos.engine.clock import Clock
from qos.engine.queue_engine import QueueEngine, Stats
from qos.engine.queue_outputs import Payloads, QueuePort
from qos.journal.writer import JournalWriter
from qos.stores.queue_store import SqliteQueueStore
from qos.testing.clock import ManualClock
from waiting import LIMIT_S, limit

OWNER = "owner@example.org/1"
BEE = "bee@example.org/1"
OTHER_BEE = "bee@example.org/2"
NODE = "orders"


def entry(item_id: str, payload: str = "<x xmlns='urn:x'/>") -> PublishedItem:
    digest = hashlib.sha256(payload.encode()).hexdigest()
    return PublishedItem(
        item_id=item_id, payload=payload, digest=digest, size=len(payload)
    )


class Disk:
    """The store's probe: it lets commits through, delays them, or fails them."""

    def __init__(self) -> None:
        self.commits = 0
        self.error: OSError | None = None
        self._open = threading.Event()
        self._open.set()

    def __call__(self, step: str) -> None:
        if step == "commit":
            self._open.wait(LIMIT_S)
            self.commits += 1
            if self.error is not None:
                raise self.error

    def hold(self) -> None:
        self._open.clear()

    def release(self) -> None:
        self._open.set()


@dataclass(frozen=True)
class Sent:
    """An event with items, as it was sent."""

    to: str
    items: list[tuple[str, str]]


class Bench(QueuePort):
    """An engine with a manual clock, or another; it records what is sent, in order."""

    def __init__(
        self, path: Path, clock: Clock | None = None, *, journal: Path | None = None
    ) -> None:
        self._journal = journal
        self.clock = ManualClock(1000.0)
        self._clock = clock or self.clock
        self.disk = Disk()
        self._path = path
        self._ids = itertools.count()
        self.out: list[object] = []
        self.tokens: dict[str, str] = {}
        self.clients: list[str] = []
        self.dropped_items: list[tuple[str, str]] = []
        self.restarts = 0
        self._changed = asyncio.Event()
        self.engine = self._new_engine()

    def _new_engine(self) -> QueueEngine:
        self.store = SqliteQueueStore(self._path)
        self.store.probe = self.disk
        journal = None if self._journal is None else self._new_journal
        return QueueEngine(self.store, self, clock=self._clock, journal=journal)

    def _new_journal(self, store_id: str) -> JournalWriter:
        assert self._journal is not None
        return JournalWriter(self._journal, "queues", store_id=store_id, of_items=True)

    async def restart(self, down_s: float = 0.0) -> None:
        """End the service, and start it again after these seconds."""
        await self.engine.aclose()
        self.clock.advance(down_s)
        self.engine = self._new_engine()

    def _note(self, what: object) -> None:
        self.out.append(what)
        self._changed.set()

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        self._note(Sent(to, [(item.item_id, payload) for item, payload in items]))
        self.tokens |= {item.item_id: item.token for item, _ in items}
        return [(self.new_id(), items)]

    def attached(self) -> list[str]:
        return self.clients

    def restarted(self) -> None:
        self.restarts += 1

    def dropped(self, to: str, item: Item) -> None:
        self.dropped_items.append((to, item.item_id))

    def notify(self, notification: Notification) -> None:
        self._note(notification)

    def probe(self, jid: str) -> None:
        self._note(f"probe {jid}")

    def new_id(self) -> str:
        return f"id{next(self._ids)}"

    def ask(
        self, request: Request, requester: str = OWNER
    ) -> asyncio.Future[Result | Refusal]:
        done: asyncio.Future[Result | Refusal] = (
            asyncio.get_running_loop().create_future()
        )

        def answer(result: Result | Refusal, payloads: Mapping[int, str]) -> None:
            self._note(result)
            done.set_result(result)

        self.engine.request(request, requester, answer)
        return done

    def accept(self, item_id: str) -> Retract:
        """The request of a worker that accepts an item."""
        return Retract(NODE, (Settlement(item_id=item_id, token=self.tokens[item_id]),))

    def reject(self, item_id: str) -> Unlock:
        """The request of a worker that rejects an item."""
        how = Settlement(
            item_id=item_id, token=self.tokens[item_id], outcome=ItemOutcome.REJECTED
        )
        return Unlock(NODE, (how,))

    async def until(self, count: int) -> list[object]:
        """The records, as soon as there are this many."""
        async with limit():
            while len(self.out) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.out

    async def begins(self) -> None:
        """Wait until a commit has begun, which the disk holds up."""
        # In turns: no virtual time passes while a thread is held up.
        for _ in range(100):
            if self.engine._busy:
                return
            await asyncio.sleep(0)
        raise AssertionError("nothing is written")

    def look(self, node: str) -> asyncio.Future[Stats | Refusal]:
        told: asyncio.Future[Stats | Refusal]
        told = asyncio.get_running_loop().create_future()
        assert self.engine.stats(node, OWNER, told.set_result)
        return told

    def names(self) -> asyncio.Future[list[str] | Refusal]:
        told: asyncio.Future[list[str] | Refusal]
        told = asyncio.get_running_loop().create_future()
        self.engine.nodes(OWNER, told.set_result)
        return told

    async def stats(self) -> Stats:
        stats = await self.look(NODE)
        assert not isinstance(stats, Refusal)
        return stats

    async def ready(self) -> None:
        """A node with a worker that can have two items."""
        self.engine.online()
        await self.ask(Create(NODE, {"pubsub#access_model": "open"}))
        options = {"pubsub#queue_requests": "2"}
        await self.ask(Subscribe(NODE, BEE, options), BEE)
        self.out.clear()


@asynccontextmanager
async def opened(
    path: Path, clock: Clock | None = None, *, journal: Path | None = None
) -> AsyncIterator[Bench]:
    """An engine with a node and a worker, to the end of the test."""
    bench = Bench(path, clock, journal=journal)
    await bench.ready()
    yield bench
    bench.disk.release()
    await bench.engine.aclose()
