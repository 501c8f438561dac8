"""`writeStream.format("xmpp")`: rows are sent as assured messages.

A row is written when its message is delivered: its receiver has it, once. A message
that is not delivered, or in doubt, fails its task; the error names the row and the
outcome.

A task or a batch that is repeated sends the same msgIds (see `qos.spark.rows`) from the
same store, under the same resource. Each partition has one of each, in the folder
`store`, which all executors of a cluster must see. Messages in flight continue from
there. A receiver of ours remembers delivered messages (for its `tombstone_ttl_s`), and
hands none over a second time. A foreign receiver does not remember messages that have
ended.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
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
from qos.errors import CannotConnect, DeliveryFailed, OutboxFull, QosError, StoreError
from qos.private import make_private
from qos.spark.connection import Background
from qos.spark.options import options_of, seconds
from qos.spark.rows import (
    TEXT,
    BadColumn,
    RowFailed,
    RowIds,
    check_columns,
    new_run,
)
from qos.stream.server import Login
from xep_qos import XEP_QOS

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

__all__ = ["Sent", "XmppStreamWriter", "XmppWriter"]

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
    parser.add_argument("--run")


@dataclass
class Sent(WriterCommitMessage):
    """The messages that a task has sent."""

    rows: int


class _Writer:
    """The base of both writers; made by the driver, and copied to the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options, self._login = options_of("xmpp", options, _declare)
        check_columns("xmpp", schema, _COLUMNS, "to")
        contents = {"payload", "body"} & set(schema.fieldNames())
        if len(contents) != 1:
            raise BadColumn("xmpp: rows need a column 'payload' or a column 'body'")
        self._content = contents.pop()
        self._run = new_run(self._options.run)

    def write(self, rows: Iterator[Row]) -> Sent:
        """Send the rows of a task, and wait for the outcome of each.

        Raises:
            RowFailed: a message was not delivered, or is in doubt, or cannot be sent.
        """
        ids = RowIds(self._run)
        sending: _Sending | None = None
        count = 0
        try:
            for count, row in enumerate(rows, 1):
                if sending is None:
                    sending = _Sending(self._options, self._login, ids.partition)
                to, content = row["to"], row[self._content]
                if to is None or content is None:
                    missing = "to" if to is None else self._content
                    raise sending.failed(count, f"its {missing} is null")
                sending.send(count, to, self._content, content, ids.of(to, content))
            if sending is not None:
                sending.flush()
        finally:
            if sending is not None:
                sending.close()
        return Sent(count)


class XmppWriter(_Writer, DataSourceWriter):
    """The writer of a batch write."""


class XmppStreamWriter(_Writer, DataSourceStreamWriter):
    """The writer of a streaming query."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: everything is delivered already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the batch is repeated with the same ids."""


class _Sending:
    """The session of one partition."""

    def __init__(
        self, options: argparse.Namespace, login: Login, partition: int
    ) -> None:
        self._partition = partition
        self._deadline_s: float = options.deadline
        self._in_flight: deque[Future[None]] = deque()
        account, _, resource = login.jid.partition("/")
        jid = f"{account}/{resource or 'spark'}-{partition}"
        folder: Path = options.store
        make_private(folder)
        sender = dataclasses.replace(login, jid=jid)
        plugin = {
            "store": f"sqlite:{folder / f'{partition}.sqlite'}",
            "ordered": options.ordered == "true",
        }

        async def begin(connection: Connection) -> None:
            async with asyncio.timeout(_ANNOUNCED_S):
                await connection.announced.wait()

        try:
            self._background = Background(
                lambda: Connection(sender, plugin, receives=False, quiet=True),
                ready=begin,
            )
        except (CannotConnect, StoreError) as error:
            raise self.failed(1, str(error)) from None

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
        qos = XEP_QOS.of(self._background.session.client)
        try:
            await qos.send(
                to, payload=payload, deadline_s=self._deadline_s, msg_id=msg_id
            )
        except (DeliveryFailed, OutboxFull) as error:
            raise self.failed(number, str(error)) from None
        except (QosError, ValueError) as error:
            raise self.failed(number, f"it cannot be sent to {to}: {error}") from None


def _with_body(text: str) -> str:
    body = ET.Element("{jabber:client}body")
    body.text = text
    return ET.tostring(body, encoding="unicode")
