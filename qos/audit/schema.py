"""A line of the journal as Spark's types; derived from `qos.journal.schema`.

This module knows nothing of files and of tables.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from qos.journal.schema import FIELDS, Field

__all__ = ["CHECKED", "EVENT", "column_of"]

_EVENT_TYPES = {"int": LongType(), "text": StringType(), "time": TimestampType()}


def column_of(field: Field) -> str:
    """The column for a field of the journal.

    `from` is a word of SQL, so here it is `source`, as in `qos.journal.Entry`.
    """
    return "source" if field.name == "from" else field.name


def _type_of(field: Field) -> StructField:
    name = column_of(field)
    kind = IntegerType() if name == "attempt" else _EVENT_TYPES[field.kind]
    return StructField(name, kind, nullable=not field.always)


#: The source of all tables: a checked line, without `v`.
EVENT: Final = StructType([_type_of(field) for field in FIELDS if field.name != "v"])

#: A checked line: an event or a problem. See qos.audit.read.checked_lines.
CHECKED: Final = StructType(
    [
        *(StructField(field.name, field.dataType) for field in EVENT),
        *(StructField(name, StringType()) for name in ("file", "problem", "example")),
        StructField("journal", LongType()),
    ]
)
