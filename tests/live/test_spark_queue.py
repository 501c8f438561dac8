"""Queues and messages as sources and sinks of Spark, under `kill -9`, on Prosody.

Real drivers, each with a JVM and the Python processes that Spark starts. Slow:
everything that can be tested without Spark is in tests/spark/test_queue_source.py.
"""

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pyarrow.parquet as pq  # has none
import pytest
from slixmpp import Message

import xep_qos  # noqa: F401 - makes the plugin known
from clients import connected_client
from driver_process import Driver
from qos.testing.prosody import Prosody
from queue_roles import Service
from queue_service import SERVICE, own_server
from role_processes import Processes
from waiting import LIMIT_S
from xep_0254 import XEP_0254, NewItem
from xep_qos import XEP_QOS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.crash,
    pytest.mark.xdist_group("spark-queue"),
    pytest.mark.timeout(600),
]

#: For a driver to start, and to do some batches.
WAIT_S_MAX = 4 * LIMIT_S

#: The lock time-out where processes are killed, whose items must come back; and where
#: none is, so that no busy machine is too slow for it.
LOCK_S, LONG_LOCK_S = 4, 120

CONFIG = {
    "pubsub#access_model": "open",
    "queue#backoff": "0",
    "queue#max_deliveries": "1000",
    "queue#keep_accepted": "3600",
}


class Shop:
    """A server, a queue service on it as a process, and the owner of the queues."""

    def __init__(self, server: Prosody, folder: Path, processes: Processes) -> None:
        self.server = server
        self.folder = folder
        self._processes = processes
        self._store = folder / "queue.sqlite"
        self.owner: XEP_0254

    async def serve(self) -> None:
        role = Service.of(self.server, SERVICE, self._store)
        self._service = await self._processes.start(role)
        await self._service.until("ready")

    async def kill_service(self) -> None:
        await self._service.kill()
        await self.serve()

    async def publish(self, node: str, *names: str) -> None:
        items = [NewItem(f"<o xmlns='urn:o'>{name}</o>", name) for name in names]
        await self.owner.publish(SERVICE, node, items)

    def login(self, user: str) -> dict[str, str]:
        return {
            "jid": f"{user}@localhost",
            "password": self.server.accounts[user],
            "host": self.server.address,
            "port": str(self.server.c2s_port),
            "tls": "off",
        }

    def queue(self, node: str, user: str = "bob") -> dict[str, str]:
        return self.login(user) | {"service": SERVICE, "node": node}

    def source(self, node: str, **options: str) -> dict[str, str]:
        folder = self.folder / node
        return self.queue(node) | {
            "landing": str(folder / "landing"),
            "checkpoint": str(folder / "checkpoint"),
            "max-items": "20",
            "partition-rows": "10",
            **options,
        }

    def rows(self, node: str) -> Counter[str]:
        """The rows of the result, of complete batches."""
        found: Counter[str] = Counter()
        for done in (self.folder / node / "out").glob("*/_SUCCESS"):
            for file in done.parent.glob("part-*"):
                table = pq.read_table(file, columns=["item_id"])
                found.update(table["item_id"].to_pylist())
        return found

    def commits(self, node: str) -> int:
        return len(list((self.folder / node / "checkpoint/commits").glob("[0-9]*")))

    async def stats(self, node: str) -> dict[str, int | float | None]:
        stats = await self.owner.stats(SERVICE, node)
        names = ("available", "acquired", "delayed", "dead", "accepted")
        return {name: stats[name] for name in names}

    async def empty(self, node: str, accepted: int) -> bool:
        """Whether the queue is empty, and this many items were accepted."""
        wanted = dict.fromkeys(("available", "acquired", "delayed", "dead"), 0)
        return await self.stats(node) == wanted | {"accepted": accepted}


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not await true():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def open_shop(folder: Path, *nodes: str, lock_s: float) -> AsyncIterator[Shop]:
    (folder / "prosody").mkdir()
    async with (
        own_server(folder / "prosody") as server,
        Processes(folder) as processes,
        connected_client(server, "alice/shop", {"xep_0254": {}}) as alice,
    ):
        shop = Shop(server, folder, processes)
        await shop.serve()
        shop.owner = XEP_0254.of(alice)
        for node in nodes:
            config = CONFIG | {"queue#lock_timeout": str(lock_s)}
            await shop.owner.create(SERVICE, node, config)
        yield shop


SHOWN, CLAIMED = "shown", "claimed"
MODES = {SHOWN: "show", CLAIMED: "claim"}
NAMES = [f"i{number:03}" for number in range(80)]
LATER = [f"later{number:02}" for number in range(20)]


async def test_each_item_is_in_the_result_once_whatever_is_killed(
    tmp_path: Path,
) -> None:
    """The service, a task, the source's own process, the driver; in both forms.

    At the end the queue is empty, even of the last batch, while the query goes on with
    nothing to do.
    """
    async with open_shop(tmp_path, *MODES, lock_s=LOCK_S) as shop:

        async def go_on(driver: Driver, node: str) -> None:
            options = shop.source(node, mode=MODES[node], lock=str(LOCK_S))
            out = str(tmp_path / node / "out")
            await driver.do("read", name=node, options=options, out=out)

        async def going(driver: Driver, true: Callable[[], Awaitable[bool]]) -> None:
            """Wait while the queries run."""

            async def both() -> bool:
                for node, error in (await driver.do("failures")).items():
                    # Spark gives up on a Python process that takes seconds to start, as
                    # on a machine under load.
                    assert "connect back" in error, error
                    await go_on(driver, node)
                return await true()

            await until(both)

        async def more(driver: Driver, batches: int) -> None:
            """Wait until both queries have done some more."""
            wanted = {node: shop.commits(node) + batches for node in MODES}

            async def done() -> bool:
                return all(shop.commits(node) >= wanted[node] for node in MODES)

            await going(driver, done)

        async def all_done(driver: Driver, node: str, names: list[str]) -> None:
            """Wait until the queue is empty; then each item is in the result once."""
            await going(driver, lambda: shop.empty(node, len(names)))

            async def there() -> bool:
                return shop.rows(node).total() >= len(names)

            await going(driver, there)
            assert shop.rows(node) == Counter(names)

        for node in MODES:
            await shop.publish(node, *NAMES)
        async with Driver(tmp_path) as driver:
            for node in MODES:
                await go_on(driver, node)
            await more(driver, 1)
            # Processes of tasks are forks of a daemon, and have its command line.
            _daemon, *tasks = driver.python("pyspark.worker")
            for pid in tasks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await shop.kill_service()
            await more(driver, 1)
            await driver.kill()
        assert any(len(shop.rows(node)) < len(NAMES) for node in MODES)
        for node in MODES:
            await shop.publish(node, *LATER)
        async with Driver(tmp_path) as driver:
            for node in MODES:
                await go_on(driver, node)
            await more(driver, 1)
            sources = driver.python("python_streaming_source_runner")
            assert len(sources) == 2
            for pid in sources:
                os.kill(pid, signal.SIGKILL)
            for node in MODES:
                assert (await driver.do("ended", name=node))["error"]
                await go_on(driver, node)
            for node in MODES:
                await all_done(driver, node, [*NAMES, *LATER])
                await driver.do("stop", name=node)
            # Stopped, and started again: only new items must be found.
            await shop.publish(SHOWN, "last")
            await go_on(driver, SHOWN)
            await all_done(driver, SHOWN, [*NAMES, *LATER, "last"])
            await driver.do("stop", name=SHOWN)


PAYLOAD = "concat('<o xmlns=\"urn:o\">', {}, '</o>') AS payload"


async def test_what_is_written_again_is_published_and_sent_once(
    tmp_path: Path,
) -> None:
    """Tasks that fail after their last row, and a batch that is done again.

    Published items are read back with Trigger.AvailableNow.
    """
    async with (
        open_shop(tmp_path, "published", "refusing", lock_s=LONG_LOCK_S) as shop,
        connected_client(
            shop.server, "carol/c", {"xep_qos": {"trust": "anyone"}}
        ) as carol,
        Driver(tmp_path) as driver,
    ):
        got: list[tuple[str, bool]] = []

        def note(message: Message) -> None:
            info = XEP_QOS.of(carol).incoming(message)
            got.append((message["body"], info is not None))

        carol.add_event_handler("message", note)
        lines = tmp_path / "lines"
        lines.mkdir()
        # Equal lines are one row.
        words = [*(f"w{number}" for number in range(250)), "same", "same", "same"]
        (lines / "a.txt").write_text("\n".join(words))
        flag = tmp_path / "flag"
        flag.touch()
        sinks = {
            "failing-queue": (
                shop.queue("published", "alice"),
                [PAYLOAD.format("value")],
            ),
            "failing-xmpp": (
                shop.login("bob") | {"store": str(tmp_path / "store")},
                ["'carol@localhost/c' AS to", "value AS body"],
            ),
        }
        for fails in (True, False):
            for form, (options, columns) in sinks.items():
                given = options | {
                    "id": "*",
                    "flag": str(flag),
                    "checkpointLocation": str(tmp_path / f"checkpoint-{form}"),
                }
                ended = await driver.do(
                    "sink", form=form, options=given, columns=columns, source=str(lines)
                )
                if fails:
                    assert "the flag is there" in ended["error"], ended["error"]
                    assert "secret of" not in ended["error"]
                else:
                    assert ended["error"] is None
            flag.unlink(missing_ok=True)
        rows = set(words)
        assert Counter(got) == Counter((word, True) for word in rows)
        assert (await shop.stats("published"))["available"] == len(rows)
        named = shop.queue("published", "alice") | {"id": "*", "run": "nightly"}
        for _ in range(2):
            ended = await driver.do(
                "write",
                form="xmpp-queue",
                options=named,
                columns=[PAYLOAD.format("id")],
                count=20,
            )
            assert ended["error"] is None
        # The error names rows that were not published or not delivered.
        refused = await driver.do(
            "write",
            form="xmpp-queue",
            options=shop.queue("refusing", "alice") | {"id": "*"},
            columns=["if(id = 3, '<o', '<o/>') AS payload"],
            count=5,
        )
        assert "of partition" in refused["error"]
        assert "must be one XML element" in refused["error"]
        to_nobody = await driver.do(
            "write",
            form="xmpp",
            options=shop.login("bob")
            | {"id": "*", "store": str(tmp_path / "store-2"), "deadline": "1"},
            columns=["'mallory@localhost/x' AS to", "string(id) AS body"],
            count=1,
        )
        assert "row 1 of partition" in to_nobody["error"]
        assert "not delivered" in to_nobody["error"]
        for error in (refused["error"], to_nobody["error"]):
            assert "secret of" not in error
        read = await driver.do(
            "read_now",
            options=shop.source("published"),
            out=str(tmp_path / "published" / "out"),
        )
        assert len(read["rows"]) == len(rows) + 20
        assert len(set(read["rows"])) == len(rows) + 20
        # Spark does not wait for the end of the source.
        await until(lambda: shop.empty("published", len(rows) + 20))
        assert "secret of" not in (tmp_path / "driver.log").read_text()
