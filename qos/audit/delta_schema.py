"""The schemas of tables, Delta's and Spark's, with the comments of the columns."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from pyspark.sql.types import StructType

from qos.audit import comments

__all__ = [
    "commented",
    "delta_schema",
    "fields_of",
    "other_types",
    "spark_schema",
    "with_columns",
]


def delta_schema(schema: StructType, table: str) -> Schema:
    """Delta's schema for Spark's; see spark_schema: the JSON is the same."""
    return Schema.from_json(spark_schema(schema, table).json())


def spark_schema(schema: StructType, table: str) -> StructType:
    """The same columns, with their comments. Each column may be null.

    Args:
        schema: the columns.
        table: the name of the table, for the comments of its columns.
    """
    fields = schema.toNullable().jsonValue()["fields"]
    commented_fields = [_commented(field, table, "") for field in fields]
    return StructType.fromJson({"type": "struct", "fields": commented_fields})


def commented(schema: Schema, table: str) -> Schema:
    """The same columns, with the comments of this version of the library.

    Columns that it does not know keep their comments.
    """
    fields = [_commented(field, table, "") for field in fields_of(schema)]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def with_columns(table: DeltaTable, columns: Schema) -> Schema:
    """The schema of a table, with the columns that a newer version of ours adds."""
    before = {field["name"]: field for field in fields_of(table.schema())}
    after = {field["name"]: field for field in fields_of(columns)}
    fields = [*(before | after).values()]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def other_types(table: DeltaTable, columns: Schema) -> list[str]:
    """The columns that have another type in a table."""
    # Types of Arrow are compared without the comments of their parts.
    before, after = pa.schema(table.schema()), pa.schema(columns)
    return [
        name
        for name in after.names
        if name in before.names and before.field(name).type != after.field(name).type
    ]


def fields_of(schema: Schema) -> list[dict[str, Any]]:
    """The columns of a schema, as Delta's log has them."""
    return list(json.loads(schema.to_json())["fields"])


def _commented(field: dict[str, Any], table: str, within: str) -> dict[str, Any]:
    name = f"{within}{field['name']}"
    comment = comments.of_column(table, name)
    metadata = field["metadata"] | ({"comment": comment} if comment else {})
    kind = _parts_commented(field["type"], table, f"{name}.")
    return field | {"metadata": metadata, "type": kind}


def _parts_commented(kind: Any, table: str, within: str) -> Any:
    """A type, with the comments of the fields of its structs."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        fields = [_commented(field, table, within) for field in kind["fields"]]
        return kind | {"fields": fields}
    if kind["type"] == "array":
        return kind | {
            "elementType": _parts_commented(kind["elementType"], table, within)
        }
    return kind
