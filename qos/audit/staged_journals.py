"""Stores the contents of journals as Parquet, as the source of all tables.

To read the journals again for each table would take longer, and so would Spark's own
cache. If the folder is on this machine, the Python workers that have checked the lines
write them, and no line goes back to Java. Small journals on this machine are checked in
this process, which takes less time than to start a worker. Most lines are about
messages: for those, only their summary is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from qos.audit import boot_runs, endpoint_summary, hadoop, lines, read
from qos.audit.foreign_lines import NOBODY, Tied
from qos.audit.locations import local_path, whole_url
from qos.audit.schema import CHECKED, EVENT
from qos.audit.small_journals import are_small
from qos.journal.schema import Role

__all__ = ["Staged", "stage"]

#: The rows of a row group, which a worker has in memory.
_ROWS = 200_000

#: The bytes of the dictionary of a column in a row group: there are many ids of
#: messages, and each comes often.
_DICTIONARY_BYTES = 16 * 2**20

#: Files elsewhere that are read at a time, to find those that cannot be read.
_READERS = 8

#: The folders, and the columns of their files.
_PARTS = {
    "lines": lines.CHECKED,
    "runs": boot_runs.stretches(lines.CHECKED.empty_table()).schema,
    "told": endpoint_summary.in_arrow(lines.CHECKED.empty_table()).schema,
    "late": boot_runs.stretches(lines.CHECKED.empty_table()).schema,
}


@dataclass(frozen=True, slots=True)
class Staged:
    """The written files.

    Attributes:
        lines: see qos.audit.read.checked_lines; only those that are not about messages.
        runs: see qos.audit.boot_runs; of all lines, with possible repetitions.
        messages: from the lines about messages; see qos.audit.endpoint_summary.
        late_runs: the runs of lines that are in none of the other frames, since their day
            is closed.
        roles: the roles that `lines` may have; no line has another one.
        has_pairs: whether `messages` has many records, and nearly always one of each
            side of a message; see qos.audit.pairing.
    """

    lines: DataFrame
    runs: DataFrame
    messages: DataFrame
    late_runs: DataFrame
    roles: frozenset[Role] = frozenset(Role)
    has_pairs: bool = False


def stage(
    spark: SparkSession,
    sizes: Mapping[str, int],
    folder: str,
    *,
    open_from: date | None = None,
    tied: Tied = NOBODY,
) -> Staged:
    """Check the lines of journals, and write the results.

    A file that cannot be read is a problem among the lines, wherever it is.

    Args:
        spark: the session.
        sizes: the sizes of the files, by path.
        folder: the folder for the results; it must not exist.
        open_from: the lines of days before this one are late; None: no line is late.
        tied: the folders that are tied to nodes.
    """
    try:
        return _staged(spark, sizes, folder, open_from, tied)
    except (Py4JJavaError, PySparkException):
        # Java ends at the first file elsewhere that it cannot read.
        unread = _unread(spark, sizes)
        if not unread:
            raise
    hadoop.remove(spark, whole_url(folder))
    rest = {path: size for path, size in sizes.items() if path not in unread}
    staged = _staged(spark, rest, folder, open_from, tied)
    empty = dict.fromkeys(CHECKED.names)
    problem = read.Problem.UNREAD_FILE.value
    rows = [
        {**empty, "problem": problem, "file": whole_url(path), "example": why}
        for path, why in unread.items()
    ]
    lines = staged.lines.unionByName(spark.createDataFrame(rows, CHECKED))
    return replace(staged, lines=lines)


def _unread(spark: SparkSession, sizes: Mapping[str, int]) -> dict[str, str]:
    """The files elsewhere that cannot be read, each with its reason."""
    paths = [path for path in sizes if local_path(path) is None]
    with ThreadPoolExecutor(_READERS) as pool:
        reasons = pool.map(partial(hadoop.why_unreadable, spark), paths)
        return {path: why for path, why in zip(paths, reasons, strict=True) if why}


def _staged(
    spark: SparkSession,
    sizes: Mapping[str, int],
    folder: str,
    open_from: date | None,
    tied: Tied,
) -> Staged:
    """See stage; an error of any file is an error of all."""
    if not sizes:
        runs = spark.createDataFrame([], boot_runs.RUN)
        by_teller = endpoint_summary.in_spark(spark.createDataFrame([], EVENT))
        no_lines = spark.createDataFrame([], CHECKED)
        return Staged(no_lines, runs, by_teller, runs, frozenset())
    place = local_path(folder)
    if place is None:
        return _staged_by_java(spark, sizes, folder, open_from, tied)
    for part in _PARTS:
        (place / part).mkdir(parents=True)
    is_short = _are_for_this_process(sizes)
    if is_short:
        roles = _write_here(sizes, str(place), open_from, tied)
    else:
        roles = _write_in_workers(spark, sizes, str(place), open_from, tied)
    by_teller = endpoint_summary.in_spark(spark.createDataFrame([], EVENT))

    def part_of(part: str, schema: StructType | str) -> DataFrame:
        name = read.literal(f"{whole_url(folder)}/{part}")
        return spark.read.schema(schema).parquet(name)

    return Staged(
        part_of("lines", CHECKED),
        part_of("runs", boot_runs.RUN),
        part_of("told", by_teller.schema),
        part_of("late", boot_runs.RUN).withColumn("kind", F.lit(boot_runs.LATE)),
        roles,
        has_pairs=not is_short,
    )


def _staged_by_java(
    spark: SparkSession,
    sizes: Mapping[str, int],
    folder: str,
    open_from: date | None,
    tied: Tied,
) -> Staged:
    """The results in a folder that is elsewhere: Java writes the checked lines."""
    files, rest = read.read_these(spark, sizes, tied)
    checked = read.checked_files(files, tied)
    if rest is not None:
        checked = checked.unionByName(rest)
    checked.write.parquet(folder)
    checked = spark.read.schema(CHECKED).parquet(read.literal(folder))
    is_late = F.lit(False)
    if open_from is not None:
        is_late = F.col("problem").isNull() & (F.to_date("at") < F.lit(open_from))
    late_events = read.events_of(checked.where(is_late))
    checked = checked.where(~is_late)
    events = read.events_of(checked)
    return Staged(
        checked.where(~F.coalesce(endpoint_summary.is_of_message(), F.lit(False))),
        checked.mapInArrow(_runs, boot_runs.RUN),
        endpoint_summary.in_spark(events.where(endpoint_summary.is_of_message())),
        late_events.mapInArrow(_runs, boot_runs.RUN).withColumn(
            "kind", F.lit(boot_runs.LATE)
        ),
    )


def _are_for_this_process(sizes: Mapping[str, int]) -> bool:
    """Whether files are so small that starting a worker takes longer than their check.

    Compressed ones never are: nobody knows how long it takes to unpack them, and only
    the work of a worker can be given up.
    """
    return are_small(sizes.values()) and all(
        local_path(path) is not None and path.endswith(".jsonl") for path in sizes
    )


def _write_here(
    sizes: Mapping[str, int], folder: str, open_from: date | None, tied: Tied
) -> frozenset[Role]:
    """Check files in this process; returns the roles of the written lines."""
    files = [read.file_uri(path) for path in sorted(sizes)]
    content = pa.nulls(len(files), pa.binary())
    batch = pa.record_batch({"file": pa.array(files), "content": content})
    checked_in = partial(lines.checked_in, tied=tied)
    (result,) = _write(folder, "files", checked_in, open_from, iter([batch]))
    return frozenset(map(Role, result["role"].to_pylist()))


def _write_in_workers(
    spark: SparkSession,
    sizes: Mapping[str, int],
    folder: str,
    open_from: date | None,
    tied: Tied,
) -> frozenset[Role]:
    """Check files in Python workers; returns the roles of the written lines."""
    files, rest = read.read_these(spark, sizes, tied)
    roles: set[Role] = set()
    for name, frame, checked_in in (
        ("files", files, partial(lines.checked_in, tied=tied)),
        ("rest", rest, _are_checked),
    ):
        if frame is None:
            continue
        write = partial(_write, folder, name, checked_in, open_from)
        rows = frame.mapInArrow(write, "role string").collect()
        roles.update(Role(row["role"]) for row in rows)
    return frozenset(roles)


def _are_checked(batch: pa.RecordBatch) -> Iterator[pa.Table]:
    yield pa.Table.from_batches([batch]).cast(lines.CHECKED)


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from boot_runs.stretches(pa.Table.from_batches([batch])).to_batches()


def _write(
    folder: str,
    name: str,
    checked_in: Callable[[pa.RecordBatch], Iterator[pa.Table]],
    open_from: date | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Write the contents of a partition; returns the roles of the written lines."""
    tables = (table for batch in batches for table in checked_in(batch))
    other_lines = [lines.CHECKED.empty_table()]
    roles = set()
    with (
        _part(folder, "lines", name) as line_writer,
        _part(folder, "runs", name) as run_writer,
        _part(folder, "told", name) as teller_writer,
        _part(folder, "late", name) as late_writer,
    ):
        for group in _groups(tables):
            if open_from is not None:
                is_late = _are_before(group, open_from)
                late_writer.write_table(boot_runs.stretches(group.filter(is_late)))
                group = group.filter(pc.invert(is_late))
            run_writer.write_table(boot_runs.stretches(group))
            of_messages = endpoint_summary.are_of_messages(group)
            teller_writer.write_table(
                endpoint_summary.in_arrow(group.filter(of_messages))
            )
            other_lines.append(group.filter(pc.invert(of_messages)))
        for role, same in _by_role(pa.concat_tables(other_lines)):
            line_writer.write_table(same)
            if role is not None:
                roles.add(role)
    yield pa.record_batch({"role": pa.array(sorted(roles), pa.string())})


def _by_role(lines: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
    """The lines of each role: then Spark skips the row groups of other roles."""
    roles = lines["role"]
    for role in pc.unique(roles):
        is_it = pc.equal(roles, role) if role.is_valid else pc.is_null(roles)
        yield role.as_py(), lines.filter(is_it)


def _are_before(lines: pa.Table, day: date) -> pa.ChunkedArray:
    moment = datetime.combine(day, time(), UTC)
    limit = pa.scalar(moment, lines.schema.field("at").type)
    is_before = pc.fill_null(pc.less(lines["at"], limit), False)
    return pc.and_(is_before, pc.is_null(lines["problem"]))


@contextmanager
def _part(folder: str, part: str, name: str) -> Iterator[pq.ParquetWriter]:
    """A file of this task, which appears when everything has been written."""
    # Outside a worker there is no task.
    context = TaskContext.get()
    number, attempt = 0, 0
    if context is not None:
        number, attempt = context.partitionId(), context.taskAttemptId()
    # A repeated task replaces its earlier file.
    path = Path(folder, part, f"{name}-{number:05}.parquet")
    hidden = path.with_name(f".{path.name}.{attempt}")
    schema = _PARTS[part]
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    try:
        with pq.ParquetWriter(
            hidden,
            schema,
            # Not lz4: Spark's decoder (aircompressor) refuses some blocks of pyarrow's.
            compression="snappy",
            # The same text comes often.
            use_dictionary=texts,
            dictionary_pagesize_limit=_DICTIONARY_BYTES,
        ) as writer:
            yield writer
        os.replace(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)


def _groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Tables taken together, so that a group has enough rows, but not too many."""
    group: list[pa.Table] = []
    rows = 0
    for table in tables:
        group.append(table)
        rows += len(table)
        if rows >= _ROWS:
            yield pa.concat_tables(group)
            group, rows = [], 0
    if group:
        yield pa.concat_tables(group)
