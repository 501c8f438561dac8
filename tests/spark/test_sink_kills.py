"""A driver that is killed between a sink and Spark's commit: each row is written once.

The batch is in the queue, or with the receiver, and Spark knows nothing of it: the next
driver writes it again, with another number of partitions. What ends without a kill
there is in test_sink_repeats.py.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from slixmpp import Message

from driver_process import Driver
from qos.testing import LoopbackServer, logged_in
from sink_tasks import SERVICE, WHOLE, login, queue, shop
from waiting import LIMIT_S

pytestmark = [
    pytest.mark.spark,
    pytest.mark.crash,
    pytest.mark.xdist_group("spark-processes"),
    pytest.mark.timeout(7200 if "SINK_KILLS" in os.environ else 1800),
]

BEE = "bee@localhost/1"

#: The numbers of partitions. A driver has as many pairs of queries, one with each.
PARTITIONS = (1, 2, 4, 7)

#: Each kill is one for each number of partitions. `make sinks` has 20 of them.
KILLS = int(os.environ.get("SINK_KILLS", "2"))

#: For all queries of a driver to do two batches, on a machine under load.
WAIT_S_MAX = 15 * LIMIT_S

LOOK_S = 0.05

#: The lines of a batch: no partition is empty.
LINES = 14


async def until_all(driver: Driver, *, hold: Sequence[str] = ()) -> None:
    """Wait until all queries hold a batch, by these files; or have ended."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            state = await driver.do("failures")
            assert not state["errors"]
            if all(map(os.path.exists, hold)) if hold else not state["active"]:
                return
            await asyncio.sleep(LOOK_S)


class Queries:
    """Pairs of queries, one of items and one of messages, each with its own rows."""

    def __init__(self, server: LoopbackServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._lines = folder / "lines"
        self._marks = folder / "marks"
        for made in (self._lines, self._marks):
            made.mkdir()
        self.written: list[str] = []

    def add(self, batch: int) -> None:
        """A file of lines, which all queries write as their next batch."""
        lines = [f"{batch}-{number}" for number in range(LINES)]
        self.written += lines
        new = self._folder / "new"
        new.write_text("\n".join(lines))
        new.rename(self._lines / f"{batch}.txt")

    async def begin(self, driver: Driver, order: Sequence[int], hold: int) -> list[str]:
        """Begin all queries, with these numbers of partitions.

        Args:
            driver: that runs them.
            order: the number of partitions of each pair.
            hold: the batch after which each of them stops; -1: none does.

        Returns:
            The files that are there when all of them have stopped.
        """
        marks = []
        for pair, partitions in enumerate(order):
            message = login(self._server) | {
                # A session a partition, for each query.
                "jid": f"boss@localhost/{pair}",
                "store": str(self._folder / f"store-{pair}"),
            }
            items = queue(self._server, node=f"orders-{pair}")
            payload = "concat('<x xmlns=\"u\">', value, '</x>') AS payload"
            body = (f"'{BEE}' AS to", f"concat('{pair}: ', value) AS body")
            for form, options, columns in (
                ("held-queue", items, [payload]),
                ("held-xmpp", message, [*body]),
            ):
                marks.append(str(self._marks / f"{form}-{pair}-{hold}"))
                checkpoint = str(self.checkpoint(form, pair))
                held = {"hold": str(hold), "mark": marks[-1]}
                await driver.do(
                    "begin",
                    form=form,
                    options=options | WHOLE | held | {"checkpointLocation": checkpoint},
                    columns=columns,
                    source=str(self._lines),
                    partitions=partitions,
                )
        return marks

    def checkpoint(self, form: str, pair: int) -> Path:
        """Where Spark keeps what it knows of a query."""
        return self._folder / f"{form}-{pair}"

    def last(self, log: str) -> set[int]:
        """The last batch in the logs of this name of all checkpoints."""
        return {
            max((int(f.name) for f in folder.iterdir() if f.name.isdigit()), default=-1)
            for folder in self._folder.glob(f"held-*/{log}")
        }


@pytest.mark.long
async def test_a_driver_killed_between_a_sink_and_the_commit_writes_each_row_once(
    tmp_path: Path,
) -> None:
    """With each number of partitions, after any other number or itself."""
    bodies: Counter[str] = Counter()

    def count(message: Message) -> None:
        bodies[message["body"]] += 1

    async with shop() as (server, owner), logged_in(server, "bee/1") as bee:
        bee.add_event_handler("message", count)
        for pair in range(len(PARTITIONS)):
            open_to_all = {"pubsub#access_model": "open"}
            await owner.create(SERVICE, f"orders-{pair}", open_to_all)
        queries = Queries(server, tmp_path)

        async def check() -> None:
            for pair in range(len(PARTITIONS)):
                items = owner.browse(SERVICE, f"orders-{pair}")
                payloads = sorted([item.payload async for item in items])
                rows = sorted(f"<x xmlns='u'>{row}</x>" for row in queries.written)
                assert payloads == rows, pair
            assert bodies == Counter(
                f"{pair}: {row}"
                for pair in range(len(PARTITIONS))
                for row in queries.written
            )

        for batch in range(KILLS):
            queries.add(batch)
            order = Random(batch).sample(PARTITIONS, len(PARTITIONS))
            async with Driver(tmp_path, "held_driver") as driver:
                # First the batch of the driver before, which Spark has not committed.
                marks = await queries.begin(driver, order, batch)
                await until_all(driver, hold=marks)
                await driver.kill()
            assert queries.last("offsets") == {batch}
            assert queries.last("commits") == {batch - 1}
            await check()
        async with Driver(tmp_path, "held_driver") as driver:
            await queries.begin(driver, PARTITIONS, -1)
            await until_all(driver)
        assert queries.last("commits") == {KILLS - 1}
        await check()
