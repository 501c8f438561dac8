"""Replaces rows of a table by others with the same keys, for tables of any size.

Only the files with such rows are written again, each by itself. So a file keeps its
hours, and is found by them. Everything is one commit, and repeating it changes nothing.
When rows will not change any more, many files are merged into few.

What deltalake 1.6.6 has was tried in place of this: a merge (its source has the keys to
be deleted and the rows to be inserted), and an overwrite of the hours by a predicate. Both
make the same rows, carry the mark of our commits, and fail if somebody else has committed
since. Measured was `deliveries` with 1,000,000 rows of three days, 106 MB, a file for each
hour. Keys of the last day got other rows: each way once, in turn, on a copy of that table,
in one process on two busy processors. *CPU* is seconds of Java and Python, *memory* the
peak of Python above what it had before, and *hour* the files with the rows of one hour
afterwards, which the next look at it reads::

    keys, files         here                merge               overwrite
                        CPU  memory hour    CPU  memory hour    CPU  memory hour
    9,974 in 2           1.8   1 MB  2 MB   1.3  86 MB   3 MB   2.6  38 MB   3 MB
    104 in 24           27.6   3 MB  1 MB   3.1 251 MB  38 MB   9.1 518 MB  41 MB
    10,095 in 24        19.6   1 MB  3 MB   2.7 349 MB  38 MB   7.9 519 MB  41 MB
    100,097 in 24       31.5   3 MB 12 MB   5.1 542 MB  39 MB  12.2 344 MB  41 MB

Neither was kept, though they take less CPU for many files, each of which is a plan of its
own here. They write all files of a day as one. So a look at an hour, with a few late rows
of the hour before, writes the whole day again: the twelfth look wrote 21 MB by merge, and
here 3 MB, as the second. All these rows pass through the memory of the driver, on a cluster too, and new
rows are written twice, since they leave Spark by files. Nor is it shorter: 56 lines in
place of 60. Whole days (333,333 rows) took 6.1 s of CPU and 583 MB by overwrite, and 4.5 s
and 5 MB by Spark. A delete by a predicate, for erase, would write the name of an account
that asked to be forgotten into the history of the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from datetime import date
from functools import reduce
from typing import Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from qos.audit import delta
from qos.audit.commits import ours
from qos.audit.forgetting import without_forgotten
from qos.audit.snapshot import files, read_files

__all__ = ["Hour", "erase", "join_files", "read_hours", "swap"]

#: A date and an hour: each table has these columns.
Hour: TypeAlias = tuple[date, int]

#: If the files or bytes are at most these, they are written again without first looking
#: for the keys.
_FILES_FEW: Final = 2
_BYTES_FEW: Final = 1_000_000

#: If there are more files, they are not each written by themselves: neighbours become
#: one. Each file is a plan of its own, which takes processor time; fewer files have more
#: hours each, and the next look at one hour reads and writes all of them. A day of a
#: follower has 24 files and a few small ones with late rows of all hours, so up to 32
#: keep their hours. Measured as above, the means of three runs: *CPU*, and the *hour*::
#:
#:     keys, files               4            8           16           32
#:     10,060 in 2        1.8 2 MB     1.5 2 MB     1.4 2 MB     1.4 2 MB
#:     127 in 24          8.9 9 MB    10.1 4 MB    13.3 3 MB    19.8 1 MB
#:     9,983 in 24       7.3 10 MB     8.2 6 MB    11.5 4 MB    14.9 3 MB
#:     118 in 72         9.9 24 MB   10.9 12 MB    15.8 6 MB    25.7 3 MB
#:     333,312 in 24    19.9 31 MB   19.5 32 MB   26.4 31 MB   42.6 31 MB
#:     the tenth look                4.4 14 MB     6.0 3 MB    10.5 2 MB
#:
#: The memory of Python is the same, at most 7 MB. In the last row, of one run, each of
#: ten looks has late rows of all hours, half of which the look before has written, too.
#: With 8, the second one finds 9 files, and merges some with rows of the whole day.
_KEPT_APART: Final = 32

#: The column with the file of a row. No table has one with a space in its name.
_PLACE: Final = "file of the row"

#: The bytes of a file that is written again.
_FILE_BYTES: Final = 128 * 2**20


def swap(
    rows: DataFrame,
    folder: str,
    *,
    on: Sequence[str],
    keys: DataFrame,
    hours: Collection[Hour],
    table: DeltaTable | None = None,
) -> None:
    """Replace the rows with some keys by others.

    Args:
        rows: the new rows, all with such keys.
        folder: the folder of the table, which is created if necessary.
        on: the columns of the keys. A null is a value.
        keys: the keys; this frame is used several times.
        hours: the hours of the new and of the replaced rows.
        table: the table as it was opened to read rows that are written again; None: as
            it is now.

    Raises:
        CannotWrite: see qos.audit.delta.replace.
    """
    spark = rows.sparkSession
    if table is None:
        table = delta.opened(spark, folder, rows.schema, ["date"])
    if not hours:
        return
    sizes = _files_of(table, hours)
    if len(sizes) > _FILES_FEW and sum(sizes.values()) > _BYTES_FEW:
        sizes = _with_keys(spark, table, rows.schema, sizes, on, keys)
    without = [
        read_files(spark, table, rows.schema, paths)
        .join(_named(keys, on), _same(on), "left_anti")
        .coalesce(1 + sum(sizes[path] for path in paths) // _FILE_BYTES)
        for paths in _apart(sizes)
    ]
    # This makes few files, without one task for all rows of a big day.
    new = without_forgotten(rows, folder).hint("rebalance", "date")
    parts = [new, *without]
    delta.replace(
        reduce(DataFrame.unionByName, parts),
        folder,
        partition_by=["date"],
        removed=sizes,
        table=table,
    )


def join_files(
    spark: SparkSession, folder: str, first: date | None, last: date
) -> None:
    """Merge the many files in which some days were written into few. No row changes.

    Files become one in the order in which they were written: so most rows in each file
    are of few hours. The merge fails if somebody else has removed one of them since the
    table was opened.

    Args:
        spark: the session.
        folder: the folder of the table.
        first: the first of the days; None: from the first day on.
        last: the last of the days.

    Raises:
        CannotWrite: see qos.audit.delta.replace.
    """
    table = delta.open_table(spark, folder)
    if table is None:
        return
    with delta.errors_name(folder):
        table.optimize.compact(
            partition_filters=delta.days(first or date.min, last),
            target_size=_FILE_BYTES,
            commit_properties=ours(),
            post_commithook_properties=delta.KEEPS_ITS_LOG,
        )


def erase(
    spark: SparkSession, folder: str, is_erased: Callable[[StructType], Column]
) -> bool:
    """Remove rows from a table for good; only the files with such rows are written.

    Args:
        spark: the session.
        folder: the folder of the table.
        is_erased: whether a row is to be removed, for a table with these columns.

    Returns:
        Whether there was such a row.

    Raises:
        CannotWrite: see qos.audit.delta.replace.
    """
    table = delta.open_table(spark, folder)
    if table is None:
        return False
    paths: list[str] = files(table)["path"].to_pylist()
    if not paths:
        return False
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    erased = is_erased(schema)
    rows = read_files(spark, table, schema, paths, _place())
    touched = _paths_at(rows.where(erased), paths)
    if not touched:
        return False
    delta.replace(
        read_files(spark, table, schema, touched).where(~erased),
        folder,
        partition_by=table.metadata().partition_columns,
        removed=touched,
        table=table,
        cause="forget",
    )
    return True


def read_hours(
    spark: SparkSession,
    folder: str,
    schema: StructType,
    hours: Collection[Hour],
    table: DeltaTable | None = None,
) -> DataFrame:
    """The rows of these hours; no other files are read.

    Args:
        spark: the session.
        folder: the folder of the table.
        schema: its columns, to choose some.
        hours: the hours.
        table: the table as it was opened; None: as it is now.
    """
    if table is None:
        table = delta.open_table(spark, folder)
    if table is None:
        return spark.createDataFrame([], schema)
    rows = read_files(spark, table, schema, list(_files_of(table, hours)))
    return rows.where(in_hours(hours))


def in_hours(hours: Collection[Hour]) -> Column:
    """Whether a row is of one of these hours."""
    conditions = [
        (F.col("date") == F.lit(day)) & F.col("hour").isin(hours_of_day)
        for day, hours_of_day in _by_day(hours).items()
    ]
    return reduce(Column.__or__, conditions, F.lit(False))


def _by_day(hours: Collection[Hour]) -> dict[date, list[int]]:
    by_day: dict[date, list[int]] = {}
    for day, hour in hours:
        by_day.setdefault(day, []).append(hour)
    return by_day


def _files_of(table: DeltaTable, hours: Collection[Hour]) -> dict[str, int]:
    """The files that may have rows of these hours, and their sizes."""
    by_day = _by_day(hours)
    names = ["path", "size_bytes", "partition.date", "min.hour", "max.hour"]
    table_files: pa.Table = files(table)
    if not len(table_files):
        return {}
    return {
        row["path"]: row["size_bytes"]
        for row in table_files.select(names).to_pylist()
        if any(
            row["min.hour"] <= hour <= row["max.hour"]
            for hour in by_day.get(row["partition.date"], ())
        )
    }


def _with_keys(
    spark: SparkSession,
    table: DeltaTable,
    schema: StructType,
    sizes: dict[str, int],
    on: Sequence[str],
    keys: DataFrame,
) -> dict[str, int]:
    """Those of these files that have a row with such a key."""
    rows = read_files(spark, table, schema, list(sizes), _place())
    hits = rows.join(_named(keys, on), _same(on), "left_semi")
    return {path: sizes[path] for path in _paths_at(hits, sizes)}


def _paths_at(rows: DataFrame, paths: Collection[str]) -> list[str]:
    """Those of the paths within a table that are the file of a row."""
    places = [
        unquote(row[_PLACE]).split("/")
        for row in rows.select(_PLACE).distinct().collect()
    ]
    # Ours are in the folder of a write; somebody else may have written others.
    parts = {path.count("/") + 1 for path in paths}
    tails = {"/".join(place[-count:]) for place in places for count in parts}
    return [path for path in paths if path in tails]


def _apart(sizes: dict[str, int]) -> list[list[str]]:
    """The files in groups, in the order of writing."""
    paths = sorted(sizes)
    size = -(-len(paths) // _KEPT_APART) or 1
    return [paths[start : start + size] for start in range(0, len(paths), size)]


def _place() -> Column:
    """The file of a row."""
    return F.col("_metadata.file_path").alias(_PLACE)


def _named(keys: DataFrame, on: Sequence[str]) -> DataFrame:
    return keys.select(*(F.col(name).alias(f"key {name}") for name in on))


def _same(on: Sequence[str]) -> Column:
    comparisons: list[Column] = [
        F.col(name).eqNullSafe(F.col(f"key {name}")) for name in on
    ]
    return reduce(Column.__and__, comparisons)
