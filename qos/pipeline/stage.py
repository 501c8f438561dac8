"""Keeps the checked lines of journals as Parquet, for all that is made of them.

To read the journals again for each table would take longer, and so would Spark's own
cache: where the folder is on this machine, the Python workers that have checked the
lines write them, and nothing goes back to Java.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import date
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from qos.journal.schema import Role
from qos.pipeline import lines, read
from qos.pipeline.schema import CHECKED

__all__ = ["stage"]

#: Of a row group, which a worker has in memory.
_ROWS = 200_000

#: Of a column in a row group: there are many ids of messages, and each comes often.
_DICTIONARY_BYTES = 16 * 2**20

#: Columns in which the same comes often.
_REPEATED = [each.name for each in lines.CHECKED if pa.types.is_string(each.type)]

_OF_MESSAGES = pa.array([Role.SENDER.value, Role.RECEIVER.value])


def stage(
    spark: SparkSession,
    journals: Sequence[str],
    folder: str,
    *,
    first: date | None = None,
    last: date | None = None,
) -> DataFrame:
    """Check the lines of journals, and write what they are.

    Args:
        spark: the session.
        journals: see qos.pipeline.read.read_lines.
        folder: where; there must be none.
        first: see read_lines.
        last: likewise.

    Returns:
        What was written; see qos.pipeline.read.checked_lines.
    """
    files = read.read_whole(spark, journals, first=first, last=last)
    rest = read.checked_lines(read.read_rest(spark, journals, first=first, last=last))
    if "://" in folder:
        read.checked_files(files).unionByName(rest).write.parquet(folder)
    else:
        Path(folder).mkdir(parents=True)
        written = files.mapInArrow(partial(_write, folder), "rows long")
        written.write.format("noop").mode("overwrite").save()
        rest.write.mode("append").parquet(folder)
    return spark.read.schema(CHECKED).parquet(read.literal(folder))


def _write(folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the lines of a partition, and say how many there are."""
    context = TaskContext.get()
    assert context is not None
    # A task that is tried again replaces what it has written before.
    path = Path(folder, f"part-{context.partitionId():05}.parquet")
    hidden = Path(folder, f".{path.name}.{context.taskAttemptId()}")
    tables = (table for batch in batches for table in lines.checked_in(batch))
    rows = 0
    try:
        with pq.ParquetWriter(
            hidden,
            lines.CHECKED,
            compression="lz4",
            use_dictionary=_REPEATED,
            dictionary_pagesize_limit=_DICTIONARY_BYTES,
        ) as writer:
            for group in _groups(tables):
                writer.write_table(group)
                rows += len(group)
        os.replace(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    yield pa.record_batch({"rows": [rows]})


def _groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Row groups: those of messages apart, so that the few others are found soon."""
    messages: list[pa.Table] = []
    others: list[pa.Table] = []
    rows = 0
    for table in tables:
        of_message = pc.is_in(table["role"], _OF_MESSAGES)
        if pc.all(of_message).as_py():
            messages.append(table)
        else:
            messages.append(table.filter(of_message))
            others.append(table.filter(pc.invert(of_message)))
        rows += len(table)
        if rows >= _ROWS:
            yield pa.concat_tables(messages)
            messages, rows = [], 0
    for left in (messages, others):
        if left:
            yield pa.concat_tables(left)
