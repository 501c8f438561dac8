"""Coverage: the times that the runs of a device prove, and why others are not proven.

A run (qos.audit.boot_runs) *covers* an interval if three things are true: the clock
never went back in it; its first line is not after the beginning of the interval, and
its last line not before the end; and no other run of the device touches the interval,
because then two writers have the same name. Nothing else proves that a device wrote no
line.

Two devices may have the same full JID, on different servers or by mistake. Then each
has a journal of its own, and none of them speaks for the other: in *each* journal with
lines of the JID, or with a file of its name, a run must cover the interval. Journals
that have lines of the same boot are of one device. From two journals without a common
boot, it is not known whether they are of two devices, or one device has begun a new one.

The runs of a writer of items have no line of a message, so they prove nothing here, and
contradict nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qos.audit.boot_runs import (
    CLOCK_BACK_S,
    NAMED,
    NEWER,
    TOLD,
    all_of,
    went_back,
)
from qos.audit.tables.columns import bare
from qos.journal.schema import ITEMS

__all__ = ["REASONS", "Runs", "by_device", "names_of"]

#: The reasons why an interval is not covered.
#: no-journal: the device has no line at all.
#: began-later: its first line is after the beginning of the interval.
#: not-closed: its last line is before the end of the interval: its file is not closed,
#: not copied yet, or was cut by a power failure.
#: hole: lines of one boot are missing there.
#: journal-off: the interval touches the time between two boots.
#: clock: the clock of the device went back in the run.
#: newer-version: there are lines of a newer version, which cannot be read here.
#: which-device: the JID names an account, or two runs of its name touch the interval.
#: which-journal: several journals have its name, and not each covers the interval.
REASONS: Final = (
    *("no-journal", "began-later", "not-closed", "hole", "journal-off", "clock"),
    *("newer-version", "which-device", "which-journal"),
)


def by_device(boots: DataFrame) -> DataFrame:
    """The runs of each device, in one row, so that they can be joined by its name.

    Args:
        boots: merged runs, and NAMED ones; see qos.audit.boot_runs.

    Returns:
        Columns `device`, a node, or an account of nodes; `is_node` (null: no line of it
        is known); `spans` (the runs in the order of time; empty for a mere account),
        `newer` (those of lines that cannot be read), and `journals`. Times are in
        microseconds.
    """
    span = F.struct(
        *(F.unix_micros(f"{name}_at").alias(name) for name in _TIMES),
        "boot",
        "first_seq",
        F.col("went_back").alias("jumps"),
        "journals",
    )
    names = F.array(
        F.struct(F.col("node").alias("device"), F.lit(True).alias("is_node")),
        F.struct(bare(F.col("node")).alias("device"), F.lit(False).alias("is_node")),
    )
    rows = _of_boots(_of_messages(boots))
    rows = rows.select(F.explode(names).alias("name"), "kind", span.alias("span"))
    device, is_node, kind = F.col("name.device"), F.col("name.is_node"), F.col("kind")
    own = F.when(is_node, F.col("span"))
    # The name of a file may have a digest in place of the node.
    digest = F.when(
        (kind == NAMED) & device.startswith("~"), F.substr(device, F.lit(2))
    )
    key = F.coalesce(digest, F.substring(F.sha2(device, 256), 1, 16))
    of_device = rows.groupBy(key.alias("key")).agg(
        F.max(F.when(kind != NAMED, device)).alias("device"),
        F.max(F.when(kind.isin(TOLD, NEWER), is_node)).alias("is_node"),
        F.array_sort(F.collect_list(F.when(kind == TOLD, own))).alias("spans"),
        F.collect_list(F.when(kind == NEWER, own)).alias("newer"),
        all_of(own["journals"]).alias("journals"),
    )
    # By name: with "all but one", a declarative pipeline would look for the table.
    return of_device.select("device", *_RUNS)


def names_of(boots: DataFrame) -> DataFrame:
    """The devices and accounts with runs, and what their reasons depend on.

    Returns:
        Columns `name`; `has_lines`; `jumped`: whether a clock went back; `has_several`:
        whether there are several journals.
    """
    names = F.explode(F.array(F.col("node"), bare(F.col("node")))).alias("name")
    return (
        _of_messages(boots)
        .select(names, "kind", "jumps", "journals")
        .groupBy("name")
        .agg(
            F.bool_or(F.col("kind") != NAMED).alias("has_lines"),
            F.bool_or(F.col("jumps") > 0).alias("jumped"),
            (F.size(all_of("journals")) > 1).alias("has_several"),
        )
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

    def in_place_of(self, other: Runs, rows: DataFrame) -> DataFrame:
        """The rows with this device as the other one, where only this one has runs."""
        instead = self._column("is_node") & other._column("is_node").isNull()
        names = {other.name: self.name} | {
            other._its(name): self._its(name) for name in _RUNS
        }
        return rows.withColumns(
            {
                theirs: F.when(instead, F.col(ours)).otherwise(F.col(theirs))
                for theirs, ours in names.items()
            }
        )

    def covers(self, low: Column, high: Column) -> Column:
        """Whether exactly one run covers the interval; microseconds, or null."""
        return self._has(low, high) & (F.size(self._touching(low, high)) == 1)

    def covers_in_each_journal(self, low: Column, high: Column) -> Column:
        """The same in each journal of the device: then it wrote no line then."""

        def covered(journal: Column) -> Column:
            touching = F.filter(
                self._touching(low, high), lambda span: self._is_of(span, journal)
            )
            whole = F.exists(touching, lambda span: _is_whole(span, low, high))
            return whole & (F.size(touching) == 1)

        in_each_journal = F.forall(self._column("journals"), covered)
        several = F.coalesce(in_each_journal, F.lit(False))
        return F.when(self._has_several(), several).otherwise(self.covers(low, high))

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
            .when(self._has_several(), "which-journal")
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
            F.when(self._has_several(), "which-journal")
            .when(hole, "hole")
            .when(earlier, "journal-off")
            .otherwise("began-later")
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
        is_covered = F.exists(
            self._column("spans"), lambda span: _is_whole(span, low, high)
        )
        return F.coalesce(is_covered, F.lit(False))

    def _has_several(self) -> Column:
        """Whether not all journals are known to be of one device."""
        journals = self._column("journals")
        first = F.try_element_at(journals, F.lit(1))
        has_other = F.exists(journals, lambda journal: ~self._are_one(journal, first))
        return F.coalesce(has_other, F.lit(False))

    def _is_of(self, span: Column, journal: Column) -> Column:
        """Whether a run is of the device of a journal, as far as is known."""
        own = span["journals"]
        return (F.size(own) == 0) | F.exists(
            own, lambda own_journal: self._are_one(journal, own_journal)
        )

    def _are_one(self, first: Column, second: Column) -> Column:
        """Whether two journals have lines of the same boot."""
        pair = F.array(first, second)
        return (first == second) | F.exists(
            self._column("spans"),
            lambda span: F.size(F.array_except(pair, span["journals"])) == 0,
        )

    def _touching(self, low: Column, high: Column) -> Column:
        return F.filter(
            self._column("spans"),
            lambda span: (span["low"] <= high) & (span["high"] >= low),
        )

    def _column(self, name: str) -> Column:
        return F.col(self._its(name))

    def _its(self, name: str) -> str:
        return f"{name} of {self.name}"


_RUNS = ("is_node", "spans", "newer", "journals")
_TIMES = ("first", "last", "low", "high")


def _is_whole(span: Column, low: Column, high: Column) -> Column:
    return (span["jumps"] == 0) & (span["first"] <= low) & (span["last"] >= high)


def _of_messages(boots: DataFrame) -> DataFrame:
    return boots.where(~F.col("boot").endswith(ITEMS))


def _of_boots(boots: DataFrame) -> DataFrame:
    """Runs with `went_back` and `journals` of their whole boot.

    `went_back` is how often the clock went back: it is not known for how long it was
    wrong.
    """
    # Also by the kind: merging brings runs together in the same way.
    boot = Window.partitionBy("node", "boot", "kind")
    before = F.lag("last_at").over(boot.orderBy("first_seq"))
    over_hole = F.coalesce(went_back(before, CLOCK_BACK_S), F.lit(False))
    rows = boots.withColumn("went_back", F.col("jumps") + over_hole.cast("long"))
    journals = F.array_distinct(F.flatten(F.collect_set("journals").over(boot)))
    jumps = F.sum("went_back").over(boot)
    return rows.withColumns({"went_back": jumps, "journals": journals})
