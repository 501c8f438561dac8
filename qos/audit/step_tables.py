"""A step of an audit: makes the rows of the subjects that it touched again.

Of each table only these rows are replaced, wherever they are. Of the tables by hours,
only the hours are replaced that have such a row now, or had one before. So a message or
an item that takes several days is one row. The cost of a step depends on its lines and
those hours, not on the existing data. A repeated step replaces its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from typing import Final, cast

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import store, tables
from qos.audit.parallel import in_parallel
from qos.audit.subject_records import Records
from qos.audit.swap import Hour, in_hours, read_hours, swap
from qos.audit.tables import Limits
from qos.audit.tables.columns import role_is
from qos.audit.unchanged import are_same_rows, with_former_judged_at
from qos.journal.schema import Role

__all__ = ["MESSAGE", "Step", "pending"]

#: The key of a message, and that of an item (each of its lives).
MESSAGE: Final = ("level", "sender", "receiver", "msg_id")
_ITEM: Final = ("service", "queue", "item")

_HOUR: Final = ("date", "hour")

#: If any of these changes, the verdict is written again.
_VERDICT: Final = (
    *("verdict", "reason", "suspected", "uncovered", "real_outcome", "rests_on"),
)

#: Reasons that stay the same, unless a device begins a journal.
_FOR_GOOD: Final = ("no-journal", "which-device", "clock")

#: Hours that are further apart are read as separate ranges of time.
_HOURS_APART: Final = 48


@dataclass(frozen=True, slots=True)
class Step:
    """A step; its methods write tables, and may be called again.

    Attributes:
        spark: the session.
        out: the folder of the tables.
        before: the earlier records of the touched subjects.
        now: their present records, including `before`.
        undecided: messages whose verdict may have changed, as they are in the table;
            None: no message has a verdict yet.
        former: the table `deliveries` as it was opened to read some of these: if
            somebody has changed it since, it is not written. None: none was read.
        limits: the limits for judging messages.
        judged: messages -> with their verdicts; see qos.audit.tables.judged.
        lines_between: all known lines of a range of time; some may be repeated, and
            some of other times.
        lines_of: all lines of some subjects (a column `subject`).
        compares: whether rows that a table has already are not written again.
        progress: called with a description of the present step.
    """

    spark: SparkSession
    out: str
    before: Records
    now: Records
    undecided: DataFrame | None
    limits: Limits
    judged: Callable[[DataFrame], DataFrame]
    lines_between: Callable[[Column], DataFrame]
    lines_of: Callable[[DataFrame], DataFrame]
    former: DeltaTable | None = None
    compares: bool = False
    progress: Callable[[str], None] = lambda step: None

    def write(self) -> DataFrame:
        """Write all tables, and return the messages that were judged."""
        (messages, _), *_ = in_parallel(
            self.write_messages,
            self.write_items,
            self._write_windows,
            self._write_workers,
            self._write_refusals,
        )
        return cast(DataFrame, messages)

    def write_messages(self) -> tuple[DataFrame, bool]:
        """Write the tables of messages.

        Returns:
            The messages that were judged, and whether any row has changed.
        """
        touched = self.judged(tables.deliveries_of(self.now.messages)).localCheckpoint()
        rows, judged = touched, touched
        if self.undecided is not None:
            again, changed = self._judged_again(touched, self.undecided)
            rows = touched.unionByName(changed).localCheckpoint()
            judged = touched.unionByName(again)
        before = self.before
        former = [] if before.is_nothing else [tables.deliveries_of(before.messages)]
        hours = _hours(rows, *former)
        folder = f"{self.out}/deliveries"
        table = self.former or store.opened(rows, folder)
        if former and hours:
            table_rows = read_hours(self.spark, folder, rows.schema, hours, table)
            rows = with_former_judged_at(rows, table_rows, MESSAGE).localCheckpoint()
        is_new = self._swap("deliveries", rows, MESSAGE, rows, hours, table=table)
        of_hours = read_hours(self.spark, folder, rows.schema, hours)
        routes = tables.routes_hourly(of_hours)
        unproven = tables.unproven_hourly(of_hours)
        in_parallel(
            lambda: self._write_anomalies(rows, hours),
            lambda: self._swap_hours("routes_hourly", routes, hours, is_new=is_new),
            lambda: self._swap_hours("unproven_hourly", unproven, hours),
        )
        return judged, bool(hours)

    def _judged_again(
        self, touched: DataFrame, undecided: DataFrame
    ) -> tuple[DataFrame, DataFrame]:
        """The other messages with their verdicts, and those that have changed."""
        undecided = _without(
            undecided.dropDuplicates([*MESSAGE]), touched
        ).localCheckpoint()
        names = tables.deliveries_of(self.now.messages).columns
        again = self.judged(undecided.select(*names)).localCheckpoint()
        return again, _changed(again, undecided)

    def _write_anomalies(self, rows: DataFrame, hours: list[Hour]) -> None:
        if not hours:
            return
        anomalies = tables.anomalies(rows)
        folder = f"{self.out}/anomalies"
        table = store.opened(anomalies, folder)
        if self.undecided is not None:
            before = read_hours(self.spark, folder, anomalies.schema, hours, table)
            keys = [*MESSAGE]
            before = before.join(rows.select(*keys), keys, "left_semi")
            # Not those of the table: if this is repeated, they are already the new
            # ones.
            anomalies = tables.revised(
                anomalies, before, rows, self.undecided, self.limits
            )
        self._swap("anomalies", anomalies, MESSAGE, rows, hours, table=table)

    def write_items(self) -> None:
        """Write the table of items."""
        rows, hours = self._touched(Role.QUEUE, tables.queue_items)
        is_new = self._swap("queue_items", rows, _ITEM, rows, hours)
        folder = f"{self.out}/queue_items"
        of_hours = read_hours(self.spark, folder, rows.schema, hours)
        queues = tables.queues_hourly(of_hours)
        self._swap_hours("queues_hourly", queues, hours, is_new=is_new)

    def _write_windows(self) -> None:
        # All counts of an hour are one subject.
        rows, hours = self._touched(Role.JOURNAL, tables.windows_hourly)
        self._swap_hours("windows_hourly", rows, hours)

    def _write_workers(self) -> None:
        _, hours = self._touched(Role.WORKER, tables.workers_hourly)
        lines = self._lines_of_hours(hours).where(role_is(Role.WORKER))
        if hours:
            # A handler may end in another hour.
            lines = self.lines_of(lines.select("subject").distinct().localCheckpoint())
        self._swap_hours("workers_hourly", tables.workers_hourly(lines), hours)

    def _write_refusals(self) -> None:
        hours: list[Hour] = []
        if Role.RECEIVER in self.now.roles:
            hours = _hours(tables.refusals(self.now.lines))
        lines = self._lines_of_hours(hours)
        self._swap_hours("refusals", tables.refusals(lines), hours)

    def _touched(
        self, role: Role, table: Callable[[DataFrame], DataFrame]
    ) -> tuple[DataFrame, list[Hour]]:
        """The present rows of a table that is made of the lines of a role.

        Returns:
            The rows; and all hours in which there are rows of it, or were before.
        """
        rows = table(self.now.lines)
        if role not in self.now.roles:
            return rows, []
        rows = rows.localCheckpoint()
        former = [] if self.before.is_nothing else [table(self.before.lines)]
        return rows, _hours(rows, *former)

    def _lines_of_hours(self, hours: list[Hour]) -> DataFrame:
        if not hours:
            return self.now.lines.limit(0)
        return self.lines_between(_within(hours))

    def _swap_hours(
        self, name: str, rows: DataFrame, hours: list[Hour], *, is_new: bool = False
    ) -> None:
        keys = self.spark.createDataFrame(hours, "date date, hour int")
        rows = rows.where(in_hours(hours))
        self._swap(name, rows, _HOUR, keys, hours, is_new=is_new)

    def _swap(
        self,
        name: str,
        rows: DataFrame,
        on: tuple[str, ...],
        keys: DataFrame,
        hours: list[Hour],
        *,
        is_new: bool = False,
        table: DeltaTable | None = None,
    ) -> bool:
        """Replace rows, if the table has others; returns whether it has others.

        Args:
            name: the name of the table.
            rows: see qos.audit.swap.swap.
            on: see there.
            keys: see there.
            hours: see there.
            is_new: whether the rows are known to be others than those in the table.
            table: see qos.audit.swap.swap. Rows that are all made of lines, and not
                read from the table, need none: they replace what they would replace at
                any other moment.
        """
        self.progress(f"writing {name}")
        folder = f"{self.out}/{name}"
        if self.compares and hours and not is_new:
            table_rows = read_hours(self.spark, folder, rows.schema, hours, table)
            table_rows = table_rows.join(
                keys.select(*on).distinct(), [*on], "left_semi"
            )
            if are_same_rows(rows, table_rows.select(*rows.columns)):
                return False
        swap(rows, folder, on=on, keys=keys, hours=hours, table=table)
        return True


def pending(messages: DataFrame, open_from: date | None) -> DataFrame:
    """The messages whose verdict may change without a new line of theirs.

    It changes when time passes, or when lines of another node come.

    Args:
        messages: with their verdicts.
        open_from: the first day that can still change; None: any.
    """
    is_sent = F.col("sender_last_at").isNotNull()
    held_at = F.coalesce("held_again_at", "to_hand_over_at")
    expired = F.coalesce(F.col("expired_at") >= held_at, F.lit(False))
    is_held = F.col("handed_over_at").isNull() & F.col("done_at").isNull() & ~expired
    is_open = F.when(is_sent, F.col("outcome").isNull()).otherwise(is_held)
    for_good = F.coalesce(F.col("reason").isin(*_FOR_GOOD), F.lit(False))
    timely = F.lit(True) if open_from is None else F.col("date") >= F.lit(open_from)
    return messages.where(is_open | ((F.col("verdict") != "ok") & ~for_good & timely))


def _without(rows: DataFrame, exclusions: DataFrame) -> DataFrame:
    """The messages that are not among some others."""
    keys = exclusions.select(*(F.col(name).alias(f"key {name}") for name in MESSAGE))
    return rows.join(keys, _all_same(MESSAGE, "key "), "left_anti")


def _changed(rows: DataFrame, before: DataFrame) -> DataFrame:
    """The messages whose verdicts have changed."""
    names = (*MESSAGE, *_VERDICT)
    former = before.select(*(F.col(name).alias(f"former {name}") for name in names))
    return rows.join(former, _all_same(names, "former "), "left_anti")


def _all_same(names: Iterable[str], prefix: str) -> Column:
    comparisons = (F.col(name).eqNullSafe(F.col(f"{prefix}{name}")) for name in names)
    return reduce(Column.__and__, comparisons)


def _hours(*frames: DataFrame) -> list[Hour]:
    """The hours with at least one row."""
    rows = reduce(DataFrame.union, (frame.select(*_HOUR) for frame in frames))
    return sorted((row["date"], row["hour"]) for row in rows.distinct().collect())


def _within(hours: list[Hour]) -> Column:
    """Whether a line is of one of these hours; this lets Parquet skip others."""
    spans = [(hour, hour) for hour in hours]
    if len(hours) > _HOURS_APART:
        spans = [(hours[0], hours[-1])]
    conditions = [
        (F.col("at") >= _begin(first)) & (F.col("at") < _begin(last, 1))
        for first, last in spans
    ]
    return reduce(Column.__or__, conditions)


def _begin(hour: Hour, later: int = 0) -> Column:
    moment = datetime.combine(hour[0], time(hour[1]), UTC) + timedelta(hours=later)
    return F.lit(moment).cast("timestamp")
