"""What an audit has published, read without it and without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from recount import TABLES, Recount, comparable

__all__ = ["differences", "rows"]


def differences(out: Path, recount: Recount) -> dict[str, object]:
    """The rows that only the audit has, and that only the recount has, by table.

    Args:
        out: the folder of the tables: Delta, or Parquet by date and hour.
        recount: of the journals.
    """
    found: dict[str, object] = {}
    for name in TABLES:
        here, there = rows(out / name, recount.columns(name)), recount.rows(name)
        if here != there:
            found[name] = (here - there, there - here)
    return found


def rows(folder: Path, columns: Sequence[str]) -> Counter[tuple[object, ...]]:
    """These columns of a table, if it is there; moments and hours as numbers."""
    with duckdb.connect() as base:
        if (folder / "_delta_log").exists():
            table = base.from_arrow(DeltaTable(folder).to_pyarrow_table())
        elif any(folder.rglob("*.parquet")):
            files = f"{folder}/**/*.parquet"
            table = base.read_parquet(files, hive_partitioning=True)
        else:
            return Counter()
        kinds = dict(zip(table.columns, map(str, table.types), strict=True))
        wanted = ", ".join(_in_numbers(each, kinds[each]) for each in columns)
        return comparable(table.project(wanted).fetchall())


def _in_numbers(column: str, kind: str) -> str:
    if column == "hour":
        return "epoch_us(date::TIMESTAMP) // 3600000000 + hour"
    return f"epoch_us({column})" if kind.startswith("TIMESTAMP") else column
