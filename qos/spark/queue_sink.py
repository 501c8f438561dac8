"""`write.format("xmpp-queue")` and `writeStream`: rows are published as items.

A row is written when the service has its item on disk. A repeated task, or a batch
after a restart, publishes the same ids (see `qos.spark.identity`), and the service
recognizes them. So nothing is in the queue twice, if the repeat comes within the node's
`queue#dedupe_window`, which begins at the end of an item. The same id with other
content is a conflict, which fails the task. There is no abort: items that a task has
published before it fails are in the queue, and the repeat adds the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)

import xep_0254  # noqa: F401 - makes the plugin known
from qos.core.backoff import Backoff
from qos.engine.retry import Retry
from qos.errors import (
    CannotConnect,
    InvalidArgument,
    LocalProtocolError,
    QosError,
    RequestRefused,
)
from qos.spark.connection import Background
from qos.spark.identity import BadIdentity, identity_of
from qos.spark.options import address_in, identity_in, options_of, seconds
from qos.spark.rows import (
    NUMBERS,
    TEXT,
    RowFailed,
    RowIds,
    check_columns,
    new_run,
)
from qos.stream.login import AccountSession
from xep_0254.queueing import XEP_0254, NewItem

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

__all__ = ["Published", "QueueStreamWriter", "QueueWriter"]

#: As for `xmpp-qos queue publish`: servers accept larger stanzas.
_BATCH_ITEMS_MAX = 100
_BATCH_BYTES_MAX = 100 * 1024
_ITEM_BYTES = 150

#: The number of publishes in flight; further rows are not read before one is answered.
_WINDOW = 4

_COLUMNS: Final = {
    "payload": TEXT,
    "item_id": TEXT,
    "priority": NUMBERS,
    "ttl": NUMBERS,
    "delay": NUMBERS,
}

_RETRY = Backoff(first_s=0.2, max_s=5.0)


def _declare(parser: argparse.ArgumentParser) -> None:
    address_in(parser)
    parser.add_argument("--deadline", type=seconds, default=60.0, metavar="S")
    identity_in(parser)


@dataclass
class Published(WriterCommitMessage):
    """The items that a task has published."""

    rows: int


class _Writer:
    """The base of both writers; made by the driver, and copied to the tasks."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options, self._login = options_of("xmpp-queue", options, _declare)
        self._identity = identity_of("xmpp-queue", self._options, schema, own="item_id")
        check_columns(
            "xmpp-queue", schema, _COLUMNS, "payload", identity=self._identity
        )
        self._run = new_run(self._options.run)

    def write(self, rows: Iterator[Row]) -> Published:
        """Publish the rows of a task.

        Raises:
            RowFailed: a row was refused, or the service is away for longer than
                `deadline`.
        """
        ids = RowIds(self._identity, self._run)
        publishing: _Publishing | None = None
        count = 0
        try:
            for count, row in enumerate(rows, 1):
                if publishing is None:
                    publishing = _Publishing(self._options, self._login, ids.partition)
                publishing.add(count, row, ids)
            if publishing is not None:
                publishing.flush()
        finally:
            if publishing is not None:
                publishing.close()
        return Published(count)


class QueueWriter(_Writer, DataSourceWriter):
    """The writer of a batch write."""


class QueueStreamWriter(_Writer, DataSourceStreamWriter):
    """The writer of a streaming query."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: everything is published already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Do nothing: the batch is repeated with the same ids."""


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    item: NewItem
    size: int


class _Publishing:
    """Publishes in batches, several of them in flight."""

    def __init__(self, options: argparse.Namespace, login: Any, partition: int) -> None:
        self._service, self._node = options.service, options.node
        self._deadline_s: float = options.deadline
        self._partition = partition
        self._batch: list[_Row] = []
        self._size = 0
        self._in_flight: deque[Future[None]] = deque()

        async def begin(session: AccountSession) -> None:
            session.client.register_plugin("xep_0254")

        try:
            self._background = Background(
                lambda: AccountSession(login, quiet=True), ready=begin
            )
        except CannotConnect as error:
            raise self._failed(1, str(error)) from None

    def add(self, number: int, row: Row, ids: RowIds) -> None:
        """Publish a row, now or together with later ones."""
        values = {name: row[name] for name in row.__fields__ if row[name] is not None}
        if "payload" not in values:
            raise self._failed(number, "its payload is null")
        payload = values["payload"]
        priority, ttl, delay = map(values.get, ("priority", "ttl", "delay"))
        try:
            item_id = values.get("item_id") or ids.of(row)
            item = NewItem(
                payload,
                item_id,
                priority=None if priority is None else _whole(priority),
                ttl=None if ttl is None else float(ttl),
                delay=None if delay is None else float(delay),
            )
        except (BadIdentity, LocalProtocolError) as error:
            raise self._failed(number, str(error)) from None
        size = len(payload.encode()) + _ITEM_BYTES
        full = len(self._batch) == _BATCH_ITEMS_MAX
        same = any(entry.item.item_id == item_id for entry in self._batch)
        if self._batch and (full or same or self._size + size > _BATCH_BYTES_MAX):
            self._begin()
        self._batch.append(_Row(number, item, size))
        self._size += size

    def flush(self) -> None:
        """Return when everything is published."""
        if self._batch:
            self._begin()
        while self._in_flight:
            self._in_flight.popleft().result()

    def close(self) -> None:
        """Log out."""
        self._background.close()

    def _begin(self) -> None:
        if len(self._in_flight) == _WINDOW:
            self._in_flight.popleft().result()
        rows, self._batch, self._size = self._batch, [], 0
        self._in_flight.append(self._background.submit(self._publish(rows)))

    async def _publish(self, rows: Sequence[_Row]) -> None:
        """Publish the rows; a refused row is found by halving the batch."""
        try:
            await self._insist([row.item for row in rows])
        except (RequestRefused, LocalProtocolError) as error:
            if len(rows) == 1:
                raise self._failed(rows[0].number, str(error)) from None
            if not _may_be_one(error):
                raise self._failed(rows[0].number, str(error)) from None
            middle = len(rows) // 2
            await self._publish(rows[:middle])
            await self._publish(rows[middle:])
        except QosError as error:
            raise self._failed(rows[0].number, str(error)) from None

    async def _insist(self, items: Sequence[NewItem]) -> None:
        """Repeat until there is an answer and room in the queue, or time is up."""
        plugin = XEP_0254.of(self._background.session.client)
        give_up_at = asyncio.get_running_loop().time() + self._deadline_s
        await Retry(_RETRY).repeat(
            lambda: plugin.publish(self._service, self._node, items, attempts=1),
            give_up_at=give_up_at,
        )

    def _failed(self, number: int, why: str) -> RowFailed:
        return RowFailed(f"row {number} of partition {self._partition}: {why}")


def _whole(priority: float | Decimal) -> int:
    """A priority as it is: 3.7 is not rounded, and a NaN is no number."""
    if not math.isfinite(priority) or priority != int(priority):
        raise InvalidArgument("priority", priority, "a whole number")
    return int(priority)


def _may_be_one(error: RequestRefused | LocalProtocolError) -> bool:
    """Whether a smaller batch may be accepted."""
    if isinstance(error, RequestRefused):
        return error.type == "modify" or error.condition in {
            "conflict",
            "policy-violation",
            "resource-constraint",
        }
    return True
