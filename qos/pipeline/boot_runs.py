"""What is known of the lines of each boot, however many there were: for a stream.

A run is a piece of a boot of which no line is missing. Runs of more lines are merged
with those that are known already, in whatever order they come; the problems that are
found over the whole of a journal come out as `tables.missing_lines` and
`tables.clocks_back` find them, and as does its coverage. A boot has one run, and one
more for each hole.

Pure functions from frames to frames; and one that makes the same in Arrow.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qos.journal.schema import Role
from qos.pipeline import tables
from qos.pipeline.tables.once import bare, role_is

__all__ = [
    "RUN",
    "clocks_back",
    "coverage",
    "merged",
    "missing_lines",
    "runs",
    "stretches",
]

_JUMP: Final = "struct<seq:bigint,before:timestamp,at:timestamp>"

#: The columns of a run: from which line to which; from when to when its node was heard
#: of as an endpoint; how often the clock went back within it, and where it did first.
RUN: Final = (
    "node string, boot string, first_seq bigint, first_at timestamp, last_seq bigint, "
    "last_at timestamp, heard_from timestamp, heard_until timestamp, "
    f"jumps bigint, jump {_JUMP}"
)

_BOOT = ("node", "boot")

#: Whose lines tell that an endpoint was there.
_HEARD = (Role.SENDER, Role.RECEIVER)

_TIME = pa.timestamp("us", tz="UTC")
_NO_JUMP = pa.struct([("seq", pa.int64()), ("before", _TIME), ("at", _TIME)])


def runs(events: DataFrame, heard: Column) -> DataFrame:
    """Each line as a run.

    Args:
        events: lines.
        heard: whether a line is in the tables too, and so tells of what is covered.
    """
    heard_at = F.when(heard & role_is(*_HEARD), F.col("at"))
    return events.select(
        *_BOOT,
        F.col("seq").alias("first_seq"),
        F.col("at").alias("first_at"),
        F.col("seq").alias("last_seq"),
        F.col("at").alias("last_at"),
        heard_at.alias("heard_from"),
        heard_at.alias("heard_until"),
        F.lit(0).cast("long").alias("jumps"),
        F.lit(None).cast(_JUMP).alias("jump"),
    )


def stretches(lines: pa.Table) -> pa.Table:
    """Lines that lie one behind the other as a run: few, where they lie as written.

    All are heard that tell of a message. In none the clock goes back at all, so that
    jumps are between runs, where `merged` finds them.

    Args:
        lines: see qos.pipeline.lines.CHECKED; those that are none are left out.
    """
    events = lines.filter(pc.is_valid(lines["seq"]))
    events = events.select(["node", "boot", "seq", "at", "role"]).combine_chunks()
    seq, at = (events[name].cast(pa.int64()).to_numpy() for name in ("seq", "at"))
    follows = (np.diff(seq) == 1) & (np.diff(at) >= 0)
    for name in _BOOT:
        follows &= pc.equal(events[name][1:], events[name][:-1]).to_numpy()
    # None at all if there is no line.
    edges = np.flatnonzero(np.concatenate(([True], ~follows, [True]))[: len(seq) + 1])
    begin, end = edges[:-1], edges[1:]
    roles = pa.array([role.value for role in _HEARD])
    heard = np.flatnonzero(pc.is_in(events["role"], roles).to_numpy())
    some = np.searchsorted(heard, begin) < np.searchsorted(heard, end)
    # Times only grow: the first that is heard, and the last.
    heard_at = pa.array(at[heard], _TIME)
    heard_from = np.ma.array(np.searchsorted(heard, begin), mask=~some)
    heard_until = np.ma.array(np.searchsorted(heard, end) - 1, mask=~some)
    first, last = events.take(begin), events.take(end - 1)
    return pa.table(
        {
            "node": first["node"],
            "boot": first["boot"],
            "first_seq": first["seq"],
            "first_at": first["at"],
            "last_seq": last["seq"],
            "last_at": last["at"],
            "heard_from": heard_at.take(pa.array(heard_from)),
            "heard_until": heard_at.take(pa.array(heard_until)),
            "jumps": pa.repeat(0, len(first)),
            "jump": pa.nulls(len(first), _NO_JUMP),
        }
    )


def merged(pieces: DataFrame, *, tolerance_s: int) -> DataFrame:
    """Runs that belong together as one.

    Args:
        pieces: runs, of which some may touch, or have lines in common.
        tolerance_s: see qos.pipeline.tables.clocks_back.
    """
    order = Window.partitionBy(*_BOOT).orderBy("first_seq", "last_seq")
    before = F.max(F.struct("last_seq", "last_at")).over(
        order.rowsBetween(Window.unboundedPreceding, -1)
    )
    rows = pieces.withColumn("before", before)
    touches = F.col("first_seq") <= F.col("before.last_seq") + 1
    begins = (~F.coalesce(touches, F.lit(False))).cast("int")
    follows = F.col("first_seq") == F.col("before.last_seq") + 1
    jumped = follows & _went_back(F.col("before.last_at"), tolerance_s)
    here = F.when(jumped, _jump(F.col("before.last_at")))
    rows = rows.withColumns(
        {
            "run": F.sum(begins).over(order),
            "jumps": F.col("jumps") + F.coalesce(jumped, F.lit(False)).cast("long"),
            # Of its own the first is later: it begins here.
            "jump": F.coalesce(here, F.col("jump")),
        }
    )
    return (
        rows.groupBy(*_BOOT, "run")
        .agg(
            F.min("first_seq").alias("first_seq"),
            F.min_by("first_at", "first_seq").alias("first_at"),
            F.max("last_seq").alias("last_seq"),
            F.max_by("last_at", "last_seq").alias("last_at"),
            F.min("heard_from").alias("heard_from"),
            F.max("heard_until").alias("heard_until"),
            F.sum("jumps").alias("jumps"),
            F.min("jump").alias("jump"),
        )
        .drop("run")
    )


def missing_lines(boots: DataFrame) -> DataFrame:
    """See qos.pipeline.tables.missing_lines; of runs that were merged."""
    there = F.sum(F.col("last_seq") - F.col("first_seq") + 1)
    rows = boots.groupBy(*_BOOT).agg(
        (F.max("last_seq") - F.min("first_seq") + 1 - there).alias("count"),
        F.min("first_seq").alias("first"),
        F.max("last_seq").alias("last"),
    )
    return tables.missing_problems(rows)


def clocks_back(boots: DataFrame, *, tolerance_s: int) -> DataFrame:
    """See qos.pipeline.tables.clocks_back; of runs that were merged."""
    order = Window.partitionBy(*_BOOT).orderBy("first_seq")
    rows = boots.withColumn("before", F.lag("last_at").over(order))
    over_hole = F.coalesce(_went_back(F.col("before"), tolerance_s), F.lit(False))
    here = F.when(over_hole, _jump(F.col("before")))
    rows = rows.groupBy(*_BOOT).agg(
        F.sum(F.col("jumps") + over_hole.cast("long")).alias("count"),
        F.min(F.coalesce(here, F.col("jump"))).alias("one"),
    )
    return tables.clock_problems(rows.where(F.col("count") > 0))


def coverage(boots: DataFrame) -> DataFrame:
    """See qos.pipeline.tables.coverage; of runs that were merged."""
    heard = boots.where(F.col("heard_from").isNotNull())
    rows = heard.groupBy("node").agg(
        F.min("heard_from").alias("first_at"), F.max("heard_until").alias("last_at")
    )
    return rows.select(
        "node", bare(F.col("node")).alias("account"), "first_at", "last_at"
    )


def _went_back(before: Column, tolerance_s: int) -> Column:
    return F.unix_micros("first_at") < F.unix_micros(before) - tolerance_s * 1_000_000


def _jump(before: Column) -> Column:
    return F.struct(
        F.col("first_seq").alias("seq"),
        before.alias("before"),
        F.col("first_at").alias("at"),
    )
