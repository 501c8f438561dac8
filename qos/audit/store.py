"""The tables of an audit, each a Delta table with a partition for each day.

A table is replaced in one commit: readers see all of it, or nothing. Which versions of
the tables belong together is in `audits`.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import delta
from qos.audit.delta import CannotWrite
from qos.audit.hadoop import children, remove
from qos.audit.read import literal
from qos.audit.snapshot import files, spark_frame

__all__ = [
    "CannotWrite",
    "children",
    "count_rows",
    "literal",
    "overwrite",
    "read_table",
    "remove",
    "replace_days",
    "replace_table",
]


#: So many days of an audit are few.
_DAYS_FEW = 3


def replace_days(table: DataFrame, folder: str, first: date, last: date) -> int:
    """Write the rows of these days; what was there of these days is gone after.

    Whenever it is interrupted, and however often it is done, no row is there twice.

    Args:
        table: with the column `date`; rows of other days are left out.
        folder: of this table. It is made if need be.
        first: the first day.
        last: the last one.

    Returns:
        The version of the table that has them.

    Raises:
        CannotWrite: see qos.audit.delta.replace.
    """
    rows = table.where(F.col("date").between(F.lit(first), F.lit(last)))
    if (last - first).days >= _DAYS_FEW:
        # Few files, and no task that has all of a big day to itself. Of few days each
        # task may have a file of each: that spares all rows a move.
        rows = rows.hint("rebalance", "date")
    where = delta.days(first, last)
    return delta.replace(rows, folder, partition_by=["date"], where=where)


def replace_table(table: DataFrame, folder: str) -> int:
    """Write a small table that has no days; see replace_days."""
    return delta.replace(table.coalesce(1), folder)


def read_table(
    like: DataFrame, folder: str, first: date | None = None, last: date | None = None
) -> DataFrame:
    """A table that was written, with the columns of the frame that was written.

    It stays as it is now, whatever is written later.

    Args:
        like: what was written.
        folder: see replace_days.
        first: the first day wanted; None: all.
        last: the last one.
    """
    spark = like.sparkSession
    table = delta.open_table(spark, folder)
    if table is None:
        return spark.createDataFrame([], like.schema)
    return spark_frame(spark, table, schema=like.schema, first=first, last=last)


def count_rows(
    spark: SparkSession,
    folder: str,
    first: date | None = None,
    last: date | None = None,
) -> int:
    """How many rows a table has in these days, as its log says; see read_table."""
    table = delta.open_table(spark, folder)
    if table is None:
        return 0
    return sum(files(table, first, last)["num_records"].to_pylist())


def overwrite(table: DataFrame, folder: str) -> None:
    """Write a small frame as Parquet, for ourselves: it is no table for readers."""
    table.coalesce(1).write.mode("overwrite").parquet(folder)
