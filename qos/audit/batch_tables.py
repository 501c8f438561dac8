"""Writes the tables of a batch audit: all rows of some days, in place of former ones.

A follower replaces single rows instead: see qos.audit.step_tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from deltalake import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import store, tables
from qos.audit.boot_runs import RUN
from qos.audit.earlier_rows import without_earlier
from qos.audit.former_rows import FormerRows
from qos.audit.judging import Judge
from qos.audit.parallel import in_parallel
from qos.audit.results import Days
from qos.audit.schema import EVENT
from qos.audit.small_journals import without_compiling
from qos.audit.snapshot import spark_frame
from qos.audit.tables import Limits
from qos.audit.unchanged import with_former_judged_at
from qos.journal.schema import Role

__all__ = ["TABLES", "without_rows", "write_tables"]

#: The folders that an audit makes, besides `problems`.
TABLES: Final[Sequence[str]] = (
    "deliveries",
    "anomalies",
    "routes_hourly",
    "unproven_hourly",
    "windows_hourly",
    "refusals",
    "queue_items",
    "queues_hourly",
    "workers_hourly",
)

#: The columns by which two rows are of the same message, and of the same item.
_MESSAGE = ("sender", "receiver", "msg_id", "level")
_ITEM = ("service", "queue", "item")

#: For at most this many messages, judging takes less time than compiling code for it.
_SUSPECTS_FEW = 10_000


def write_tables(
    events: DataFrame,
    judge: Judge,
    out: str,
    days: Days,
    *,
    former: FormerRows,
    messages: DataFrame,
    counts: DataFrame,
    roles: Collection[Role] = frozenset(Role),
    from_margin: bool = False,
    progress: Callable[[str], None] = lambda step: None,
) -> dict[str, DataFrame]:
    """Make the tables of these days; existing rows of these days are replaced.

    Args:
        events: all lines of the messages and items with a row in these days.
        judge: gives messages their verdicts.
        out: see audit.
        days: the days of the tables.
        former: rows that stay as they are.
        messages: see qos.audit.tables.deliveries.
        counts: see qos.audit.tables.counted.
        roles: the roles that `events` may have.
        from_margin: earlier lines exist that are not here: a message or item without
            its beginning is left out.
        progress: called with a description of the present step.

    Returns:
        Each table as it is on disk, for these days.
    """
    writer = _Writer(
        out, days, former, roles, from_margin=from_margin, progress=progress
    )
    if from_margin:
        # It began before these lines: its row is in the table of that day.
        messages = messages.where(F.col("bytes").isNotNull())
    messages, has_suspects = _judged(messages, judge, writer.new_messages)
    messages = writer.with_former("deliveries", messages)
    has_suspects = has_suspects or bool(former)
    before = writer.accused_before(messages)
    messages = writer.write_messages(messages)
    in_parallel(
        lambda: writer.write_anomalies(
            messages, before, judge.limits, has_suspects=has_suspects
        ),
        lambda: writer.write(
            "routes_hourly", tables.routes_hourly(messages), source="deliveries"
        ),
        lambda: writer.write(
            "unproven_hourly", tables.unproven_hourly(messages), has_rows=has_suspects
        ),
        *writer.of_roles(events, counts),
    )
    return writer.frames


class _Writer:
    """Writes the tables of some days.

    Attributes:
        frames: each table that is on disk, for these days.
    """

    def __init__(
        self,
        out: str,
        days: Days,
        former: FormerRows,
        roles: Collection[Role],
        *,
        from_margin: bool,
        progress: Callable[[str], None],
    ) -> None:
        """See write_tables."""
        self.frames: dict[str, DataFrame] = {}
        self._out = out
        self._days = days
        self._former = former
        self._roles = roles
        self._from_margin = from_margin
        self._progress = progress
        self._changed: set[str] = set()
        #: The tables of which rows are written again, as they were read.
        self._former_tables: dict[str, DeltaTable] = {}

    def write(
        self, name: str, table: DataFrame, *, has_rows: bool = True, source: str = ""
    ) -> DataFrame:
        """Write a table, if its rows are not there already.

        Args:
            name: the name of the table.
            table: its rows.
            has_rows: False if it is known to have none.
            source: a table that it was made of. If that was written, this one is.
        """
        self._progress(f"writing {name}")
        folder = f"{self._out}/{name}"
        if not has_rows:
            store.clear_days(table, folder, *self._days)
        elif source in self._changed or not store.has_days(table, folder, *self._days):
            former = self._former_tables.get(name)
            store.replace_days(table, folder, *self._days, former=former)
            self._changed.add(name)
        self.frames[name] = store.read_table(table, folder, *self._days)
        return self.frames[name]

    def with_former(self, name: str, rows: DataFrame) -> DataFrame:
        """The new rows of a table, and the former ones that stay."""
        if not self._former.may_be_in(name):
            return rows
        return self._former.and_new(name, rows, self._former_rows(name, rows))

    def _former_table(self, name: str, like: DataFrame) -> DeltaTable:
        """A table as it was first opened; no later version of it is replaced."""
        if name not in self._former_tables:
            self._former_tables[name] = store.opened(like, f"{self._out}/{name}")
        return self._former_tables[name]

    def _former_rows(self, name: str, like: DataFrame) -> DataFrame:
        """The rows of these days in a table, some of which are written again."""
        first, last = self._days
        return spark_frame(
            like.sparkSession,
            self._former_table(name, like),
            schema=like.schema,
            first=first,
            last=last,
        )

    def write_messages(self, messages: DataFrame) -> DataFrame:
        """Write the messages; a verdict that stays keeps its time."""
        name, days = "deliveries", self._days
        self._progress(f"writing {name}")
        folder = f"{self._out}/{name}"
        if not store.has_days(messages, folder, *days):
            rows = messages
            former = self._former_table(name, messages)
            if store.count_rows(messages.sparkSession, folder, *days):
                table_rows = self._former_rows(name, messages)
                rows = with_former_judged_at(messages, table_rows, _MESSAGE)
            store.replace_days(rows, folder, *days, former=former)
            self._changed.add(name)
        self.frames[name] = store.read_table(messages, folder, *days)
        return self.frames[name]

    def accused_before(self, messages: DataFrame) -> DataFrame | None:
        """The messages as an earlier audit left them; None: it has suspected none.

        Data that is read stays so, whatever is written.
        """
        spark, out, days = messages.sparkSession, self._out, self._days
        before = store.read_table(messages, f"{out}/deliveries", *days)
        has_former = any(
            store.count_rows(spark, f"{out}/{name}", *days)
            for name in ("anomalies", "unproven_hourly")
        )
        return before if has_former else None

    def write_anomalies(
        self,
        messages: DataFrame,
        messages_before: DataFrame | None,
        limits: Limits,
        *,
        has_suspects: bool,
    ) -> None:
        """Write the anomalies, with those of an earlier audit if there was one."""
        anomalies = tables.anomalies(messages)
        if messages_before is not None:
            before = self._former_rows("anomalies", anomalies)
            anomalies = tables.revised(
                anomalies, before, messages, messages_before, limits
            )
        has_rows = has_suspects or messages_before is not None
        self.write("anomalies", anomalies, has_rows=has_rows)

    def of_roles(
        self, events: DataFrame, counts: DataFrame
    ) -> Sequence[Callable[[], object]]:
        """What writes the tables that are made from the lines of one role each."""
        return (
            lambda: self._write_for(
                Role.JOURNAL, "windows_hourly", tables.windows_of(counts)
            ),
            lambda: self._write_for(Role.RECEIVER, "refusals", tables.refusals(events)),
            lambda: self._write_queues(events),
            lambda: self._write_for(
                Role.WORKER, "workers_hourly", tables.workers_hourly(events)
            ),
        )

    def _write_queues(self, events: DataFrame) -> None:
        items = tables.queue_items(events)
        if self._from_margin and Role.QUEUE in self._roles:
            items = items.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
            items = self._new(items, "queue_items", _ITEM, "published_at")
        items = self._write_for(Role.QUEUE, "queue_items", items)
        hours = tables.queues_hourly(items)
        self._write_for(Role.QUEUE, "queues_hourly", hours, "queue_items")

    def _write_for(
        self, role: Role, name: str, table: DataFrame, source: str = ""
    ) -> DataFrame:
        has_rows = role in self._roles or bool(self._former)
        table = self.with_former(name, table)
        return self.write(name, table, has_rows=has_rows, source=source)

    def new_messages(self, messages: DataFrame) -> DataFrame:
        """The messages that have no row of an earlier day."""
        if not self._from_margin:
            return messages
        return self._new(messages, "deliveries", _MESSAGE, "accepted_at")

    def _new(
        self, rows: DataFrame, name: str, key: tuple[str, ...], begins: str
    ) -> DataFrame:
        """The rows that have no row of an earlier day in the table of this name."""
        return without_earlier(rows, f"{self._out}/{name}", key, begins, self._days[0])


def without_rows(spark: SparkSession, limits: Limits) -> dict[str, DataFrame]:
    """The tables without a row, for the names and types of their columns."""
    events = spark.createDataFrame([], EVENT)
    runs = spark.createDataFrame([], RUN)
    messages = tables.judged(tables.deliveries(events), runs, limits)
    items = tables.queue_items(events)
    return {
        "deliveries": messages,
        "anomalies": tables.anomalies(messages),
        "routes_hourly": tables.routes_hourly(messages),
        "unproven_hourly": tables.unproven_hourly(messages),
        "windows_hourly": tables.windows_hourly(events),
        "refusals": tables.refusals(events),
        "queue_items": items,
        "queues_hourly": tables.queues_hourly(items),
        "workers_hourly": tables.workers_hourly(events),
    }


def _judged(
    messages: DataFrame, judge: Judge, only_new: Callable[[DataFrame], DataFrame]
) -> tuple[DataFrame, bool]:
    """The messages with their verdicts, and whether any looks wrong.

    Only the few that look wrong are judged. All others are ok.

    Args:
        messages: perhaps with some that have another row.
        judge: gives messages their verdicts.
        only_new: leaves those out.
    """
    rows = tables.with_suspicion(messages, judge.limits)
    rows = only_new(rows.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY))
    verdicts = tables.judged_ok(rows.where(~F.col("is_suspect")), judge.limits)
    # All tasks look for them; a single one then has only these.
    suspects = rows.where("is_suspect").localCheckpoint()
    count = suspects.count()
    if not count:
        return verdicts, False
    few = count <= _SUSPECTS_FEW
    with without_compiling(rows.sparkSession, active=few):
        judged = judge(suspects.coalesce(1) if few else suspects).localCheckpoint()
    return verdicts.unionByName(judged), True
