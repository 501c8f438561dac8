"""Tables as Parquet, by date and hour; a day is replaced as a whole.

Knows the file system by Spark's own means, so that it may be any that Spark has.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from qos.pipeline.read import literal

__all__ = [
    "children",
    "literal",
    "read_table",
    "remove",
    "replace_days",
    "replace_table",
]

_PARTITIONS = ("date", "hour")


def replace_days(table: DataFrame, folder: str, first: date, last: date) -> None:
    """Write the rows of these days; what was there of these days is gone after.

    Whenever it is interrupted, and however often it is done, no row is there twice.

    Args:
        table: with the columns `date` and `hour`; rows of other days are left out.
        folder: of this table. It is made if need be.
        first: the first day.
        last: the last one.
    """
    spark = table.sparkSession
    before = set(_data_files(spark, folder, first, last))
    rows = table.where(F.col("date").between(F.lit(first), F.lit(last)))
    # Few files, and no task that has all of a big hour to itself.
    rows = rows.hint("rebalance", *_PARTITIONS)
    # Only hours that have rows are replaced by this…
    rows.write.partitionBy(*_PARTITIONS).option(
        "partitionOverwriteMode", "dynamic"
    ).mode("overwrite").parquet(folder)
    # …so the files that are still there are of hours that have none any more.
    for path in before.intersection(_data_files(spark, folder, first, last)):
        _hadoop(spark, path).delete(_path(spark, path), False)
    if not any(_data_files(spark, folder, date.min, date.max)):
        _say_columns(table, folder, first)


def replace_table(table: DataFrame, folder: str) -> None:
    """Write a small table that has no days."""
    table.coalesce(1).write.mode("overwrite").parquet(folder)


def read_table(
    like: DataFrame, folder: str, first: date | None = None, last: date | None = None
) -> DataFrame:
    """A table that was written, with the columns of the frame that was written.

    Args:
        like: what was written.
        folder: see replace_days.
        first: the first day wanted; None: all.
        last: the last one.
    """
    # Whoever does not know the columns gets them out of the files, in another order.
    frame = like.sparkSession.read.schema(like.schema).parquet(literal(folder))
    if first is not None:
        frame = frame.where(F.col("date") >= F.lit(first))
    if last is not None:
        frame = frame.where(F.col("date") <= F.lit(last))
    return frame.select(*like.columns)


def children(spark: SparkSession, folder: str) -> list[str]:
    """The names in a folder; none if there is no such folder."""
    system, root = _hadoop(spark, folder), _path(spark, folder)
    if not system.exists(root):
        return []
    return [str(each.getPath().getName()) for each in system.listStatus(root)]


def remove(spark: SparkSession, folder: str) -> None:
    """Remove a folder and all that is in it, if it is there."""
    _hadoop(spark, folder).delete(_path(spark, folder), True)


def _data_files(
    spark: SparkSession, folder: str, first: date, last: date
) -> Iterator[str]:
    """The files of these days."""
    system = _hadoop(spark, folder)
    root = _path(spark, folder)
    if not system.exists(root):
        return
    for day in system.listStatus(root):
        name = str(day.getPath().getName())
        if not f"date={first}" <= name <= f"date={last}":
            continue
        for hour in system.listStatus(day.getPath()):
            if hour.isDirectory():
                for file in system.listStatus(hour.getPath()):
                    if not str(file.getPath().getName()).startswith((".", "_")):
                        yield str(file.getPath())


def _say_columns(table: DataFrame, folder: str, day: date) -> None:
    """Write a file without rows: a folder without files cannot be read as a table.

    It is one of this day, and gone when the day is replaced.
    """
    empty = table.drop(*_PARTITIONS).limit(0)
    empty.write.mode("append").parquet(f"{folder}/date={day}/hour=0")


def _hadoop(spark: SparkSession, path: str) -> Any:
    """The file system of a path: Spark has no word of its own for it in Python."""
    context = cast(Any, spark.sparkContext)
    return _path(spark, path).getFileSystem(context._jsc.hadoopConfiguration())


def _path(spark: SparkSession, path: str) -> Any:
    # By its whole name at once: each part by itself is looked for in every jar.
    java = cast(Any, spark.sparkContext)._jvm
    return getattr(java, "org.apache.hadoop.fs.Path")(path)
