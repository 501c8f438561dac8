"""What a queue costs that is deep: `python -m benchmarks.depth 0 100000 1000000`.

Each number of items has a store of its own, in a temporary folder, and is measured in a
process of its own, which opens it as a service does. No server is there: what is measured
is the engine with its store. Each row says

- for a start: the time to the first answer, the processor time, and the memory that came
  with it;
- for a worker: the time from its subscription to its first item. With `--delay` all items
  that were there are held back, and lie in front of it;
- for requests one by one, each answered when it is on disk: the median and the slowest of
  a hundred;
- for a purge of the whole queue: the time until the last row has gone, and how long a
  publisher of another queue waited meanwhile (99th percentile, and the slowest).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from qos.core.queue.effects import Notification
from qos.core.queue.properties import content_digest
from qos.core.queue.requests import (
    Create,
    Items,
    Publish,
    PublishedItem,
    Purge,
    Refusal,
    Request,
    Retract,
    Settlement,
    Subscribe,
)
from qos.core.queue.results import ItemsResult, Result
from qos.engine import LoopClock
from qos.engine.queue_engine import QueueEngine, Stats
from qos.engine.queue_outputs import Payloads, QueuePort
from qos.stores.queue_store import SqliteQueueStore

DEEP, SMALL = "deep", "small"
OWNER, WORKER = "owner@example.org/1", "worker@example.org/1"
PAYLOAD = f"<text xmlns='urn:example'>{'x' * 68}</text>"
DEPTHS = (0, 100_000, 1_000_000)

#: Items in one publish of those that fill a store.
_BATCH = 500

_TIMES = 100

#: The pause of the neighbour after each answer.
_PAUSE_S = 0.002

_MB = 2**20


class Service(QueuePort):
    """A queue service without a server: its worker gets items by `given`."""

    def __init__(self, path: Path) -> None:
        self._numbers = itertools.count()
        self.given: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.store = SqliteQueueStore(path)
        clock = LoopClock(asyncio.get_running_loop())
        self.engine = QueueEngine(self.store, self, clock=clock)
        self.engine.online()

    async def ask(self, request: Request, by: str = OWNER) -> Result:
        """Send a request; returns the answer, which comes when it is on disk."""
        answered: asyncio.Future[Result | Refusal]
        answered = asyncio.get_running_loop().create_future()
        self.engine.request(request, by, lambda result, _: answered.set_result(result))
        result = await answered
        if isinstance(result, Refusal):
            raise result
        return result

    async def stats(self) -> Stats:
        """The counts of the deep queue."""
        told: asyncio.Future[Stats | Refusal]
        told = asyncio.get_running_loop().create_future()
        self.engine.stats(DEEP, OWNER, told.set_result)
        stats = await told
        assert not isinstance(stats, Refusal)
        return stats

    async def publish(self, node: str, count: int = 1, delay: float = 0.0) -> None:
        """Publish items with ids that nobody has used."""
        await self.ask(Publish(node, tuple(self._entry(delay) for _ in range(count))))

    def _entry(self, delay: float) -> PublishedItem:
        return PublishedItem(
            item_id=self.new_id(),
            payload=PAYLOAD,
            digest=content_digest(PAYLOAD.encode(), {}),
            size=len(PAYLOAD),
            delay=delay,
        )

    # -- see QueuePort -----------------------------------------------------

    def notify_items(
        self, to: str, items: Payloads, *, acknowledged: bool
    ) -> Sequence[tuple[str, Payloads]]:
        """See QueuePort."""
        for item, _ in items:
            self.given.put_nowait((item.item_id, item.token))
        return [(self.new_id(), items)]

    def notify(self, notification: Notification) -> None:
        """See QueuePort."""

    def probe(self, jid: str) -> None:
        """See QueuePort."""

    def new_id(self) -> str:
        """See QueuePort."""
        return f"{os.getpid()}-{next(self._numbers)}"


async def fill(path: Path, count: int, delay: float) -> None:
    """Make a store with a queue of this many items, and another one.

    Args:
        path: of the store.
        count: of the items.
        delay: of each of them, in seconds.
    """
    service = Service(path)
    options = {"pubsub#access_model": "open", "queue#max_bytes": str(2**40)}
    options["queue#max_items"] = str(count + 10_000)
    await service.ask(Create(DEEP, options))
    await service.ask(Create(SMALL, options))
    for start in range(0, count, _BATCH):
        await service.publish(DEEP, min(_BATCH, count - start), delay)
    await service.engine.aclose()


async def measure(path: Path) -> dict[str, float]:
    """The figures of a row; times are in ms, but those of a start and a purge in s."""
    memory, cpu_s, began = _memory(), time.process_time(), time.perf_counter()
    service = Service(path)
    stats = await service.stats()
    figures: dict[str, float] = {
        "items": (stats["available"] or 0) + (stats["delayed"] or 0),
        "start_s": time.perf_counter() - began,
        "start_cpu_s": time.process_time() - cpu_s,
        "memory_mb": (_memory() - memory) / _MB,
        "file_mb": sum(each.stat().st_size for each in path.parent.iterdir()) / _MB,
    }
    # So that there is a next item, however few there are.
    await service.publish(DEEP, _TIMES)
    figures |= await _each("publish", lambda: service.publish(DEEP))
    began = time.perf_counter()
    await service.ask(Subscribe(DEEP, WORKER, {"pubsub#queue_requests": "1"}), WORKER)
    held = [await service.given.get()]
    figures["first_ms"] = (time.perf_counter() - began) * 1e3

    async def accept() -> None:
        item_id, token = held.pop()
        how = Settlement(item_id=item_id, token=token)
        await service.ask(Retract(DEEP, (how,)), WORKER)
        held.append(await service.given.get())

    figures |= await _each("accept", accept)
    figures |= await _each("stats", service.stats)
    page = await service.ask(Items(node=DEEP, max_items=100, last=True))
    assert isinstance(page, ItemsResult)
    last = page.items[0].item_id
    wishes = {
        "page": Items(node=DEEP, max_items=100),
        "last_page": Items(node=DEEP, max_items=100, last=True),
        "an_id": Items(node=DEEP, item_ids=(last,)),
    }
    for name, wish in wishes.items():
        figures |= await _each(name, partial(service.ask, wish))
    figures |= await _purge(service)
    await service.engine.aclose()
    return figures


async def _each(name: str, do: Callable[[], Awaitable[object]]) -> dict[str, float]:
    times = []
    cpu_s = time.process_time()
    for _ in range(_TIMES):
        began = time.perf_counter()
        await do()
        times.append((time.perf_counter() - began) * 1e3)
    return {
        f"{name}_ms": statistics.median(times),
        f"{name}_max_ms": max(times),
        f"{name}_cpu_ms": (time.process_time() - cpu_s) / _TIMES * 1e3,
    }


async def _purge(service: Service) -> dict[str, float]:
    waits: list[float] = []
    is_over = False

    async def neighbour() -> None:
        while not is_over:
            began = time.perf_counter()
            await service.publish(SMALL)
            waits.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(_PAUSE_S)

    task = asyncio.create_task(neighbour())
    await asyncio.sleep(0.2)
    waits.clear()
    began = time.perf_counter()
    await service.ask(Purge(DEEP))
    answered_s = time.perf_counter() - began
    while service.store.has_purged():  # noqa: ASYNC110 - as long as it takes
        await asyncio.sleep(0.01)
    seconds = time.perf_counter() - began
    is_over = True
    await task
    return {
        "purge_answer_ms": answered_s * 1e3,
        "purge_s": seconds,
        "neighbour_p99_ms": sorted(waits)[len(waits) * 99 // 100],
        "neighbour_max_ms": max(waits),
    }


def _memory() -> int:
    """What this process has in memory, in bytes."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


#: The columns of the table, with the digits behind the point.
_COLUMNS: Mapping[str, tuple[str, int]] = {
    "items": ("items", 0),
    "file_mb": ("file, MB", 0),
    "start_s": ("start, s", 2),
    "start_cpu_s": ("CPU, s", 2),
    "memory_mb": ("memory, MB", 1),
    "publish_ms": ("publish, ms", 2),
    "first_ms": ("first item, ms", 1),
    "accept_ms": ("accept and next, ms", 2),
    "stats_ms": ("stats, ms", 2),
    "page_ms": ("page of 100, ms", 2),
    "last_page_ms": ("last page, ms", 2),
    "an_id_ms": ("an id, ms", 2),
    "purge_s": ("purge, s", 1),
    "neighbour_p99_ms": ("neighbour, p99 ms", 1),
    "neighbour_max_ms": ("slowest, ms", 1),
}


def _table(rows: Sequence[Mapping[str, float]]) -> str:
    lines = [
        "| " + " | ".join(title for title, _ in _COLUMNS.values()) + " |",
        "|---" * len(_COLUMNS) + "|",
    ]
    for row in rows:
        cells = [f"{row[name]:,.{digits}f}" for name, (_, digits) in _COLUMNS.items()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _run(*words: str) -> Any:
    """What this program says when it runs with these words."""
    program = [sys.executable, "-m", "benchmarks.depth", *words]
    return json.loads(
        subprocess.run(program, check=True, stdout=subprocess.PIPE).stdout
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="depth", description=__doc__)
    parser.add_argument("depths", nargs="*", type=int, default=DEPTHS)
    parser.add_argument("--delay", metavar="S", type=float, default=0.0)
    parser.add_argument("--fill", metavar="PATH", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", metavar="PATH", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        asyncio.run(fill(options.fill, options.depths[0], options.delay))
        print("{}")
    elif options.measure:
        print(json.dumps(asyncio.run(measure(options.measure))))
    else:
        rows = []
        for depth in options.depths:
            with tempfile.TemporaryDirectory() as folder:
                path = str(Path(folder) / "queues.sqlite")
                _run("--fill", path, "--delay", str(options.delay), str(depth))
                rows.append(_run("--measure", path))
                print(json.dumps(rows[-1]), file=sys.stderr)
        print(_table(rows))


if __name__ == "__main__":
    main()
