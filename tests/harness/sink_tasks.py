"""Tasks of Spark without Spark: for tests of the sinks on the embedded server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.types import (
    DoubleType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from qos.testing import LoopbackServer, friends, logged_in, queue_service
from xep_0254 import XEP_0254

SERVICE, NODE = "queue.localhost", "orders"

TYPES = {"priority": IntegerType(), "ttl": DoubleType(), "delay": DoubleType()}


def schema(*names: str) -> StructType:
    return StructType(
        [StructField(name, TYPES.get(name, StringType())) for name in names]
    )


#: Equal rows are one.
WHOLE = {"id": "*"}


def in_task(partition: int = 0, *, query: str = "", batch: int = 0) -> None:
    """Pretend to be a task of Spark: of a batch write, or of a streaming query."""
    context = TaskContext._getOrCreate()
    context._partitionId = partition
    context._localProperties = (
        {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}
        if query
        else {}
    )


def no_task() -> Iterator[None]:
    """For a fixture: no task, at the end."""
    yield
    TaskContext._taskContext = None


@contextlib.asynccontextmanager
async def shop(**config: str) -> AsyncIterator[tuple[LoopbackServer, XEP_0254]]:
    async with (
        friends("boss", "bee", components={SERVICE: "secret"}) as server,
        queue_service(server, SERVICE),
        logged_in(server, "boss", {"xep_0254": {}}) as boss,
    ):
        owner = XEP_0254.of(boss)
        await owner.create(
            SERVICE,
            NODE,
            {
                "pubsub#access_model": "open",
                **{f"queue#{name}": text for name, text in config.items()},
            },
        )
        yield server, owner


def login(server: LoopbackServer, user: str = "boss") -> dict[str, str]:
    return {
        "jid": f"{user}@localhost",
        "password": "secret",
        "host": server.host,
        "port": str(server.port),
        "tls": "off",
    }


def queue(server: LoopbackServer, **options: str) -> dict[str, str]:
    return login(server) | {"service": SERVICE, "node": NODE} | options


async def write(writer: Any, rows: Iterable[Row], **task: Any) -> int:
    """Write as a task; returns the number of rows that it reports."""
    given: dict[str, Any] = {"query": "q", "batch": 1, **task}

    def work() -> int:
        in_task(**given)
        return int(writer.write(iter(rows)).rows)

    return await asyncio.to_thread(work)
