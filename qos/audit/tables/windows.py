"""The table of counted windows: whether the lines of both ends of a route are complete.

Each node counts the messages of each route in windows of time (see qos.journal.counts).
The count of a window shows a gap even where the lines themselves are lost.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from qos.audit.tables.columns import (
    bare,
    by_hour,
    domain,
    event_is,
    role_is,
    seconds_between,
)
from qos.journal.schema import ITEMS, JournalEvent, Role

__all__ = [
    "WRITTEN_WITHIN",
    "contradicting_counts",
    "counted",
    "windows_hourly",
    "windows_of",
]

#: A count is written at the end of its window. A count further away from its window, by
#: the clock of its node, is left out: otherwise any line could change any day.
WRITTEN_WITHIN: Final = timedelta(hours=12)

#: No node counts more in a window; so no sum overflows, whatever a line contains.
_COUNT_MAX: Final = 2**31


def windows_hourly(events: DataFrame) -> DataFrame:
    """One row for each hour and route; see `JournalEvent.COUNTED` in qos.journal.

    A window is complete when nodes of both ends have counted it. A node's count is
    valid only for its own end; a component's for each address of its domain. These numbers accuse no node: a message may be sent in
    one window and be handed over in the next one, and one of two devices of an account
    may have no journal. If a node had more routes than it counts separately, its end of
    that window is missing. So it is if two different lines about the window have the
    same boot and number: at least one of them is wrong (see contradicting_counts).

    Returns:
        Columns `date` and `hour` (in which the windows began), `level`, `sender` and
        `receiver` (accounts); `sent` and `received`, as counted by the two ends;
        `windows` in which one of them counted a message, `complete` ones, and those
        `without_sender` and `without_receiver`.
    """
    return windows_of(counted(events))


def counted(events: DataFrame) -> DataFrame:
    """The counts of windows, each once, for `windows_of` and `contradicting_counts`.

    Returns:
        A row for each different line, with `is_certain`: no other line contradicts it.
    """
    is_count = role_is(Role.JOURNAL) & event_is(JournalEvent.COUNTED)
    apart_s = F.abs(seconds_between("since", "at"))
    is_near = apart_s <= WRITTEN_WITHIN.total_seconds()
    of_messages = ~F.col("boot").endswith(ITEMS)
    counts = events.where(is_count & is_near & of_messages).select(
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
    return counts.withColumn("is_certain", F.count("*").over(same) == 1)


def windows_of(counts: DataFrame) -> DataFrame:
    """The same as `windows_hourly`, from `counted` lines."""
    has_route = F.col("sender").isNotNull() & F.col("receiver").isNotNull()
    is_part = ~has_route & (F.col("sent") + F.col("received") > 0)
    ends = counts.groupBy("window", "account").agg(
        F.bool_and(F.col("is_certain") & ~is_part).alias("is_whole")
    )
    ends = ends.where("is_whole").select("window", "account")
    sends, receives = (
        F.col("account").isin(F.col(end), domain(F.col(end)))
        for end in ("sender", "receiver")
    )
    rows = counts.where(has_route & (sends | receives))
    rows = rows.groupBy("window", "level", "sender", "receiver").agg(
        _sum(F.when(sends & F.col("is_certain"), F.col("sent"))).alias("sent"),
        _sum(F.when(receives & F.col("is_certain"), F.col("received"))).alias(
            "received"
        ),
    )
    components = ends.where(~F.col("account").contains("@"))
    for end in ("sender", "receiver"):
        rows = rows.withColumn(f"{end}_domain", domain(F.col(end)))
        for nodes, name in ((ends, end), (components, f"{end}_domain")):
            is_here = F.lit(True).alias(f"has_{name}")
            presence = nodes.select("window", F.col("account").alias(name), is_here)
            rows = rows.join(presence, ["window", name], "left")
    has_sender, has_receiver = (
        F.coalesce(f"has_{end}", f"has_{end}_domain", F.lit(False))
        for end in ("sender", "receiver")
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


def contradicting_counts(counts: DataFrame) -> DataFrame:
    """Lines with the same number that count the same window differently.

    All lines of an hour make its row, so a later row replaces an earlier one of the
    same `place`.

    Args:
        counts: see `counted`.

    Returns:
        See qos.audit.read.file_problems: a row for each boot and hour, with the number
        of lines that are contradicted; `place` is the account, the boot and the hour.
    """
    lines = counts.where(~F.col("is_certain")).select(
        *("account", "boot", "seq", "window"),
        F.date_format("window", "yyyy-MM-dd HH:00").alias("hour"),
    )
    rows = lines.distinct().groupBy("account", "boot", "hour")
    groups = rows.agg(
        F.count("*").alias("count"), F.min(F.struct("seq", "window")).alias("first")
    )
    example = F.concat(
        F.lit("line "),
        F.col("first.seq").cast("string"),
        F.lit(": two counts of the window of "),
        F.date_format("first.window", "yyyy-MM-dd HH:mm:ss"),
    )
    return groups.select(
        F.lit("contradicting-counts").alias("kind"),
        F.concat_ws(" ", "account", "boot", "hour").alias("place"),
        "count",
        example.alias("example"),
    )


def _sum(column: Column) -> Column:
    return F.coalesce(F.sum(column), F.lit(0))
