"""The table of counted windows: whether the lines of both ends of a route are complete.

Each node counts the messages of each route in windows of time (see qos.journal.counts).
The count of a window shows a gap even where the lines themselves are lost.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qos.audit.tables.once import (
    bare,
    by_hour,
    event_is,
    role_is,
    seconds_between,
)
from qos.journal.schema import JournalEvent, Role

__all__ = ["WRITTEN_WITHIN", "windows_hourly"]

#: A count is written at the end of its window. A count further away from its window, by
#: the clock of its node, is left out: otherwise any line could change any day.
WRITTEN_WITHIN: Final = timedelta(hours=12)

#: No node counts more in a window; so no sum overflows, whatever a line contains.
_COUNT_MAX: Final = 2**31


def windows_hourly(events: DataFrame) -> DataFrame:
    """One row for each hour and route; see `JournalEvent.COUNTED` in qos.journal.

    A window is complete when nodes of both ends have counted it. A node's count is
    valid only for its own end. These numbers accuse no node: a message may be sent in
    one window and be handed over in the next one, and one of two devices of an account
    may have no journal. If a node had more routes than it counts separately, its end of
    that window is missing. So it is if two different lines about the window have the
    same boot and number: at least one of them is wrong.

    Returns:
        Columns `date` and `hour` (in which the windows began), `level`, `sender` and
        `receiver` (accounts); `sent` and `received`, as counted by the two ends;
        `windows` in which one of them counted a message, `complete` ones, and those
        `without_sender` and `without_receiver`.
    """
    is_count = role_is(Role.JOURNAL) & event_is(JournalEvent.COUNTED)
    apart_s = F.abs(seconds_between("since", "at"))
    is_near = apart_s <= WRITTEN_WITHIN.total_seconds()
    counts = events.where(is_count & is_near).select(
        *("boot", "seq", F.col("since").alias("window")),
        bare(F.col("node")).alias("account"),
        "level",
        bare(F.col("source")).alias("sender"),
        bare(F.col("to")).alias("receiver"),
        *(
            F.least(name, F.lit(_COUNT_MAX)).alias(name)
            for name in ("sent", "received")
        ),
    )
    # A repeated line counts once. The next steps work window by window, so the counts
    # are brought together by windows here, and move only once.
    counts = counts.repartition("window").distinct()
    same = Window.partitionBy("window", "account", "boot", "seq")
    counts = counts.withColumn("is_certain", F.count("*").over(same) == 1)
    has_route = F.col("sender").isNotNull() & F.col("receiver").isNotNull()
    is_part = ~has_route & (F.col("sent") + F.col("received") > 0)
    ends = counts.groupBy("window", "account").agg(
        F.bool_and(F.col("is_certain") & ~is_part).alias("is_whole")
    )
    ends = ends.where("is_whole").select("window", "account")
    sends = F.col("sender") == F.col("account")
    receives = F.col("receiver") == F.col("account")
    rows = counts.where(has_route & (sends | receives))
    rows = rows.groupBy("window", "level", "sender", "receiver").agg(
        _sum(F.when(sends & F.col("is_certain"), F.col("sent"))).alias("sent"),
        _sum(F.when(receives & F.col("is_certain"), F.col("received"))).alias(
            "received"
        ),
    )
    for end in ("sender", "receiver"):
        is_here = F.lit(True).alias(f"has_{end}")
        there = ends.select("window", F.col("account").alias(end), is_here)
        rows = rows.join(there, ["window", end], "left")
    has_sender, has_receiver = (
        F.coalesce(name, F.lit(False)) for name in ("has_sender", "has_receiver")
    )
    keys = ("date", "hour", "level", "sender", "receiver")
    return (
        by_hour(rows, "window")
        .groupBy(*keys)
        .agg(
            F.sum("sent").alias("sent"),
            F.sum("received").alias("received"),
            F.count("*").alias("windows"),
            F.count_if(has_sender & has_receiver).alias("complete"),
            F.count_if(~has_sender).alias("without_sender"),
            F.count_if(~has_receiver).alias("without_receiver"),
        )
    )


def _sum(column: Column) -> Column:
    return F.coalesce(F.sum(column), F.lit(0))
