"""A step of an audit: the rows of the subjects that it touched are made again.

Of each table only these rows are replaced, wherever they are, and of the tables by
hours only the hours that have such a row now or had one before. So a message or an item
that takes several days is one row, and a step costs what its lines and those hours do,
not what is there already. A step that is done again replaces its own rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from typing import Final, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import tables
from qos.audit.at_once import at_once
from qos.audit.state import Known
from qos.audit.swap import Hour, in_hours, read_hours, swap
from qos.audit.tables import Limits
from qos.audit.tables.once import role_is
from qos.journal.schema import Role

__all__ = ["MESSAGE", "Step", "pending"]

#: What tells a message from every other, and an item (each of its lives).
MESSAGE: Final = ("level", "sender", "msg_id")
_ITEM: Final = ("service", "queue", "item")

_HOUR: Final = ("date", "hour")

#: A verdict that is another one in any of these is to be written.
_VERDICT: Final = ("verdict", "reason", "suspected", "uncovered", "ended", "rests_on")

#: Reasons that are no other ones later, unless a device begins a journal.
_FOR_GOOD: Final = ("no-journal", "which-device", "clock")

#: More hours are looked for as one piece of time.
_HOURS_APART: Final = 48


@dataclass(frozen=True, slots=True)
class Step:
    """A step; its methods write tables, and may be called again.

    Attributes:
        spark: the session.
        out: the folder of the tables.
        before: what was known of the subjects that are touched.
        now: what is known of them now, `before` included.
        others: messages that may have another verdict now, as they are in the table.
        limits: by what messages are judged.
        judged: messages -> with their verdicts; see qos.audit.tables.judged.
        lines_between: all lines that are known, of a piece of time; some may come
            twice, and some of other times.
        lines_of: all lines of some subjects (a column `subject`).
        progress: told what is being done.
    """

    spark: SparkSession
    out: str
    before: Known
    now: Known
    others: DataFrame
    limits: Limits
    judged: Callable[[DataFrame], DataFrame]
    lines_between: Callable[[Column], DataFrame]
    lines_of: Callable[[DataFrame], DataFrame]
    progress: Callable[[str], None] = lambda step: None

    def write(self) -> DataFrame:
        """Write all tables, and return the messages that were judged."""
        (messages, _), *_ = at_once(
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
            The messages that were judged, and whether any row is another one now.
        """
        touched = self.judged(tables.deliveries_of(self.now.told)).localCheckpoint()
        keys = list(MESSAGE)
        others = self.others.dropDuplicates(keys)
        others = _without(others, touched).localCheckpoint()
        names = tables.deliveries_of(self.now.told).columns
        again = self.judged(others.select(*names)).localCheckpoint()
        rows = touched.unionByName(_changed(again, others)).localCheckpoint()
        hours = _hours(rows, tables.deliveries_of(self.before.told))
        self._swap("deliveries", rows, MESSAGE, rows, hours)
        folder = f"{self.out}/deliveries"
        of_hours = read_hours(self.spark, folder, rows.schema, hours)
        routes = tables.routes_hourly(of_hours)
        unproven = tables.unproven_hourly(of_hours)
        at_once(
            lambda: self._write_anomalies(rows, hours),
            lambda: self._swap_hours("routes_hourly", routes, hours),
            lambda: self._swap_hours("unproven_hourly", unproven, hours),
        )
        return touched.unionByName(again), bool(hours)

    def _write_anomalies(self, rows: DataFrame, hours: list[Hour]) -> None:
        if not hours:
            return
        found = tables.anomalies(rows)
        before = read_hours(self.spark, f"{self.out}/anomalies", found.schema, hours)
        keys = [*MESSAGE]
        before = before.join(rows.select(*keys), keys, "left_semi")
        # Not those of the table: if this is done again, they are of now.
        found = tables.revised(found, before, rows, self.others, self.limits)
        self._swap("anomalies", found, MESSAGE, rows, hours)

    def write_items(self) -> None:
        """Write the table of items."""
        rows = tables.queue_items(self.now.lines).localCheckpoint()
        hours = _hours(rows, tables.queue_items(self.before.lines))
        self._swap("queue_items", rows, _ITEM, rows, hours)
        folder = f"{self.out}/queue_items"
        of_hours = read_hours(self.spark, folder, rows.schema, hours)
        self._swap_hours("queues_hourly", tables.queues_hourly(of_hours), hours)

    def _write_windows(self) -> None:
        # All counts of an hour are one subject.
        rows = tables.windows_hourly(self.now.lines).localCheckpoint()
        hours = _hours(rows, tables.windows_hourly(self.before.lines))
        self._swap_hours("windows_hourly", rows, hours)

    def _write_workers(self) -> None:
        hours = _hours(
            tables.workers_hourly(self.now.lines),
            tables.workers_hourly(self.before.lines),
        )
        lines = self._lines_of_hours(hours).where(role_is(Role.WORKER))
        if hours:
            # A handler may end in another hour.
            lines = self.lines_of(lines.select("subject").distinct().localCheckpoint())
        self._swap_hours("workers_hourly", tables.workers_hourly(lines), hours)

    def _write_refusals(self) -> None:
        hours = _hours(tables.refusals(self.now.lines))
        lines = self._lines_of_hours(hours)
        self._swap_hours("refusals", tables.refusals(lines), hours)

    def _lines_of_hours(self, hours: list[Hour]) -> DataFrame:
        if not hours:
            return self.now.lines.limit(0)
        return self.lines_between(_within(hours))

    def _swap_hours(self, name: str, rows: DataFrame, hours: list[Hour]) -> None:
        keys = self.spark.createDataFrame(hours, "date date, hour int")
        self._swap(name, rows.where(in_hours(hours)), _HOUR, keys, hours)

    def _swap(
        self,
        name: str,
        rows: DataFrame,
        on: tuple[str, ...],
        keys: DataFrame,
        hours: list[Hour],
    ) -> None:
        self.progress(f"writing {name}")
        swap(rows, f"{self.out}/{name}", on=on, keys=keys, hours=hours)


def pending(messages: DataFrame, open_from: date | None) -> DataFrame:
    """The messages that may have another verdict without a new line of theirs.

    Either time passes, or lines of another node come.

    Args:
        messages: with their verdicts.
        open_from: the first day that can still change; None: any.
    """
    sent = F.col("sender_last_at").isNotNull()
    held_at = F.coalesce("held_again_at", "to_hand_over_at")
    expired = F.coalesce(F.col("expired_at") >= held_at, F.lit(False))
    held = F.col("handed_over_at").isNull() & F.col("done_at").isNull() & ~expired
    is_open = F.when(sent, F.col("outcome").isNull()).otherwise(held)
    for_good = F.coalesce(F.col("reason").isin(*_FOR_GOOD), F.lit(False))
    timely = F.lit(True) if open_from is None else F.col("date") >= F.lit(open_from)
    return messages.where(is_open | ((F.col("verdict") != "ok") & ~for_good & timely))


def _without(rows: DataFrame, others: DataFrame) -> DataFrame:
    """The messages that are not among some others."""
    keys = others.select(*(F.col(name).alias(f"key {name}") for name in MESSAGE))
    return rows.join(keys, _all_same(MESSAGE, "key "), "left_anti")


def _changed(rows: DataFrame, before: DataFrame) -> DataFrame:
    """The messages whose verdicts are not what they were."""
    names = (*MESSAGE, *_VERDICT)
    former = before.select(*(F.col(name).alias(f"former {name}") for name in names))
    return rows.join(former, _all_same(names, "former "), "left_anti")


def _all_same(names: Iterable[str], prefix: str) -> Column:
    each = (F.col(name).eqNullSafe(F.col(f"{prefix}{name}")) for name in names)
    return reduce(Column.__and__, each)


def _hours(*frames: DataFrame) -> list[Hour]:
    """The hours in which there is a row."""
    rows = reduce(DataFrame.union, (frame.select(*_HOUR) for frame in frames))
    return sorted((row["date"], row["hour"]) for row in rows.distinct().collect())


def _within(hours: list[Hour]) -> Column:
    """Whether a line is of one of these hours, so that Parquet can leave out others."""
    spans = [(hour, hour) for hour in hours]
    if len(hours) > _HOURS_APART:
        spans = [(hours[0], hours[-1])]
    each = [
        (F.col("at") >= _begin(first)) & (F.col("at") < _begin(last, 1))
        for first, last in spans
    ]
    return reduce(Column.__or__, each)


def _begin(hour: Hour, later: int = 0) -> Column:
    moment = datetime.combine(hour[0], time(hour[1]), UTC) + timedelta(hours=later)
    return F.lit(moment).cast("timestamp")
