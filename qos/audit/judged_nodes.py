"""The nodes whose journals an audit has read, by day, kept for later audits.

A later audit of the same day may lack one of these journals: a mount is away, or a
folder was archived. Then the node is known to be missing, and is not taken for one that
never had a journal. The names of nodes are those in the names of files.

There is one file for each audit, by its number, so what an audit has kept that was
killed is never read.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable
from datetime import date
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from qos.audit import delta
from qos.audit.audits import HIDDEN
from qos.audit.forgetting import forgotten
from qos.audit.former_rows import Missing
from qos.audit.named_journals import node_in_name
from qos.audit.new_files import NewFile

__all__ = ["JudgedNodes"]

_COLUMNS: Final = pa.schema([("day", pa.date32()), ("node", pa.string())])
_NAME: Final = re.compile(r"judged-([0-9]+)\.parquet")


class JudgedNodes:
    """The nodes of the audits in a folder of tables.

    Args:
        spark: the session.
        out: the folder of the tables.
        number: the number of the last audit that has ended; 0: none has.
    """

    def __init__(self, spark: SparkSession, out: str, number: int) -> None:
        self._files = delta.files_of(spark, f"{out}/{HIDDEN}")
        self._next = number + 1
        self._accounts = forgotten(spark, out)
        # That of a later audit is of one that was killed.
        last = max((of for of in self._numbers() if of <= number), default=None)
        self._table = _COLUMNS.empty_table() if last is None else self._read(last)

    def missing(
        self, files: Iterable[NewFile], first: date, last: date
    ) -> list[Missing]:
        """The nodes that have no file of a day in these, and had one in an earlier audit.

        Args:
            files: the files that can be read.
            first: the first day.
            last: the last day.
        """
        within = (pc.field("day") >= first) & (pc.field("day") <= last)
        present = self._pairs(files)
        days_by_node: dict[str, list[date]] = {}
        for row in self._table.filter(within).to_pylist():
            if (row["day"], row["node"]) not in present:
                days_by_node.setdefault(row["node"], []).append(row["day"])
        return [
            Missing(node, min(days), max(days), len(days))
            for node, days in sorted(days_by_node.items())
        ]

    def write(
        self, files: Iterable[NewFile], first: date, last: date, oldest: date | None
    ) -> None:
        """Keep the nodes of an audit, before it is recorded.

        A missing node stays, as its rows do.

        Args:
            files: see missing.
            first: the first audited day.
            last: the last one.
            oldest: the first day whose rows are kept; None: all are.
        """
        pairs = {
            (day, node) for day, node in self._pairs(files) if first <= day <= last
        }
        pairs.update(zip(*self._table.to_pydict().values(), strict=True))
        rows = [
            {"day": day, "node": node}
            for day, node in sorted(pairs)
            if oldest is None or day >= oldest
        ]
        with self._files.open_output_stream(_name(self._next)) as file:
            pq.write_table(pa.Table.from_pylist(rows, _COLUMNS), file)

    def remove_former(self) -> None:
        """Remove what earlier audits have kept, when this one is recorded."""
        for number in self._numbers():
            if number != self._next:
                self._files.delete_file(_name(number))

    def _numbers(self) -> list[int]:
        """The numbers of the audits that have kept something."""
        entries = self._files.get_file_info(pafs.FileSelector("", recursive=False))
        matches = (_NAME.fullmatch(info.path) for info in entries)
        return [int(match[1]) for match in matches if match]

    def _read(self, number: int) -> pa.Table:
        with self._files.open_input_file(_name(number)) as file:
            rows = pq.read_table(file, schema=_COLUMNS).to_pylist()
        rows = [row for row in rows if not _is_of(row["node"], self._accounts)]
        return pa.Table.from_pylist(rows, _COLUMNS)

    def _pairs(self, files: Iterable[NewFile]) -> set[tuple[date, str]]:
        """The days and nodes of files, without forgotten accounts."""
        pairs = {(_day(file.day), node_in_name(file.path)) for file in files}
        return {
            (day, node)
            for day, node in pairs
            if day and node is not None and not _is_of(node, self._accounts)
        }


def _name(number: int) -> str:
    return f"judged-{number}.parquet"


def _day(text: str) -> date | None:
    """The day of a folder; None: there is no such day."""
    with contextlib.suppress(ValueError):
        return date.fromisoformat(text)
    return None


def _is_of(node: str, accounts: Collection[str]) -> bool:
    """Whether a node is one of these accounts, or a device of one."""
    return node.partition("/")[0] in accounts
