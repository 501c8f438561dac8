"""The tables of an audit, each a Delta table with a partition for each day.

A table is replaced in one commit: readers see all of it, or nothing. The table `audits`
has the versions that belong together.
"""

from __future__ import annotations

from datetime import date

import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.audit import delta
from qos.audit.delta import CannotWrite
from qos.audit.delta_schema import delta_schema, other_types
from qos.audit.forgetting import without_forgotten
from qos.audit.hadoop import children, remove, write
from qos.audit.read import literal
from qos.audit.snapshot import files, spark_frame
from qos.audit.unchanged import are_same_rows

__all__ = [
    "CannotWrite",
    "children",
    "clear_days",
    "count_rows",
    "days_with_rows",
    "has_days",
    "is_complete",
    "literal",
    "opened",
    "overwrite",
    "read_table",
    "remove",
    "replace_days",
    "replace_table",
]


#: The file that completes a folder, written last; Spark reads no file of such a name.
_COMPLETE = "_complete"

#: An audit of at most this many days has few of them.
_DAYS_FEW = 3


def opened(like: DataFrame, folder: str) -> DeltaTable:
    """A table as it is now, to read rows of it that `replace_days` writes again.

    Args:
        like: a frame with the columns of the table; it is not computed.
        folder: see replace_days.
    """
    return delta.opened(like.sparkSession, folder, like.schema, ["date"])


def replace_days(
    table: DataFrame,
    folder: str,
    first: date,
    last: date,
    *,
    former: DeltaTable | None = None,
) -> None:
    """Write the rows of these days, replacing the existing rows of these days.

    No row is there twice, however often this is interrupted or repeated.

    Args:
        table: with the column `date`; rows of other days are left out.
        folder: the folder of this table. It is created if necessary.
        first: the first day.
        last: the last day.
        former: the table as it was opened to read rows that are written again: if
            somebody has changed it since, nothing is written. None: as it is now.

    Raises:
        CannotWrite: see qos.audit.delta.replace.
    """
    rows = _of_days(table, folder, first, last)
    if (last - first).days >= _DAYS_FEW:
        # This makes few files, without one task for all rows of a big day. If there are
        # few days, each task may have a file for each: this saves moving all rows.
        rows = rows.hint("rebalance", "date")
    delta.replace(
        rows,
        folder,
        partition_by=["date"],
        replaced_days=(first, last),
        table=former,
    )


def has_days(table: DataFrame, folder: str, first: date, last: date) -> bool:
    """Whether replace_days would change no row; see qos.audit.unchanged.

    It looks at the table as it is now. If somebody changes the table after that, either
    nothing is written, and the change stays; or replace_days has a `former` table, and
    fails; or the rows are all made of lines, and replace what they would replace at any
    other moment.

    Args: see replace_days.
    """
    if not _has_columns(table, folder):
        return False
    count = count_rows(table.sparkSession, folder, first, last)
    if not count:
        # Of the new rows nothing is known yet. To write them costs no more than this.
        return False
    table_rows = read_table(table, folder, first, last)
    return are_same_rows(_of_days(table, folder, first, last), table_rows)


def _of_days(table: DataFrame, folder: str, first: date, last: date) -> DataFrame:
    rows = table.where(F.col("date").between(F.lit(first), F.lit(last)))
    return without_forgotten(rows, folder)


def _has_columns(table: DataFrame, folder: str) -> bool:
    """Whether there is a table with all columns of a frame, and of the same types."""
    delta_table = delta.open_table(table.sparkSession, folder)
    if delta_table is None:
        return False
    columns = delta_schema(table.schema, delta.name_of(folder))
    names = {field.name for field in delta_table.schema().fields}
    return names >= {*table.columns} and not other_types(delta_table, columns)


def clear_days(like: DataFrame, folder: str, first: date, last: date) -> None:
    """Remove the rows of these days; the same as to write none, but without Spark.

    Where there is none, nothing is written.

    Args:
        like: a frame with the columns of the table; it is not computed.
        folder: see replace_days.
        first: the first day.
        last: the last day.

    Raises:
        CannotWrite: see qos.audit.delta.replace.
    """
    delta.clear(like, folder, partition_by=["date"], replaced_days=(first, last))


def replace_table(table: DataFrame, folder: str) -> None:
    """Write a small table that has no days, if its rows are not there already.

    No row is read from it to be written again.
    """
    rows = without_forgotten(table, folder).coalesce(1)
    if _has_columns(table, folder) and are_same_rows(rows, read_table(table, folder)):
        return
    delta.replace(rows, folder)


def read_table(
    like: DataFrame, folder: str, first: date | None = None, last: date | None = None
) -> DataFrame:
    """A written table, with the columns of the frame that was written.

    It stays as it is now, whatever is written later.

    Args:
        like: the frame that was written.
        folder: see replace_days.
        first: the first day; None: all.
        last: the last day.
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
    """The number of rows of a table in these days, from its log; see read_table."""
    table = delta.open_table(spark, folder)
    if table is None:
        return 0
    return sum(files(table, first, last)["num_records"].to_pylist())


def days_with_rows(
    spark: SparkSession, folder: str, first: date, last: date
) -> set[date]:
    """Those of these days that have a row in a table, from its log."""
    table = delta.open_table(spark, folder)
    if table is None:
        return set()
    filled = files(table, first, last).filter(pc.field("num_records") > 0)
    return set(filled["partition.date"].to_pylist())


def overwrite(table: DataFrame, folder: str) -> None:
    """Write a small frame as Parquet, for our own use: it is no table for readers.

    Whether all of it was written, says is_complete.
    """
    table.coalesce(1).write.mode("overwrite").parquet(folder)
    write(table.sparkSession, f"{folder}/{_COMPLETE}", b"")


def is_complete(spark: SparkSession, folder: str) -> bool:
    """Whether `overwrite` has written a frame here to its end."""
    # Spark's own mark, which a setting of Hadoop switches off, was that of former
    # versions.
    return not {_COMPLETE, "_SUCCESS"}.isdisjoint(children(spark, folder))
