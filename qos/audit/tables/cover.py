"""Cover: the times that the runs of a device prove, and why others are not proven.

A run (qos.audit.boot_runs) *covers* an interval if three things are true: the clock
never went back in it; its first line is not after the beginning of the interval, and
its last line not before the end; and no other run of the device touches the interval,
because then two writers have the same name. Nothing else proves that a device wrote no
line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qos.audit.boot_runs import CLOCK_BACK_S, NEWER, TOLD, went_back
from qos.audit.tables.once import bare

__all__ = ["REASONS", "Runs", "by_device"]

#: The reasons why an interval is not covered.
#: no-journal: the device has no line at all.
#: began-later: its first line is after the beginning of the interval.
#: not-closed: its last line is before the end of the interval: its file is not closed,
#: not copied yet, or was cut by a power failure.
#: hole: lines of one boot are missing there.
#: journal-off: the interval touches the time between two boots.
#: clock: the clock of the device went back in the run.
#: newer-version: there are lines of a newer version, which cannot be read here.
#: which-device: the JID names an account, or two journals have its name.
REASONS: Final = (
    *("no-journal", "began-later", "not-closed", "hole", "journal-off", "clock"),
    *("newer-version", "which-device"),
)


def by_device(boots: DataFrame) -> DataFrame:
    """The runs of each device, in one row, so that they can be joined by its name.

    Args:
        boots: merged runs; see qos.audit.boot_runs.

    Returns:
        Columns `device`, a node, or an account of nodes; `is_node`; `spans` (the runs
        in the order of time; empty for a mere account) and `newer` (those of lines that
        cannot be read). Times are in microseconds.
    """
    span = F.struct(
        *(F.unix_micros(f"{name}_at").alias(name) for name in _TIMES),
        "boot",
        "first_seq",
        F.col("went_back").alias("jumps"),
    )
    names = F.array(
        F.struct(F.col("node").alias("device"), F.lit(True).alias("is_node")),
        F.struct(bare(F.col("node")).alias("device"), F.lit(False).alias("is_node")),
    )
    rows = _went_back(boots).where(F.col("kind").isin(TOLD, NEWER))
    rows = rows.select(F.explode(names).alias("name"), "kind", span.alias("span"))
    own = F.when(F.col("name.is_node"), F.col("span"))
    return rows.groupBy(F.col("name.device").alias("device")).agg(
        F.max("name.is_node").alias("is_node"),
        F.array_sort(F.collect_list(F.when(F.col("kind") == TOLD, own))).alias("spans"),
        F.collect_list(F.when(F.col("kind") == NEWER, own)).alias("newer"),
    )


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of the device in a column, after `joined`.

    Attributes:
        name: the name of that column; a null has no runs.
    """

    name: str

    def joined(self, rows: DataFrame, devices: DataFrame) -> DataFrame:
        """The rows with the runs of their device: see `by_device`."""
        mine = devices.select(
            F.col("device").alias(self.name),
            *(F.col(name).alias(self._its(name)) for name in _RUNS),
        )
        return rows.join(mine, self.name, "left")

    def covers(self, low: Column, high: Column) -> Column:
        """Whether exactly one run covers the interval; microseconds, or null."""
        return self._has(low, high) & (F.size(self._touching(low, high)) == 1)

    def is_steady(self, low: Column, high: Column) -> Column:
        """Whether the clock never went back in this time.

        Both times are of this device.
        """
        jumped = F.exists(self._touching(low, high), lambda span: span["jumps"] > 0)
        return F.coalesce((low <= high) & ~jumped, F.lit(False))

    def reason(self, low: Column, high: Column) -> Column:
        """Why the interval is not covered: one of REASONS."""
        spans = self._column("spans")
        before = F.filter(spans, lambda span: span["first"] <= low)
        last = F.try_element_at(before, F.lit(-1))
        after = F.filter(
            spans,
            lambda span: last.isNull() | (span["first"] > last["first"]),
        )
        following = F.try_element_at(after, F.lit(1))
        jumped = F.exists(self._touching(low, high), lambda span: span["jumps"] > 0)
        newer = F.exists(
            self._column("newer"),
            lambda span: (
                F.coalesce(span["high"] >= last["last"], F.lit(True))
                & F.coalesce(span["low"] <= following["first"], F.lit(True))
            ),
        )
        same_boot = (last["boot"] == following["boot"]) | (following["first_seq"] > 1)
        return (
            F.when(self._column("is_node").isNull(), "no-journal")
            .when(~self._column("is_node"), "which-device")
            .when(jumped, "clock")
            .when(self._has(low, high), "which-device")
            .when(newer, "newer-version")
            .when(last.isNull(), "began-later")
            .when(following.isNull(), "not-closed")
            .when(same_boot, "hole")
            .otherwise("journal-off")
        )

    def reason_before(self, moment: Column) -> Column:
        """Why an earlier line of the node, which must exist, is not known."""
        hole = F.exists(
            self._touching(moment, moment), lambda span: span["first_seq"] > 1
        )
        earlier = F.exists(self._column("spans"), lambda span: span["last"] < moment)
        return (
            F.when(hole, "hole").when(earlier, "journal-off").otherwise("began-later")
        )

    def is_last(self, moment: Column) -> Column:
        """Whether no run follows the one at this time; null if there is no run then."""
        return F.array_max(self._lasts(moment)) == F.array_max(self._lasts(None))

    def reason_after(self, moment: Column) -> Column:
        """Why lines may be missing after the run at this time."""
        last = F.array_max(self._lasts(moment))
        return self.reason(moment, last + 1)

    def _lasts(self, moment: Column | None) -> Column:
        spans = self._column("spans")
        if moment is not None:
            spans = F.filter(spans, lambda span: span["first"] <= moment)
        return F.transform(spans, lambda span: span["last"])

    def _has(self, low: Column, high: Column) -> Column:
        found = F.exists(
            self._column("spans"),
            lambda span: (
                (span["jumps"] == 0) & (span["first"] <= low) & (span["last"] >= high)
            ),
        )
        return F.coalesce(found, F.lit(False))

    def _touching(self, low: Column, high: Column) -> Column:
        return F.filter(
            self._column("spans"),
            lambda span: (span["low"] <= high) & (span["high"] >= low),
        )

    def _column(self, name: str) -> Column:
        return F.col(self._its(name))

    def _its(self, name: str) -> str:
        return f"{name} of {self.name}"


_RUNS = ("is_node", "spans", "newer")
_TIMES = ("first", "last", "low", "high")


def _went_back(boots: DataFrame) -> DataFrame:
    """Runs with the number of times that the clock went back in their whole boot.

    It is not known for how long the clock was wrong.
    """
    # Also by the kind: merging brings runs together in the same way.
    boot = Window.partitionBy("node", "boot", "kind")
    before = F.lag("last_at").over(boot.orderBy("first_seq"))
    over_hole = F.coalesce(went_back(before, CLOCK_BACK_S), F.lit(False))
    rows = boots.withColumn("went_back", F.col("jumps") + over_hole.cast("long"))
    return rows.withColumn("went_back", F.sum("went_back").over(boot))
