"""The rows that both sinks take: their columns, and ids that a repeat has again.

An id derives from what Spark repeats when it does a task or a batch again: the query,
the number of the batch and of the partition, and the row. The row stands for itself, by
its content, and not by its place: after a shuffle the rows of a partition may come in
another order the second time. Equal rows of a partition are told apart by counting them:
as many as there are get ids, and which of them has which makes no difference.

A query is known by its checkpoint: it has the same id after a restart, and the batch
that was under way has the same number. A batch write has neither: there an option names
it, or else it is one of its own, whose tasks can be repeated and which itself cannot.
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
    """The rows are not of the columns that the sink takes."""


class RowFailed(Exception):
    """A row cannot be written, and so its task fails; one line that names the row."""


def check_columns(
    name: str,
    schema: StructType,
    columns: Mapping[str, tuple[type[DataType], ...]],
    *needed: str,
) -> None:
    """See that rows have what a sink takes, and nothing else.

    Args:
        name: of the sink.
        schema: of the rows.
        columns: those that it takes, with their types.
        needed: those of them that there must be.

    Raises:
        BadColumn: they have not; it names the column.
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
    for column in needed:
        if column not in schema.fieldNames():
            raise BadColumn(f"{name}: there is no column {column!r}")


class RowIds:
    """The ids of the rows of one task.

    Attributes:
        partition: of the task.
    """

    def __init__(self, run: str) -> None:
        """In the task.

        Args:
            run: names a batch write; a streaming query has its own name.
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
        # Short, for the many places where an id stands; 160 bits are unique.
        again = f"{digest}{self._seen[digest]}".encode()
        return hashlib.sha256(again).hexdigest()[:40]


def new_run(given: str | None) -> str:
    """The name of a batch write, made by the driver for all tasks."""
    return given or secrets.token_hex(16)
