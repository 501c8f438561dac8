"""`spark.readStream.format("xmpp-queue")`: the items of a queue as rows.

A thin layer: Spark's calls are answered from the landing. The connection is in the one
Python process that outlives a batch, the process that Spark asks for offsets. Rows are
read from files, by any process that sees them.

An offset has the id of a landing and a number of its files. Its meaning never changes.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import xep_0254  # noqa: F401 - makes the plugin known
from qos.core.strings import bare
from qos.errors import RequestFailed
from qos.options.parser import whole
from qos.spark.connection import Background
from qos.spark.landed_items import LandingError, Slice, read_slice, slices
from qos.spark.options import address_in, options_of, seconds
from qos.spark.queue_checkpoint import LANDING, NEXT, Checkpoint
from qos.spark.queue_landing import Landing
from qos.spark.queue_receiver import ITEMS_MAX, Queue, Receiver
from qos.stream.login import AccountSession

__all__ = ["SCHEMA", "QueueStreamReader", "check_source_options"]

#: The columns of an item. `published_at` and `publisher` come from the service; null:
#: unknown.
SCHEMA: Final = StructType(
    [
        StructField("item_id", StringType(), nullable=False),
        StructField("payload", StringType(), nullable=False),
        StructField("publisher", StringType()),
        StructField("published_at", TimestampType()),
        StructField("delivery_count", IntegerType(), nullable=False),
        StructField("priority", IntegerType(), nullable=False),
    ]
)

#: Seconds to wait for items, since Spark asks again and again while there are none.
_WAIT_S = 0.2

#: With Trigger.AvailableNow: seconds to wait for items that the service has and does
#: not deliver.
_IDLE_S = 10.0

#: The most rows that one task reads, unless the option says otherwise.
_ROWS = 100


def _declare(parser: argparse.ArgumentParser) -> None:
    address_in(parser)
    parser.add_argument("--landing", required=True, type=_folder, metavar="FOLDER")
    parser.add_argument("--checkpoint", required=True, metavar="FOLDER")
    parser.add_argument("--mode", choices=("show", "claim"), default="show")
    parser.add_argument("--lock", type=seconds, metavar="S")
    parser.add_argument(
        "--max-items", type=whole(1, ITEMS_MAX), default=ITEMS_MAX, metavar="N"
    )
    parser.add_argument(
        "--partition-rows", type=whole(1, 1_000_000), default=_ROWS, metavar="N"
    )


def _folder(text: str) -> Path:
    path = Path(text.removeprefix("file://").removeprefix("file:"))
    if not path.is_absolute():
        raise argparse.ArgumentTypeError(f"{text!r} is not an absolute path")
    return path


def check_source_options(options: Mapping[str, str]) -> None:
    """Raise BadOption for options that contradict each other."""
    options_of("xmpp-queue", options, _declare)


class _Part(InputPartition):
    """The part of a batch that one task reads."""

    def __init__(self, part: Slice) -> None:
        super().__init__(part)


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The interface of a source for Spark; see queue_receiver for its promise."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Check the options; nothing is opened yet.

        Raises:
            BadOption: one is missing, unknown or wrong.
        """
        self._options, self._login = options_of("xmpp-queue", options, _declare)
        self._running: _Running | None = None
        self._stopped = False
        #: For Trigger.AvailableNow: how many items are left to land.
        self._left: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Nothing, least of all a password: tasks get the names of files."""
        return {}

    # -- offsets -----------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """The offset before the first file."""
        return self._offset(0)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Land the items that have come; returns the new offset.

        A batch has at most one file.
        """
        running = self._run()
        begin = self._number(start)
        running.checkpoint.check(begin)
        if begin < running.landing.next:
            return self._offset(begin + 1)
        most = self._options.max_items
        if isinstance(limit, ReadMaxRows):
            most = min(most, limit.max_rows)
        if self._left is None:
            return self._offset(running.land(most, _WAIT_S))
        give_up_at = time.monotonic() + _IDLE_S
        while self._left > 0 and time.monotonic() < give_up_at:
            end = running.land(int(min(most, self._left)), _WAIT_S)
            if end > begin:
                self._left -= running.rows(begin)
                return self._offset(end)
            if not running.available() and not running.waiting:
                break
        return start

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option `max-items`."""
        return ReadMaxRows(self._options.max_items)

    def prepareForTriggerAvailableNow(self) -> None:
        """From now on take only the present items: at most as many as there are."""
        self._left = self._run().left()

    def commit(self, end: dict[str, Any]) -> None:
        """Read the checkpoint; the call is only a hint."""
        self._number(end)
        self._run().look()

    def stop(self) -> None:
        """Retract the items that are done, and give the others back.

        May be repeated.
        """
        self._stopped = True
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    # -- rows --------------------------------------------------------------

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[InputPartition]:
        """The files of a batch, in parts."""
        first, last = self._number(start), self._number(end)
        options = self._options
        parts = slices(options.landing, first, last, lines=options.partition_rows)
        return [_Part(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows of a part. Runs in any process."""
        for item in read_slice(partition.value):
            published = item.published
            yield (
                item.item_id,
                item.payload,
                item.publisher or None,
                None if published is None else datetime.fromtimestamp(published, UTC),
                item.delivery_count,
                item.priority,
            )

    # -- in the one process ----------------------------------------------------

    def _run(self) -> _Running:
        if self._running is None:
            if self._stopped:
                raise RuntimeError("this source was stopped")
            self._running = _Running(self._options, self._login)
            if threading.current_thread() is threading.main_thread():
                # Spark ends this process by a signal, without calling `stop` before.
                signal.signal(signal.SIGTERM, self._terminated)
        return self._running

    def _terminated(self, _number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._stopped:
            return  # it is being stopped, further down this very stack
        try:
            self.stop()
        finally:
            os._exit(0)

    def _offset(self, files: int) -> dict[str, Any]:
        return {LANDING: self._run().landing.id, NEXT: files}

    def _number(self, offset: Mapping[str, Any]) -> int:
        """The file number of an offset of this landing and of existing files."""
        landing = self._run().landing
        if offset.get(LANDING) != landing.id:
            raise LandingError(
                landing.folder,
                f"the checkpoint belongs to another one, {offset.get(LANDING)}: "
                "begin with a new checkpoint, or with the landing that it had",
            )
        number = int(offset[NEXT])
        if number > landing.next:
            raise LandingError(
                landing.folder, f"it ends before file {number}: files were lost"
            )
        if number < landing.first:
            raise LandingError(
                landing.folder,
                f"the checkpoint begins at file {number}, and what is done was "
                "removed: begin with a new landing",
            )
        return number


class _Running:
    """The open landing, the session and the receiver."""

    def __init__(self, options: argparse.Namespace, login: Any) -> None:
        queue = Queue(
            service=options.service,
            node=options.node,
            claim=options.mode == "claim",
            lock_s=options.lock,
            items_max=options.max_items,
        )
        owner = {
            "account": bare(login.jid),
            "service": queue.service,
            "node": queue.node,
        }
        self.landing = landing = Landing(options.landing, owner)
        try:
            self.checkpoint = Checkpoint(options.checkpoint, landing.id)

            async def begin(session: AccountSession) -> None:
                self._receiver = Receiver(
                    session.client, queue, landing, self.checkpoint.done
                )
                await self._receiver.start()

            self._background = Background(
                lambda: AccountSession(login, quiet=True), ready=begin
            )
        except BaseException:
            landing.close()
            raise

    def land(self, most: int, wait_s: float) -> int:
        return self._background.run(self._receiver.land(most, wait_s))

    def available(self) -> float | None:
        try:
            return self._background.run(self._receiver.available())
        except RequestFailed:
            return None

    def left(self) -> float:
        try:
            return self._background.run(self._receiver.left())
        except RequestFailed:
            return math.inf

    @property
    def waiting(self) -> int:
        return self._receiver.waiting

    def rows(self, number: int) -> int:
        parts = slices(self.landing.folder, number, number + 1, lines=ITEMS_MAX)
        return sum(part.lines for part in parts)

    def look(self) -> None:
        async def look() -> None:
            self._receiver.look()

        self._background.run(look())

    def stop(self) -> None:
        self._background.run(self._receiver.stop())
        self._background.close()
        self.landing.close()
