"""Formats whose batches fail between the sink and Spark's commit, as if killed there.

All rows are written. The batch is not committed while the file of the option `flag` is
there: Spark does it again after a restart.
"""

from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from qos.spark.formats import QueueFormat, XmppFormat
from qos.spark.message_sink import XmppStreamWriter
from qos.spark.queue_sink import QueueStreamWriter

__all__ = ["UncommittedQueue", "UncommittedXmpp"]


def _fail_while(flag: str) -> None:
    if Path(flag).exists():
        raise RuntimeError("the flag is there")


class _QueueWriter(QueueStreamWriter):
    flag = ""

    def commit(self, messages: Any, batchId: int) -> None:
        _fail_while(self.flag)
        super().commit(messages, batchId)


class _XmppWriter(XmppStreamWriter):
    flag = ""

    def commit(self, messages: Any, batchId: int) -> None:
        _fail_while(self.flag)
        super().commit(messages, batchId)


class UncommittedQueue(QueueFormat):
    """Of items."""

    @classmethod
    def name(cls) -> str:
        return "uncommitted-queue"

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = dict(self.options)
        flag = options.pop("flag")
        writer = _QueueWriter(options, schema)
        writer.flag = flag
        return writer


class UncommittedXmpp(XmppFormat):
    """Of messages."""

    @classmethod
    def name(cls) -> str:
        return "uncommitted-xmpp"

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        options = dict(self.options)
        flag = options.pop("flag")
        writer = _XmppWriter(options, schema)
        writer.flag = flag
        return writer
