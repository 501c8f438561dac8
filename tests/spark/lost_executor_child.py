"""A command whose only task kills the executor that runs it, on a cluster of this machine."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from qos.cli.spark_run import SparkRun
from qos.cli.status import CommandError


def die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Kill the JVM above this Python, and wait for the end."""
    for parent in parents():
        if Path(f"/proc/{parent}/comm").read_text() == "java\n":
            os.kill(parent, signal.SIGKILL)
            break
    yield from batches


def parents() -> Iterator[int]:
    """The processes above this one, the nearest first."""
    process = os.getppid()
    while process > 1:
        yield process
        status = Path(f"/proc/{process}/status").read_text()
        process = int(status.partition("PPid:")[2].split()[0])


class _Dies(SparkRun[None]):
    """Loses its executor."""

    def _do(self, spark: SparkSession) -> None:
        spark.range(1).mapInArrow(die, "id long").collect()


try:
    asyncio.run(_Dies(master="local-cluster[1,1,1024]", out="x").run())
except CommandError as error:
    print(int(error.status), error)
