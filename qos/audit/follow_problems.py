"""The problems that only a follower finds: late lines, and counts of several steps."""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qos.audit import tables

__all__ = ["LATE_LINE", "late_lines", "with_contradictions"]

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


def late_lines(late_runs: DataFrame, open_from: date | None) -> DataFrame:
    """The problems of lines that came too late.

    Args:
        late_runs: the runs of these lines; see qos.audit.boot_runs.
        open_from: the first day that is open.
    """
    count = F.sum(F.col("last_seq") - F.col("first_seq") + 1)
    day = F.min(F.to_date("first_at")).cast("string")
    rows = late_runs.groupBy("node", "boot").agg(count.alias("count"), day.alias("day"))
    text = f"of %s and later; days before {open_from} are closed"
    return rows.select(
        F.lit(LATE_LINE).alias("kind"),
        F.concat_ws(" ", "node", "boot").alias("place"),
        "count",
        F.format_string(text, "day").alias("example"),
    )
