"""The entries of a Delta log for Parquet files: size, partition, and statistics.

The statistics are from the footers of the files, so no data is read.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

__all__ = ["add_actions"]

#: An object store answers slowly, but handles many requests at once.
_THREADS: Final = 16

#: A longer text helps a reader little, and would fill the log.
_TEXT_CHARS_MAX: Final = 64

#: A smallest or largest value, in the form for JSON.
_Bound: TypeAlias = int | str


def add_actions(files: pafs.FileSystem, folder: str) -> list[AddAction]:
    """The entries of a Delta log for the Parquet files in a folder of a table.

    Args:
        files: the files of the table.
        folder: a folder of the table, with Hive's names:
            `…/date=2026-01-05/part-….parquet`.
    """
    entries = files.get_file_info(pafs.FileSelector(folder, recursive=True))
    infos = [info for info in entries if info.path.endswith(".parquet")]
    with ThreadPoolExecutor(_THREADS) as pool:
        add = partial(_add_action, files, folder)
        return list(pool.map(add, infos))


def _add_action(files: pafs.FileSystem, folder: str, info: pafs.FileInfo) -> AddAction:
    within = info.path.removeprefix(f"{folder}/").split("/")[:-1]
    partition = dict(part.split("=", 1) for part in within)
    with files.open_input_file(info.path) as file:
        footer = pq.read_metadata(file)
    return AddAction(
        path=info.path,
        size=info.size,
        partition_values=partition,
        modification_time=int((info.mtime_ns or 0) / 1_000_000),
        data_change=True,
        stats=json.dumps(_statistics(footer)),
    )


def _statistics(footer: pq.FileMetaData) -> dict[str, object]:
    """The number of rows.

    For each plain column its nulls, and its range if it is short.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    nulls: dict[str, int] = {}
    least: dict[str, _Bound] = {}
    most: dict[str, _Bound] = {}
    for index in range(footer.num_columns):
        name = footer.schema.column(index).path
        statistics = [group.column(index).statistics for group in groups]
        # A name with a dot is a part of an array or a struct.
        if "." in name or not all(part and part.has_null_count for part in statistics):
            continue
        nulls[name] = sum(part.null_count for part in statistics)
        with_values = [part for part in statistics if part.num_values]
        if with_values and all(part.has_min_max for part in with_values):
            low = _bound(min(part.min for part in with_values))
            high = _bound(max(part.max for part in with_values), upper=True)
            if low is not None and high is not None:
                least[name], most[name] = low, high
    return {
        "numRecords": footer.num_rows,
        "nullCount": nulls,
        "minValues": least,
        "maxValues": most,
    }


def _bound(value: Any, *, upper: bool = False) -> _Bound | None:
    """A value in the form for a log; None: of another type, or too long.

    Times are in milliseconds, as the protocol of Delta demands.

    Args:
        value: the value.
        upper: whether no value may be above the result; otherwise none below.
    """
    if isinstance(value, datetime):
        if upper:
            value += timedelta(microseconds=999)
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{text}Z"
    if isinstance(value, str):
        return value if len(value) <= _TEXT_CHARS_MAX else None
    # A bool is an int for Python, but a log has no range for it.
    return value if type(value) is int else None
