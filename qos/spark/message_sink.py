"""`writeStream.format("xmpp")`: rows are sent as assured messages.

A row is written when its message is delivered: its receiver has it, once. A message
that is not delivered, or in doubt, fails its task; the error names the row and the
outcome.

A task or a batch that is repeated sends the same msgIds (see `qos.spark.identity`).
Each partition has a store and a resource. For a receiver all of them are one sender
(see `qos.spark.sender_stores`). The driver and all executors of a cluster must see the
folder `store`. Messages in flight continue from there. A receiver of ours remembers
delivered messages (for its `tombstone_ttl_s`), and hands none over a second time,
whichever partition repeats it. A foreign receiver does not remember messages that have
ended.

A message that a killed task has left is sent by the next task of the same partition. If
there is none, the driver sends it when a batch ends, before Spark commits that.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import logging
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

from pyspark.sql.datasource import (
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)

from qos.client.connection import Connection
from qos.core.strings import bare, resource_of
from qos.errors import (
    CannotConnect,
    DeliveryFailed,
    NotDelivered,
    OutboxFull,
    QosError,
    StoreError,
    StoreInUse,
    UnknownMessage,
)
from qos.spark.connection import Background
from qos.spark.identity import BadIdentity, identity_of
from qos.spark.options import BadOption, identity_in, options_of, seconds
from qos.spark.rows import (
    TEXT,
    BadColumn,
    RowFailed,
    RowIds,
    check_columns,
    new_run,
)
from qos.spark.sender_stores import SenderStores
from qos.stores.sqlite import SqliteStore
from qos.stream.server import Login
from xep_qos import XEP_QOS

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

__all__ = ["Sent", "XmppStreamWriter", "XmppWriter"]

log = logging.getLogger(__name__)

#: The number of messages in flight; further rows are not read before the oldest has
#: ended.
_WINDOW = 256

#: Seconds for peers to become known, before a bare JID is looked up; see
#: Connection.announced.
_ANNOUNCED_S = 30.0

_COLUMNS: Final = {"to": TEXT, "payload": TEXT, "body": TEXT}


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--store", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--deadline", type=seconds, default=300.0, metavar="S")
    parser.add_argument("--ordered", choices=("true", "false"), default="false")
    identity_in(parser)


@dataclass
class Sent(WriterCommitMessage):
    """The messages that a task has sent."""

    rows: int


class _Writer:
    """The base of both writers; made by the driver, and copied to the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options, self._login = options_of("xmpp", options, _declare)
        self._identity = identity_of("xmpp", self._options, schema)
        check_columns("xmpp", schema, _COLUMNS, "to", identity=self._identity)
        contents = {"payload", "body"} & set(schema.fieldNames())
        if len(contents) != 1:
            raise BadColumn("xmpp: rows need a column 'payload' or a column 'body'")
        self._content = contents.pop()
        self._run = new_run(self._options.run)
        try:
            self._stores = SenderStores(self._options.store)
        except OSError as error:
            raise BadOption(f"xmpp: option store: {error}") from None

    def write(self, rows: Iterator[Row]) -> Sent:
        """Send the rows of a task, and wait for the outcome of each.

        Raises:
            RowFailed: a message was not delivered, or is in doubt, or cannot be sent.
        """
        ids = RowIds(self._identity, self._run)
        sending: _Sending | None = None
        count = 0
        try:
            for count, row in enumerate(rows, 1):
                if sending is None:
                    sending = _Sending(
                        self._options, self._login, ids.partition, self._stores
                    )
                to, content = row["to"], row[self._content]
                if to is None or content is None:
                    missing = "to" if to is None else self._content
                    raise sending.failed(count, f"its {missing} is null")
                try:
                    # A message to somebody else is another message.
                    msg_id = ids.of(row, to)
                except BadIdentity as error:
                    raise sending.failed(count, str(error)) from None
                sending.send(count, to, self._content, content, msg_id)
            if sending is not None:
                sending.flush()
        finally:
            if sending is not None:
                sending.close()
        return Sent(count)

    def _finish_earlier(self) -> None:
        """Send the messages that wait in the stores of partitions without a task.

        Raises:
            RowFailed: there is no session for them; they stay in their store.
        """
        for partition, store in self._stores.with_messages():
            try:
                session = _session(self._options, self._login, partition, store)
            except StoreInUse:
                continue  # a task that Spark has given up still sends them
            except (CannotConnect, StoreError) as error:
                raise RowFailed(f"messages of an earlier run: {error}") from None
            try:
                session.run(_last_end(session.session))
            finally:
                session.close()


class XmppWriter(_Writer, DataSourceWriter):
    """The writer of a batch write."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Send what earlier runs have left in the stores; the rows are delivered."""
        self._finish_earlier()


class XmppStreamWriter(_Writer, DataSourceStreamWriter):
    """The writer of a streaming query."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Send what earlier runs have left in the stores; the rows are delivered."""
        self._finish_earlier()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the batch is repeated with the same ids."""


def _session(
    options: argparse.Namespace, login: Login, partition: int, store: SqliteStore
) -> Background[Connection]:
    """The session of a partition, ready to send from its store.

    Raises:
        CannotConnect, StoreError: there is none.
    """
    account, resource = bare(login.jid), resource_of(login.jid)
    sender = dataclasses.replace(
        login, jid=f"{account}/{resource or 'spark'}-{partition}"
    )
    plugin = {"store": store, "ordered": options.ordered == "true"}

    async def begin(connection: Connection) -> None:
        async with asyncio.timeout(_ANNOUNCED_S):
            await connection.announced.wait()

    return Background(
        lambda: Connection(sender, plugin, receives=False, quiet=True), ready=begin
    )


async def _last_end(connection: Connection) -> None:
    """Wait until no message of a store is outstanding."""
    for message in list(connection.qos.outstanding()):
        with contextlib.suppress(UnknownMessage):  # its outcome is not kept
            outcome = await connection.qos.outcome(message.msg_id)
            try:
                outcome.raise_for_status()
            except DeliveryFailed as error:
                # No row of this run: those are delivered, by this id if it is the same.
                log.warning("of an earlier run: %s", error)


class _Sending:
    """The session of one partition."""

    def __init__(
        self,
        options: argparse.Namespace,
        login: Login,
        partition: int,
        stores: SenderStores,
    ) -> None:
        self._partition = partition
        self._deadline_s: float = options.deadline
        self._in_flight: deque[Future[None]] = deque()
        store = stores.store(partition)
        try:
            self._background = _session(options, login, partition, store)
        except (CannotConnect, StoreError) as error:
            raise self.failed(1, str(error)) from None
        if store.store_id != stores.sender_id:
            self.close()
            raise self.failed(
                1,
                f"{store.url} has another id than its folder: begin with a new folder",
            )

    def send(self, number: int, to: str, kind: str, content: str, msg_id: str) -> None:
        """Send a row; waits while too many messages are in flight."""
        if len(self._in_flight) == _WINDOW:
            self._in_flight.popleft().result()
        payload = _with_body(content) if kind == "body" else content
        work = self._send(number, to, payload, msg_id)
        self._in_flight.append(self._background.submit(work))

    def flush(self) -> None:
        """Return when all messages are delivered."""
        while self._in_flight:
            self._in_flight.popleft().result()

    def close(self) -> None:
        """Log out; outstanding messages stay in the store, for the next attempt."""
        self._background.close()

    def failed(self, number: int, why: str) -> RowFailed:
        """The error of a row."""
        return RowFailed(f"row {number} of partition {self._partition}: {why}")

    async def _send(self, number: int, to: str, payload: str, msg_id: str) -> None:
        try:
            await self._delivered(to, payload, msg_id)
        except (DeliveryFailed, OutboxFull) as error:
            raise self.failed(number, str(error)) from None
        except (QosError, ValueError) as error:
            raise self.failed(number, f"it cannot be sent to {to}: {error}") from None

    async def _delivered(self, to: str, payload: str, msg_id: str) -> None:
        """Send a message, unless an earlier row or run has it under way."""
        qos = XEP_QOS.of(self._background.session.client)
        with contextlib.suppress(UnknownMessage, NotDelivered):
            # The same id is the same row. Its deadline may be long over.
            (await qos.delivery(msg_id).outcome()).raise_for_status()
            return
        await qos.send(to, payload=payload, deadline_s=self._deadline_s, msg_id=msg_id)


def _with_body(text: str) -> str:
    body = ET.Element("{jabber:client}body")
    body.text = text
    return ET.tostring(body, encoding="unicode")
