"""A Spark driver that executes commands, to be killed. Not a test.

It is a child of `Driver` in `driver_process.py`; see `qos.testing.child`.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructType

from qos.spark.formats import QueueFormat, XmppFormat, register
from qos.spark.message_sink import Sent, XmppStreamWriter
from qos.spark.queue_sink import Published, QueueStreamWriter
from qos.spark.session import spark_session
from qos.testing.child import Parent, run_commands


def slow(text: str) -> str:
    """So that a task can be killed in the middle."""
    time.sleep(0.01)
    return text


def fail_while(flag: str) -> None:
    """Fail a task that has written all of its rows."""
    if Path(flag).exists():
        raise RuntimeError("the flag is there")


class FailingQueueWriter(QueueStreamWriter):
    flag = ""

    def write(self, rows: Any) -> Published:
        written = super().write(rows)
        fail_while(self.flag)
        return written


class FailingXmppWriter(XmppStreamWriter):
    flag = ""

    def write(self, rows: Any) -> Sent:
        written = super().write(rows)
        fail_while(self.flag)
        return written


class FailingQueue(QueueFormat):
    """A format whose tasks fail after the last row, while the file of option `flag` exists."""

    @classmethod
    def name(cls) -> str:
        return "failing-queue"

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = dict(self.options)
        flag = options.pop("flag")
        writer = FailingQueueWriter(options, schema)
        writer.flag = flag
        return writer


class FailingXmpp(XmppFormat):
    """Likewise."""

    @classmethod
    def name(cls) -> str:
        return "failing-xmpp"

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = dict(self.options)
        flag = options.pop("flag")
        writer = FailingXmppWriter(options, schema)
        writer.flag = flag
        return writer


class Driver:
    """The commands that it executes. They block: it does one thing at a time."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.queries: dict[str, StreamingQuery] = {}

    async def read(
        self, name: str, options: dict[str, str], out: str
    ) -> dict[str, object]:
        """Begin to write a queue to Parquet, a folder a batch."""

        def write(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").parquet(f"{out}/{number}")

        rows = self.spark.readStream.format("xmpp-queue").options(**options).load()
        rows = rows.withColumn("payload", F.udf(slow, StringType())("payload"))
        writing = rows.writeStream.foreachBatch(write)
        writing = writing.option("checkpointLocation", options["checkpoint"])
        self.queries[name] = writing.start()
        return {}

    async def read_now(self, options: dict[str, str], out: str) -> dict[str, object]:
        """Write what is in a queue to Parquet, and end."""
        rows = self.spark.readStream.format("xmpp-queue").options(**options).load()
        writing = rows.writeStream.format("parquet").trigger(availableNow=True)
        writing = writing.option("checkpointLocation", options["checkpoint"])
        query = writing.start(out)
        query.awaitTermination()
        query.explain(True)
        return {"rows": sorted(r[0] for r in self.spark.read.parquet(out).collect())}

    async def stop(self, name: str) -> dict[str, object]:
        """Stop a query."""
        self.queries[name].stop()
        return {}

    async def failures(self) -> dict[str, object]:
        """The errors of queries that have failed."""
        found = {name: each.exception() for name, each in self.queries.items()}
        return {name: str(error) for name, error in found.items() if error}

    async def ended(self, name: str) -> dict[str, object]:
        """Wait for the end of a query, which has failed."""
        try:
            self.queries[name].awaitTermination()
        except PySparkException as error:
            return {"error": str(error)}
        return {"error": None}

    async def sink(
        self, form: str, options: dict[str, str], columns: list[str], source: str
    ) -> dict[str, object]:
        """Write the lines of the files of a folder, as a stream."""
        lines = self.spark.readStream.text(source).repartition(2, "value")
        writing = lines.selectExpr(*columns).writeStream.format(form)
        query = writing.options(**options).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        except PySparkException as error:
            return {"error": str(error)}
        return {"error": None}

    async def write(
        self, form: str, options: dict[str, str], columns: list[str], count: int
    ) -> dict[str, object]:
        """Write some numbers, as a batch."""
        rows = self.spark.range(count).repartition(2, "id").selectExpr(*columns)
        try:
            rows.write.format(form).mode("append").options(**options).save()
        except PySparkException as error:
            return {"error": str(error)}
        return {"error": None}


#: Tasks repeatedly fail here, and each continues in a new Python process.
ARGUMENTS = "--conf spark.python.daemon.module=qos.spark.daemon pyspark-shell"


def main() -> None:
    """Execute the commands on stdin, to its end."""
    # First, or Java would write to the stdout that the test reads.
    parent = Parent()
    os.environ["PYSPARK_SUBMIT_ARGS"] = ARGUMENTS
    with spark_session("queues", master="local[2,4]", quiet=True) as spark:
        register(spark)
        spark.dataSource.register(FailingQueue)
        spark.dataSource.register(FailingXmpp)
        driver = Driver(spark)
        commands = (
            *(driver.read, driver.read_now, driver.stop, driver.failures),
            *(driver.ended, driver.sink, driver.write),
        )
        asyncio.run(run_commands(commands, parent=parent))
        for query in spark.streams.active:
            query.stop()


if __name__ == "__main__":
    main()
