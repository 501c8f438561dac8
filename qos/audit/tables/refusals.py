"""The table of refused requests: sender, refuser and reason."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from qos.audit.tables.columns import bare, by_hour, distinct_lines, event_is, role_is
from qos.journal.schema import ReceiverEvent, Role

__all__ = ["refusals"]


def refusals(events: DataFrame) -> DataFrame:
    """One row for each hour, source, receiver and condition.

    Returns:
        Columns `date`, `hour`, `source` and `receiver` (accounts), `condition` (null:
        none), `level` (of the refused request, or null), `refusals`, `bytes`,
        `first_at`, `last_at`.
    """
    refused = events.where(
        role_is(Role.RECEIVER) & event_is(ReceiverEvent.REFUSED)
    ).withColumns(
        {
            "source": F.coalesce(bare(F.col("source")), F.lit("")),
            "receiver": bare(F.coalesce("to", "node")),
        }
    )
    keys = ("date", "hour", "source", "receiver", "condition", "level")
    rows = by_hour(distinct_lines(refused), "at").groupBy(*keys)
    return rows.agg(
        F.count("*").alias("refusals"),
        F.coalesce(F.try_sum("bytes"), F.lit(0)).alias("bytes"),
        F.min("at").alias("first_at"),
        F.max("at").alias("last_at"),
    )
