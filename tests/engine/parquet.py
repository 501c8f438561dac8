"""Tables as they are on disk, read without Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet

__all__ = ["rows_of"]


def rows_of(folder: Path) -> Counter[str]:
    """The rows of a table, and how often each is there."""
    rows: Counter[str] = Counter()
    for path in folder.rglob("*.parquet"):
        # What a killed writer has left is hidden, to Spark as well.
        if any(part.startswith((".", "_")) for part in path.relative_to(folder).parts):
            continue
        # date=2026-01-05, hour=12
        parts = (part.name for part in path.parents if "=" in part.name)
        where = dict(name.split("=") for name in parts)
        columns = pyarrow.parquet.ParquetFile(path).read().to_pydict()
        names = sorted(columns)
        for values in zip(*(columns[name] for name in names), strict=True):
            row = dict(zip(names, values, strict=True))
            rows[str({**row, **where})] += 1
    return rows
