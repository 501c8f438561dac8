"""The problems that only a follower finds: late lines, and counts of several steps."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qos.audit import boot_runs, tables
from qos.audit.new_files import NewFile, place_of

__all__ = ["LATE_LINE", "late_lines", "with_contradictions", "without_files"]

#: The problem of an event that came after its day was closed.
LATE_LINE = "late-line"


def with_contradictions(problems: DataFrame, lines: DataFrame) -> DataFrame:
    """The problems, with those of the counts in all lines of the touched hours."""
    contradictions = tables.contradicting_counts(
        tables.counted(lines)
    ).localCheckpoint()
    key = ["kind", "place"]
    former = problems.join(contradictions.select(*key), key, "left_anti")
    return former.select(*problems.columns).unionByName(contradictions)


def without_files(problems: DataFrame, files: Iterable[NewFile]) -> DataFrame:
    """The problems without those of some files, which are read again."""
    places = [(place_of(file.path),) for file in files]
    if not places:
        return problems
    again = problems.sparkSession.createDataFrame(places, "place string")
    return problems.join(F.broadcast(again), "place", "left_anti").select(
        *problems.columns
    )


def late_lines(
    late_runs: DataFrame, open_from: date | None, earlier_runs: DataFrame
) -> DataFrame:
    """The problems of lines that came too late.

    Args:
        late_runs: the runs of these lines; see qos.audit.boot_runs.
        open_from: the first day that is open.
        earlier_runs: of all earlier lines, merged: a line that comes again is not late.
    """
    earlier_runs = boot_runs.together(earlier_runs, tolerance_s=boot_runs.CLOCK_BACK_S)
    earlier_runs = earlier_runs.where(F.col("kind") == boot_runs.TOLD).select(
        "node",
        "boot",
        F.col("first_seq").alias("known_first"),
        F.col("last_seq").alias("known_last"),
    )
    first, last = F.col("first_seq"), F.col("last_seq")
    overlap = F.least(last, "known_last") - F.greatest(first, "known_first") + 1
    run = ("node", "boot", "first_seq", "last_seq", "first_at")
    pairs = (
        late_runs.select(*run).distinct().join(earlier_runs, ["node", "boot"], "left")
    )
    again = F.when(F.col("known_first").isNull(), 0).otherwise(
        F.greatest(overlap, F.lit(0))
    )
    new = (last - first + 1 - F.sum(again)).alias("new")
    rows = pairs.groupBy(*run).agg(new).where("new > 0")
    day = F.min(F.to_date("first_at")).cast("string")
    rows = rows.groupBy("node", "boot").agg(
        F.sum("new").alias("count"), day.alias("day")
    )
    text = f"of %s and later; days before {open_from} are closed"
    return rows.select(
        F.lit(LATE_LINE).alias("kind"),
        F.concat_ws(" ", "node", "boot").alias("place"),
        "count",
        F.format_string(text, "day").alias("example"),
    )
