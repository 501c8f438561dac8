"""A line of the journal as Spark has it; derived from `qos.journal.schema`, which says it.

Knows nothing of files and of tables.
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

from qos.journal.schema import EVENTS, FIELDS, Field, Role

__all__ = ["CORRUPT", "EVENT", "EVENT_NAMES", "LINE", "column_of"]

#: Where Spark puts a line that is not of the schema.
CORRUPT: Final = "_corrupt"

_LINE_TYPES = {"int": LongType(), "text": StringType(), "time": StringType()}
_EVENT_TYPES = {"int": LongType(), "text": StringType(), "time": TimestampType()}

#: A line as `from_json` takes it. Times are text still: they are checked first.
LINE: Final = StructType(
    [
        *(StructField(field.name, _LINE_TYPES[field.kind]) for field in FIELDS),
        StructField(CORRUPT, StringType()),
    ]
)


def column_of(field: Field) -> str:
    """The column that a field of the journal becomes.

    `from` is a word of SQL; it is `source` here, as in `qos.journal.Entry`.
    """
    return "source" if field.name == "from" else field.name


def _type_of(field: Field) -> StructField:
    name = column_of(field)
    kind = IntegerType() if name == "attempt" else _EVENT_TYPES[field.kind]
    return StructField(name, kind, nullable=not field.always)


#: What all tables are made of: a line that was checked. Without `v`.
EVENT: Final = StructType([_type_of(field) for field in FIELDS if field.name != "v"])

#: `role.event` for all that there are.
EVENT_NAMES: Final = tuple(
    f"{role.value}.{event.value}" for role in Role for event in EVENTS[role]
)
