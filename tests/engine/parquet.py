"""Tables as they are on disk, read without Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet
from deltalake import DeltaTable

__all__ = ["rows_of"]

#: In the names of folders they are text.
_PARTITIONS = ("date", "hour")


def rows_of(folder: Path) -> Counter[str]:
    """The rows of a table, and how often each is there.

    It is a Delta table, or a folder of Parquet by date and hour.
    """
    if (folder / "_delta_log").exists():
        return _rows(DeltaTable(folder).to_pyarrow_table(), {})
    rows: Counter[str] = Counter()
    for path in folder.rglob("*.parquet"):
        # What a killed writer has left is hidden, to Spark as well.
        if any(part.startswith((".", "_")) for part in path.relative_to(folder).parts):
            continue
        # date=2026-01-05, hour=12
        parts = (part.name for part in path.parents if "=" in part.name)
        where = dict(name.split("=") for name in parts)
        rows += _rows(pyarrow.parquet.ParquetFile(path).read(), where)
    return rows


def _rows(table: pyarrow.Table, where: dict[str, str]) -> Counter[str]:
    rows: Counter[str] = Counter()
    for values in table.to_pylist():
        row = {**values, **where}
        row |= {name: str(row[name]) for name in _PARTITIONS if name in row}
        rows[str(dict(sorted(row.items())))] += 1
    return rows
