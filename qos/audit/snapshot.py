"""The tables of an audit, for readers during later audits.

An audit commits each table separately, and then writes into the table `audits` which
versions belong together. Data read at these versions is the work of one whole audit,
even while another one writes or after it was killed::

    tables = snapshot("audit")
    tables["deliveries"].to_pandas()
    duckdb.from_arrow(tables["anomalies"].to_pyarrow_dataset())
    spark_frame(spark, tables["routes_hourly"])

What somebody else has changed in a table since that audit is in it, too: rows that were
deleted are gone. If another audit has written into the table before, the change is seen
when that audit has ended, or, if it was killed, the next one. A version can be read for
a week after a newer audit has replaced it. Only `spark_frame` needs Spark.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from functools import reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from qos.audit.commits import foreign_since, shown_version
from qos.audit.locations import delta_uri, spark_folder

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "AUDITS",
    "NoAudit",
    "audits",
    "files",
    "read_files",
    "snapshot",
    "spark_frame",
]

#: The table that has a row for each audit.
AUDITS = "audits"


class NoAudit(Exception):
    """There is no table of a finished audit; the text is one line."""


def snapshot(
    out: str, *, storage_options: dict[str, str] | None = None
) -> dict[str, DeltaTable]:
    """The tables by name, as the last finished audit has left them.

    Args:
        out: the folder that was given to the audit, or its URI.
        storage_options: see deltalake.DeltaTable.

    Raises:
        NoAudit: no audit was finished there.
    """
    try:
        rows = audits(DeltaTable(delta_uri(f"{out}/{AUDITS}"), None, storage_options))
    except TableNotFoundError:
        rows = []
    if not rows:
        raise NoAudit(f"{out}: no audit was finished there")
    return {
        name: _shown(delta_uri(f"{out}/{name}"), version, storage_options)
        for name, version in rows[-1]["versions"]
    }


def _shown(uri: str, recorded: int, options: dict[str, str] | None) -> DeltaTable:
    """A table as the last audit has recorded it, with later changes by others."""
    table = DeltaTable(uri, None, options)
    shown = shown_version(foreign_since(table, recorded), recorded)
    return table if shown == table.version() else DeltaTable(uri, shown, options)


def audits(table: DeltaTable) -> list[dict[str, Any]]:
    """The rows of `audits`, the oldest first.

    Returns:
        `number`, `finished_at`, `first_day` and `last_day` (null if there was no line)
        and `versions`, pairs of the name of a table and its version.
    """
    rows = table.to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["number"])


def spark_frame(
    spark: SparkSession,
    table: DeltaTable,
    *,
    schema: StructType | None = None,
    first: date | None = None,
    last: date | None = None,
) -> DataFrame:
    """A table as a frame of Spark, at the version that was opened.

    Args:
        spark: the session.
        table: a table of `snapshot`.
        schema: its columns, to choose some, or to use Spark's types for them.
        first: the first day; None: all. Only for a table that has days.
        last: the last day.
    """
    from pyspark.sql.types import StructType

    if schema is None:
        schema = StructType.fromJson(json.loads(table.schema().to_json()))
    paths = files(table, first, last)["path"].to_pylist()
    return read_files(spark, table, schema, paths)


def read_files(
    spark: SparkSession,
    table: DeltaTable,
    schema: StructType,
    paths: Sequence[str],
    *more: Column,
) -> DataFrame:
    """Some files of a table as a frame of Spark.

    Args:
        spark: the session.
        table: the table.
        schema: its columns, to choose some.
        paths: the paths of the files within the folder of the table.
        more: columns beside those of the schema, made of `_metadata`.
    """
    from qos.audit.read import literal

    if not paths:
        # Spark knows that this frame is empty, and starts no job to find out.
        return spark.createDataFrame([], schema).limit(0)
    folder = spark_folder(table.table_uri)
    # Files of an audit are in the folder of a write, and those of deltalake are not.
    # Spark takes each `name=value` of a path below the folder for a partition, and
    # reads together only files with the same names.
    by_names = defaultdict(list)
    for path in paths:
        names = tuple(part.partition("=")[0] for part in path.split("/")[:-1])
        by_names[names].append(literal(f"{folder}/{path}"))
    reader = spark.read.option("basePath", folder).schema(schema)
    frames = [
        reader.parquet(*same).select(*schema.names, *more) for same in by_names.values()
    ]
    return reduce(lambda one, another: one.unionByName(another), frames)


def files(
    table: DeltaTable, first: date | None = None, last: date | None = None
) -> pa.Table:
    """The files of a table, of these days; see spark_frame.

    Returns:
        `path` within the folder of the table, `num_records`, and more.
    """
    actions = pa.table(table.get_add_actions(flatten=True))
    # The log has paths as URIs: `part-%D9%A0.parquet`.
    paths = pa.array(
        [unquote(path) for path in actions["path"].to_pylist()], pa.string()
    )
    at = actions.schema.get_field_index("path")
    actions = actions.set_column(at, "path", paths)
    if first is not None:
        actions = actions.filter(pc.field("partition.date") >= first)
    if last is not None:
        actions = actions.filter(pc.field("partition.date") <= last)
    return actions
