"""Tables read from disk without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

import pyarrow.parquet
from deltalake import DeltaTable

__all__ = ["SKETCHES", "rows_of"]

#: Columns built from the same values in another order have other bytes.
SKETCHES = ("latency_sketch", "wait_sketch")

#: In folder names they are text.
_PARTITIONS = ("date", "hour")


def rows_of(folder: Path, without: Collection[str] = ()) -> Counter[str]:
    """The rows of a table, with the count of each.

    Args:
        folder: a Delta table, or Parquet by date and hour.
        without: columns to leave out, besides SKETCHES.
    """
    without = (*without, *SKETCHES)
    if (folder / "_delta_log").exists():
        return _rows(DeltaTable(folder).to_pyarrow_table(), {}, without)
    rows: Counter[str] = Counter()
    for path in folder.rglob("*.parquet"):
        # The files of a killed writer are hidden, from Spark as well.
        if any(part.startswith((".", "_")) for part in path.relative_to(folder).parts):
            continue
        # date=2026-01-05, hour=12
        parts = (part.name for part in path.parents if "=" in part.name)
        where = dict(name.split("=") for name in parts)
        rows += _rows(pyarrow.parquet.ParquetFile(path).read(), where, without)
    return rows


def _rows(
    table: pyarrow.Table, where: dict[str, str], without: Collection[str]
) -> Counter[str]:
    rows: Counter[str] = Counter()
    for values in table.drop_columns(
        [name for name in without if name in table.column_names]
    ).to_pylist():
        row = {**values, **where}
        row |= {name: str(row[name]) for name in _PARTITIONS if name in row}
        rows[str(dict(sorted(row.items())))] += 1
    return rows
