"""The runs of each boot: parts of its lines without a missing line.

A boot has one run, and one more for each gap. The runs are all that has to be kept of a
journal to judge what it proves. Runs of new lines are merged with the known ones, in
any order. The problems that concern a whole journal (missing lines, clocks that went
back) are also found from runs.

Pure functions from frames to frames; and one that makes runs in Arrow.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qos.audit.lines import LineProblem

__all__ = [
    "CLOCK_BACK_S",
    "LATE",
    "NAMED",
    "NEWER",
    "RUN",
    "TOLD",
    "all_of",
    "clocks_back",
    "kind_of",
    "merged",
    "missing_lines",
    "runs",
    "stretches",
    "together",
    "went_back",
]

#: The kinds of lines; all lines of a run have one kind. TOLD: they are in the tables.
#: LATE: their day was closed already (see qos.audit.follow), so they are in no table.
#: NEWER: written by a newer version, so that they cannot be read here.
#: NAMED: no line at all, but the name of a file; see qos.audit.named_journals.
TOLD, LATE, NEWER, NAMED = "told", "late", "newer", "named"

#: A clock that goes back by less is only being corrected.
CLOCK_BACK_S: Final = 60

_JUMP: Final = "struct<seq:bigint,before:timestamp,at:timestamp>"

#: The columns of a run: its first and last line; the least and the greatest time of its
#: lines; how often the clock went back within it, and the first place of this; and the
#: journals that have lines of it (see qos.audit.foreign_lines.journal_of; empty: not
#: known).
RUN: Final = (
    "node string, boot string, kind string, first_seq bigint, first_at timestamp, "
    "last_seq bigint, last_at timestamp, low_at timestamp, high_at timestamp, "
    f"jumps bigint, jump {_JUMP}, journals array<bigint>"
)

_COLUMNS = (
    *("node", "boot", "kind", "first_seq", "first_at", "last_seq", "last_at"),
    *("low_at", "high_at", "jumps", "jump", "journals"),
)

_BOOT = ("node", "boot")

_TIME = pa.timestamp("us", tz="UTC")
_NO_JUMP = pa.struct([("seq", pa.int64()), ("before", _TIME), ("at", _TIME)])


def runs(lines: DataFrame, kind: Column, journal: Column | None = None) -> DataFrame:
    """Each line as a run.

    Args:
        lines: lines with a `seq`.
        kind: the kind of each line.
        journal: the journal of each line; None: not known.
    """
    nowhere = F.lit(None).cast("long")
    journals = F.array(nowhere if journal is None else journal)
    return lines.select(
        *_BOOT,
        kind.alias("kind"),
        F.col("seq").alias("first_seq"),
        F.col("at").alias("first_at"),
        F.col("seq").alias("last_seq"),
        F.col("at").alias("last_at"),
        F.col("at").alias("low_at"),
        F.col("at").alias("high_at"),
        F.lit(0).cast("long").alias("jumps"),
        F.lit(None).cast(_JUMP).alias("jump"),
        F.array_compact(journals).alias("journals"),
    )


def kind_of(is_late: Column) -> Column:
    """The kind of a checked line; see qos.audit.schema.CHECKED."""
    newer = F.col("problem") == LineProblem.NEWER_SCHEMA.value
    return F.when(newer, NEWER).when(is_late, LATE).otherwise(TOLD)


def stretches(lines: pa.Table) -> pa.Table:
    """Consecutive lines as runs: only a few if lines are in the order of writing.

    No run is LATE. The clock does not go back at all within a run, so that jumps are
    between runs, where `merged` finds them.

    Args:
        lines: see qos.audit.lines.CHECKED; those without a `seq` are left out.
    """
    events = lines.filter(pc.is_valid(lines["seq"]))
    newer = pc.equal(events["problem"], LineProblem.NEWER_SCHEMA.value)
    kind = pc.if_else(pc.fill_null(newer, False), NEWER, TOLD)
    names = [*_BOOT, "seq", "at", "journal"]
    events = events.select(names).append_column("kind", kind)
    events = events.combine_chunks()
    seq, at = (events[name].cast(pa.int64()).to_numpy() for name in ("seq", "at"))
    follows = (np.diff(seq) == 1) & (np.diff(at) >= 0)
    for name in (*_BOOT, "kind"):
        follows &= pc.equal(events[name][1:], events[name][:-1]).to_numpy()
    journal = pc.fill_null(events["journal"], 0).to_numpy()
    follows &= np.diff(journal) == 0
    # No edges at all if there is no line.
    edges = np.flatnonzero(np.concatenate(([True], ~follows, [True]))[: len(seq) + 1])
    begin, end = edges[:-1], edges[1:]
    first, last = events.take(begin), events.take(end - 1)
    journals = first["journal"].combine_chunks()
    ends = np.cumsum(journals.is_valid().to_numpy(zero_copy_only=False))
    offsets = pa.array(np.concatenate(([0], ends)), pa.int32())
    return pa.table(
        {
            "node": first["node"],
            "boot": first["boot"],
            "kind": first["kind"],
            "first_seq": first["seq"],
            "first_at": first["at"],
            "last_seq": last["seq"],
            "last_at": last["at"],
            "low_at": first["at"],
            "high_at": last["at"],
            "jumps": pa.repeat(0, len(first)),
            "jump": pa.nulls(len(first), _NO_JUMP),
            "journals": pa.ListArray.from_arrays(offsets, journals.drop_null()),
        }
    )


def merged(pieces: DataFrame, *, tolerance_s: int) -> DataFrame:
    """Runs that belong together, merged into one.

    Args:
        pieces: runs, some of which may touch or overlap.
        tolerance_s: whole seconds; a clock that goes back by less is only being
            corrected.
    """
    order = Window.partitionBy(*_BOOT, "kind").orderBy("first_seq", "last_seq")
    before = F.max(F.struct("last_seq", "last_at")).over(
        order.rowsBetween(Window.unboundedPreceding, -1)
    )
    rows = pieces.withColumn("before", before)
    touches = F.col("first_seq") <= F.col("before.last_seq") + 1
    begins = (~F.coalesce(touches, F.lit(False))).cast("int")
    follows = F.col("first_seq") == F.col("before.last_seq") + 1
    jumped = follows & went_back(F.col("before.last_at"), tolerance_s)
    jump = F.when(jumped, _jump(F.col("before.last_at")))
    rows = rows.withColumns(
        {
            "run": F.sum(begins).over(order),
            "jumps": F.col("jumps") + F.coalesce(jumped, F.lit(False)).cast("long"),
            # Of its own jumps the first is later: the run begins here.
            "jump": F.coalesce(jump, F.col("jump")),
        }
    )
    merged_rows = rows.groupBy(*_BOOT, "kind", "run").agg(
        F.min("first_seq").alias("first_seq"),
        F.min_by("first_at", "first_seq").alias("first_at"),
        F.max("last_seq").alias("last_seq"),
        F.max_by("last_at", "last_seq").alias("last_at"),
        F.min("low_at").alias("low_at"),
        F.max("high_at").alias("high_at"),
        F.sum("jumps").alias("jumps"),
        F.min("jump").alias("jump"),
        all_of("journals").alias("journals"),
    )
    # All columns by name: with "all but one", a declarative pipeline would look for the
    # table too early.
    return merged_rows.select(*_COLUMNS)


def all_of(arrays: Column | str) -> Column:
    """An aggregate: all elements of some arrays, each once, in order."""
    return F.array_sort(F.array_distinct(F.flatten(F.collect_set(arrays))))


def together(boots: DataFrame, *, tolerance_s: int) -> DataFrame:
    """Runs with the LATE lines among the others: for problems, but not for verdicts."""
    kind = F.when(F.col("kind") == LATE, TOLD).otherwise(F.col("kind"))
    return merged(boots.withColumn("kind", kind), tolerance_s=tolerance_s)


def missing_lines(boots: DataFrame) -> DataFrame:
    """Boots with missing lines between the known ones.

    Args:
        boots: merged runs. NEWER lines count as missing, since they cannot be read.

    Returns:
        See qos.audit.read.file_problems; `place` is the node and its boot.
    """
    line_count = F.sum(F.col("last_seq") - F.col("first_seq") + 1)
    rows = boots.where(~F.col("kind").isin(NEWER, NAMED))
    rows = rows.groupBy(*_BOOT).agg(
        (F.max("last_seq") - F.min("first_seq") + 1 - line_count).alias("count"),
        F.min("first_seq").alias("first"),
        F.max("last_seq").alias("last"),
    )
    return rows.where(F.col("count") > 0).select(
        F.lit("missing-lines").alias("kind"),
        F.concat_ws(" ", "node", "boot").alias("place"),
        "count",
        F.format_string("of the lines %d to %d", "first", "last").alias("example"),
    )


def clocks_back(boots: DataFrame, *, tolerance_s: int) -> DataFrame:
    """Boots in which the clock went back by more than this, and how often.

    Args:
        boots: merged runs.
        tolerance_s: see merged.

    Returns:
        See missing_lines.
    """
    order = Window.partitionBy(*_BOOT).orderBy("first_seq")
    rows = boots.where(~F.col("kind").isin(NEWER, NAMED))
    rows = rows.withColumn("before", F.lag("last_at").over(order))
    over_hole = F.coalesce(went_back(F.col("before"), tolerance_s), F.lit(False))
    jump = F.when(over_hole, _jump(F.col("before")))
    rows = rows.groupBy(*_BOOT).agg(
        F.sum(F.col("jumps") + over_hole.cast("long")).alias("count"),
        F.min(F.coalesce(jump, F.col("jump"))).alias("one"),
    )
    return rows.where(F.col("count") > 0).select(
        F.lit("clock-back").alias("kind"),
        F.concat_ws(" ", "node", "boot").alias("place"),
        "count",
        F.concat(
            F.lit("line "),
            F.col("one.seq").cast("string"),
            F.lit(": from "),
            F.date_format("one.before", "yyyy-MM-dd HH:mm:ss"),
            F.lit(" to "),
            F.date_format("one.at", "yyyy-MM-dd HH:mm:ss"),
        ).alias("example"),
    )


def went_back(before: Column, tolerance_s: int) -> Column:
    """Whether the clock went back between a time and the first time of a run."""
    return F.unix_micros("first_at") < F.unix_micros(before) - tolerance_s * 1_000_000


def _jump(before: Column) -> Column:
    return F.struct(
        F.col("first_seq").alias("seq"),
        before.alias("before"),
        F.col("first_at").alias("at"),
    )
