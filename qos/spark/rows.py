"""The rows that both sinks accept: their columns, and ids that a repeat keeps.

An id is made from the identity of a row (see `qos.spark.identity`). So it is the same
when Spark repeats a task or a batch, however the batch is divided.

Rows without an identity (`repeats = "allowed"`) get ids that only the repeat of a task
keeps, for fewer rows that come twice: they are made from the query, the numbers of the
batch and of the partition, and all values of the row. Equal rows of a partition are
numbered: there are as many ids as rows, and it does not matter which row gets which. A
batch write has no query: an option names it, or it has a name of its own.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

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

from qos.spark.identity import Identity, Json

if TYPE_CHECKING:
    from pyspark.sql import Row

__all__ = [
    "NUMBERS",
    "TEXT",
    "BadColumn",
    "RowFailed",
    "RowIds",
    "check_columns",
    "new_run",
]

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
    identity: Identity,
) -> None:
    """Check that rows have the columns of a sink, and no others.

    Args:
        name: of the sink.
        schema: of the rows.
        columns: the accepted columns, with their types.
        mandatory: the required ones of them.
        identity: the columns that it names may be others.

    Raises:
        BadColumn: a column is missing, unknown, there twice or of a wrong type; the
            text names it.
    """
    names = schema.fieldNames()
    for field in schema.fields:
        if names.count(field.name) > 1:
            raise BadColumn(f"{name}: there are two columns {field.name!r}")
        kinds = columns.get(field.name)
        if kinds is None and field.name in identity.named:
            continue
        if kinds is None:
            raise BadColumn(
                f"{name}: column {field.name!r} is none of {', '.join(columns)}: "
                "select what is to be sent, or name it in option id"
            )
        if not isinstance(field.dataType, kinds):
            raise BadColumn(
                f"{name}: column {field.name!r} cannot be a "
                f"{field.dataType.simpleString()}"
            )
    for column in mandatory:
        if column not in names:
            raise BadColumn(f"{name}: there is no column {column!r}")


class RowIds:
    """The ids of the rows of one task.

    Attributes:
        partition: of the task.
    """

    def __init__(self, identity: Identity, run: str) -> None:
        """Begin, in the task.

        Args:
            identity: of the rows.
            run: the name of a batch write whose rows have no identity; a streaming
                query has its own name.
        """
        context = TaskContext.get()
        assert context is not None, "rows are written by tasks"
        self.partition = context.partitionId()
        self._identity = identity
        self._scope: list[Json] = [identity.run or ""]
        if identity.repeats:
            query = context.getLocalProperty(_QUERY)
            batch = context.getLocalProperty(_BATCH)
            task = [run] if query is None or batch is None else [query, batch]
            self._scope = [*task, self.partition]
        self._equal_rows: Counter[str] = Counter()

    def of(self, row: Row, *more: str) -> str:
        """The id of the next row.

        Args:
            row: the row.
            more: what else rows with one id have in common.

        Raises:
            BadIdentity: the row has none.
        """
        # Sorted: neither the order of the columns counts, nor that of their names.
        values = self._identity.values(row)
        whole = json.dumps([*self._scope, *more, values], sort_keys=True)
        digest = _digest(whole)
        if self._identity.repeats:
            self._equal_rows[digest] += 1
            digest = _digest(f"{digest}{self._equal_rows[digest]}")
        return digest


def _digest(text: str) -> str:
    # Short, since an id is used in many places; 160 bits are unique.
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def new_run(name: str | None) -> str:
    """The name of a batch write, made by the driver for all tasks."""
    return name or secrets.token_hex(16)
