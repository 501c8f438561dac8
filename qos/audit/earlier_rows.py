"""Rows of days whose lines a retention, or somebody's hand, has removed meanwhile.

A message may begin on one day and end on the next one. When the first day's lines are
gone, the lines of the next day say nothing of the beginning. Without what is here they
would become a second row of the same message.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import date, timedelta
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import store

__all__ = ["are_before", "last_gone", "without_earlier"]

#: The days before an audit's first one in which it looks for rows. A message that takes
#: longer is carried over as one that has not ended: see qos.audit.carry_over.
_LOOKED_AT: Final = timedelta(days=31)

_DAY: Final = timedelta(days=1)

#: The tables of what may take more than a day.
_TABLES: Final = ("deliveries", "queue_items")


def are_before(spark: SparkSession, out: str, first: date) -> bool:
    """Whether the tables of messages and items have rows of days before this one."""
    return any(
        store.count_rows(spark, f"{out}/{name}", None, first - _DAY) for name in _TABLES
    )


def last_gone(
    spark: SparkSession, out: str, days: Collection[str], first: date, last: date
) -> date | None:
    """The last day of which the tables have rows, and no file is there any more.

    To replace the rows of days before it would leave what begins there and ends on that
    day without its end.

    If somebody deletes the rows of that day afterwards, fewer days are audited than might
    be. If somebody brings rows of such a day back while an audit runs, the audit replaces
    them, as it does with all rows of its days; the version that has them can be restored
    once more.

    Args:
        spark: the session.
        out: the folder of the tables.
        days: those of files, as text.
        first: the first of the days to look at.
        last: the last one.
    """
    with_rows: set[date] = set()
    for name in _TABLES:
        with_rows |= store.days_with_rows(spark, f"{out}/{name}", first, last)
    return max((day for day in with_rows if day.isoformat() not in days), default=None)


def without_earlier(
    rows: DataFrame, folder: str, on: Sequence[str], begun_at: str, first: date
) -> DataFrame:
    """Leave out the rows of what has a row of an earlier day already.

    The rows of earlier days are not written. If somebody deletes such a row meanwhile, it
    is gone as if deleted later.

    Args:
        rows: of messages or items. They are computed twice.
        folder: the folder of their table.
        on: the columns by which a row of an earlier day is of the same.
        begun_at: a column that is null if the lines of the beginning are missing.
        first: the first day of the rows.
    """
    spark, days = rows.sparkSession, (first - _LOOKED_AT, first - _DAY)
    if not store.count_rows(spark, folder, *days):
        return rows
    keys = rows.where(F.col(begun_at).isNull()).select(*on).distinct().localCheckpoint()
    if keys.isEmpty():
        return rows
    earlier = store.read_table(keys, folder, *days)
    earlier = earlier.join(F.broadcast(keys), [*on], "left_semi").distinct()
    return rows.join(F.broadcast(earlier.localCheckpoint()), [*on], "left_anti")
