"""The formats `xmpp-queue` and `xmpp` of Spark: queues and messages as DataFrames.

    from qos.spark.formats import register

    register(spark)
    spark.readStream.format("xmpp-queue").options(…).load()

Options of both, with the names and checks of the commands: `jid`; `password`,
`password-file` or the variable XMPP_QOS_PASSWORD; `host`, `port`, `tls`, `ca-file`,
`connect-timeout`.

`xmpp-queue` as a source: `service`, `node`; `landing`, a folder that the driver and all
executors see; `checkpoint`, the checkpointLocation of the query, which Spark does not
tell a source; `mode`, `show` (default: the query is the node's only consumer) or
`claim`; `lock`, the node's lock time-out in seconds; `max-items` of a batch;
`partition-rows` of a task. Columns: see `queue_source.SCHEMA`.

Both sinks: `id`, the columns that identify a row, separated by commas, or `*` for all
(see `qos.spark.identity`); without it `repeats`, which is `allowed`: then Spark may
write rows more than once; `run`, a name that is part of each id: rows of another run are
other rows. Columns that are named in `id` may be others than those below.

`xmpp-queue` as a sink: `service`, `node`; `deadline`, seconds to wait for a service
that is away or full. Columns: `payload` (XML), and optionally `item_id` (then `id` is
needed for rows where it is null), `priority`, `ttl`, `delay`.

`xmpp`, a sink: `store`, a folder that the driver and all executors see, for this query
alone; `deadline`, seconds until a message is not delivered; `ordered`. Columns: `to`,
and `payload` (XML) or `body` (text).
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from qos.spark.message_sink import XmppStreamWriter, XmppWriter
from qos.spark.queue_sink import QueueStreamWriter, QueueWriter
from qos.spark.queue_source import SCHEMA, QueueStreamReader, check_source_options
from qos.spark.session import check_python

__all__ = ["QueueFormat", "XmppFormat", "register"]


def register(spark: SparkSession) -> None:
    """Make the formats `xmpp-queue` and `xmpp` known to a session.

    Raises:
        NoSpark: the Python that Spark starts on this machine cannot import this
            library; the text says what to set. Other machines of a cluster are not
            checked.
    """
    check_python(spark)
    spark.dataSource.register(QueueFormat)
    spark.dataSource.register(XmppFormat)


class QueueFormat(DataSource):
    """The items of a node of XEP-0254."""

    @classmethod
    def name(cls) -> str:
        """The name for users."""
        return "xmpp-queue"

    def schema(self) -> StructType:
        """The columns of an item.

        Spark asks for them first, so a bad option is found here.
        """
        check_source_options(self.options)
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """See queue_source."""
        return QueueStreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """See queue_sink."""
        return QueueWriter(self.options, schema)

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """See queue_sink."""
        return QueueStreamWriter(self.options, schema)


class XmppFormat(DataSource):
    """Assured messages."""

    @classmethod
    def name(cls) -> str:
        """The name for users."""
        return "xmpp"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """See message_sink."""
        return XmppWriter(self.options, schema)

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """See message_sink."""
        return XmppStreamWriter(self.options, schema)
