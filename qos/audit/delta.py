"""Delta tables that Spark writes and deltalake commits.

Spark writes Parquet files into a new folder of the table, `write=…`. Readers do not see
them until one commit adds them to the log and removes the files that they replace. If
Spark or this process dies before that, the table is unchanged, and the files belong to
no version.

A commit fails if another process has committed since the write began. Otherwise
deltalake would let two writers replace the same day, and keep the rows of both.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType, TimestampType

from qos.audit.commits import DESCRIPTION, ours
from qos.audit.hadoop import remove
from qos.audit.locations import (
    delta_uri,
    for_people,
    local_path,
    storage_options,
)
from qos.audit.parquet_files import add_actions, file_system

__all__ = [
    "CannotWrite",
    "Where",
    "clear",
    "commit",
    "create",
    "days",
    "errors_name",
    "files_of",
    "new_write",
    "open_table",
    "replace",
    "sweep",
]

#: Partitions, as deltalake names them: [("date", ">=", "2026-01-05")]. None: all.
Where: TypeAlias = Sequence[tuple[str, str, str]] | None

_WRITE: Final = "write="

#: Where no lock proves that nobody writes: a write that began earlier has ended.
_WRITE_TAKES_MAX: Final = timedelta(days=1)

#: How long a log keeps the names of removed files, so that it is known of every file
#: whether it ever belonged to the table.
_REMOVED_ARE_KNOWN: Final = "interval 30 days"

#: The options of each write.
_PARQUET: Final = {
    # The commit shows that a write is complete.
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # The files are 8 % larger than with the usual level 3, and written sooner.
    "parquet.compression.codec.zstd.level": "1",
}


class CannotWrite(Exception):
    """The tables cannot be written as requested; one line tells what to do."""


def replace(
    frame: DataFrame,
    folder: str,
    *,
    partition_by: Sequence[str] = (),
    partition_filter: Where = None,
    removed: Sequence[RemoveAction] | None = None,
    data_change: bool = True,
    cause: str = "",
) -> int:
    """Replace rows of a table by those of a frame, in one commit.

    Args:
        frame: all its rows must match `partition_filter`.
        folder: the folder of the table, which is created if necessary.
        partition_by: columns; their values are in the names of folders.
        partition_filter: the partitions to be replaced.
        removed: the files to be replaced, instead of those that match
            `partition_filter`.
        data_change: whether the frame has rows that the table did not have.
        cause: see qos.audit.commits.ours.

    Returns:
        The new version of the table.

    Raises:
        CannotWrite: another process has committed meanwhile; or the folder has no
            table, or one with other types.
    """
    spark = frame.sparkSession
    table, schema = _table_for(frame, folder, partition_by)
    write = new_write()
    writer = frame.write.options(**_PARQUET, **_without_dictionaries(frame.schema))
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.parquet(f"{folder}/{write}")
    with errors_name(folder):
        files = files_of(spark, folder)
        added = add_actions(files, write, data_change=data_change)
        return commit(
            table, added, schema, partition_by, partition_filter, removed, cause
        )


def clear(
    like: DataFrame,
    folder: str,
    *,
    partition_by: Sequence[str],
    partition_filter: Where,
) -> int:
    """Remove rows of a table, in one commit, without any work of Spark.

    Args:
        like: a frame with the columns of the table; it is not computed.
        folder: see replace.
        partition_by: see replace.
        partition_filter: the partitions to be removed.

    Returns:
        The new version of the table.

    Raises:
        CannotWrite: see replace.
    """
    table, schema = _table_for(like, folder, partition_by)
    with errors_name(folder):
        return commit(table, [], schema, partition_by, partition_filter)


def _table_for(
    frame: DataFrame, folder: str, partition_by: Sequence[str]
) -> tuple[DeltaTable, Schema]:
    """The table for rows of a frame, and its schema from now on."""
    spark = frame.sparkSession
    table = open_table(spark, folder)
    if table is None:
        table = create(spark, folder, frame.schema, partition_by)
    return table, _schema_with(table, frame.schema, folder)


def commit(
    table: DeltaTable,
    added: Sequence[AddAction],
    schema: Schema,
    partition_by: Sequence[str] = (),
    partition_filter: Where = None,
    removed: Sequence[RemoveAction] | None = None,
    cause: str = "",
) -> int:
    """Add files to a table in place of those that match `partition_filter`.

    Args:
        table: at the version that must still be the last one.
        added: the files.
        schema: the schema of the table from now on.
        partition_by: the partition columns of the table.
        partition_filter: the partitions to be replaced.
        removed: see replace.
        cause: see qos.audit.commits.ours.

    Returns:
        The new version.

    Raises:
        CommitFailedError: there is a newer version.
    """
    table.create_write_transaction(
        [*added, *(removed or ())],
        mode="overwrite" if removed is None else "append",
        schema=schema,
        partition_by=list(partition_by),
        partition_filters=None if partition_filter is None else list(partition_filter),
        commit_properties=ours(cause),
        # A version must be readable as long as its row in `audits` exists.
        post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
    )
    return table.version() + 1


def create(
    spark: SparkSession,
    folder: str,
    schema: StructType,
    partition_by: Sequence[str] = (),
) -> DeltaTable:
    """Create a table without rows.

    Raises:
        CannotWrite: there are other files in the folder.
    """
    with errors_name(folder):
        files = files_of(spark, folder)
        entries = files.get_file_info(pafs.FileSelector("", recursive=False))
        # A process that was killed here may have left a log without an entry.
        if any(info.path != "_delta_log" for info in entries):
            raise CannotWrite(
                f"{for_people(folder)}: there are files in it that belong to no Delta "
                "table: give another folder, or remove them"
            )
        return DeltaTable.create(
            delta_uri(folder),
            _delta_schema(schema),
            partition_by=list(partition_by),
            configuration={"delta.deletedFileRetentionDuration": _REMOVED_ARE_KNOWN},
            storage_options=storage_options(spark, folder),
            commit_properties=ours(),
            description=DESCRIPTION,
        )


def open_table(
    spark: SparkSession, folder: str, version: int | None = None
) -> DeltaTable | None:
    """A table at a version, or at the last one; None: there is no table."""
    uri, options = delta_uri(folder), storage_options(spark, folder)
    with errors_name(folder):
        if not DeltaTable.is_deltatable(uri, options):
            return None
        return DeltaTable(uri, version, options)


def files_of(spark: SparkSession, folder: str) -> pafs.FileSystem:
    """The files of a table, named by their paths within it."""
    path = local_path(folder)
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
    return file_system(delta_uri(folder), storage_options(spark, folder))


def sweep(spark: SparkSession, folder: str, table: DeltaTable) -> list[str]:
    """Remove the files that killed writers have left in a table.

    Files that belong to any version stay. Where no lock keeps other writers away, files
    of the last day stay as well.

    Returns:
        The folders that were removed.
    """
    files = files_of(spark, folder)
    entries = files.get_file_info(pafs.FileSelector("", recursive=False))
    writes = {info.path for info in entries if info.path.startswith(_WRITE)}
    with errors_name(folder):
        active = pa.table(table.get_add_actions())["path"].to_pylist()
        # The files that vacuum would remove if it kept no former version.
        former = table.vacuum(0, dry_run=True, enforce_retention_duration=False)
    orphans = writes - {path.partition("/")[0] for path in (*active, *former)}
    if local_path(folder) is None:
        youngest = _write_of(datetime.now(UTC) - _WRITE_TAKES_MAX)
        orphans = {write for write in orphans if write < youngest}
    for write in orphans:
        # Beside these, Hadoop has files with their checksums, which deltalake hides.
        remove(spark, f"{folder}/{write}")
    return sorted(orphans)


def new_write() -> str:
    """The name of a folder for the files of one write."""
    return f"{_write_of(datetime.now(UTC))}-{uuid.uuid4().hex[:8]}"


@contextlib.contextmanager
def errors_name(folder: str) -> Iterator[None]:
    """Add the name of the folder to an error of deltalake.

    Raises:
        CannotWrite: instead of that error.
    """
    try:
        yield
    except CommitFailedError:
        raise CannotWrite(
            f"{for_people(folder)}: another audit, or somebody else, has written into "
            "it meanwhile: start this one again when that one has ended"
        ) from None
    except DeltaError as error:
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise CannotWrite(f"{for_people(folder)}: {line}") from None


def days(first: date, last: date) -> Where:
    """The partitions of these days."""
    return [("date", ">=", f"{first}"), ("date", "<=", f"{last}")]


def _without_dictionaries(schema: StructType) -> dict[str, str]:
    """The options to write no dictionaries of times: few of them repeat."""
    times = [field for field in schema if isinstance(field.dataType, TimestampType)]
    return {f"parquet.enable.dictionary#{field.name}": "false" for field in times}


def _write_of(moment: datetime) -> str:
    return f"{_WRITE}{moment:%Y%m%dT%H%M%S}"


def _delta_schema(schema: StructType) -> Schema:
    """Delta's schema for Spark's: the JSON is the same. Each column may be null."""
    text = json.dumps(_nullable(schema.jsonValue()))
    return Schema.from_json(text)


def _nullable(value: Any) -> Any:
    if isinstance(value, list):
        return [_nullable(element) for element in value]
    if not isinstance(value, dict):
        return value
    always = {"nullable", "containsNull", "valueContainsNull"}
    return {key: key in always or _nullable(inner) for key, inner in value.items()}


def _schema_with(table: DeltaTable, schema: StructType, folder: str) -> Schema:
    """The schema of a table, with the columns that a newer version of ours adds.

    Raises:
        CannotWrite: a column has another type.
    """
    before = {field["name"]: field for field in _fields(table.schema())}
    after = {field["name"]: field for field in _fields(_delta_schema(schema))}
    for name in before.keys() & after.keys():
        if before[name]["type"] != after[name]["type"]:
            raise CannotWrite(
                f"{for_people(folder)}: its column {name} is of another version of this library: "
                "give another folder, or remove this one"
            )
    fields = list((after | before).values())
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def _fields(schema: Schema) -> list[dict[str, Any]]:
    return list(json.loads(schema.to_json())["fields"])
