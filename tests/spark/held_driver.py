"""A Spark driver with sinks that stop between the sink and Spark's commit. Not a test.

It is a child of `Driver` in `driver_process.py`, which kills it there; see
`qos.testing.child`.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from qos.spark.formats import QueueFormat, XmppFormat
from qos.spark.message_sink import XmppStreamWriter
from qos.spark.queue_sink import QueueStreamWriter
from qos.spark.session import spark_session
from qos.testing.child import Parent, run_commands

#: Each task of a query has a new Python process, which need not import everything.
ARGUMENTS = "--conf spark.python.daemon.module=qos.spark.daemon pyspark-shell"

LOOK_S = 0.05


def hold(mark: str) -> None:
    """Make this file, and never return: Spark does not commit the batch."""
    parent = os.getppid()
    Path(mark).touch()
    # This is a process of its own, and Java does not wait for its end.
    while os.getppid() == parent:
        time.sleep(LOOK_S)


class HeldQueueWriter(QueueStreamWriter):
    """Holds one batch when the sink has written and committed it."""

    held = (-1, "")

    def commit(self, messages: Any, batchId: int) -> None:
        super().commit(messages, batchId)
        if batchId == self.held[0]:
            hold(self.held[1])


class HeldXmppWriter(XmppStreamWriter):
    """Likewise."""

    held = (-1, "")

    def commit(self, messages: Any, batchId: int) -> None:
        super().commit(messages, batchId)
        if batchId == self.held[0]:
            hold(self.held[1])


class HeldQueue(QueueFormat):
    """Holds the batch of the option `hold`, and then makes the file `mark`."""

    @classmethod
    def name(cls) -> str:
        return "held-queue"

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = dict(self.options)
        held = int(options.pop("hold")), options.pop("mark")
        writer = HeldQueueWriter(options, schema)
        writer.held = held
        return writer


class HeldXmpp(XmppFormat):
    """Likewise."""

    @classmethod
    def name(cls) -> str:
        return "held-xmpp"

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = dict(self.options)
        held = int(options.pop("hold")), options.pop("mark")
        writer = HeldXmppWriter(options, schema)
        writer.held = held
        return writer


class Driver:
    """The commands that it executes."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._queries: list[StreamingQuery] = []

    async def failures(self) -> dict[str, object]:
        """The errors of queries that have failed, and how many have not ended."""
        errors = filter(None, (query.exception() for query in self._queries))
        active = sum(query.isActive for query in self._queries)
        return {"errors": [str(error) for error in errors], "active": active}

    async def begin(
        self,
        form: str,
        options: dict[str, str],
        columns: list[str],
        source: str,
        partitions: int,
    ) -> None:
        """Begin to write the lines of the files of a folder, a file a batch."""
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(source)
        written = lines.repartition(partitions).selectExpr(*columns)
        writing = written.writeStream.format(form).options(**options)
        self._queries.append(writing.trigger(availableNow=True).start())


def main() -> None:
    """Execute the commands on stdin, to its end."""
    # First, or Java would write to the stdout that the test reads.
    parent = Parent()
    os.environ["PYSPARK_SUBMIT_ARGS"] = ARGUMENTS
    with spark_session("sinks", master="local[4]", quiet=True) as spark:
        for form in (HeldQueue, HeldXmpp):
            spark.dataSource.register(form)
        driver = Driver(spark)
        commands = (driver.failures, driver.begin)
        asyncio.run(run_commands(commands, parent=parent))


if __name__ == "__main__":
    main()
