"""The rows that both sinks accept: their columns, and ids that a repeat keeps.

An id is made from values that stay the same when Spark repeats a task or a batch: the
query, the numbers of the batch and of the partition, and the row. The row counts by its
content, and not by its place: after a shuffle the rows of a partition may have another
order in the repeat. Equal rows of a partition are numbered: there are as many ids as
rows, and it does not matter which row gets which.

A query is identified by its checkpoint: it has the same id after a restart, and its
unfinished batch has the same number. A batch write has neither. An option names it;
without the option each batch write has a name of its own, so its tasks can be repeated
but the write cannot.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Mapping
from typing import Final

from pyspark import TaskContext
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

__all__ = ["NUMBERS", "TEXT", "BadColumn", "RowFailed", "RowIds", "check_columns"]

TEXT: Final = (StringType,)
NUMBERS: Final = (
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
)

#: Set by Spark for the tasks of a streaming query.
_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"


class BadColumn(ValueError):
    """The rows do not have the columns that the sink accepts."""


class RowFailed(Exception):
    """A row cannot be written, so its task fails; one line that names the row."""


def check_columns(
    name: str,
    schema: StructType,
    columns: Mapping[str, tuple[type[DataType], ...]],
    *mandatory: str,
) -> None:
    """Check that rows have the columns of a sink, and no others.

    Args:
        name: of the sink.
        schema: of the rows.
        columns: the accepted columns, with their types.
        mandatory: the required ones of them.

    Raises:
        BadColumn: a column is missing, unknown or of a wrong type; the text names it.
    """
    for field in schema.fields:
        kinds = columns.get(field.name)
        if kinds is None:
            raise BadColumn(
                f"{name}: column {field.name!r} is none of {', '.join(columns)}: "
                "select what is to be sent"
            )
        if not isinstance(field.dataType, kinds):
            raise BadColumn(
                f"{name}: column {field.name!r} cannot be a "
                f"{field.dataType.simpleString()}"
            )
    for column in mandatory:
        if column not in schema.fieldNames():
            raise BadColumn(f"{name}: there is no column {column!r}")


class RowIds:
    """The ids of the rows of one task.

    Attributes:
        partition: of the task.
    """

    def __init__(self, run: str) -> None:
        """Begin, in the task.

        Args:
            run: the name of a batch write; a streaming query has its own name.
        """
        context = TaskContext.get()
        assert context is not None, "rows are written by tasks"
        self.partition = context.partitionId()
        query = context.getLocalProperty(_QUERY)
        batch = context.getLocalProperty(_BATCH)
        self._run = (run,) if query is None or batch is None else (query, batch)
        self._seen: Counter[str] = Counter()

    def of(self, *content: object) -> str:
        """The id of the next row, which has this content."""
        whole = json.dumps([*self._run, self.partition, *map(str, content)])
        digest = hashlib.sha256(whole.encode()).hexdigest()
        self._seen[digest] += 1
        # Short, since an id is used in many places; 160 bits are unique.
        again = f"{digest}{self._seen[digest]}".encode()
        return hashlib.sha256(again).hexdigest()[:40]


def new_run(name: str | None) -> str:
    """The name of a batch write, made by the driver for all tasks."""
    return name or secrets.token_hex(16)
