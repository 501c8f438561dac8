"""The part of the guide's page *Tables* that is made from the schemas of the tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deltalake import Schema

from qos.audit import comments
from qos.audit.delta_schema import fields_of

__all__ = ["MARK", "made"]

#: All below this line of the page is made.
MARK = "<!-- made from qos/audit/comments.py -->\n"

_TYPES = {"long": "bigint", "integer": "int"}


def made(schemas: Mapping[str, Schema]) -> str:
    """The text.

    Args:
        schemas: of each table, by name.
    """
    return "\n".join(line for name in comments.TABLES for line in _table(name, schemas))


def _table(name: str, schemas: Mapping[str, Schema]) -> Iterator[str]:
    yield from ("", f"## {name}", "", comments.TABLES[name], "")
    yield from ("| column | type | meaning |", "|---|---|---|")
    for field in fields_of(schemas[name]):
        yield from _rows(field, field["name"])
    if former := [column for table, column in comments.FORMER if table == name]:
        column = former[0]
        yield from ("", f"`{column}`: {comments.FORMER[name, column]}")


def _rows(field: Mapping[str, Any], name: str) -> Iterator[str]:
    comment = field["metadata"].get("comment", "")
    yield f"| `{name}` | {_type(field['type'])} | {comment} |"
    kind = field["type"]
    if isinstance(kind, dict) and kind["type"] == "array":
        kind = kind["elementType"]
        if isinstance(kind, dict):
            for part in kind["fields"]:
                yield from _rows(part, f"{name}.{part['name']}")


def _type(kind: Any) -> str:
    if not isinstance(kind, dict):
        return _TYPES.get(kind, str(kind))
    if kind["type"] == "array":
        return f"array&lt;{_type(kind['elementType'])}&gt;"
    if kind["type"] == "map":
        return f"map&lt;{_type(kind['keyType'])}, {_type(kind['valueType'])}&gt;"
    return "struct"
