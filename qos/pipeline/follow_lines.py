"""The lines of a batch: what is staged of them, what they touch, and what is kept.

Pure functions from frames to frames.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qos.pipeline import boot_runs, read
from qos.pipeline.subjects import begun, is_open, subject

__all__ = ["LATE_LINE", "kept", "problems_of", "runs_of", "spans_of", "staged"]

#: Of an event that came after its day was closed.
LATE_LINE: Final = "late-line"


def staged(frame: DataFrame, open_from: date | None) -> DataFrame:
    """Lines as they are staged."""
    checked = read.checked_lines(frame)
    day = F.when(F.col("problem").isNull(), F.to_date("at"))
    late = F.lit(False) if open_from is None else day < F.lit(open_from)
    return checked.withColumns(
        {"date": day, "late": F.coalesce(late, F.lit(False)), "subject": subject()}
    )


def spans_of(lines: DataFrame, events: DataFrame) -> DataFrame:
    """What the lines of a batch are about: from which day to which, and since when."""
    timely = F.col("problem").isNull() & ~F.col("late")
    touched = lines.where(timely).select("subject").distinct()
    return (
        events.join(touched, "subject", "left_semi")
        .groupBy("subject")
        .agg(
            F.min("date").alias("first"),
            F.max("date").alias("last"),
            F.to_date(begun()).alias("begun"),
        )
    )


def runs_of(lines: DataFrame) -> DataFrame:
    """The runs of all lines of a batch, late ones too; those tell nothing else."""
    events = lines.where(F.col("problem").isNull())
    return boot_runs.runs(events, heard=~F.col("late"))


def problems_of(
    lines: DataFrame, spans: DataFrame, open_from: date | None
) -> DataFrame:
    """Those of the lines of a batch."""
    found = read.line_problems(lines)
    if open_from is None:
        return found
    # Of what began on a day that is closed there is a row already.
    closed = spans.where(F.col("begun") < F.lit(open_from)).select("subject", "begun")
    events = lines.where(F.col("problem").isNull()).join(closed, "subject", "left")
    day = F.when(F.col("late"), F.col("date")).otherwise(F.col("begun"))
    late = events.where(day.isNotNull()).groupBy("node", "boot")
    rows = late.agg(F.count("*").alias("count"), F.min(day).alias("day"))
    example = F.format_string(
        f"of %s and later; days before {open_from} are closed",
        F.col("day").cast("string"),
    )
    return found.unionByName(
        rows.select(
            F.lit(LATE_LINE).alias("kind"),
            F.concat_ws(" ", "node", "boot").alias("place"),
            "count",
            example.alias("example"),
        )
    )


def kept(events: DataFrame, open_from: date | None) -> DataFrame:
    """The events that a later batch may need."""
    if open_from is None:
        return events
    needed = events.groupBy("subject").agg(
        F.max("date").alias("last"), is_open().alias("open")
    )
    needed = needed.where((F.col("last") >= F.lit(open_from)) | F.col("open"))
    return events.join(needed.select("subject"), "subject", "left_semi")
