"""Runs the queue demo: the server, the service, the shop that orders, and the bees."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from qos.demo.bee import READY, RECEIVED, read_runs
from qos.demo.device import Device
from qos.demo.orders import BEES, KILLED, Order, kill_after, orders
from qos.demo.process import SpareProcess, Supervisor, told_path
from qos.demo.queue_table import BeeRow, QueueRow, bee_rows, reckon
from qos.demo.run import first_error
from qos.testing.queues import queue_service
from qos.testing.server import LoopbackServer
from xep_0254 import XEP_0254, NewItem

__all__ = ["MAX_DELIVERIES", "QueueProgress", "run_queue"]

SERVICE: Final = "queue.localhost"
NODE: Final = "orders"
DEAD_LETTERS: Final = "dead-letters"

#: A good order fails at most once, and once more when its bee is killed.
MAX_DELIVERIES: Final = 4

_SHOP = "shop"

#: The number of items in one publish.
_BATCH = 20

#: The time limits, in seconds. Three bees pack a hundred orders a second; the rest is
#: for a machine under load.
_START_S_MAX = 60.0
_ORDER_S_MAX = 0.2

_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """The progress of the queue demo."""

    published: int
    accepted: int
    orders: int
    kills: int


async def run_queue(
    seed: int,
    count: int,
    folder: Path,
    spare: SpareProcess,
    show: Callable[[QueueProgress], object] | None = None,
    journal: Path | None = None,
) -> tuple[list[BeeRow], QueueRow]:
    """Let the bees pack this number of orders, and find out the end of each.

    Args:
        seed: decides what is ordered, which bee fails when, and when a bee is killed.
        count: the number of good orders; there is one more, which is poisoned.
        folder: for the stores; it must be empty.
        spare: the source of the bees' processes.
        show: called now and then with the progress.
        journal: the folder for the journals of all; None: no journal.

    Returns:
        What each bee did, and the whole result.

    Raises:
        ProcessDied: a bee has ended by itself.
        TimeoutError: it did not end in time.
        RequestFailed: a request to the service failed.
    """
    began_at = time.monotonic()
    passwords = {name: secrets.token_hex(16) for name in (*BEES, _SHOP)}
    secret = secrets.token_hex(16)
    ordered = orders(seed, count)
    async with (
        LoopbackServer(accounts=passwords, components={SERVICE: secret}) as server,
        queue_service(
            server,
            SERVICE,
            secret,
            store=f"sqlite:{folder / 'queues.sqlite'}",
            journal=journal,
        ),
        _shop(passwords[_SHOP], server.port) as shop,
    ):
        bees = {
            name: Supervisor(
                spare,
                {
                    "name": name,
                    "password": passwords[name],
                    "port": server.port,
                    "folder": str(folder),
                    "journal": told_path(journal),
                    "service": SERVICE,
                    "node": NODE,
                    "seed": seed,
                },
            )
            for name in BEES
        }
        run = _Run(shop, ordered, bees, kill_after(seed, count))
        try:
            async with asyncio.timeout(_START_S_MAX + _ORDER_S_MAX * count):
                await run.run(show)
        except TimeoutError:
            raise TimeoutError("the queue is not done in time") from None
        accepted = [each async for each in shop.browse(SERVICE, NODE, state="accepted")]
        dead = [each async for each in shop.browse(SERVICE, DEAD_LETTERS)]
        left = await run.left()
    books = {name: read_runs(folder, name) for name in BEES}
    return bee_rows(books), reckon(
        ordered,
        books,
        accepted=[each.item_id for each in accepted],
        dead=dead,
        left=left,
        kills=sum(bee.kills for bee in bees.values()),
        seconds=time.monotonic() - began_at,
    )


@asynccontextmanager
async def _shop(password: str, port: int) -> AsyncIterator[XEP_0254]:
    """The shop that orders, which owns the queue, in session."""
    device = Device(_SHOP, password=password, port=port, plugins={"xep_0254": {}})
    try:
        device.start()
        await device.client.wait_until("session_start", timeout=_START_S_MAX)
        yield XEP_0254.of(device.client)
    finally:
        await device.aclose()


class _Run:
    """One run, from the first order to the last bee's end."""

    def __init__(
        self,
        shop: XEP_0254,
        ordered: list[Order],
        bees: dict[str, Supervisor],
        kill_after: int,
    ) -> None:
        self._shop = shop
        self._ordered = ordered
        self._bees = bees
        self._kill_after = kill_after
        self._published = 0

    async def run(self, show: Callable[[QueueProgress], object] | None) -> None:
        """Do the whole run."""
        await self._create()
        try:
            async with asyncio.TaskGroup() as group:
                for bee in self._bees.values():
                    group.create_task(bee.run())
                shown = group.create_task(self._show(show))
                await asyncio.gather(
                    *(bee.hear(READY, 1) for bee in self._bees.values())
                )
                killed = group.create_task(self._kill())
                await self._publish()
                await killed
                # The service sends no event for this.
                while await self.left():  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_EVERY_S)
                await asyncio.gather(*(bee.stop() for bee in self._bees.values()))
                shown.cancel()
        except ExceptionGroup as errors:
            raise first_error(errors) from None

    async def _create(self) -> None:
        await self._shop.create(SERVICE, DEAD_LETTERS)
        config = {
            # The bees have accounts of their own, and no others are on this server.
            "pubsub#access_model": "open",
            "queue#max_deliveries": str(MAX_DELIVERIES),
            "queue#dead_letter_node": DEAD_LETTERS,
            "queue#backoff": "0.1",
            # To see each accepted item at the end.
            "queue#keep_accepted": "3600",
        }
        await self._shop.create(SERVICE, NODE, config)

    async def _publish(self) -> None:
        for begin in range(0, len(self._ordered), _BATCH):
            batch = self._ordered[begin : begin + _BATCH]
            entries = [NewItem(order.payload, order.item_id) for order in batch]
            await self._shop.publish(SERVICE, NODE, entries)
            self._published += len(batch)

    async def _kill(self) -> None:
        """Kill the bee with items locked; returns when it works again."""
        bee = self._bees[KILLED]
        await bee.hear(RECEIVED, self._kill_after)
        await bee.kill_soon(RECEIVED)
        await bee.hear(READY, 2)

    async def left(self) -> int:
        """The number of items that are neither accepted nor dead."""
        stats = await self._shop.stats(SERVICE, NODE)
        waiting = (stats[name] for name in ("available", "acquired", "delayed"))
        return sum(int(number or 0) for number in waiting)

    async def _show(self, show: Callable[[QueueProgress], object] | None) -> None:
        while show is not None:
            stats = await self._shop.stats(SERVICE, NODE)
            show(
                QueueProgress(
                    self._published,
                    accepted=int(stats["accepted"] or 0),
                    orders=len(self._ordered),
                    kills=self._bees[KILLED].kills,
                )
            )
            await asyncio.sleep(_LOOK_EVERY_S)
