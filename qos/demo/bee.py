"""A worker bee, in a process of its own, so that it can be killed at any moment.

It runs as ``python -m qos.demo.bee``, see `qos.testing.child`. It reports ``ready``
when the service has accepted its subscription, and ``received`` for each item that it
begins.

It packs each order exactly once in this way: a packed order is an effect (see
`qos.worker.effects`), which is in its book if, and only if, the service has accepted
the item. If the bee is killed in between, it finds this out when it is started again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qos.demo.device import Device, jid_of
from qos.demo.orders import FAILING, fails, packing_s, pieces_of
from qos.journal.writer import JournalWriter
from qos.testing import child
from qos.worker import Job, Worker

__all__ = ["READY", "RECEIVED", "Packed", "Run", "read_runs"]

#: The words that it reports.
READY = "ready"
RECEIVED = "received"

#: The number of items that it has at a time.
_PARALLEL = 4

#: How soon a bee that was killed asks again for the outcome of its last items, in
#: seconds.
_RESUBSCRIBE_S = 1.0

_TABLES = """
CREATE TABLE IF NOT EXISTS runs (run INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS received (run INTEGER, item_id TEXT);
CREATE TABLE IF NOT EXISTS failed (run INTEGER, item_id TEXT);
CREATE TABLE IF NOT EXISTS packed (run INTEGER, item_id TEXT, pieces INTEGER);
"""


@dataclass(frozen=True, slots=True)
class Packed:
    """An order that a bee has packed."""

    item_id: str
    pieces: int


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a bee, as in its book: from a start to its end, or to the next start.

    Attributes:
        received: the number of items that it has begun.
        failed: the number of items at which it has failed.
        packed: the orders that were accepted.
    """

    received: int
    failed: int
    packed: list[Packed]


def read_runs(folder: Path, name: str) -> list[Run]:
    """The book of the bee with this name: a run for each start."""
    with closing(_open(folder, name)) as book:

        def count(table: str, run: int) -> int:
            sql = f"SELECT COUNT(*) FROM {table} WHERE run = ?"  # noqa: S608
            return int(book.execute(sql, (run,)).fetchone()[0])

        packed = "SELECT item_id, pieces FROM packed WHERE run = ?"
        return [
            Run(
                count("received", run),
                count("failed", run),
                [Packed(*row) for row in book.execute(packed, (run,))],
            )
            for (run,) in book.execute("SELECT run FROM runs ORDER BY run").fetchall()
        ]


def _open(folder: Path, name: str) -> sqlite3.Connection:
    book = sqlite3.connect(folder / f"{name}.sqlite", isolation_level=None)
    book.execute("PRAGMA journal_mode = WAL")
    book.executescript(_TABLES)
    return book


class _Mishap(Exception):
    """The bee has dropped its order."""


class _Bee:
    """Packs orders, one item each."""

    def __init__(
        self, name: str, seed: int, book: sqlite3.Connection, say: child.Say
    ) -> None:
        self._seed = seed
        self._fails_at_times = name == FAILING
        self._book = book
        self._say = say
        self._run = book.execute("INSERT INTO runs DEFAULT VALUES").lastrowid

    async def handle(self, job: Job) -> None:
        self._write("received", job)
        self._say(RECEIVED)
        try:
            pieces = await self._pack(job)
        except Exception:
            self._write("failed", job)
            raise
        async with job.effects(self._book) as effects:
            effects.execute(
                "INSERT INTO packed VALUES (?, ?, ?)", (self._run, job.id, pieces)
            )

    async def _pack(self, job: Job) -> int:
        pieces = pieces_of(job.payload)
        await asyncio.sleep(packing_s(self._seed, job.id))
        # Only at the first try, so that no good order dies of it.
        if (
            self._fails_at_times
            and not job.delivery_count
            and fails(self._seed, job.id)
        ):
            raise _Mishap
        return pieces

    def _write(self, table: str, job: Job) -> None:
        self._book.execute(
            f"INSERT INTO {table} VALUES (?, ?)",  # noqa: S608
            (self._run, job.id),
        )


async def _run(told: dict[str, Any], say: child.Say) -> None:
    node = jid_of(told["name"])
    async with JournalWriter.opened(
        told.get("journal"), node, of_items=True
    ) as journal:
        await _work(told, journal, say)


async def _work(
    told: dict[str, Any], journal: JournalWriter | None, say: child.Say
) -> None:
    name = told["name"]
    book = _open(Path(told["folder"]), name)
    bee = _Bee(name, told["seed"], book, say)
    device = Device(
        name, password=told["password"], port=told["port"], plugins={"xep_0254": {}}
    )
    worker = Worker(
        device.client,
        told["service"],
        told["node"],
        parallel=_PARALLEL,
        resubscribe_s=_RESUBSCRIBE_S,
        effects_db=book,
        journal=journal,
    )
    device.start()
    try:
        async with worker:
            await worker.subscribed()
            say(READY)
            await worker.run(bee.handle)
    finally:
        await device.aclose()
        book.close()


if __name__ == "__main__":
    child.run_task(_run)
