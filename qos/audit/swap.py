"""Replaces rows of a table by others with the same keys, for tables of any size.

Only the files with such rows are written again, each by itself. So a file keeps its
hours, and is found by them. Everything is one commit, and repeating it changes nothing.
When rows will not change any more, many files are merged into few.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from datetime import date
from functools import reduce
from typing import Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from qos.audit import delta, store
from qos.audit.forgetting import without_forgotten
from qos.audit.locations import spark_folder
from qos.audit.snapshot import files

__all__ = ["Hour", "erase", "join_files", "read_hours", "swap"]

#: A date and an hour: each table has these columns.
Hour: TypeAlias = tuple[date, int]

#: If the files or bytes are at most these, they are written again without first looking
#: for the keys.
_FILES_FEW: Final = 2
_BYTES_FEW: Final = 1_000_000

#: If there are more files, they are not each written by themselves.
_KEPT_APART: Final = 32

#: The bytes of a file that is written again.
_FILE_BYTES: Final = 128 * 2**20


def swap(
    rows: DataFrame,
    folder: str,
    *,
    on: Sequence[str],
    keys: DataFrame,
    hours: Collection[Hour],
) -> None:
    """Replace the rows with some keys by others.

    Args:
        rows: the new rows, all with such keys.
        folder: the folder of the table, which is created if necessary.
        on: the columns of the keys. A null is a value.
        keys: the keys; this frame is used several times.
        hours: the hours of the new and of the replaced rows.

    Raises:
        CannotWrite: see qos.audit.delta.replace.
    """
    spark = rows.sparkSession
    table = delta.open_table(spark, folder)
    if table is None:
        table = delta.create(spark, folder, rows.schema, ["date"])
    if not hours:
        return
    sizes = _files_of(table, hours)
    if len(sizes) > _FILES_FEW and sum(sizes.values()) > _BYTES_FEW:
        sizes = _with_keys(spark, table, rows.schema, sizes, on, keys)
    without = [
        _read(spark, table, rows.schema, paths)
        .join(_named(keys, on), _same(on), "left_anti")
        .coalesce(1 + sum(sizes[path] for path in paths) // _FILE_BYTES)
        for paths in _apart(sizes)
    ]
    # This makes few files, without one task for all rows of a big day.
    new = without_forgotten(rows, folder).hint("rebalance", "date")
    parts = [new, *without]
    now_ms = round(time.time() * 1000)
    delta.replace(
        reduce(DataFrame.unionByName, parts),
        folder,
        partition_by=["date"],
        removed=[RemoveAction(path, True, now_ms) for path in sizes],
    )


def join_files(
    spark: SparkSession, folder: str, schema: StructType, first: date | None, last: date
) -> None:
    """Merge the many files in which some days were written into few. No row changes.

    Args:
        spark: the session.
        folder: the folder of the table.
        schema: the schema of the table.
        first: the first of the days; None: from the first day on.
        last: the last of the days.

    Raises:
        CannotWrite: see qos.audit.delta.replace.
    """
    table = delta.open_table(spark, folder)
    if table is None:
        return
    groups = _groups(table, first, last)
    now_ms = round(time.time() * 1000)
    for start in range(0, len(groups), _KEPT_APART):
        batch = groups[start : start + _KEPT_APART]
        parts = [_read(spark, table, schema, paths).coalesce(1) for paths in batch]
        delta.replace(
            reduce(DataFrame.unionByName, parts),
            folder,
            partition_by=["date"],
            removed=[
                RemoveAction(path, False, now_ms) for paths in batch for path in paths
            ],
            data_change=False,
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
    place = F.col("_metadata.file_path").alias("place")
    rows = _all_of(spark, table, schema, paths)
    touched = _paths_at(rows.where(erased).select(place), paths)
    if not touched:
        return False
    now_ms = round(time.time() * 1000)
    delta.replace(
        _read(spark, table, schema, touched).where(~erased),
        folder,
        partition_by=table.metadata().partition_columns,
        removed=[RemoveAction(path, True, now_ms) for path in touched],
        cause="forget",
    )
    return True


def read_hours(
    spark: SparkSession, folder: str, schema: StructType, hours: Collection[Hour]
) -> DataFrame:
    """The rows of these hours; no other files are read."""
    table = delta.open_table(spark, folder)
    if table is None:
        return spark.createDataFrame([], schema)
    rows = _read(spark, table, schema, list(_files_of(table, hours)))
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
    place = F.col("_metadata.file_path").alias("place")
    rows = _all_of(spark, table, schema, list(sizes)).select(place, *on)
    hits = rows.join(_named(keys, on), _same(on), "left_semi")
    return {path: sizes[path] for path in _paths_at(hits, sizes)}


def _paths_at(rows: DataFrame, paths: Collection[str]) -> list[str]:
    """Those of the paths within a table that are the `place` of a row."""
    places = [
        unquote(row["place"]).split("/")
        for row in rows.select("place").distinct().collect()
    ]
    # Ours are in the folder of a write; somebody else may have written others.
    parts = {path.count("/") + 1 for path in paths}
    tails = {"/".join(place[-count:]) for place in places for count in parts}
    return [path for path in paths if path in tails]


def _groups(table: DeltaTable, first: date | None, last: date) -> list[list[str]]:
    """The files that should become one, two or more in each group.

    They are of one day, and were written one after the other: so most rows in each file
    are of few hours.
    """
    table_files: pa.Table = files(table, first, last)
    if not len(table_files):
        return []
    # Many files may be written in the same second, with which `path` begins.
    order = ["partition.date", "modification_time", "path"]
    rows = table_files.sort_by([(name, "ascending") for name in order])
    groups: list[list[str]] = []
    day, size = None, 0
    for row in rows.select([*order, "size_bytes"]).to_pylist():
        size += row["size_bytes"]
        if row["partition.date"] != day or size > _FILE_BYTES:
            groups.append([])
            day, size = row["partition.date"], row["size_bytes"]
        groups[-1].append(row["path"])
    return [paths for paths in groups if len(paths) > 1]


def _apart(sizes: dict[str, int]) -> list[list[str]]:
    """The files in groups, in the order of writing."""
    paths = sorted(sizes)
    size = -(-len(paths) // _KEPT_APART) or 1
    return [paths[start : start + size] for start in range(0, len(paths), size)]


def _read(
    spark: SparkSession, table: DeltaTable, schema: StructType, paths: list[str]
) -> DataFrame:
    if not paths:
        return spark.createDataFrame([], schema)
    return _all_of(spark, table, schema, paths).select(*schema.names)


def _all_of(
    spark: SparkSession, table: DeltaTable, schema: StructType, paths: list[str]
) -> DataFrame:
    folder = spark_folder(table.table_uri)
    names = [store.literal(f"{folder}/{path}") for path in paths]
    return spark.read.option("basePath", folder).schema(schema).parquet(*names)


def _named(keys: DataFrame, on: Sequence[str]) -> DataFrame:
    return keys.select(*(F.col(name).alias(f"key {name}") for name in on))


def _same(on: Sequence[str]) -> Column:
    comparisons: list[Column] = [
        F.col(name).eqNullSafe(F.col(f"key {name}")) for name in on
    ]
    return reduce(Column.__and__, comparisons)
