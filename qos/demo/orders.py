"""A shop publishes orders to a queue, and three worker-bees pack them.

As in `examples/work_queue.py`, but each bee is a process of its own, `python -m
qos.demo.orders`, and one of them is killed. They have a book of the orders that are
packed. A line there is an effect of `qos.worker`: it is in the book if, and only if, the
service has accepted the item.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from qos.demo.process import READY, Program, connect, running
from qos.journal.writer import JournalWriter
from qos.testing import child, friends, logged_in, queue_service
from qos.worker import Job, Worker
from xep_0254 import XEP_0254, Affiliation, NewItem

__all__ = ["DELIVERIES_MAX", "POISONED", "pack_orders", "reckon"]

_SERVICE, _NODE, _DEAD_LETTERS = "queue.localhost", "orders", "dead-letters"
_BEES = ("anna", "ben", "carl")

#: The number of the order that no bee can pack.
POISONED: Final = 13

#: A good order fails at most once, and once more when its bee is killed.
DELIVERIES_MAX: Final = 4

#: The time to pack an order, in seconds, and the orders that a bee has at a time.
_PACKING_S, _PARALLEL = 0.1, 4

#: Carl is killed at the beginning of this order of his; the first ones come together.
_CARLS_LAST = 3

#: The time for a thousand orders, in seconds, on a machine under load.
_LIMIT_S = 300.0

#: The words that report an order that a bee has begun, and one at which it has failed.
_BEGUN, _FAILED = "begun", "failed"

_TABLE = "CREATE TABLE IF NOT EXISTS packed (bee, number)"


async def pack_orders(
    count: int, folder: Path
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Let the bees pack this many orders; returns a row for each bee, and for the queue.

    In the folder there will be `stores` and `journals`.

    Raises:
        ProcessFailed: a bee has ended by itself.
        RequestFailed: a request to the service has failed.
        TimeoutError: it has taken too long.
    """
    stores, journals = folder / "stores" / "queue", folder / "journals"
    stores.mkdir(parents=True)
    store = f"sqlite:{stores / 'queue.db'}"
    async with (
        asyncio.timeout(_LIMIT_S),
        friends("shop", *_BEES, components={_SERVICE: "secret"}) as server,
        queue_service(server, _SERVICE, store=store, journal=journals),
        logged_in(server, "shop", {"xep_0254": {}}) as shop,
    ):
        queues = XEP_0254.of(shop)
        await _create(queues)
        book_file = stores / "book.db"
        task = {"port": server.port, "book": str(book_file), "journals": str(journals)}
        bees = {
            name: Program(name, __name__, task, stores, kills=int(name == "carl"))
            for name in _BEES
        }
        async with running(*bees.values()):
            await queues.publish(_SERVICE, _NODE, [*map(_order, range(count))])
            await _all_ended(queues)
        browsed = queues.browse(_SERVICE, _NODE, state="accepted")
        accepted = [int(item.item_id) async for item in browsed]
        letters = queues.browse(_SERVICE, _DEAD_LETTERS)
        dead = [(int(item.origin_id), len(item.history)) async for item in letters]
    with closing(sqlite3.connect(book_file)) as book:
        packed = book.execute("SELECT bee, number FROM packed").fetchall()
    lines = Counter(name for name, _ in packed)
    rows = [_bee(name, bee.reports, lines[name]) for name, bee in bees.items()]
    return rows, reckon(count, [number for _, number in packed], accepted, dead)


async def _create(queues: XEP_0254) -> None:
    """Create the queue, and that of the dead letters."""
    await queues.create(_SERVICE, _DEAD_LETTERS)
    config = {
        "queue#max_deliveries": str(DELIVERIES_MAX),
        "queue#dead_letter_node": _DEAD_LETTERS,
        "queue#backoff": "0.1",
        "queue#keep_accepted": "3600",  # to see them at the end
    }
    await queues.create(_SERVICE, _NODE, config)
    members = {f"{bee}@localhost": Affiliation.MEMBER for bee in _BEES}
    await queues.set_affiliations(_SERVICE, _NODE, members)


def _order(number: int) -> NewItem:
    return NewItem(f"<order xmlns='urn:shop' number='{number}'/>", str(number))


async def _all_ended(queues: XEP_0254) -> None:
    """Wait until the queue is empty. There is no event for that: ask for its stats."""
    count: float = 1
    while count:
        await asyncio.sleep(0.1)
        stats = await queues.stats(_SERVICE, _NODE)
        count = sum(stats[name] or 0 for name in ("available", "acquired", "delayed"))


def _bee(name: str, reports: Counter[str], accepted: int) -> dict[str, Any]:
    """The row of a bee: what it has begun, and how that went on."""
    row = {"begun": reports[_BEGUN], "accepted": accepted, "failed": reports[_FAILED]}
    return {"bee": name, **row, "lost": row["begun"] - accepted - row["failed"]}


def reckon(
    count: int, packed: list[int], accepted: list[int], dead: list[tuple[int, int]]
) -> dict[str, Any]:
    """Compare the orders with the book and the service; returns the row of the queue.

    A dead letter is its number, and the number of its failures.
    """
    good = [number for number in range(count) if number != POISONED]
    in_book, at_service = Counter(packed), Counter(accepted)
    pairs = [(in_book[number], at_service[number]) for number in good]
    is_exact = sorted(packed) == sorted(accepted) == good
    return {
        "queue": _NODE,
        "published": count,
        "accepted": pairs.count((1, 1)),
        "lost": sum(min(pair) == 0 for pair in pairs),
        "duplicated": sum(max(pair) > 1 for pair in pairs),
        "dead": len(dead),
        "exact": is_exact and dead == [(POISONED, DELIVERIES_MAX)],
    }


async def _work(task: dict[str, Any], say: child.Say) -> None:
    """A bee, in its own process."""
    name = task["name"]
    starts = 0

    async def pack(job: Job) -> None:
        nonlocal starts
        starts += 1
        say(_BEGUN)
        if name == "carl" and not task["life"] and starts == _CARLS_LAST:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(_PACKING_S)
        assert job.payload is not None
        number = int(job.payload.get("number", ""))
        drops = name == "ben" and number % 5 == 0 and not job.delivery_count
        if number == POISONED or drops:
            say(_FAILED)
            raise RuntimeError(f"{name} has dropped order {number}")
        async with job.effects(book) as effects:
            effects.execute("INSERT INTO packed VALUES (?, ?)", (name, number))

    async with connect(task, store="memory:") as bee:  # the queue keeps the items
        with closing(sqlite3.connect(task["book"], isolation_level=None)) as book:
            book.execute(_TABLE)
            jid = str(bee.client.boundjid)
            async with (
                JournalWriter.opened(task["journals"], jid, of_items=True) as journal,
                Worker(
                    bee.client,
                    _SERVICE,
                    _NODE,
                    parallel=_PARALLEL,
                    resubscribe_s=1.0,
                    effects_db=book,
                    journal=journal,
                ) as worker,
            ):
                await worker.subscribed()
                say(READY)
                await worker.run(pack)


if __name__ == "__main__":
    child.run_task(_work)
