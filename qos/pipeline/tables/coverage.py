"""Which nodes have journals here, from when to when, and what is odd about those.

What a node without a journal did, or did while its journal was not kept, is not known:
nothing is lost, and nobody is to blame, only because nobody wrote it down.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from qos.journal.schema import Role
from qos.pipeline.tables.once import bare, once, role_is

__all__ = [
    "boots",
    "clock_problems",
    "clocks_back",
    "coverage",
    "missing_lines",
    "missing_problems",
]


def coverage(events: DataFrame, accounts: Collection[str] | None = None) -> DataFrame:
    """The endpoints that have journals here.

    Args:
        events: all lines, duplicates included.
        accounts: bare JIDs: consider only what these have written; None: all.

    Returns:
        Columns `node`, `account`, `first_at` and `last_at` (by its own clock).
    """
    rows = events.where(role_is(Role.SENDER, Role.RECEIVER))
    rows = rows.groupBy("node").agg(
        F.min("at").alias("first_at"), F.max("at").alias("last_at")
    )
    rows = rows.withColumn("account", bare(F.col("node")))
    if accounts is not None:
        rows = rows.where(F.col("account").isin(*accounts))
    return rows.select("node", "account", "first_at", "last_at")


def boots(events: DataFrame) -> DataFrame:
    """How many lines there are of each boot.

    Returns:
        Columns `node`, `boot`, `first` and `last` (the lowest and the highest seq),
        `lines` (those that were given twice are one), `given` (they are two), and of
        all `first_at` and `last_at`.
    """
    # A bit for each of 64 lines: to group by each line would take several times as long.
    bit = F.expr("shiftleft(1L, cast(seq & 63 as int))")
    some = events.groupBy("node", "boot", F.shiftright("seq", 6).alias("part")).agg(
        F.bit_or(bit).alias("bits"),
        F.count("*").alias("given"),
        F.min("seq").alias("first"),
        F.max("seq").alias("last"),
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
    )
    return some.groupBy("node", "boot").agg(
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sum(F.bit_count("bits")).alias("lines"),
        F.sum("given").alias("given"),
        F.min("first_at").alias("first_at"),
        F.max("last_at").alias("last_at"),
    )


def missing_lines(boots: DataFrame) -> DataFrame:
    """Boots of which lines are missing between those that are here.

    Args:
        boots: see there.

    Returns:
        See qos.pipeline.read.file_problems; `place` is the node and its boot.
    """
    rows = boots.withColumn(
        "count", F.col("last") - F.col("first") + 1 - F.col("lines")
    )
    return missing_problems(rows)


def missing_problems(boots: DataFrame) -> DataFrame:
    """Boots with the `count` of what is missing of the lines `first` to `last`."""
    return boots.where(F.col("count") > 0).select(
        F.lit("missing-lines").alias("kind"),
        F.concat_ws(" ", "node", "boot").alias("place"),
        "count",
        F.format_string("of the lines %d to %d", "first", "last").alias("example"),
    )


def clocks_back(events: DataFrame, *, tolerance_s: int) -> DataFrame:
    """Boots in which the clock went back by more than this, and how often.

    Args:
        events: all lines, duplicates included.
        tolerance_s: whole seconds.

    Returns:
        See missing_lines.
    """
    # To sort all lines would cost as much as all the rest. If the clock never went
    # back by so much, what was written in an earlier step of time has the lower
    # numbers: only boots of which that is not true are looked at line by line.
    step = F.expr(f"unix_micros(at) div {tolerance_s * 1_000_000}")
    steps = events.groupBy("boot", step.alias("step")).agg(
        F.min("seq").alias("low"), F.max("seq").alias("high")
    )
    earlier = (
        Window.partitionBy("boot")
        .orderBy("step")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    steps = steps.withColumn("high_before", F.max("high").over(earlier))
    odd = steps.where(F.col("high_before") > F.col("low")).select("boot").distinct()
    lines = once(events.join(F.broadcast(odd), "boot", "left_semi"), "boot")
    before = F.lag("at").over(Window.partitionBy("boot").orderBy("seq"))
    jumps = lines.withColumn("before", before).where(
        F.unix_micros("at") < F.unix_micros("before") - tolerance_s * 1_000_000
    )
    rows = jumps.groupBy("node", "boot").agg(
        F.count("*").alias("count"), F.min(F.struct("seq", "before", "at")).alias("one")
    )
    return clock_problems(rows)


def clock_problems(boots: DataFrame) -> DataFrame:
    """Boots with the `count` of their jumps, and the first `one`: seq, before and at."""
    return boots.select(
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
