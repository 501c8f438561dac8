"""Delta tables that Spark writes and deltalake commits.

Spark writes Parquet files into a new folder of the table, `write=…`. Readers do not see
them until one commit adds them to the log and removes the files that they replace. If
Spark or this process dies before that, the table is unchanged, and the files belong to
no version.

A commit fails if another process has committed since the write began, or since the
table was opened whose rows are written again. Otherwise deltalake would let two writers
replace the same day, and keep the rows of both.

A caller that reads rows of a table in order to write them again therefore opens the table
once, and hands it to the write. Rows made of journals, or of the rows of another table,
need no such care. A change that somebody else commits between that reading and the write
has the same effect as one that is committed just before or just after both.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable, PostCommitHookProperties, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType, TimestampType

from qos.audit import comments
from qos.audit.commits import described, ours
from qos.audit.delta_schema import (
    delta_schema,
    other_types,
    with_columns,
)
from qos.audit.hadoop import remove
from qos.audit.locations import (
    delta_uri,
    for_people,
    local_path,
    storage_options,
)
from qos.audit.parquet_files import add_actions
from qos.audit.snapshot import files
from qos.spark.causes import Lack, cause_of

__all__ = [
    "KEEPS_ITS_LOG",
    "CannotWrite",
    "clear",
    "commit",
    "create",
    "days",
    "errors_name",
    "files_of",
    "name_of",
    "new_write",
    "open_table",
    "opened",
    "replace",
    "set_schema",
    "sweep",
]

#: The first and the last of some days.
_Days: TypeAlias = tuple[date, date]

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

#: A version must be readable as long as its row in `audits` exists.
KEEPS_ITS_LOG: Final = PostCommitHookProperties(cleanup_expired_logs=False)

#: Partitions that no table has.
_NO_DAY: Final = [("date", "<", "0001-01-01")]


class CannotWrite(Exception):
    """The tables cannot be written as requested; one line tells what to do."""


def replace(
    frame: DataFrame,
    folder: str,
    *,
    partition_by: Sequence[str] = (),
    replaced_days: _Days | None = None,
    removed: Collection[str] | None = None,
    table: DeltaTable | None = None,
    keeps_columns: bool = True,
    cause: str = "",
) -> None:
    """Replace rows of a table by those of a frame, in one commit.

    Where there is no row to be written and none to be replaced, nothing is committed.

    Args:
        frame: all its rows must be of `replaced_days`.
        folder: the folder of the table, which is created if necessary.
        partition_by: columns; their values are in the names of folders.
        replaced_days: the days whose rows are replaced; None: all.
        removed: the paths of the files to be replaced, instead of those of
            `replaced_days`.
        table: the table as it was opened to find `removed`, or the rows of the frame;
            None: as it is now.
        keeps_columns: False: the table gets the columns of the frame only, whatever
            it had. Then all rows must be replaced.
        cause: see qos.audit.commits.ours.

    Raises:
        CannotWrite: another process has committed meanwhile; or the folder has no
            table, or one with other types.
    """
    spark = frame.sparkSession
    if table is None:
        table = opened(spark, folder, frame.schema, partition_by)
    if keeps_columns:
        schema = _schema_for(frame, folder, table)
    else:
        schema = delta_schema(frame.schema, name_of(folder))
    write = new_write()
    writer = frame.write.options(**_PARQUET, **_without_dictionaries(frame.schema))
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.parquet(f"{folder}/{write}")
    with errors_name(folder):
        files = files_of(spark, folder)
        added = add_actions(files, write)
        commit(table, added, schema, partition_by, replaced_days, removed, cause)


def clear(
    like: DataFrame,
    folder: str,
    *,
    partition_by: Sequence[str],
    replaced_days: _Days,
) -> None:
    """Remove rows of a table, in one commit, without any work of Spark.

    Where there is none, nothing is committed.

    Args:
        like: a frame with the columns of the table; it is not computed.
        folder: see replace.
        partition_by: see replace.
        replaced_days: the days whose rows are removed.

    Raises:
        CannotWrite: see replace.
    """
    table = opened(like.sparkSession, folder, like.schema, partition_by)
    schema = _schema_for(like, folder, table)
    with errors_name(folder):
        commit(table, [], schema, partition_by, replaced_days)


def _schema_for(frame: DataFrame, folder: str, table: DeltaTable) -> Schema:
    """The schema of a table from now on, for rows of a frame."""
    columns = delta_schema(frame.schema, name_of(folder))
    if others := other_types(table, columns):
        raise CannotWrite(
            f"{for_people(folder)}: its column {others[0]} is of another version of "
            "this library: give another folder, or remove this one"
        )
    return with_columns(table, columns)


def opened(
    spark: SparkSession, folder: str, schema: StructType, partition_by: Sequence[str]
) -> DeltaTable:
    """A table at its last version, which is created if necessary; see create."""
    table = open_table(spark, folder)
    return create(spark, folder, schema, partition_by) if table is None else table


def commit(
    table: DeltaTable,
    added: Sequence[AddAction],
    schema: Schema,
    partition_by: Sequence[str] = (),
    replaced_days: _Days | None = None,
    removed: Collection[str] | None = None,
    cause: str = "",
) -> None:
    """Add files to a table in place of those of `replaced_days`, if that changes it.

    Args:
        table: at the version that must still be the last one.
        added: the files.
        schema: the schema of the table from now on.
        partition_by: the partition columns of the table.
        replaced_days: see replace.
        removed: see there.
        cause: see qos.audit.commits.ours.

    Raises:
        CommitFailedError: there is a newer version.
    """
    former = removed
    if former is None:
        former = files(table, *replaced_days or (None, None))["path"]
    if not added and not len(former) and schema == table.schema():
        return
    if removed is not None and partition_by and schema != table.schema():
        # A commit that names the files to be removed leaves the schema as it is.
        set_schema(table, schema)
    now_ms = round(time.time() * 1000)
    table.create_write_transaction(
        [*added, *(RemoveAction(path, True, now_ms) for path in removed or ())],
        mode="overwrite" if removed is None else "append",
        schema=schema,
        partition_by=list(partition_by),
        partition_filters=None if replaced_days is None else days(*replaced_days),
        commit_properties=ours(cause),
        post_commithook_properties=KEEPS_ITS_LOG,
    )


def set_schema(table: DeltaTable, schema: Schema) -> None:
    """Give a table that is partitioned by date another schema, and the same files."""
    table.create_write_transaction(
        [],
        mode="overwrite",
        schema=schema,
        partition_by=table.metadata().partition_columns,
        # Files that do not exist are replaced by none.
        partition_filters=_NO_DAY,
        commit_properties=ours(),
        post_commithook_properties=KEEPS_ITS_LOG,
    )
    # Not at the last version, which may have a later commit of somebody else.
    table.load_as_version(table.version() + 1)


def name_of(folder: str) -> str:
    """The name of the table in a folder."""
    return folder.rstrip("/").rpartition("/")[2]


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
            delta_schema(schema, name_of(folder)),
            partition_by=list(partition_by),
            configuration={"delta.deletedFileRetentionDuration": _REMOVED_ARE_KNOWN},
            storage_options=storage_options(spark, folder),
            commit_properties=ours(),
            description=described(comments.TABLES.get(name_of(folder), "")),
        )


def open_table(spark: SparkSession, folder: str) -> DeltaTable | None:
    """A table at its last version; None: there is no table."""
    uri, options = delta_uri(folder), storage_options(spark, folder)
    with errors_name(folder):
        if not DeltaTable.is_deltatable(uri, options):
            return None
        return DeltaTable(uri, None, options)


def files_of(spark: SparkSession, folder: str) -> pafs.FileSystem:
    """The files of a table, named by their paths within it."""
    path = local_path(folder)
    if path is not None:
        path.mkdir(parents=True, exist_ok=True)
    storage = DeltaStorageHandler(delta_uri(folder), storage_options(spark, folder))
    return pafs.PyFileSystem(storage)


def sweep(spark: SparkSession, folder: str, table: DeltaTable) -> list[str]:
    """Remove the files that killed writers have left in a table.

    Files that belong to any version stay. Where no lock keeps other writers away, files
    of the last day stay as well: in the folders of writes that are not on this machine,
    and in the folders of days, where deltalake writes, for us and for others. So a file
    that somebody else commits after the table was opened stays, too.

    Returns:
        The folders of writes, and the files, that were removed.
    """
    files = files_of(spark, folder)
    entries = files.get_file_info(pafs.FileSelector("", recursive=False))
    with errors_name(folder):
        active = pa.table(table.get_add_actions())["path"].to_pylist()
        # The files that vacuum would remove if it kept no former version.
        former = table.vacuum(0, dry_run=True, enforce_retention_duration=False)
    owned = {unquote(path) for path in (*active, *former)}
    began = datetime.now(UTC) - _WRITE_TAKES_MAX
    writes = {info.path for info in entries if info.path.startswith(_WRITE)}
    orphans = writes - {path.partition("/")[0] for path in owned}
    if local_path(folder) is None:
        orphans = {write for write in orphans if write < _write_of(began)}
    for info in entries:
        if "=" in info.path and info.path not in writes:
            orphans |= _parquet_before(files, info.path, began) - owned
    for orphan in orphans:
        # Beside these, Hadoop has files with their checksums, which deltalake hides.
        remove(spark, f"{folder}/{orphan}")
    return sorted(orphans)


def _parquet_before(files: pafs.FileSystem, folder: str, moment: datetime) -> set[str]:
    """The Parquet files below a folder that were written before a moment."""
    infos = files.get_file_info(pafs.FileSelector(folder, recursive=True))
    return {
        info.path
        for info in infos
        if info.path.endswith(".parquet") and info.mtime and info.mtime < moment
    }


def new_write() -> str:
    """The name of a folder for the files of one write."""
    return f"{_write_of(datetime.now(UTC))}-{uuid.uuid4().hex[:8]}"


@contextlib.contextmanager
def errors_name(folder: str) -> Iterator[None]:
    """Add the name of the folder to an error of deltalake.

    Raises:
        CannotWrite: instead of that error.
        OSError: the disk is full.
    """
    try:
        yield
    except CommitFailedError:
        raise CannotWrite(
            f"{for_people(folder)}: another audit, or somebody else, has written into "
            "it meanwhile: start this one again when that one has ended"
        ) from None
    except DeltaError as error:
        if cause_of([str(error)]).lack is Lack.ROOM:
            text = os.strerror(errno.ENOSPC)
            raise OSError(errno.ENOSPC, text, for_people(folder)) from None
        line = (str(error).splitlines() or [type(error).__name__])[0]
        raise CannotWrite(f"{for_people(folder)}: {line}") from None


def days(first: date, last: date) -> list[tuple[str, str, str]]:
    """The partitions of these days, as deltalake names them."""
    return [("date", ">=", f"{first}"), ("date", "<=", f"{last}")]


def _without_dictionaries(schema: StructType) -> dict[str, str]:
    """The options to write no dictionaries of times: few of them repeat."""
    times = [field for field in schema if isinstance(field.dataType, TimestampType)]
    return {f"parquet.enable.dictionary#{field.name}": "false" for field in times}


def _write_of(moment: datetime) -> str:
    return f"{_WRITE}{moment:%Y%m%dT%H%M%S}"
